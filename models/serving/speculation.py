"""The draft network of speculative decoding: what its guesses cost a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from models.operators.calibration import Calibration
from models.operators.step import StepActivity, StepProgram
from models.precision.mix import PrecisionMix
from models.serving.capacity import draft_degree
from models.serving.engine_terms import EngineTraits
from models.serving.programs import StepLoad, compile_step
from models.serving.scenario import Alternatives, Speculation


def draft_program(
    speculation: Speculation | None,
    mixes: Sequence[PrecisionMix],
    choices: Alternatives,
    load: StepLoad,
    *,
    routing_skew: float,
    n_chips_per_node: int,
    traits: EngineTraits,
    calibration: Calibration,
) -> StepProgram | None:
    """
    Return one pass of the draft network over the batch, None where nothing is drafted by a network.

    Each of the `draft_tokens` passes of a step decodes one token for each sequence; the prompts of a step are dealt
    evenly to them. The passes follow each other on the device, so that the host sees only the step.

    Parameters
    ----------
    speculation : Speculation, optional
    load : StepLoad
        Of the step of the served network.
    mixes, choices, routing_skew, n_chips_per_node, traits, calibration
        As for `compile_step`.
    """
    if speculation is None or speculation.draft is None:
        return None
    draft, passes = speculation.draft, float(speculation.draft_tokens)
    own = np.array([draft_degree(draft, int(t)) for t in choices.tensor_parallel])
    prompts = np.maximum(load.tokens - load.decoding * traits.verified_tokens, 0.0) / passes
    share = StepLoad(
        tokens=load.decoding + prompts, sampled=load.decoding, decoding=load.decoding,
        context_tokens=load.context_tokens, prompts=load.prompts / passes, prompt_tokens=load.prompt_tokens,
    )  # fmt: skip
    program = compile_step(
        draft, mixes, dataclasses.replace(choices, tensor_parallel=own), share, overhead_s=0.0,
        routing_skew=routing_skew, n_chips_per_node=n_chips_per_node,
        traits=dataclasses.replace(traits, verified_tokens=1.0), calibration=calibration,
    )  # fmt: skip
    return dataclasses.replace(program, terms=tuple(t for t in program.terms if t.kind != "host"))


def with_draft(edge: StepActivity, draft: StepActivity, passes: float) -> StepActivity:
    """What a pass does once, with the passes of a draft network before it."""
    names = dict.fromkeys([*edge.macs, *draft.macs])
    none = np.zeros((1, 1))
    return StepActivity(
        edge.time_s + passes * draft.time_s,
        {name: edge.macs.get(name, none) + passes * draft.macs.get(name, none) for name in names},
        edge.dram_bytes + passes * draft.dram_bytes,
        edge.vector_ops + passes * draft.vector_ops,
        edge.link_bytes + passes * draft.link_bytes,
        edge.l2_bytes + passes * draft.l2_bytes,
        {},
    )
