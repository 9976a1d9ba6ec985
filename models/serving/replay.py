"""What users feel: latency percentiles, load and goodput of a trace replayed through continuous batching."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.checks import BoolArray, FloatArray, require_positive
from models.serving.engine_step import (
    BatchLimits,
    StepTime,
    attention_coefficients_s,
    dense_times_s,
    sustainable_rate_per_s,
)
from models.serving.replay_kernel import (
    AT_MAX_STEPS,
    AT_MAX_TIME,
    DECODES,
    FINISHED,
    GAP_BINS_PER_E,
    KV_TOKENS,
    N_GAP_BINS,
    OUTPUT_TOKENS,
    SHORTEST_GAP_S,
    TIME,
    WAITING,
    compiled_replay_steps,
)
from models.workload.requests import Requests

DEFAULT_MAX_STEPS = 20_000_000
DEFAULT_MAX_TIME_S = 1e7
TIMELINE_POINTS = 256
_ENDS: Mapping[int, str | None] = {FINISHED: None, AT_MAX_STEPS: "max_steps", AT_MAX_TIME: "max_time_s"}


@dataclass(frozen=True)
class Timeline:
    """
    State of the engine at evenly spaced steps, arrays of shape (n_points,).

    Time [s], running sequences, waiting requests, reserved KV [tokens], output rate since the point before [tokens/s].
    """

    time_s: FloatArray
    decodes: FloatArray
    waiting: FloatArray
    kv_tokens: FloatArray
    output_tokens_per_s: FloatArray


@dataclass(frozen=True)
class Replay:
    """
    Latencies of each request, arrays of shape (n,), and of the run as a whole.

    `ttft_s` is from arrival to the first token, `tpot_s` the mean gap between later tokens (NaN for one token),
    `queue_s` from arrival to admission. A request larger than the KV capacity is refused (NaN throughout). Where the
    replay stopped at a bound, requests still under way have the time they had waited by then, a lower bound.
    `load` is the rate over the largest sustainable rate, both None for requests that arrive all at once. `saturated`
    says that the load is 1 or more or that the replay stopped at the bound `stopped_at`: percentiles then depend on
    how long the trace is.
    """

    ttft_s: FloatArray
    tpot_s: FloatArray
    end_to_end_s: FloatArray
    queue_s: FloatArray
    served: BoolArray
    rate_per_s: float | None
    load: float | None
    sustainable_rate_per_s: float
    makespan_s: float
    output_tokens_per_s: float
    saturated: bool
    stopped_at: str | None
    n_refused: int
    n_steps: int
    inter_token_p50_s: float | None
    inter_token_p99_s: float | None
    timeline: Timeline


def replay(
    requests: Requests,
    step: StepTime,
    limits: BatchLimits,
    *,
    max_steps: int = DEFAULT_MAX_STEPS,
    max_time_s: float = DEFAULT_MAX_TIME_S,
) -> Replay:
    """
    Replay requests through continuous batching, with work per step that does not depend on the batch.

    Each step takes all decodes, then the unfinished prompt, then new prompts in order of arrival while tokens,
    sequences and KV allow. KV is reserved at admission, so nothing is ever preempted and all decodes advance together.

    Parameters
    ----------
    requests : Requests
        Of shape (n,). Without arrivals all of them wait at time 0.
    step : StepTime
    limits : BatchLimits
    max_steps, max_time_s : int, float
        Where the replay stops at the latest. [steps], [s]

    Returns
    -------
    Replay

    Raises
    ------
    ValueError
        If a bound is not positive.

    Examples
    --------
    One prompt of 100 tokens and an answer of 3 on an engine with 10 ms steps.

    >>> step = StepTime(np.array([0.0, 512.0]), np.full(2, 0.01), np.zeros(2), 0, 0, 0, 0, 0)
    >>> result = replay(Requests(None, *np.array([[100.0], [3.0], [0.0]])), step, BatchLimits(512, 8, 4096))
    >>> result.ttft_s, result.end_to_end_s
    (array([0.01]), array([0.03]))
    """
    require_positive("max_steps", max_steps, "steps")
    require_positive("max_time", max_time_s, "s")
    prompt = np.maximum(requests.input_tokens - requests.cached_prefix_tokens, 1.0)
    arrival_s = np.zeros(requests.n) if requests.arrival_s is None else requests.arrival_s - requests.arrival_s[0]
    run = run_engine(
        arrival_s,
        prompt,
        requests.input_tokens - prompt,
        requests.output_tokens - 1.0,
        requests.input_tokens + limits.reserved_output_fraction * requests.output_tokens,
        step,
        limits,
        max_steps=max_steps,
        max_time_s=max_time_s,
    )
    return summarised_run(run, arrival_s, requests.output_tokens, sustainable_rate_per_s(requests, step, limits))


@dataclass(frozen=True)
class EngineRun:
    """
    Moments of each request on one engine, arrays of shape (n,) [s], and what the engine did.

    Requests that never fit have NaN. `clock_s` is when the engine stopped, `ending` why, `gap_weight` the tokens by the
    gap before them, `timeline` of shape (n_points, 5).
    """

    first_token_s: FloatArray
    end_s: FloatArray
    admitted_s: FloatArray
    fits: BoolArray
    clock_s: float
    ending: int
    n_steps: int
    gap_weight: FloatArray
    timeline: FloatArray


def run_engine(
    arrival_s: FloatArray,
    prompt_tokens: FloatArray,
    cached_tokens: FloatArray,
    decode_tokens: FloatArray,
    reserved_tokens: FloatArray,
    step: StepTime,
    limits: BatchLimits,
    *,
    max_steps: int = DEFAULT_MAX_STEPS,
    max_time_s: float = DEFAULT_MAX_TIME_S,
) -> EngineRun:
    """
    Run one engine over its requests with the compiled kernel.

    Parameters
    ----------
    arrival_s : array of shape (n,)
        Not decreasing. [s]
    prompt_tokens, cached_tokens, decode_tokens, reserved_tokens : arrays of shape (n,)
        Prompt left to compute (0: the request joins the decodes at once), keys already there, tokens after the first,
        KV held. [tokens]
    step, limits, max_steps, max_time_s
        As for `replay`.
    """
    fits = reserved_tokens <= limits.kv_capacity_tokens
    times_s = np.full((3, len(arrival_s)), np.nan)
    gaps, timeline = np.zeros(N_GAP_BINS), np.zeros((TIMELINE_POINTS, 5))
    if not fits.any():
        return EngineRun(times_s[0], times_s[1], times_s[2], fits, 0.0, FINISHED, 0, gaps, timeline[:0])
    filled_s = np.full((3, int(fits.sum())), np.nan)
    ending, n_steps, n_points, clock_s = compiled_replay_steps()(
        arrival_s[fits],
        prompt_tokens[fits].astype(np.int64),
        cached_tokens[fits].astype(np.int64),
        np.ceil(decode_tokens[fits] / limits.tokens_per_step - 1e-9).astype(np.int64),
        reserved_tokens[fits],
        *dense_times_s(step, limits, float(prompt_tokens[fits].max())),
        attention_coefficients_s(step),
        int(limits.token_budget),
        int(limits.max_sequences),
        float(limits.kv_capacity_tokens),
        float(limits.tokens_per_step),
        int(limits.verified_tokens),
        limits.scheduling == "whole_prompt",
        bool(limits.scheduled_ahead),
        int(max_steps),
        float(max_time_s),
        *filled_s,
        gaps,
        timeline,
    )
    times_s[:, fits] = filled_s
    first_s, end_s, admitted_s = times_s
    return EngineRun(
        first_s, end_s, admitted_s, fits, float(clock_s), int(ending), int(n_steps), gaps, timeline[:n_points]
    )


def summarised_run(run: EngineRun, arrival_s: FloatArray, output_tokens: FloatArray, sustainable: float) -> Replay:
    """
    Return latencies, load and rates of a run.

    Parameters
    ----------
    run : EngineRun
    arrival_s, output_tokens : arrays of shape (n,)
        First arrival at 0 [s], answers [tokens].
    sustainable : float
        Largest sustainable rate. [requests/s]
    """
    served = ~np.isnan(run.end_s)
    # what is still under way at a bound has waited at least until now
    first_s, end_s, admitted_s = (
        np.where(run.fits & np.isnan(t), np.maximum(run.clock_s, arrival_s), t)
        for t in (run.first_token_s, run.end_s, run.admitted_s)
    )
    later = output_tokens - 1.0
    duration_s, n = float(arrival_s[-1]), len(arrival_s)
    rate_per_s = (n - 1) / duration_s if duration_s > 0 else None
    load = None if rate_per_s is None or sustainable == 0 else rate_per_s / sustainable
    stopped_at = _ENDS[run.ending] if run.fits.any() else "kv_capacity_tokens"
    p50_s, p99_s = (_gap_quantile_s(run.gap_weight, fraction) for fraction in (0.5, 0.99))
    return Replay(
        ttft_s=first_s - arrival_s,
        tpot_s=np.divide(end_s - first_s, later, out=np.full(n, np.nan), where=later > 0),
        end_to_end_s=end_s - arrival_s,
        queue_s=admitted_s - arrival_s,
        served=served,
        rate_per_s=rate_per_s,
        load=load,
        sustainable_rate_per_s=sustainable,
        makespan_s=run.clock_s,
        output_tokens_per_s=float(output_tokens[served].sum() / run.clock_s) if run.clock_s > 0 else 0.0,
        saturated=stopped_at is not None or (load is not None and load >= 1.0),
        stopped_at=stopped_at,
        n_refused=int((~run.fits).sum()),
        n_steps=run.n_steps,
        inter_token_p50_s=p50_s,
        inter_token_p99_s=p99_s,
        timeline=_timeline(run.timeline),
    )


def replay_summary(result: Replay) -> dict[str, Any]:
    """
    Return percentiles, jitter, load and rates of a replay as one JSON object; None where nothing was served.

    Keys are `ttft_p50_s` ... `end_to_end_p99_s`, `ttft_jitter_ratio` (p99 over p50) and so on.
    """
    summary: dict[str, Any] = {}
    for name in ("ttft", "tpot", "end_to_end", "queue"):
        values = getattr(result, f"{name}_s")
        values = values[np.isfinite(values)]
        at = np.quantile(values, [0.5, 0.95, 0.99]).tolist() if values.size else [None] * 3
        summary |= dict(zip((f"{name}_p50_s", f"{name}_p95_s", f"{name}_p99_s"), at, strict=True))
        summary[f"{name}_jitter_ratio"] = at[2] / at[0] if at[0] else None
    plain = ("rate_per_s", "load", "sustainable_rate_per_s", "makespan_s", "output_tokens_per_s", "saturated")
    more = ("stopped_at", "n_refused", "n_steps", "inter_token_p50_s", "inter_token_p99_s")
    summary |= {name: getattr(result, name) for name in plain + more}
    gap_s = result.inter_token_p50_s
    summary["inter_token_jitter_ratio"] = (
        result.inter_token_p99_s / gap_s if gap_s and result.inter_token_p99_s else None
    )
    return summary


def _gap_quantile_s(weight: FloatArray, fraction: float) -> float | None:
    """Gap between tokens below which a fraction of them lies, None without gaps."""
    reached = np.cumsum(weight)
    if reached[-1] == 0:
        return None
    index = int(np.searchsorted(reached, fraction * reached[-1]))
    return float(SHORTEST_GAP_S * np.exp((index + 0.5) / GAP_BINS_PER_E))


def _timeline(points: FloatArray) -> Timeline:
    elapsed_s = np.diff(points[:, TIME], prepend=0.0)
    tokens = np.diff(points[:, OUTPUT_TOKENS], prepend=0.0)
    rate = np.divide(tokens, elapsed_s, out=np.zeros(len(points)), where=elapsed_s > 0)
    return Timeline(points[:, TIME], points[:, DECODES], points[:, WAITING], points[:, KV_TOKENS], rate)
