"""Refits the constants of GEMM time on measured tables: `python -m models.fidelity.fit_gemm DIR` rewrites the files."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from models.checks import FloatArray
from models.fidelity.gemm_prediction import SourceConstants, predicted_latency_s
from models.fidelity.gemm_rows import GemmRows, read_gemm_rows
from models.operators.gemm_constants import GemmConstants
from models.tables import DATA, read_rows

ROWS_PER_GROUP = 600
SMALLEST_SIDE = 512
SEED = 20250101
SOFT_LOSS_SCALE = 0.05
"""Log ratio beyond which a row counts linearly and no longer by its square."""
SOURCE_FIELDS = tuple(field.name for field in dataclasses.fields(SourceConstants))
MODEL_FIELDS = tuple(field.name for field in dataclasses.fields(GemmConstants))


@dataclasses.dataclass(frozen=True)
class Bound:
    """Start value and range of one free constant, all in the unit of its row."""

    start: float
    low: float
    high: float


BF16_CONSTANTS: Mapping[str, Bound] = {
    "memory_efficiency_fraction": Bound(0.8, 0.5, 1.0),
    "tile_cycles": Bound(1500.0, 0.0, 6000.0),
    "tile_cycles_without_bulk_copy": Bound(1500.0, 0.0, 6000.0),
    "wave_rounding_fraction": Bound(0.1, 0.0, 1.0),
    "wave_rounding_fraction_without_bulk_copy": Bound(0.4, 0.0, 1.0),
    "kernel_start_cycles": Bound(3000.0, 0.0, 12000.0),
    "kernel_start_cycles_without_bulk_copy": Bound(4500.0, 0.0, 12000.0),
    "split_cost_ratio": Bound(2.0, 0.2, 20.0),
    "l2_effective_ratio": Bound(1.0, 0.5, 1.5),
    "memory_ramp_s": Bound(1e-6, 0.0, 5e-6),
    "energy_j_per_flop": Bound(1e-12, 0.1e-12, 3e-12),
    "energy_array_exponent": Bound(0.2, 0.0, 1.0),
    "operand_path_elements": Bound(20.0, 2.0, 60.0),
    "operand_exposed_fraction": Bound(0.6, 0.05, 1.0),
    "least_cycles_per_k": Bound(1.5, 0.0, 12.0),
    "reused_memory_efficiency_fraction": Bound(0.88, 0.5, 1.0),
    "reused_memory_ramp_s": Bound(0.3e-6, 0.0, 5e-6),
    "graph_replay_start_s": Bound(0.8e-6, 0.0, 5e-6),
    "kernel_trace_start_s": Bound(2e-6, 0.0, 9e-6),
}
NARROW_CONSTANTS: Mapping[str, Bound] = {
    "rate_loss_exponent": Bound(0.15, 0.0, 0.6),
    "rate_loss_exponent_beyond_double": Bound(0.15, 0.0, 0.6),
    "fp8_quantisation_start_s": Bound(10e-6, 0.0, 20e-6),
    "fp8_quantisation_cycles_per_element": Bound(0.5, 0.0, 4.0),
    "quantisation_passes_ratio": Bound(1.0, 0.0, 6.0),
    "fp4_slice_ratio": Bound(1.0, 0.2, 6.0),
    "fp4_quantisation_start_s": Bound(10e-6, 0.0, 20e-6),
    "fp4_quantisation_cycles_per_element": Bound(0.5, 0.0, 4.0),
}
FLOOR_CONSTANTS: Mapping[str, Bound] = {
    "host_timer_start_s": Bound(22e-6, 0.0, 60e-6),
    "kernel_bench_start_s": Bound(1e-6, 0.0, 9e-6),
}
STAGES = {"bf16": BF16_CONSTANTS, "narrow": NARROW_CONSTANTS, "floor": FLOOR_CONSTANTS}
"""What is fitted in turn, each stage to its own groups of rows and with the constants of the stages before."""
MOST_EVALUATIONS = 30


def fit_groups(directory: Path) -> list[GemmRows]:
    """Return sub-sampled rows of each (device, source, dtype) that the constants are fitted to."""
    rng = np.random.default_rng(SEED)
    groups = []
    globs = ("aic_gemm_*.csv", "vidur_linear_*.csv", "llmcompass_gemm*.csv", "infersim_gemm*.csv")
    for path in sorted(path for glob in globs for path in directory.rglob(glob)):
        if path.name.startswith("aic_gemm_power"):
            continue
        rows = read_gemm_rows(path)
        for chip, dtype in sorted(set(zip(rows.chip, rows.dtype, strict=True))):
            here = (rows.chip == chip) & (rows.dtype == dtype) & (np.minimum(rows.n, rows.k) >= SMALLEST_SIDE)
            index = np.flatnonzero(here)
            if len(index) > ROWS_PER_GROUP:
                index = np.sort(rng.choice(index, ROWS_PER_GROUP, replace=False))
            groups.append(rows.take(index))
    return [group for group in groups if group_stage(group)]


@functools.cache
def _listed_groups() -> dict[tuple[str, str, str], dict[str, str]]:
    rows = read_rows(DATA / "gemm_fit_groups.csv")
    return {(row["table"], row["chip"], row["dtype"]): row for row in rows}


def _listed(group: GemmRows) -> Mapping[str, str]:
    key = (group.table, str(group.chip[0]), str(group.dtype[0]))
    return _listed_groups().get(key, {"stage": "", "weight": "0"})


def group_stage(group: GemmRows) -> str:
    """Stage of the fit that learns from a group, as listed in `gemm_fit_groups.csv`; empty where none does."""
    return _listed(group)["stage"]


def fit(groups: Sequence[GemmRows], base: Mapping[str, float], most_evaluations: int) -> dict[str, float]:
    """Return all constants, fitted stage by stage; a constant that no group shows keeps its value."""
    values = dict(base)
    for stage, free in STAGES.items():
        chosen = [group for group in groups if group_stage(group) == stage]
        if chosen:
            values = _fit_some(chosen, values, free, most_evaluations)
    return values


def predict_with(group: GemmRows, values: Mapping[str, float]) -> FloatArray:
    """Latency of a group with constants by name, shape (n_rows,) [s]."""
    used = GemmConstants(**{name: values[name] for name in MODEL_FIELDS})
    added = SourceConstants(**{name: values[name] for name in SOURCE_FIELDS})
    return predicted_latency_s(group, used, added)


def _fit_some(
    groups: Sequence[GemmRows], values: dict[str, float], free: Mapping[str, Bound], most_evaluations: int
) -> dict[str, float]:
    """Least soft-L1 log ratio: every source of data weighs alike, and within it every die."""
    low = np.array([bound.low for bound in free.values()])
    span = np.array([bound.high - bound.low for bound in free.values()])
    begin = (np.array([values[name] for name in free]) - low) / span

    def residual(share: FloatArray) -> FloatArray:
        trial = values | dict(zip(free, low + share * span, strict=True))
        return np.concatenate([np.log(predict_with(group, trial) / group.latency_s) for group in groups])

    weight = _row_weights(groups)

    def weighted(share: FloatArray) -> FloatArray:
        ratio = residual(share) / SOFT_LOSS_SCALE
        loss = 2.0 * (np.sqrt(1.0 + ratio * ratio) - 1.0)
        return np.asarray(np.sign(ratio) * np.sqrt(weight * loss))

    solution = least_squares(
        weighted,
        np.clip(begin, 1e-3, 1 - 1e-3),
        bounds=(0.0, 1.0),
        x_scale=0.1,
        diff_step=1e-3,
        max_nfev=most_evaluations,
    )
    return values | {name: float(v) for name, v in zip(free, low + solution.x * span, strict=True)}


def _row_weights(groups: Sequence[GemmRows]) -> FloatArray:
    """Weight of every row: sources alike, groups within a source by their listed weight, rows of a group alike."""
    listed = np.array([float(_listed(group)["weight"]) for group in groups])
    source = np.array([group.source.start for group in groups])
    share = [weight / listed[source == name].sum() for weight, name in zip(listed, source, strict=True)]
    return np.concatenate([np.full(len(g.m), part / len(g.m)) for g, part in zip(groups, share, strict=True)])


def write_constants(name: str, values: Mapping[str, float], groups: Sequence[GemmRows]) -> None:
    """Rewrite `models/data/constants/<name>.csv`, each fitted row with what it was fitted to and the residual."""
    template = read_rows(DATA / "constants" / "gemm.csv")
    stage_of = {constant: stage for stage, free in STAGES.items() for constant in free}
    lines = ["name,value,unit,source,note"]
    for row in template:
        note = row["note"]
        if row["name"] in stage_of:
            stage = stage_of[row["name"]]
            note = _residual_note([group for group in groups if group_stage(group) == stage], values)
        lines.append(f"{row['name']},{values[row['name']]:.6g},{row['unit']},{row['source']},{note}")
    (DATA / "constants" / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _residual_note(groups: Sequence[GemmRows], values: Mapping[str, float]) -> str:
    """What a set was fitted to: chips and mean absolute error of each group."""
    parts = []
    for group in groups:
        error = np.mean(np.abs(predict_with(group, values) / group.latency_s - 1.0))
        parts.append(f"{group.table} {group.chip[0]} {group.dtype[0]} {100 * error:.1f} %")
    return f"fitted to up to {ROWS_PER_GROUP} rows each; mean absolute error " + "; ".join(parts)


def main(directory: Path) -> None:
    """Fit the global set and one set without each chip, all from the same neutral start, and rewrite their files."""
    groups = fit_groups(directory)
    base = {row["name"]: float(row["value"]) for row in read_rows(DATA / "constants" / "gemm.csv")}
    start = {name: bound.start for free in STAGES.values() for name, bound in free.items()}
    values = fit(groups, base | start, MOST_EVALUATIONS)
    write_constants("gemm", values, groups)
    for chip in sorted({str(group.chip[0]) for group in groups}):
        others = [group for group in groups if group.chip[0] != chip]
        write_constants(f"gemm_without_{chip}", fit(others, base | start, MOST_EVALUATIONS), others)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
