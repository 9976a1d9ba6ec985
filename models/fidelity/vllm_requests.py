"""Requests of real vLLM runs, replayed one by one: time to first token, time per token, end to end."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.architectures.plans import ParallelPlan
from models.checks import FloatArray
from models.fidelity.grouped import with_skipped
from models.fidelity.report import GroupReport, TableError, TableReader, error_statistics
from models.fidelity.rows import MeasuredRows, designs_of_chips, read_measured, with_known_devices
from models.fidelity.rows import chip_id_of_rows as chip_ids
from models.fidelity.serving_rows import lowered
from models.hardware.design import DesignBatch, peak_flop_per_s, replace
from models.precision.mix import recipe
from models.serving.capacity import weight_bytes_per_chip
from models.serving.design_step import EngineOperation, engine_limits, engine_step_times
from models.serving.engine_step import BatchLimits, StepTime
from models.serving.replay import Replay, replay
from models.tables import DATA, constants, read_rows
from models.workload.distribution import observed_distribution, request_moments
from models.workload.requests import Requests

COLUMNS = (
    "device", "model", "tp", "max_num_seqs", "max_num_batched_tokens", "arrival_ms", "input_tokens", "output_tokens",
    "ttft_ms", "e2e_ms", "tpot_ms",
)  # fmt: skip
QUANTITIES = {"ttft": "ttft_ms", "tpot": "tpot_ms", "end_to_end": "e2e_ms"}
"""Quantity of a replay -> its column."""
REPORTED_AS = {"end_to_end": "e2e"}
SCHEDULED_AHEAD = True
"""vLLM puts the next step together while one runs."""
RESERVED_OUTPUT_FRACTION = 0.5
"""vLLM sets no memory aside for answers: those that run are half done on average."""
MIX = "bf16"
"""Formats of all logged runs."""


@dataclass(frozen=True)
class Setup:
    """One logged run: its rows in order of arrival, and the engine that served it."""

    rows: MeasuredRows
    model: str
    chip_id: str
    operation: EngineOperation
    designs: DesignBatch
    token_budget: int
    max_sequences: int
    requests: Requests


def request_reports(path: Path, quantity: str) -> Iterable[GroupReport]:
    """
    Return one report per run of one quantity over its requests.

    Raises
    ------
    TableError
        If the file is not such a table.
    """
    rows = with_known_devices(read_measured(path, COLUMNS))
    known = np.isin(rows.text("model"), list(_stated()))
    names, counts = np.unique(rows.text("model")[~known], return_counts=True)
    skipped = [
        *rows.skipped,
        *({"reason": f"network '{n}' is not known", "rows": int(c)} for n, c in zip(names, counts, strict=True)),
    ]
    kept = rows.take(known)
    keys = sorted(
        set(zip(kept.text("model").tolist(), kept.text("device").tolist(), kept.text("tp").tolist(), strict=True))
    )
    reports = [_report(_setup(kept, key), quantity) for key in keys]
    return with_skipped(reports, rows.table, skipped, quantity) if skipped else reports


@functools.cache
def _stated() -> Mapping[str, dict[str, str]]:
    return {row["model"]: row for row in read_rows(DATA / "serving_setups.csv")}


def _setup(rows: MeasuredRows, key: tuple[str, str, str]) -> Setup:
    model, device, degree = key
    own = (rows.text("model") == model) & (rows.text("device") == device) & (rows.text("tp") == degree)
    part = rows.take(own)
    part = part.take(np.argsort(part.number("arrival_ms", or_zero=True), kind="stable"))
    stated = _stated()[model]
    requests = Requests(
        arrival_s=part.number("arrival_ms", or_zero=True) * 1e-3,
        input_tokens=part.number("input_tokens"),
        output_tokens=part.number("output_tokens"),
        cached_prefix_tokens=np.zeros(len(part)),
    )
    designs = designs_of_chips(chip_ids(part)[:1])
    if stated["host_bytes_per_s"]:
        designs = replace(designs, host_bytes_per_s=float(stated["host_bytes_per_s"]))
    operation = EngineOperation(
        network=lowered(stated["network"]),
        mix=recipe(MIX),
        plan=ParallelPlan(int(degree)),
        requests=request_moments(observed_distribution(requests)),
        step_overhead_s=constants("launch")["step_overhead_s"],
        routing_skew=float(stated["zipf_exponent"] or 0.0),
    )
    return Setup(
        part, model, str(chip_ids(part)[0]), operation, designs,
        token_budget=_whole(part, "max_num_batched_tokens"),
        max_sequences=int(stated["max_sequences"] or _whole(part, "max_num_seqs")),
        requests=requests,
    )  # fmt: skip


def _whole(rows: MeasuredRows, column: str) -> int:
    """A setting that is one number for all rows of a run."""
    values = np.unique(rows.number(column))
    if len(values) != 1:
        rule = f"{column} must be the same in all rows of a run, got {', '.join(f'{v:g}' for v in values)}"
        raise TableError(rule, rows.file, int(rows.lines[0]), column)
    return int(values[0])


def replayed(setup: Setup) -> tuple[Replay, Replay]:
    """The run as predicted, and as the data-sheet rates alone allow."""
    step = engine_step_times(setup.operation, setup.designs)[0]
    limits = engine_limits(
        setup.operation, setup.designs, token_budget=setup.token_budget, max_sequences=setup.max_sequences
    )[0]
    limits = dataclasses.replace(
        limits, scheduled_ahead=SCHEDULED_AHEAD, reserved_output_fraction=RESERVED_OUTPUT_FRACTION
    )
    return replay(setup.requests, step, limits), replay(setup.requests, _bound_step(setup), _wide(limits))


def _bound_step(setup: Setup) -> StepTime:
    """Weights and cache at the full bandwidth, multiplications at the peak, nothing else."""
    network, degree = setup.operation.network, setup.operation.plan.tensor_parallel
    bandwidth = float(setup.designs.memory_bandwidth_bytes_per_s[0])
    peak = float(peak_flop_per_s(setup.designs)[0]) * degree
    weights = float(weight_bytes_per_chip(network, [degree], [setup.operation.mix])[0, 0])
    met = weights * network.n_active_parameters / network.n_parameters
    tokens = np.array([0.0, *(2.0 ** np.arange(15))])
    linear_s = np.maximum(2.0 * network.n_active_parameters * tokens / peak, met / bandwidth)
    cached = sum(a.kv_elements_per_token * a.count for a in network.attentions if a.cached)
    context_s = cached * setup.operation.mix.kv_bits / 8.0 / degree / bandwidth
    pair_s = sum(2.0 * a.n_heads * (a.head_dim_qk + a.head_dim_v) * a.count for a in network.attentions) / peak
    return StepTime(tokens, linear_s, np.zeros_like(tokens), 0.0, 0.0, context_s, pair_s, 0.0)


def _wide(limits: BatchLimits) -> BatchLimits:
    return BatchLimits(limits.token_budget, limits.max_sequences, 1e12)


def _report(setup: Setup, quantity: str) -> GroupReport:
    predicted, bound = (_values(run, quantity) for run in replayed(setup))
    measured = setup.rows.number(QUANTITIES[quantity], or_empty=True, or_zero=True) * 1e-3
    told = (measured > 0) & np.isfinite(predicted)
    untold = int((~told).sum())
    statistics = error_statistics(predicted[told], measured[told], roofline=bound[told])
    return GroupReport(
        table=setup.rows.table,
        group=setup.model,
        device=setup.chip_id,
        dtype=MIX,
        quantity=REPORTED_AS.get(quantity, quantity),
        constants="global",
        rows=int(told.sum()),
        skipped=[{"reason": f"no {quantity}: one token, or larger than the memory", "rows": untold}] if untold else [],
        note="replay of all requests; host rate, routing skew and most sequences are stated inputs where not empty",
        **statistics,  # type: ignore[arg-type]
    )


def _values(run: Replay, quantity: str) -> FloatArray:
    return np.asarray(getattr(run, f"{quantity}_s"), dtype=np.float64)


def _reader(quantity: str) -> dict[str, TableReader]:
    return {"llmservingsim_vllm_requests*.csv": functools.partial(request_reports, quantity=quantity)}


TTFT_TABLES, TPOT_TABLES, END_TO_END_TABLES = (_reader(name) for name in QUANTITIES)
TABLES = END_TO_END_TABLES
