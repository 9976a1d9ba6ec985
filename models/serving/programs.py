"""Lowered network x alternatives -> the steps a server runs, with every size known."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.architectures.lowered import (
    AttentionOperator,
    LinearOperator,
    LoweredNetwork,
    StateOperator,
    VectorOperator,
)
from models.architectures.parallel import split
from models.architectures.training import EDGE_MODULES
from models.checks import FloatArray, IntArray
from models.operators.attention import mean_keys
from models.operators.calibration import UNCALIBRATED, Calibration
from models.operators.expert_term import routing_columns
from models.operators.step import StepProgram, Term, step_program, term
from models.precision.mix import PrecisionMix
from models.serving.engine_terms import EngineTraits, engine_terms
from models.serving.expert_exchange import ACTIVATION_BYTES
from models.serving.mix_columns import Columns, attention_columns, expert_columns, linear_columns, vector_columns
from models.serving.scenario import Alternatives

STATE_BYTES = 2.0
"""Recurrent states are kept in 16 bit."""

STATE_CHUNK_TOKENS = 256.0
"""Tokens of a prompt between two states that leave the chip: chunk of the published Mamba-2 kernels."""

SHARED_PASSES = {"residual": 1.0}
"""Vector work inside a neighbour's kernel -> reads or writes of each element that both share."""

INSIDE_EXPERTS = frozenset({"moe_dispatch", "moe_combine", "expert_activation"})
"""Vector work that the time of a whole routed layer holds already: measured layers sort, move, activate and add up."""

BATCH_BLOCKS = 4
"""Parts into which the batches are cut when the cycles of their GEMMs are tabulated."""


