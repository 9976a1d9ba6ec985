"""MLPerf Inference: Offline rows of language models, each chip against the median of its submitters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.checks import FloatArray, IntArray
from models.fidelity.ranking import ranking_report
from models.fidelity.report import GroupReport, TableReader, error_statistics
from models.fidelity.rows import (
    MeasuredRows,
    StringArray,
    chip_id_of_rows,
    designs_of_chips,
    read_measured,
    with_known_devices,
)
from models.fidelity.serving_rows import RECIPE_OF, engines, lowered
from models.hardware.design import DesignBatch
from models.operators.factor_tables import FactorTables
from models.precision.mix import recipe
from models.serving.engines import Engines
from models.serving.offline import queued_run
from models.tables import DATA, constants, read_rows

COLUMNS = ("device", "round", "benchmark", "scenario", "n_devices", "dtype_weights", "unit", "value_per_device")
OFFLINE, TOKENS = "Offline", "tokens/s"
SAMPLES = 24576.0
"""Fewest samples of a valid Offline run."""
RESERVED_OUTPUT_FRACTION = 0.5
"""Answers differ in length and end early: half of the mean is set aside."""
LARGEST_DEGREE = 8
NOTE = (
    "median over submitters; tensor parallel at the best degree that holds the network; lengths partly from memory; "
    "submitters of one chip differ by up to 42 %"
)


@dataclass(frozen=True)
class Entry:
    """One chip in one benchmark of one round."""

    round: str
    benchmark: str
    chip_id: str
    dtype: str
    n_devices: int
    n_rows: int
    measured_s: float
    """Chip seconds per generated token, from the median of the submitters."""


def mlperf_reports(path: Path) -> Iterable[GroupReport]:
    """
    Return one report per benchmark and chip, and the ranking of chips.

    Rows of other scenarios and of networks that make no tokens one by one are out of scope.

    Raises
    ------
    TableError
        If the file is not such a table.
    """
    rows = with_known_devices(read_measured(path, COLUMNS))
    scope = (rows.text("scenario") == OFFLINE) & (rows.text("unit") == TOKENS)
    scope &= np.isin(rows.text("benchmark"), list(_benchmarks()))
    entries = _entries(rows.take(scope))
    predicted, bound = predicted_chip_seconds(entries)
    measured = np.array([each.measured_s for each in entries])
    reports = [
        _report(rows.table, key, entries, predicted, bound, measured)
        for key in sorted({(e.benchmark, e.chip_id, e.dtype) for e in entries})
    ]
    rest = {"out_of_scope": int((~scope).sum()), "skipped": list(rows.skipped)}
    empty = GroupReport(rows.table, "other scenarios", "all", "", "chip_seconds_per_token", "global", rows=0, **rest)  # type: ignore[arg-type]
    work = np.array([f"{e.benchmark}|{e.round}" for e in entries], dtype=np.str_)
    chips: StringArray = np.array([e.chip_id for e in entries], dtype=np.str_)
    ranking = ranking_report(rows.table, "offline", work, chips, predicted, measured, quantity="chip_seconds_per_token")
    return [*reports, empty, ranking]


def _benchmarks() -> dict[str, dict[str, str]]:
    return {row["benchmark"]: row for row in read_rows(DATA / "mlperf_benchmarks.csv")}


def _entries(rows: MeasuredRows) -> list[Entry]:
    """One entry per round, benchmark, chip and format."""
    chip_id, formats = chip_id_of_rows(rows), _format_names(rows)
    keys = np.array([rows.text("round"), rows.text("benchmark"), chip_id, formats]).T.reshape(-1, 4)
    rate, n = rows.number("value_per_device"), rows.number("n_devices")
    entries = []
    for key in sorted({tuple(str(part) for part in row) for row in keys}):
        own = (keys == np.array(key)).all(axis=1)
        of_round, benchmark, chip, dtype = key
        median_s = 1.0 / float(np.median(rate[own]))
        entries.append(Entry(of_round, benchmark, chip, dtype, int(n[own].max()), int(own.sum()), median_s))
    return entries


def _format_names(rows: MeasuredRows) -> StringArray:
    """Weight formats as stated, and the narrowest that the chip multiplies where a round does not log them."""
    designs = designs_of_chips(chip_id_of_rows(rows))
    native = np.where(designs.fp4_rate_ratio > 0, "FP4", np.where(designs.fp8_rate_ratio > 0, "FP8", "FP16"))
    stated = np.char.upper(rows.text("dtype_weights"))
    return np.where(stated == "", native, stated).astype(np.str_)


def predicted_chip_seconds(entries: list[Entry]) -> tuple[FloatArray, FloatArray]:
    """Chip seconds per generated token and their lower bound at the best degree, shape (n_entries,) each."""
    found = np.full((2, len(entries)), np.inf)
    for benchmark in sorted({each.benchmark for each in entries}):
        own = [i for i, each in enumerate(entries) if each.benchmark == benchmark]
        found[:, own] = _benchmark_seconds(benchmark, [entries[i] for i in own])
    return found[0], found[1]


def _benchmark_seconds(benchmark: str, entries: list[Entry]) -> FloatArray:
    """Entries of one benchmark under every degree at once, the best taken, shape (2, n_entries)."""
    facts = _benchmarks()[benchmark]
    degrees = [2**i for i in range(LARGEST_DEGREE.bit_length())]
    owner, degree = np.array([(i, t) for i, e in enumerate(entries) for t in degrees if t <= e.n_devices]).T
    designs = designs_of_chips(np.array([entries[i].chip_id for i in owner], dtype=np.str_))
    formats = sorted({e.dtype for e in entries})
    mix = np.array([formats.index(entries[i].dtype) for i in owner], dtype=np.int64)
    group = _engines(facts["network"], formats, designs, mix, degree)
    ones = np.ones(len(owner))
    prompt, output = float(facts["input_tokens"]) * ones, float(facts["output_tokens"]) * ones
    most = float(next(iter(engines().values()))["most_sequences"]) * ones
    run = queued_run(
        group, SAMPLES * ones, prompt, output, most, FactorTables(), reserved_output_fraction=RESERVED_OUTPUT_FRACTION
    )
    seconds = np.stack([run.time_s, run.bound_s]) * degree / (SAMPLES * output)
    best = np.full((2, len(entries)), np.inf)
    for row, values in zip(best, seconds, strict=True):
        np.minimum.at(row, owner, values)
    return best


def _engines(network: str, formats: list[str], designs: DesignBatch, mix: IntArray, degree: IntArray) -> Engines:
    ones = np.ones(len(mix))
    return Engines(
        network=lowered(network),
        mixes=tuple(recipe(RECIPE_OF[name]) for name in formats),
        designs=designs,
        mix=mix,
        tensor_parallel=degree,
        pipeline_parallel=ones,
        attention_data_parallel=ones,
        decode_on_lanes=0.0 * ones,
        step_overhead_s=constants("launch")["step_overhead_s"],
        host_sharing_exponent=float(next(iter(engines().values()))["host_sharing_exponent"]),
    )


def _report(
    table: str,
    key: tuple[str, str, str],
    entries: list[Entry],
    predicted: FloatArray,
    bound: FloatArray,
    measured: FloatArray,
) -> GroupReport:
    benchmark, chip_id, dtype = key
    own = np.array([(e.benchmark, e.chip_id, e.dtype) == key for e in entries])
    n_rows = sum(e.n_rows for e, mine in zip(entries, own, strict=True) if mine)
    fits = own & np.isfinite(predicted)
    skipped = (
        [] if fits.any() else [{"reason": "the network does not fit by the model's memory estimate", "rows": n_rows}]
    )
    statistics = error_statistics(predicted[fits], measured[fits], roofline=bound[fits])
    return GroupReport(
        table=table,
        group=benchmark,
        device=chip_id,
        dtype=dtype,
        quantity="chip_seconds_per_token",
        constants="global",
        rows=n_rows if fits.any() else 0,
        skipped=skipped,
        note=NOTE,
        **statistics,  # type: ignore[arg-type]
    )


TABLES: dict[str, TableReader] = {"mlperf*.csv": mlperf_reports}
