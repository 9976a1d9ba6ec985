"""What every network becomes: operators whose sizes are known once the number of tokens is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Shard = Literal["column", "row", "replicated", "expert"]
Rows = Literal["tokens", "sampled", "routed"]


@dataclass(frozen=True)
class LinearOperator:
    """
    One weight matrix multiplied with the tokens of a step: m = rows, n = n_out, k = n_in.

    `rows` says which tokens: every one, only those that are sampled (output head), or those that a router
    sends to each of `n_experts` experts (`top_k` of them per token). `count` is how often the operator occurs
    in one forward pass (layers). `shard` says how tensor parallelism cuts the matrix.
    """

    module: str
    n_in: int
    n_out: int
    count: float
    rows: Rows = "tokens"
    shard: Shard = "column"
    n_experts: int = 0
    top_k: int = 0
    bias: bool = False
    gated: bool = False
    """True where n_out holds two fused halves (gate and up), which a published MLP counts as two matrices."""


@dataclass(frozen=True)
class AttentionOperator:
    """
    Scaled dot-product attention of `count` layers over a KV cache.

    `window_tokens` limits how far back a query looks (0: the whole context). `kv_elements_per_token` is what the
    cache keeps for one token and layer: 2 n_kv_heads head_dim, or the latent of MLA, which all heads share.
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


@dataclass(frozen=True)
class StateOperator:
    """A recurrent mixer (state space, linear attention) with a constant state per sequence and layer."""

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
    """All-reduces of one activation row per layer under tensor parallelism (2; 1 with parallel residual)."""
    n_parameters: float
    n_active_parameters: float
    """Parameters that one token meets, input embedding excluded, output head included."""
    embedding_parameters: float
    """Input embedding and position tables: stored, looked up, never multiplied."""
    other_parameters: float
    """Norms, biases and what else is stored without being a matrix of `linears`."""