_Sizes = dict[str, FloatArray | float]
"""Columns of a term by name."""


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
    n_chips_per_node: int | None = None,
    traits: EngineTraits = EngineTraits(),
    calibration: Calibration = UNCALIBRATED,
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
    n_chips_per_node : int, optional
        Chips that share scale-up links; all of them where left out. [1]
    traits : EngineTraits
        How the engine and its host work.
    calibration : Calibration
        Constants of all operators.
    """
    degrees, which = np.unique(choices.tensor_parallel, return_inverse=True)
    cut = [split(network, int(t)) for t in degrees]
    which = which.reshape(-1)
    frame = _Frame(tuple(mixes), choices, which, load, _step_weight_bytes(cut, mixes, which, choices.mix), traits)
    terms: list[Term] = []
    for linears in zip(*[c.linears for c in cut], strict=True):
        if linears[0].rows == "routed":
            terms.extend(_expert_terms(frame, linears, network, routing_skew))
        else:
            terms.append(_linear_term(frame, linears))
    for i, attentions in enumerate(zip(*[c.attentions for c in cut], strict=True)):
        terms.extend(_attention_terms(frame, attentions, i))
    for i, vectors in enumerate(zip(*[c.vectors for c in cut], strict=True)):
        if vectors[0].module not in INSIDE_EXPERTS:
            terms.append(_vector_term(frame, vectors, i))
    for i, states in enumerate(zip(*[c.states for c in cut], strict=True)):
        terms.extend(_state_terms(frame, states, i))
    node = n_chips_per_node or int((choices.tensor_parallel * choices.attention_data_parallel).max())
    terms.extend(engine_terms(network, traits, choices, load.tokens, load.sampled, node, frame.dispatched_bytes()))
    placed = [dataclasses.replace(t, edge=t.name.startswith(tuple(EDGE_MODULES))) for t in terms]
    return step_program(placed, overhead_s, _blocks(choices), calibration)


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
    traits: EngineTraits

    def by_degree(self, values: Sequence[float]) -> FloatArray:
        """One value per degree, carried to the alternatives."""
        return np.asarray(values, dtype=np.float64)[self.degree]

    def by_mix(self, values: Sequence[float]) -> FloatArray:
        """One value per mix, carried to the alternatives."""
        return np.asarray(values, dtype=np.float64)[self.choices.mix]

    def columns_by_mix(self, columns: Columns) -> dict[str, FloatArray]:
        """Columns with one value per mix, carried to the alternatives."""
        return {name: values[self.choices.mix] for name, values in columns.items()}

    def dispatched_bytes(self) -> FloatArray:
        """Bytes of one element of a row on its way to a routed expert, in the format that the expert takes."""
        return self.by_mix([mix.activation_bits("expert_up") / 8.0 for mix in self.mixes])

    def weight_copies(self, elements: Sequence[float], module: str) -> FloatArray:
        """Weights of the whole step over those of one operator: what passes between two uses of it [1]."""
        own = self.by_degree(elements) * self.by_mix([mix.weight_bits(module) / 8.0 for mix in self.mixes])
        return np.maximum(self.step_weight_bytes / own, 1.0)


def _step_weight_bytes(
    cut: Sequence[LoweredNetwork], mixes: Sequence[PrecisionMix], degree: IntArray, mix: IntArray
) -> FloatArray:
    table = [
        [sum(o.n_in * o.n_out * o.count * x.weight_bits(o.module) / 8.0 for o in c.linears) for x in mixes] for c in cut
    ]
    return np.asarray(table)[degree, mix]


def _linear_term(frame: _Frame, linears: Sequence[LinearOperator]) -> Term:
    """A weight matrix met by all tokens or by the sampled ones."""
    module = linears[0].module
    return term(
        module, "gemm", "linear", frame.by_degree([each.count for each in linears]),
        m=frame.load.sampled if linears[0].rows == "sampled" else frame.load.tokens,
        n=frame.by_degree([each.n_out for each in linears]),
        k=frame.by_degree([each.n_in for each in linears]),
        output_bytes=ACTIVATION_BYTES,
        **frame.columns_by_mix(linear_columns(frame.mixes, module)),
        instances=1.0,
        useful_fraction=1.0,
        copies=frame.weight_copies([each.n_in * each.n_out for each in linears], module),
    )  # fmt: skip


def _expert_terms(
    frame: _Frame, linears: Sequence[LinearOperator], network: LoweredNetwork, routing_skew: float
) -> list[Term]:
    """Routed MLPs are timed as a whole where their first matrix stands; experts are spread over the degree."""
    up = linears[0]
    if not up.module.endswith("_up"):
        return []
    formats = expert_columns(frame.mixes, up.module, up.module.replace("_up", "_down"), up.gated)
    original = next(each for each in network.linears if each.module == up.module and each.count == up.count)
    inter = original.n_out / (2 if original.gated else 1)
    groups = frame.choices.attention_data_parallel.astype(np.float64)
    tokens, ranks = frame.load.tokens * groups, frame.choices.tensor_parallel * groups
    return [
        term(
            up.module, "experts", "gated" if up.gated else "plain", up.count,
            hidden=original.n_in, inter=inter,
            **routing_columns(tokens, original.n_experts, original.top_k, ranks, routing_skew),
            **frame.columns_by_mix(formats),
        )
    ]  # fmt: skip


def _attention_terms(frame: _Frame, attentions: Sequence[AttentionOperator], position: int) -> list[Term]:
    """Decode over the cache and prefill of the prompts, where the step has them."""
    first, load = attentions[0], frame.load
    window = float(first.window_tokens)
    prefill_heads: _Sizes = {
        "n_kv_heads": frame.by_degree([a.n_kv_heads for a in attentions]),
        "head_dim_qk": float(first.head_dim_qk),
        "head_dim_v": float(first.head_dim_v),
    }
    decode_heads = prefill_heads
    if first.shared_latent:
        latent: _Sizes = {"head_dim_qk": float(first.kv_elements_per_token), "head_dim_v": float(first.latent_dim_v)}
        decode_heads = {"n_kv_heads": 1.0, **latent}
    window = window / 2 if first.chunked else window
    sizes: _Sizes = {
        "n_heads": frame.by_degree([a.n_heads for a in attentions]),
        "kv_elements_per_token": frame.by_degree([a.kv_elements_per_token for a in attentions]),
        "window_tokens": window,
    }
    formats = frame.columns_by_mix(attention_columns(frame.mixes))
    count = frame.by_degree([a.count for a in attentions])
    terms = []
    if load.decoding.max() > 0:
        # tokens of one sequence that are verified together read its cache once, as more heads of a group would
        verified = {**sizes, "n_heads": sizes["n_heads"] * frame.traits.verified_tokens}
        seen = np.minimum(load.context_tokens, window) if window else load.context_tokens
        terms.append(
            term(
                f"attention_decode_{position}", "decode", "", count,
                batch=load.decoding, tokens=seen, on_lanes=frame.traits.on_lanes(len(frame.choices)),
                **decode_heads, **verified,
                **_conversion_columns(formats, verified, decode_heads, load.decoding, 1.0, seen, cached=True),
            )
        )  # fmt: skip
    if load.prompts.max() > 0:
        # less than one prompt a step is one prompt in some of the steps
        terms.append(
            term(
                f"attention_prefill_{position}", "prefill", "", count * np.minimum(load.prompts, 1.0),
                batch=np.maximum(load.prompts, 1.0), tokens=load.prompt_tokens, **sizes, **prefill_heads,
                **_conversion_columns(
                    formats, sizes, prefill_heads, np.maximum(load.prompts, 1.0), load.prompt_tokens,
                    mean_keys(load.prompt_tokens, 0.0, True, window), cached=False,
                ),
            )
        )  # fmt: skip
    return terms


def _conversion_columns(
    formats: dict[str, FloatArray],
    sizes: _Sizes,
    heads: _Sizes,
    batch: FloatArray,
    queries: FloatArray | float,
    keys: FloatArray,
    *,
    cached: bool,
) -> dict[str, FloatArray]:
    """Classes and bytes of an attention operator, and the vector work of its conversions; a prompt reads no cache."""
    rows = batch * queries * sizes["n_heads"]
    entries = batch * sizes["kv_elements_per_token"]
    rounding = rows * (heads["head_dim_qk"] * formats["query_ops"] + keys * formats["probability_ops"])
    # a latent is widened once for scores and values alike
    key_share = np.where(sizes["kv_elements_per_token"] <= heads["head_dim_qk"], 1.0, 0.5)
    read = entries * keys if cached else 0.0 * entries
    named = ("kv_bytes_per_element", "scores_class", "context_class", "key_native", "key_class")
    return {name: formats[name] for name in (*named, "value_native", "value_class")} | {
        "rounding_ops": rounding + entries * queries * formats["cache_ops"],
        "key_widening_ops": key_share * read * formats["key_ops"],
        "value_widening_ops": (1.0 - key_share) * read * formats["value_ops"],
    }


def _vector_term(frame: _Frame, vectors: Sequence[VectorOperator], position: int) -> Term:
    """Elementwise work on every token; residuals are added by the norm that reads the sum."""
    rows = frame.load.sampled if vectors[0].rows == "sampled" else frame.load.tokens
    elements = frame.by_degree([v.elements_per_token for v in vectors]) * rows
    formats = frame.columns_by_mix(vector_columns(frame.mixes, vectors[0].op))
    passes = vectors[0].passes - SHARED_PASSES.get(vectors[0].op, 0.0)
    return term(
        f"{vectors[0].module}_{vectors[0].op}_{position}", "fused" if vectors[0].op in SHARED_PASSES else "vector",
        vectors[0].op, frame.by_degree([v.count for v in vectors]),
        elements=elements, bytes_moved=elements * passes * formats["element_bytes"], rows=rows,
        rounding_ops=elements * formats["round_ops"],
    )  # fmt: skip


def _state_terms(frame: _Frame, states: Sequence[StateOperator], position: int) -> list[Term]:
    """Recurrent states: each decoded token reads and writes its sequence's once, a prompt once a chunk."""
    load = frame.load
    sizes = {
        "state_bytes": frame.by_degree([s.state_elements for s in states]) * STATE_BYTES,
        "flop_per_token": frame.by_degree([s.flop_per_token for s in states]),
    }
    count = frame.by_degree([s.count for s in states])
    terms = []
    if load.decoding.max() > 0:
        name, verified = f"state_decode_{position}", load.decoding * frame.traits.verified_tokens
        terms.append(term(name, "state", "recurrent", count, tokens=verified, sequences=verified, **sizes))
    if load.prompts.max() > 0:
        prompts = np.maximum(load.prompts, 1.0)
        terms.append(
            term(
                f"state_prefill_{position}", "state", "chunked", count * np.minimum(load.prompts, 1.0),
                tokens=prompts * load.prompt_tokens,
                sequences=prompts * np.maximum(load.prompt_tokens / STATE_CHUNK_TOKENS, 1.0), **sizes,
            )
        )  # fmt: skip
    return terms
