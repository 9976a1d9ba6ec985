"""List of GEMMs -> the program of one pass over it."""

from __future__ import annotations

import numpy as np

from models.architectures.gemm_list import GemmShapes
from models.checks import FloatArray
from models.operators.factor_tables import compress
from models.operators.step import Term, step_program, term
from models.precision.mix import precision_mix
from models.throughput.scenario import GemmListScenario
from models.throughput.work import CompiledWork, LinearFormats, linear_formats

MODULE = "ffn_down"
"""Module of a mix that rows without a format follow."""

FOLLOWS_MIX = ""
"""Format of a row that names none."""

MAX_DISTINCT = 2000
"""Most different GEMMs of one list; equal ones are counted."""


def compile_gemm_list(scenario: GemmListScenario) -> CompiledWork:
    """
    Return the program of one pass over the list on one chip; chips make passes of their own.

    Operands come from main memory and results go there unless they fit the shared buffer. A row's stated format is
    that of both its operands; rows without one follow each mix in turn, which are the alternatives.

    Raises
    ------
    ValueError
        If no mix is allowed or the list holds too many different GEMMs.
    """
    if not scenario.mixes:
        raise ValueError("a gemm_list scenario needs at least one precision mix")
    free = FOLLOWS_MIX in scenario.gemms.formats
    mixes = np.arange(len(scenario.mixes) if free else 1)
    terms = [_term(scenario, mixes, i, *row) for i, row in enumerate(_distinct(scenario.gemms))]
    return CompiledWork(
        scenario,
        "gemm_list",
        step_program(terms, overhead_s=0.0, calibration=scenario.calibration),
        units_per_step=float(scenario.system.n_chips),
        tokens_per_unit=1.0,
        idle_ratio=np.zeros(len(mixes)),
        memory_bytes=np.max([_operand_bytes(each) for each in terms], axis=0),
        choices={"mix": mixes},
        window_key=np.zeros(len(mixes), dtype=np.int64),
    )


def _distinct(gemms: GemmShapes) -> list[tuple[str, FloatArray, float]]:
    """Format, (m, n, k, batch) and count of each different GEMM."""
    names = sorted(set(gemms.formats))
    code = np.array([names.index(name) for name in gemms.formats], dtype=np.float64)
    sizes, index = compress(code=code, m=gemms.m, n=gemms.n, k=gemms.k, batch=gemms.batch)
    count = np.bincount(index, weights=gemms.count)
    if len(count) > MAX_DISTINCT:
        raise ValueError(f"a gemm_list must hold at most {MAX_DISTINCT} different GEMMs, got {len(count)}")
    rows = np.stack([sizes[name] for name in ("m", "n", "k", "batch")], axis=1)
    return [(names[int(c)], row, float(n)) for c, row, n in zip(sizes["code"], rows, count, strict=True)]


def _term(
    scenario: GemmListScenario, mixes: np.ndarray, position: int, format_name: str, sizes: FloatArray, count: float
) -> Term:
    formats = _formats(scenario, format_name)
    m, n, k, batch = sizes
    activation = formats.activation_bytes[mixes]
    return term(
        f"gemm_{position}", "gemm", format_name or MODULE, count,
        m=m, n=n, k=k, weight_bytes=formats.weight_bytes[mixes], input_bytes=activation, output_bytes=activation,
        rate_class=formats.rate_class[mixes], weight_native=formats.weight_native[mixes],
        weight_class=formats.weight_class[mixes], dequant_ops=formats.dequant_ops[mixes],
        instances=batch, copies=1.0, useful_fraction=1.0,
    )  # fmt: skip


def _formats(scenario: GemmListScenario, format_name: str) -> LinearFormats:
    """Formats of a row under each mix; a stated one is that of both operands under all of them."""
    if format_name == FOLLOWS_MIX:
        return linear_formats(scenario.mixes, MODULE)
    stated = precision_mix(format_name, weights={MODULE: format_name}, activations={MODULE: format_name})
    return linear_formats((stated,) * len(scenario.mixes), MODULE)


def _operand_bytes(each: Term) -> FloatArray:
    """Operands and result of one GEMM, by alternative [B]."""
    c = each.columns
    m, n, k = c["m"], c["n"], c["k"]
    sizes = n * k * c["weight_bytes"] + m * k * c["input_bytes"] + m * n * c["output_bytes"]
    return np.asarray((sizes * c["instances"])[each.index])
