"""Published serving throughput: static batches, first tokens, in-flight runs of dense and of routed networks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from models.checks import FloatArray
from models.fidelity.grouped import with_skipped
from models.fidelity.ranking import ranking_report
from models.fidelity.report import GroupReport, TableReader, error_statistics
from models.fidelity.rows import designs_of_chips
from models.fidelity.serving_rows import ServingRows, lowered, serving_rows
from models.operators.factor_tables import FactorTables
from models.serving.engines import Engines
from models.serving.offline import RunTime, first_token, queued_run, static_batch
from models.tables import constants

QUANTITY = "run_time"
"""Seconds of the whole run, or to the first token: the rows' throughput is requests x output tokens over it."""

NOTES = {
    "static": "no kernel or serving constant knows the row's chip or version; host time of a step is global",
    "in_flight": "rows with little room for the cache follow memory estimates of 1 GB; requests of a run from memory",
    "moe": "uniform routing; 4-bit experts on chips without native fp4 are read narrow and multiplied wide",
}


def serving_reports(path: Path) -> Iterable[GroupReport]:
    """
    Return one report per group, chip and format, and the ranking of chips for equal work.

    Raises
    ------
    TableError
        If the file is not such a table.
    """
    rows = serving_rows(path)
    predicted = predicted_runs(rows)
    keys = sorted(
        set(zip(rows.group.tolist(), rows.chip_id.tolist(), rows.rows.text("dtype_weights").tolist(), strict=True))
    )
    reports = [_report(rows, predicted, key) for key in keys]
    reports = with_skipped(reports, rows.rows.table, list(rows.rows.skipped), QUANTITY)
    return [*reports, *_rankings(rows, predicted)]


def _report(rows: ServingRows, predicted: RunTime, key: tuple[str, str, str]) -> GroupReport:
    group, chip_id, dtype = key
    own = (rows.group == group) & (rows.chip_id == chip_id) & (rows.rows.text("dtype_weights") == dtype)
    fits = own & np.isfinite(predicted.time_s)
    unfit = int(own.sum() - fits.sum())
    statistics = error_statistics(predicted.time_s[fits], rows.measured_s[fits], roofline=predicted.bound_s[fits])
    return GroupReport(
        table=rows.rows.table,
        group=group,
        device=chip_id,
        dtype=dtype,
        quantity=QUANTITY,
        constants="global",
        rows=int(fits.sum()),
        skipped=[{"reason": "the network does not fit by the model's memory estimate", "rows": unfit}] if unfit else [],
        note=NOTES.get(group, ""),
        **statistics,  # type: ignore[arg-type]
    )


def _rankings(rows: ServingRows, predicted: RunTime) -> list[GroupReport]:
    """Whether chips are ordered as measured where network, lengths, version and kind of run are equal."""
    work = ["|".join(parts) for parts in zip(
        rows.network.tolist(), rows.rows.text("input_tokens").tolist(), rows.rows.text("output_tokens").tolist(),
        rows.rows.text("version").tolist(), strict=True,
    )]  # fmt: skip
    per_chip_s = [times * rows.n_chips / _sequences(rows) for times in (predicted.time_s, rows.measured_s)]
    names = [g for g in ("static", "first_token", "in_flight", "moe") if (rows.group == g).any()]
    reports = []
    for name in names:
        own = (rows.group == name) & np.isfinite(predicted.time_s)
        reports.append(
            ranking_report(
                rows.rows.table, name, np.array(work)[own], rows.chip_id[own], per_chip_s[0][own], per_chip_s[1][own]
            )
        )
    return reports


def _sequences(rows: ServingRows) -> FloatArray:
    return np.where(np.isin(rows.group, ("static", "first_token")), rows.batch, rows.n_requests)


def predicted_runs(rows: ServingRows) -> RunTime:
    """Predicted time, bound and batch of every row, arrays of shape (n_rows,)."""
    found = RunTime(*(np.full(len(rows.mix), np.nan) for _ in range(3)))
    for name in np.unique(rows.network):
        tables = FactorTables()
        for groups in (("first_token",), ("static",), ("in_flight", "moe")):
            own = np.flatnonzero((rows.network == name) & np.isin(rows.group, groups))
            if own.size:
                run = _run(groups[0], rows.take(own), tables)
                found.time_s[own], found.bound_s[own], found.batch[own] = run.time_s, run.bound_s, run.batch
    return found


def _run(group: str, rows: ServingRows, tables: FactorTables) -> RunTime:
    """Rows of one network and one kind of run."""
    engines = row_engines(rows, scheduled=group == "in_flight")
    if group == "first_token":
        return first_token(engines, rows.prompt_tokens, tables)
    if group == "static":
        return static_batch(engines, rows.batch, rows.prompt_tokens, rows.output_tokens, tables)
    return queued_run(engines, rows.n_requests, rows.prompt_tokens, rows.output_tokens, rows.most_sequences, tables)


def row_engines(rows: ServingRows, *, scheduled: bool) -> Engines:
    """The engines of rows of one network."""
    return Engines(
        network=lowered(str(rows.network[0])),
        mixes=rows.mixes,
        designs=designs_of_chips(rows.chip_id),
        mix=rows.mix,
        tensor_parallel=rows.tensor_parallel.astype(np.int64),
        pipeline_parallel=rows.pipeline_parallel,
        attention_data_parallel=rows.attention_data_parallel,
        decode_on_lanes=rows.on_lanes,
        step_overhead_s=constants("launch")["step_overhead_s"],
        host_sharing_exponent=float(rows.host_sharing_exponent[0]),
        scheduled=scheduled,
    )


TABLES: dict[str, TableReader] = {"serving_throughput*.csv": serving_reports}
