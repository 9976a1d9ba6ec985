"""What every network becomes: operators whose sizes are known once the number of tokens is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Shard = Literal["column", "row", "replicated", "expert"]
Rows = Literal["tokens", "sampled", "routed", "source"]
Kind = Literal["decoder", "encoder", "encoder_decoder"]


@dataclass(frozen=True)
class LinearOperator:
    """
    One weight matrix multiplied with the tokens of a step: m = rows, n = n_out, k = n_in.

    `rows` says which tokens: every one, only those that are sampled (output head), those that a router sends to
    each of `n_experts` experts (`top_k` of them per token), or the tokens of the source, once per request (encoder
    of an encoder-decoder). `count` is how often the operator occurs in one forward pass (layers). `shard` says how
    tensor parallelism cuts the matrix.
    """

    module: str
    n_in: int
    n_out: int
    count: float
    rows: Rows = "tokens"
    shard: Shard = "column"
    n_experts: int = 0
    top_k: float = 0
    """Experts a token meets; on one chip of an expert-parallel group, the expected number among those it holds."""
    bias: bool = False
    gated: bool = False
    """True where n_out holds two fused halves (gate and up), which a published MLP counts as two matrices."""
    unit: int = 1
    """Columns or rows that tensor parallelism keeps together: those of one head."""
    kv_heads: int = 0
    """Key and value heads whose `kv_columns` are among n_out: replicated once there are more chips than heads."""
    kv_columns: int = 0


@dataclass(frozen=True)
class AttentionOperator:
    """
    Scaled dot-product attention of `count` layers over a KV cache.

    `window_tokens` limits how far back a query looks (0: the whole context). `kv_elements_per_token` is what the
    cache keeps for one token and layer: 2 n_kv_heads head_dim, or the latent of MLA, which all heads share.

    With `shared_latent` the head sizes are those of prefill, where keys and values are expanded. Decode reads the
    latent itself: one KV head, `kv_elements_per_token` for the scores and `latent_dim_v` for the values; the
    projection `attention_kv_b` is then applied to the query and the output, at the same FLOP per token.
    """

    n_heads: int
    n_kv_heads: int
    head_dim_qk: int
    head_dim_v: int
    kv_elements_per_token: int
    count: float
    window_tokens: int = 0
    causal: bool = True
    shared_latent: bool = False
    latent_dim_v: int = 0
    chunked: bool = False
    """The window is a fixed chunk of the sequence, so a query looks back over half of it on average."""
    cached: bool = True
    """Whether decode finds keys and values in a cache (not in an encoder)."""
    rows: Rows = "tokens"
    """Who asks: the tokens, or the source in an encoder."""
    over: Literal["context", "source"] = "context"
    """What is looked at: the sequence itself, or the source (encoder and cross attention)."""


@dataclass(frozen=True)
class StateOperator:
    """
    A recurrent mixer (state space, linear attention) with a constant state per sequence and layer.

    `op` is mamba2 or gated_delta; decode reads and writes the whole state for each token. Tensor parallelism splits
    state and FLOP by heads.
    """

    op: str
    state_elements: int
    flop_per_token: float
    count: float


@dataclass(frozen=True)
class VectorOperator:
    """
    Work of the vector lanes on each token: `elements_per_token` elements in `passes` reads and writes of each.

    `op` is a key of the elementwise operator registry: norm, rope, activation, residual, embedding, softmax, router.
    """

    op: str
    module: str
    elements_per_token: float
    passes: float
    count: float
    shard: Shard = "replicated"
    rows: Rows = "tokens"


@dataclass(frozen=True)
class StoredModule:
    """How a published checkpoint stores the matrices of one module: name of the format and bits with scales [bits]."""

    module: str
    format: str
    bits_per_element: float


@dataclass(frozen=True)
class LoweredNetwork:
    """All operators of one forward pass, with the numbers that serving and validation need."""

    name: str
    linears: tuple[LinearOperator, ...]
    attentions: tuple[AttentionOperator, ...]
    states: tuple[StateOperator, ...]
    vectors: tuple[VectorOperator, ...]
    n_layers: int
    hidden_size: int
    vocabulary_size: int
    max_context_tokens: int
    all_reduces_per_layer: float
    """All-reduces of one activation row per layer under tensor parallelism (2; 1 with parallel residual); a mean."""
    n_parameters: float
    n_active_parameters: float
    """Parameters that one token meets, input embedding excluded, output head included."""
    embedding_parameters: float
    """Input embedding and position tables: stored, looked up, never multiplied."""
    other_parameters: float
    """Norms, biases and what else is stored without being a matrix of `linears`."""
    kind: Kind = "decoder"
    """A decoder makes tokens one by one; an encoder reads its input once and makes none."""
    stored: tuple[StoredModule, ...] = ()
    """How the published checkpoint stores each module; empty where nothing is known."""
    tied_embeddings: bool = False
    """The output head is the input embedding, so `embedding_parameters` leaves it out."""


def weight_elements_per_module(lowered: LoweredNetwork) -> dict[str, float]:
    """
    Return stored elements per module, `embedding` and `other` (norms, biases, ...) included [elements].

    They sum to `n_parameters`. A tied table is stored once and belongs to `output_head`.
    """
    elements: dict[str, float] = {}
    for linear in lowered.linears:
        elements[linear.module] = elements.get(linear.module, 0.0) + matrix_elements(linear)
    return elements | {"embedding": lowered.embedding_parameters, "other": lowered.other_parameters}


def matrix_elements(linear: LinearOperator) -> float:
    """Elements of all matrices of an operator, every expert and layer counted [elements]."""
    return float(linear.n_in) * linear.n_out * max(linear.n_experts, 1) * linear.count


def bias_elements(linear: LinearOperator) -> float:
    """Elements of all biases of an operator, part of `other_parameters` [elements]."""
    return float(linear.bias) * linear.n_out * max(linear.n_experts, 1) * linear.count


def met_fraction(linear: LinearOperator) -> float:
    """Share of the matrices of an operator that one token meets [1]."""
    return linear.top_k / linear.n_experts if linear.rows == "routed" else 1.0


def active_parameters(linears: tuple[LinearOperator, ...], other_parameters: float) -> float:
    """Parameters one token meets: matrices, their biases, and what else is stored besides tables [elements]."""
    unmet_biases = sum(bias_elements(linear) * (1 - met_fraction(linear)) for linear in linears)
    return sum(matrix_elements(linear) * met_fraction(linear) for linear in linears) + other_parameters - unmet_biases


def checkpoint_bits(lowered: LoweredNetwork) -> dict[str, float]:
    """Stored bits per element of each module in the published checkpoint, scales included [bits]."""
    return {stored.module: stored.bits_per_element for stored in lowered.stored}


def checkpoint_bytes(lowered: LoweredNetwork) -> float:
    """Size of the published checkpoint [B]."""
    bits = checkpoint_bits(lowered)
    elements = weight_elements_per_module(lowered)
    return sum(count * bits[module] for module, count in elements.items()) / 8.0
