"""What a step program asks of a design, whatever the design: number classes and links."""

from __future__ import annotations

import numpy as np

from models.checks import IntArray
from models.operators.step import StepProgram
from models.precision.promotion import NO_CLASS, class_code


def used_classes(program: StepProgram, alternatives: IntArray) -> frozenset[int]:
    """
    Return the codes of the number classes that operands of some alternatives have; bf16 is always among them.

    Parameters
    ----------
    program : StepProgram
    alternatives : array of shape (n_some,)
        Positions in the program's alternatives.
    """
    found = {class_code("bf16")}
    for each in program.terms:
        column = np.unique(each.index[alternatives])
        for name, values in each.columns.items():
            if name.endswith(("_class", "_native")):
                found |= {int(code) for code in np.unique(values[column])}
    return frozenset(found - {NO_CLASS})


def used_links(program: StepProgram, alternatives: IntArray) -> frozenset[str]:
    """Return the links that some of the alternatives send over: scale_up, scale_out."""
    found = set()
    for each in (t for t in program.terms if t.kind == "collective"):
        column = each.index[alternatives]
        talking = (each.columns["n_chips"][column] > 1) & (each.count[alternatives] > 0)
        leaves = each.columns["scale_out"][column] > 0
        found |= {"scale_out"} if np.any(talking & leaves) else set()
        found |= {"scale_up"} if np.any(talking & ~leaves) else set()
    return frozenset(found)
