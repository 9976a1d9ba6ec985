"""How much work a search may be before it starts."""

from __future__ import annotations

import math

from explorer.boxes import alternative_windows, idle_parameters
from explorer.document import StudyError
from explorer.problem import Problem

MOST_ROOTS = 2_000_000
"""Boxes that a proof starts from: some 200 bytes and a tenth of a millisecond each."""

MOST_ENUMERATED = 100_000
"""Designs that are judged one by one."""


def require_enumerable(problem: Problem) -> None:
    """
    Return if a study may judge every design of its space and asks for as many trials.

    Raises
    ------
    StudyError
        With a pointer to the space, or to the trials.
    """
    n_designs, trials = problem.space.n_designs, problem.document.search.trials
    if n_designs > MOST_ENUMERATED:
        detail = (
            f"must hold at most {MOST_ENUMERATED} designs for the sampler 'exhaustive', which judges each one,"
            f" got {float(n_designs):.2g}: narrow it, or take 'exact'"
        )
        raise StudyError([{"pointer": "/space", "detail": detail}])
    if trials < n_designs:
        detail = f"must be at least {n_designs} for the sampler 'exhaustive', one for each design, got {trials}"
        raise StudyError([{"pointer": "/search/trials", "detail": detail}])


def require_few_roots(problem: Problem) -> None:
    """
    Return if a proof can start: its first boxes are one for every combination of categories, plans and mixes.

    Raises
    ------
    StudyError
        With a pointer to the space and the number of boxes.
    """
    idle = idle_parameters(problem)
    enumerated = [p for p in problem.space.parameters if not (p.ordered or p.joined or p.name in idle)]
    n_windows = len(alternative_windows(problem))
    n_roots = math.prod(len(p.values) for p in enumerated) * n_windows
    if n_roots > MOST_ROOTS:
        rows = ", ".join(f"{p.name} ({len(p.values)} values)" for p in enumerated if len(p.values) > 1)
        detail = (
            f"must start a proof from at most {MOST_ROOTS} boxes, got {n_roots}, one for each of {n_windows} plans and"
            f" mixes and each combination of {rows}: narrow these, or take the sampler 'tpe'"
        )
        raise StudyError([{"pointer": "/space", "detail": detail}])
