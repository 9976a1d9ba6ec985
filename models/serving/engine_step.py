"""Time of one engine step on one design, what a step may hold, and the largest rate that follows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np

from models.checks import FloatArray, require_non_negative
from models.workload.requests import Requests

_MAX_TABLE_TOKENS = 65_536


@dataclass(frozen=True)
class StepTime:
    """
    Time of one step of the engine on one design, as a function of what is in it.

    time = linear(tokens) + head(sampled rows) + [decodes > 0] (decode_step + decode_sequence * decodes
    + decode_context * sum of contexts) + prefill_pair * sum of new (past + new / 2) + host

    Parameters
    ----------
    tokens : array of shape (n_grid,)
        Increasing token counts of a step, the first 0 or 1. [tokens]
    linear_s : array of shape (n_grid,)
        Everything but attention and output head at those counts: piecewise linear, the last slope goes on. [s]
    head_s : array of shape (n_grid,)
        Output head for as many sampled rows, one per decode and per finished prompt. [s]
    decode_step_s, decode_sequence_s, decode_context_s : float
        Decode attention per step, per sequence and per token of context. [s]
    prefill_pair_s : float
        Prefill attention per query-key pair. [s]
    host_s : float
        Scheduler, sampling and launch, once per step. [s]
    """

    tokens: FloatArray
    linear_s: FloatArray
    head_s: FloatArray
    decode_step_s: float
    decode_sequence_s: float
    decode_context_s: float
    prefill_pair_s: float
    host_s: float

    def __post_init__(self) -> None:
        if len(self.tokens) < 2 or self.tokens[0] not in (0, 1) or (np.diff(self.tokens) <= 0).any():
            raise ValueError("tokens must be at least 2 increasing counts from 0 or 1")
        for name in ("linear_s", "head_s"):
            if len(getattr(self, name)) != len(self.tokens):
                raise ValueError(f"{name} must have {len(self.tokens)} entries as tokens")
        for field in dataclasses.fields(self)[1:]:
            require_non_negative(field.name, getattr(self, field.name), "s")
        if not self.linear_s[-1] + self.host_s > 0:
            raise ValueError("a step must take time, got 0 s")


@dataclass(frozen=True)
class BatchLimits:
    """
    What one engine puts into a step.

    Parameters
    ----------
    token_budget : int
        Tokens of a step, decodes first. With whole prompts the tokens of prompts that share a step.
    max_sequences : int
        Sequences running at once.
    kv_capacity_tokens : float
        Tokens of KV cache the memory holds. [tokens]
    scheduling : "chunked" or "whole_prompt"
        Prompts are cut to fill the budget beside the decodes, or run whole in steps of their own, decodes waiting.
    reserved_output_fraction : float
        Share of the answer whose KV is reserved at admission, 0..1.
    tokens_per_step : float
        Tokens a sequence gains per step; above 1 with speculative decoding.
    verified_tokens : int
        Tokens a sequence has computed per step: the draft and one more.
    scheduled_ahead : bool
        Whether a step is put together while the one before still runs, so that a request waits for one step more.
    """

    token_budget: int
    max_sequences: int
    kv_capacity_tokens: float
    scheduling: Literal["chunked", "whole_prompt"] = "chunked"
    reserved_output_fraction: float = 1.0
    tokens_per_step: float = 1.0
    verified_tokens: int = 1
    scheduled_ahead: bool = False

    def __post_init__(self) -> None:
        if self.scheduling not in ("chunked", "whole_prompt"):
            raise ValueError(f"scheduling must be chunked or whole_prompt, got '{self.scheduling}'")
        for name in ("token_budget", "max_sequences", "verified_tokens"):
            value = getattr(self, name)
            if value < 1 or value != int(value):
                raise ValueError(f"{name} must be a whole number of at least 1, got {value:g}")
        require_non_negative("kv_capacity", self.kv_capacity_tokens, "tokens")
        if not 0 <= self.reserved_output_fraction <= 1:
            raise ValueError(f"reserved_output_fraction must be between 0 and 1, got {self.reserved_output_fraction:g}")
        if not 1 <= self.tokens_per_step <= self.verified_tokens:
            raise ValueError(f"tokens_per_step must be from 1 to {self.verified_tokens}, got {self.tokens_per_step:g}")
        if self.token_budget < self.verified_tokens:
            raise ValueError(f"token_budget must be at least {self.verified_tokens}, got {self.token_budget}")


def sustainable_rate_per_s(requests: Requests, step: StepTime, limits: BatchLimits) -> float:
    """
    Return the largest rate of requests the engine can sustain, in closed form.

    With r requests admitted per step, a step holds r decode_steps decodes and a share min(1, r chunks) of the steps
    holds prompts. r is limited by the token budget, the sequences and the KV capacity, less half a request that does
    not fit; the rate is r over the mean time of a step. Requests too large for the capacity are left out.

    Returns
    -------
    float
        0 if no request fits. [requests/s]
    """
    reserved = requests.input_tokens + limits.reserved_output_fraction * requests.output_tokens
    fits = reserved <= limits.kv_capacity_tokens
    if not fits.any():
        return 0.0
    inputs, reserved = requests.input_tokens[fits], reserved[fits]
    prompt = np.maximum(inputs - requests.cached_prefix_tokens[fits], 1.0)
    decode_steps = np.ceil((requests.output_tokens[fits] - 1.0) / limits.tokens_per_step - 1e-9)
    context = inputs + 1.0 + limits.tokens_per_step * (decode_steps - 1.0) / 2.0
    mean_prompt, mean_steps = float(prompt.mean()), float(decode_steps.mean())
    mean_context, pairs = float((decode_steps * context).mean()), float((prompt * (inputs - prompt / 2)).mean())
    whole = limits.scheduling == "whole_prompt"
    chunks = 1.0 if whole else float(np.ceil(prompt / limits.token_budget).mean())
    held = float((reserved * (decode_steps + chunks)).mean())
    capacity = max(limits.kv_capacity_tokens - reserved.mean() / 2, float(reserved.mean()))
    most = min(limits.max_sequences / (mean_steps + chunks), capacity / held)
    if not whole:
        most = min(most, limits.token_budget / (mean_steps * limits.verified_tokens + mean_prompt))
    r = most * np.geomspace(1e-2, 1.0, 48)
    decodes = r * mean_steps
    decode_s = _decode_time_s(step, decodes, r * mean_context)
    if whole:
        together = np.clip(limits.token_budget / mean_prompt, 1.0, np.maximum(r, 1.0))
        prompt_s = _rows_time_s(step, together * mean_prompt, together) + step.host_s
        mean_s = np.where(mean_steps > 0, decode_s + step.host_s + _rows_time_s(step, decodes, decodes), 0.0)
        return float((r / (mean_s + r * (prompt_s / together + step.prefill_pair_s * pairs))).max())
    rows = decodes * limits.verified_tokens
    share = np.minimum(1.0, r * chunks)
    busy = _rows_time_s(step, rows + r * mean_prompt / share, rows + r / share)
    mean_s = share * busy + (1 - share) * _rows_time_s(step, rows, rows)
    return float((r / (mean_s + decode_s + r * step.prefill_pair_s * pairs + step.host_s)).max())


def dense_times_s(step: StepTime, limits: BatchLimits, longest_prompt: float) -> tuple[FloatArray, FloatArray]:
    """Times for 0, 1, 2, ... tokens, as far as a step can go or the table may."""
    largest = limits.token_budget + limits.max_sequences * limits.verified_tokens
    if limits.scheduling == "whole_prompt":
        largest += int(longest_prompt)
    tokens = np.arange(min(largest, _MAX_TABLE_TOKENS) + 2, dtype=np.float64)
    linear_s, head_s = _interpolated_s(step, step.linear_s, tokens), _interpolated_s(step, step.head_s, tokens)
    head_s[0] = 0.0
    return linear_s, head_s


def _interpolated_s(step: StepTime, values_s: FloatArray, tokens: FloatArray) -> FloatArray:
    slope = max((values_s[-1] - values_s[-2]) / (step.tokens[-1] - step.tokens[-2]), 0.0)
    beyond = np.maximum(tokens - step.tokens[-1], 0.0)
    return np.asarray(np.interp(tokens, step.tokens, values_s) + beyond * slope, dtype=np.float64)


def _rows_time_s(step: StepTime, tokens: FloatArray, rows: FloatArray) -> FloatArray:
    """Time of everything but attention and host for tokens of a step, some of them sampled."""
    return _interpolated_s(step, step.linear_s, tokens) + _interpolated_s(step, step.head_s, rows)


def _decode_time_s(step: StepTime, decodes: FloatArray, context: FloatArray) -> FloatArray:
    running = np.minimum(1.0, decodes)
    return running * step.decode_step_s + step.decode_sequence_s * decodes + step.decode_context_s * context


def attention_coefficients_s(step: StepTime) -> FloatArray:
    """Attention and host times in the order of the replay kernel, shape (5,) [s]."""
    return np.array(
        [step.decode_step_s, step.decode_sequence_s, step.decode_context_s, step.prefill_pair_s, step.host_s],
        dtype=np.float64,
    )
