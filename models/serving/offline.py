"""Closed forms of offline runs: a static batch to its end, the first token alone, and a queue of equal requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.checks import FloatArray
from models.operators.factor_tables import FactorTables
from models.serving.engines import Engines, pass_time, sequences_held
from models.serving.programs import StepLoad

_GAUSS = np.sqrt(0.15) * np.array([-1.0, 0.0, 1.0]) + 0.5
_GAUSS_WEIGHTS = np.array([5.0, 8.0, 5.0]) / 18.0
"""Nodes and weights of three-point Gauss integration over 0..1."""


@dataclass(frozen=True)
class RunTime:
    """Time of a run, what no chip of the same data-sheet rates beats, and the batch; arrays of shape (n_engines,)."""

    time_s: FloatArray
    bound_s: FloatArray
    batch: FloatArray


def first_token(engines: Engines, prompt_tokens: FloatArray, tables: FactorTables) -> RunTime:
    """Return the run of one prompt to its first token; `prompt_tokens` of shape (n_engines,)."""
    one = np.ones(engines.n_engines)
    passed = pass_time(engines, _prompts(one, prompt_tokens), tables)
    return RunTime(passed.time_s[:, 0], passed.bound_s[:, 0], one)


def static_batch(
    engines: Engines, batch: FloatArray, prompt_tokens: FloatArray, output_tokens: FloatArray, tables: FactorTables
) -> RunTime:
    """
    Return the run of a batch that starts together and in which every sequence has the same lengths.

    All prompts in one pass, then one pass for each further token; the context grows, so the passes are integrated
    over the answers at three points.

    Parameters
    ----------
    engines : Engines
        Of n_engines engines.
    batch, prompt_tokens, output_tokens : arrays of shape (n_engines,)
        [sequences], [tokens]
    tables : FactorTables
        Shared rows.
    """
    contexts = prompt_tokens[:, None] + output_tokens[:, None] * _GAUSS
    decodes = _decodes(batch[:, None] * np.ones(3), contexts)
    passed = pass_time(engines, _side_by_side(_prompts(batch, prompt_tokens), decodes), tables)
    whole = [t[:, 0] + (output_tokens - 1.0) * (t[:, 1:] @ _GAUSS_WEIGHTS) for t in (passed.time_s, passed.bound_s)]
    return RunTime(whole[0], whole[1], batch)


def queued_run(
    engines: Engines,
    n_requests: FloatArray,
    prompt_tokens: FloatArray,
    output_tokens: FloatArray,
    most_sequences: FloatArray,
    tables: FactorTables,
    reserved_output_fraction: float = 1.0,
) -> RunTime:
    """
    Return the run of equal requests that all wait at the start, in continuous batching.

    The batch is what the memory holds with the reserved lengths. Every pass decodes all its sequences halfway
    through their answers and computes the prompt tokens that they use up; the last batch is what is left over.

    Parameters
    ----------
    engines : Engines
        Of n_engines engines.
    n_requests, prompt_tokens, output_tokens, most_sequences : arrays of shape (n_engines,)
        Requests of the run, lengths, and the engine's own limit. [1], [tokens], [tokens], [sequences]
    tables : FactorTables
        Shared rows.
    reserved_output_fraction : float
        Share of the answer for which memory is set aside at admission. [1]

    Returns
    -------
    RunTime
        Infinite time where not one sequence fits.
    """
    held = sequences_held(engines, prompt_tokens + reserved_output_fraction * output_tokens)
    batch = np.floor(np.minimum(np.minimum(held, most_sequences), n_requests))
    filled = np.maximum(batch, 1.0)
    full, rest = np.divmod(n_requests, filled)
    parts = engines.pipeline_parallel * engines.attention_data_parallel
    sizes = np.maximum(np.stack([filled, rest], axis=1) / parts[:, None], 1.0)
    passed = pass_time(engines, _mixed(sizes, prompt_tokens[:, None], output_tokens[:, None]), tables)
    passes = output_tokens[:, None] * np.stack([full, rest > 0], axis=1)
    fits = batch >= 1.0
    return RunTime(
        np.where(fits, (passes * passed.time_s).sum(axis=1), np.inf),
        np.where(fits, (passes * passed.bound_s).sum(axis=1), np.inf),
        batch,
    )


def _prompts(batch: FloatArray, prompt_tokens: FloatArray) -> StepLoad:
    """All prompts of a batch, one load each of shape (n_engines, 1)."""
    b, prompt = batch[:, None], prompt_tokens[:, None]
    return StepLoad(b * prompt, b, np.zeros_like(b), np.zeros_like(b), b, prompt + 0.0 * b)


def _decodes(batch: FloatArray, context_tokens: FloatArray) -> StepLoad:
    none = np.zeros_like(batch)
    return StepLoad(batch, batch, batch, context_tokens, none, none + 1.0)


def _mixed(batch: FloatArray, prompt_tokens: FloatArray, output_tokens: FloatArray) -> StepLoad:
    """Decodes halfway through their answers, and as much prompt as they use up."""
    prompts = batch / output_tokens
    context = prompt_tokens + output_tokens / 2.0 + 0.0 * batch
    return StepLoad(
        batch + prompts * prompt_tokens, batch + prompts, batch, context, prompts, prompt_tokens + 0.0 * batch
    )


def _side_by_side(*loads: StepLoad) -> StepLoad:
    return StepLoad(*(np.hstack([getattr(load, name) for load in loads]) for name in StepLoad.__dataclass_fields__))
