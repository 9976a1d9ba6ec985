"""Lowered network x alternatives -> the steps a server runs, with every size known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.architectures.lowered import AttentionOperator, LinearOperator, LoweredNetwork, VectorOperator
from models.architectures.parallel import split
from models.checks import FloatArray, IntArray
from models.hardware.rates import class_code
from models.operators.step import StepProgram, Term, step_program, term
from models.precision.mix import PrecisionMix
from models.serving.scenario import Alternatives

ACTIVATION_BYTES = 2.0
"""Residual stream, norms and messages between chips stay in 16 bit in every mix of this version."""


BATCH_BLOCKS = 4
"""Parts into which the batches are cut when the cycles of their GEMMs are tabulated."""


@dataclass(frozen=True)
class StepLoad:
    """
    Tokens of one step on one tensor-parallel group, arrays of shape (n_alternatives,).

    `tokens` pass through the layers, `sampled` through the output head; `decoding` sequences read
    `context_tokens` of cache each; `prompts` prompts of `prompt_tokens` new tokens each are computed.
    """

    tokens: FloatArray
    sampled: FloatArray
    decoding: FloatArray
    context_tokens: FloatArray
    prompts: FloatArray
    prompt_tokens: FloatArray


def compile_step(
    network: LoweredNetwork,
    mixes: Sequence[PrecisionMix],
    choices: Alternatives,
    load: StepLoad,
    *,
    overhead_s: float,
    routing_skew: float = 0.0,
) -> StepProgram:
    """
    Return the program of one step: every operator of the network with its size on one chip.

    Parameters
    ----------
    network : LoweredNetwork
        Uncut; each degree of `choices` cuts it.
    mixes : sequence of PrecisionMix
        What `choices.mix` indexes.
    choices : Alternatives
        Degree, mix and batch of each alternative.
    load : StepLoad
        Tokens of the step for each alternative.
    overhead_s : float
        Host time of a step. [s]
    routing_skew : float
        Zipf exponent of expert popularity. [1]
    """
    degrees, which = np.unique(choices.tensor_parallel, return_inverse=True)
    cut = [split(network, int(t)) for t in degrees]
    which = which.reshape(-1)
    frame = _Frame(tuple(mixes), choices, which, load, _step_weight_bytes(cut, mixes, which, choices.mix))
    terms: list[Term] = []
    for linears in zip(*[c.linears for c in cut], strict=True):
        if linears[0].rows == "routed":
            terms.extend(_expert_terms(frame, linears, network, routing_skew))
        else:
            terms.append(_linear_term(frame, linears))
    for i, attentions in enumerate(zip(*[c.attentions for c in cut], strict=True)):
        terms.extend(_attention_terms(frame, attentions, i))
    for i, vectors in enumerate(zip(*[c.vectors for c in cut], strict=True)):
        terms.append(_vector_term(frame, vectors, i))
    if degrees.max() > 1:
        terms.append(_all_reduce_term(frame, network))
    return step_program(terms, overhead_s, _blocks(choices))


def _blocks(choices: Alternatives) -> IntArray:
    """Alternatives of one degree and of neighbouring batches are wanted together."""
    batches, place = np.unique(choices.batch, return_inverse=True)
    quarter = place.reshape(-1) * BATCH_BLOCKS // len(batches)
    return choices.tensor_parallel.astype(np.int64) * BATCH_BLOCKS + quarter


@dataclass(frozen=True)
class _Frame:
    """What every term needs: the choices, the position of each degree, the load and the formats by mix."""

    mixes: tuple[PrecisionMix, ...]
    choices: Alternatives
    degree: IntArray
    load: StepLoad
    step_weight_bytes: FloatArray
    """Weights of all linears on one chip, by alternative [B]."""

    def by_degree(self, values: Sequence[float]) -> FloatArray:
        """One value per degree, carried to the alternatives."""
        return np.asarray(values, dtype=np.float64)[self.degree]

    def by_mix(self, values: Sequence[float]) -> FloatArray:
        """One value per mix, carried to the alternatives."""
        return np.asarray(values, dtype=np.float64)[self.choices.mix]

    def weight_copies(self, elements: Sequence[float], module: str) -> FloatArray:
        """Weights of the whole step over those of one operator: what passes between two uses of it [1]."""
        own = self.by_degree(elements) * self.by_mix([mix.weight_bits(module) / 8.0 for mix in self.mixes])
        return np.maximum(self.step_weight_bytes / own, 1.0)


@dataclass(frozen=True)
class _LinearFormat:
    """Bits and rate class of one module under one mix."""

    weight_bits: float
    activation_bits: float
    rate_class: str
    dequant_ops: float


def _linear_format(mix: PrecisionMix, module: str) -> _LinearFormat:
    return _LinearFormat(
        mix.weight_bits(module),
        mix.activation_bits(module),
        mix.compute_class(module),
        mix.dequant_ops_per_weight(module),
    )


def _step_weight_bytes(
    cut: Sequence[LoweredNetwork], mixes: Sequence[PrecisionMix], degree: IntArray, mix: IntArray
) -> FloatArray:
    table = [[sum(o.n_in * o.n_out * o.count * x.weight_bits(o.module) / 8.0 for o in c.linears) for x in mixes] for c in cut]
    return np.asarray(table)[degree, mix]


def _linear_term(frame: _Frame, linears: Sequence[LinearOperator]) -> Term:
    """A weight matrix met by all tokens or by the sampled ones."""
    module = linears[0].module
    formats = [_linear_format(mix, module) for mix in frame.mixes]
    return term(
        module, "gemm", "linear", frame.by_degree([each.count for each in linears]),
        m=frame.load.sampled if linears[0].rows == "sampled" else frame.load.tokens,
        n=frame.by_degree([each.n_out for each in linears]),
        k=frame.by_degree([each.n_in for each in linears]),
        weight_bytes=frame.by_mix([f.weight_bits / 8.0 for f in formats]),
        input_bytes=frame.by_mix([f.activation_bits / 8.0 for f in formats]),
        output_bytes=ACTIVATION_BYTES,
        rate_class=frame.by_mix([class_code(f.rate_class) for f in formats]),
        dequant_ops=frame.by_mix([f.dequant_ops for f in formats]),
        instances=1.0,
        copies=frame.weight_copies([each.n_in * each.n_out for each in linears], module),
    )  # fmt: skip


def _expert_terms(
    frame: _Frame, linears: Sequence[LinearOperator], network: LoweredNetwork, routing_skew: float
) -> list[Term]:
    """Routed MLPs are timed as a whole where their first matrix stands; experts are spread over the degree."""
    up = linears[0]
    if not up.module.endswith("_up"):
        return []
    formats = [_linear_format(mix, up.module) for mix in frame.mixes]
    original = next(each for each in network.linears if each.module == up.module and each.count == up.count)
    inter = original.n_out / (2 if original.gated else 1)
    return [
        term(
            up.module, "experts", "gated" if up.gated else "plain", up.count,
            tokens=frame.load.tokens, hidden=original.n_in, inter=inter,
            n_experts=original.n_experts, top_k=original.top_k,
            expert_parallel=frame.choices.tensor_parallel,
            weight_bytes=frame.by_mix([f.weight_bits / 8.0 for f in formats]),
            rate_class=frame.by_mix([class_code(f.rate_class) for f in formats]),
            zipf_exponent=routing_skew,
        )
    ]  # fmt: skip


def _attention_terms(frame: _Frame, attentions: Sequence[AttentionOperator], position: int) -> list[Term]:
    """Decode over the cache and prefill of the prompts, where the step has them."""
    first, load = attentions[0], frame.load
    window = float(first.window_tokens)
    prefill_heads = {
        "n_kv_heads": frame.by_degree([a.n_kv_heads for a in attentions]),
        "head_dim_qk": float(first.head_dim_qk),
        "head_dim_v": float(first.head_dim_v),
    }
    decode_heads = prefill_heads
    if first.shared_latent:
        latent = {"head_dim_qk": float(first.kv_elements_per_token), "head_dim_v": float(first.latent_dim_v)}
        decode_heads = {"n_kv_heads": 1.0} | latent
    window = window / 2 if first.chunked else window
    sizes = {
        "n_heads": frame.by_degree([a.n_heads for a in attentions]),
        "kv_bytes_per_element": frame.by_mix([mix.kv_bits / 8.0 for mix in frame.mixes]),
        "kv_elements_per_token": frame.by_degree([a.kv_elements_per_token for a in attentions]),
        "window_tokens": window,
    }
    count = frame.by_degree([a.count for a in attentions])
    terms = []
    if load.decoding.max() > 0:
        seen = np.minimum(load.context_tokens, window) if window else load.context_tokens
        terms.append(
            term(f"attention_decode_{position}", "decode", "", count, batch=load.decoding, tokens=seen, **sizes, **decode_heads)
        )
    if load.prompts.max() > 0:
        # less than one prompt a step is one prompt in some of the steps
        terms.append(
            term(
                f"attention_prefill_{position}", "prefill", "", count * np.minimum(load.prompts, 1.0),
                batch=np.maximum(load.prompts, 1.0), tokens=load.prompt_tokens, **sizes, **prefill_heads,
            )
        )  # fmt: skip
    return terms


def _vector_term(frame: _Frame, vectors: Sequence[VectorOperator], position: int) -> Term:
    """Elementwise work on every token."""
    rows = frame.load.sampled if vectors[0].rows == "sampled" else frame.load.tokens
    elements = frame.by_degree([v.elements_per_token for v in vectors]) * rows
    passes = vectors[0].passes
    return term(
        f"{vectors[0].module}_{vectors[0].op}_{position}", "vector", vectors[0].op,
        frame.by_degree([v.count for v in vectors]),
        elements=elements, bytes_moved=elements * passes * ACTIVATION_BYTES, rows=rows,
    )  # fmt: skip


def _all_reduce_term(frame: _Frame, network: LoweredNetwork) -> Term:
    """Partial sums of the row-cut matrices, one activation row per token."""
    return term(
        "all_reduce", "collective", "all_reduce", network.n_layers * network.all_reduces_per_layer,
        n_chips=frame.choices.tensor_parallel,
        message_bytes=frame.load.tokens * network.hidden_size * ACTIVATION_BYTES,
        scale_out=0.0,
    )  # fmt: skip
