"""Replay with prefill and decode on pools of their own, the KV cache sent from one to the other."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from models.checks import FloatArray, require_non_negative
from models.serving.engine_step import BatchLimits, StepTime, sustainable_rate_per_s
from models.serving.replay import EngineRun, Replay, run_engine, summarised_run
from models.workload.requests import Requests


@dataclass(frozen=True)
class Pool:
    """Equal engines that do one phase: their number, step time and limits."""

    n_engines: int
    step: StepTime
    limits: BatchLimits

    def __post_init__(self) -> None:
        if self.n_engines < 1 or self.n_engines != int(self.n_engines):
            raise ValueError(f"n_engines must be a whole number of at least 1, got {self.n_engines:g}")


def replay_disaggregated(
    requests: Requests,
    prefill: Pool,
    decode: Pool,
    *,
    transfer_s: float = 0.0,
    transfer_s_per_token: float = 0.0,
) -> Replay:
    """
    Replay requests through a prefill pool, the transfer of their KV, and a decode pool.

    Requests are dealt to the engines of a pool in turn. The first token comes from the prefill pool; transfer and
    queue of the decode pool count between the first token and the next, so they show in TPOT.

    Parameters
    ----------
    requests : Requests
        Of shape (n,).
    prefill, decode : Pool
    transfer_s, transfer_s_per_token : float
        Time from the first token until the decode pool has the KV: fixed, and per prompt token. [s]

    Returns
    -------
    Replay
        Timeline and gaps between tokens are those of the first decode engine and of the whole decode pool.
        `sustainable_rate_per_s` is that of the narrower pool.

    Examples
    --------
    >>> step = StepTime(np.array([0.0, 512.0]), np.full(2, 0.01), np.zeros(2), 0, 0, 0, 0, 0)
    >>> pool = Pool(1, step, BatchLimits(512, 8, 4096))
    >>> one = Requests(None, *np.array([[100.0], [3.0], [0.0]]))
    >>> result = replay_disaggregated(one, pool, pool, transfer_s=0.1)
    >>> result.ttft_s.round(3), result.end_to_end_s.round(3)
    (array([0.01]), array([0.13]))
    """
    require_non_negative("transfer", transfer_s, "s")
    require_non_negative("transfer per token", transfer_s_per_token, "s/token")
    arrival_s = np.zeros(requests.n) if requests.arrival_s is None else requests.arrival_s - requests.arrival_s[0]
    prompt = np.maximum(requests.input_tokens - requests.cached_prefix_tokens, 1.0)
    none = np.zeros(requests.n)
    held = requests.input_tokens + 1.0
    first = _run_pool(prefill, arrival_s, prompt, requests.input_tokens - prompt, none, held)
    ready_s = first.end_s + transfer_s + transfer_s_per_token * requests.input_tokens
    reserved = requests.input_tokens + decode.limits.reserved_output_fraction * requests.output_tokens
    goes_on = (requests.output_tokens > 1) & np.isfinite(ready_s)
    order = np.flatnonzero(goes_on)[np.argsort(ready_s[goes_on], kind="stable")]
    # its first step here gives the second token
    later = _run_pool(
        decode,
        ready_s[order],
        none[order],
        requests.input_tokens[order] + 1.0,
        np.maximum(requests.output_tokens[order] - 2.0, 0.0),
        reserved[order],
    )
    end_s, fits = np.where(requests.output_tokens > 1, np.nan, first.end_s), first.fits.copy()
    end_s[order], fits[order] = later.end_s, later.fits
    run = dataclasses.replace(
        later,
        first_token_s=np.where(fits, first.first_token_s, np.nan),
        end_s=end_s,
        admitted_s=np.where(fits, first.admitted_s, np.nan),
        fits=fits,
        clock_s=max(first.clock_s, later.clock_s),
        ending=max(first.ending, later.ending),
        n_steps=first.n_steps + later.n_steps,
    )
    return summarised_run(run, arrival_s, requests.output_tokens, disaggregated_rate_per_s(requests, prefill, decode))


def disaggregated_rate_per_s(requests: Requests, prefill: Pool, decode: Pool) -> float:
    """
    Return the largest rate both pools sustain, in closed form.

    Returns
    -------
    float
        0 if no request fits. [requests/s]
    """
    prompts = dataclasses.replace(requests, output_tokens=np.ones(requests.n))
    answers = dataclasses.replace(requests, cached_prefix_tokens=requests.input_tokens)
    return min(
        prefill.n_engines * sustainable_rate_per_s(prompts, prefill.step, prefill.limits),
        decode.n_engines * sustainable_rate_per_s(answers, decode.step, decode.limits),
    )


def _run_pool(
    pool: Pool,
    arrival_s: FloatArray,
    prompt: FloatArray,
    cached: FloatArray,
    decode_tokens: FloatArray,
    reserved: FloatArray,
) -> EngineRun:
    """One run per engine, requests dealt in turn, put together in the order of the requests."""
    n = len(arrival_s)
    times_s, fits = np.full((3, n), np.nan), np.zeros(n, dtype=bool)
    runs = []
    for engine in range(min(pool.n_engines, n)):
        mine = slice(engine, None, pool.n_engines)
        run = run_engine(
            arrival_s[mine], prompt[mine], cached[mine], decode_tokens[mine], reserved[mine], pool.step, pool.limits
        )
        times_s[0, mine], times_s[1, mine], times_s[2, mine] = run.first_token_s, run.end_s, run.admitted_s
        fits[mine] = run.fits
        runs.append(run)
    if not runs:
        none = np.zeros(0)
        return run_engine(none, none, none, none, none, pool.step, pool.limits)
    first_s, end_s, admitted_s = times_s
    return EngineRun(
        first_token_s=first_s,
        end_s=end_s,
        admitted_s=admitted_s,
        fits=fits,
        clock_s=max(run.clock_s for run in runs),
        ending=max(run.ending for run in runs),
        n_steps=sum(run.n_steps for run in runs),
        gap_weight=np.sum([run.gap_weight for run in runs], axis=0),
        timeline=runs[0].timeline,
    )
