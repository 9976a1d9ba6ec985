"""What a configuration means: layers of a mixer and a feed-forward part, in words that every family shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from models.architectures.checkpoint import Checkpoint

Kind = Literal["decoder", "encoder", "encoder_decoder"]
Stack = Literal["tokens", "source"]


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: ranks of the compressed query (0: not compressed) and of the KV latent."""

    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int


@dataclass(frozen=True)
class Attention:
    """Scaled dot-product attention with its projections."""

    n_heads: int
    n_kv_heads: int
    head_dim_qk: int
    head_dim_v: int
    rotary_dim: int = 0
    """Elements of a head that are rotated (0: positions enter elsewhere)."""
    window_tokens: int = 0
    """How far back a query looks (0: the whole context)."""
    chunked: bool = False
    """The window is a fixed chunk of the sequence, not the last tokens."""
    causal: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["none", "unweighted", "head", "width"] = "none"
    """Norm of query and key: without weights, with one vector per head size, or one over the whole width."""
    sinks: bool = False
    """One learned sink logit per head."""
    output_gate: bool = False
    """The query projection also makes a gate of the attention output."""
    relative_buckets: int = 0
    """Rows of a relative position table that this layer owns."""
    latent: Latent | None = None


@dataclass(frozen=True)
class StateMixer:
    """A recurrent mixer with a constant state: Mamba-2, gated delta net."""

    op: Literal["mamba2", "gated_delta"]
    projection_out: int
    """Columns of the input projection."""
    inner: int
    """Rows of the output projection."""
    state_elements: int
    """Recurrent state and convolution tail of one sequence and layer [elements]."""
    flop_per_token: float
    small_parameters: int
    """Convolution, decay, skip and norm parameters, none of them a GEMM."""
    bias: bool = False


@dataclass(frozen=True)
class FeedForward:
    """Two or three matrices and an activation."""

    intermediate_size: int
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True)
class Experts:
    """Routed experts with what every token meets beside them."""

    n_experts: int
    top_k: int
    intermediate_size: int
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    shared_intermediate_size: int = 0
    shared_gate: bool = False


@dataclass(frozen=True)
class Layer:
    """One layer: an optional mixer, an optional cross attention, an optional feed-forward part, and its norms."""

    mixer: Attention | StateMixer | None
    feed_forward: FeedForward | Experts | None
    cross_attention: Attention | None = None
    n_norms: int = 2
    stack: Stack = "tokens"
    """Whether the layer works on the tokens or, in the encoder of an encoder-decoder, on the source."""


@dataclass(frozen=True)
class Network:
    """The validated meaning of a `config.json`."""

    name: str
    model_type: str
    kind: Kind
    hidden_size: int
    vocabulary_size: int
    max_context_tokens: int
    layers: tuple[Layer, ...]
    checkpoint: Checkpoint
    tied_embeddings: bool = False
    norm_parameters_per_element: int = 1
    """1 for an RMS norm, 2 for a layer norm with bias."""
    n_final_norms: int = 1
    """Norms of the hidden size outside the layers (final, embedding, one per stack)."""
    parallel_residual: bool = False
    """Attention and feed-forward part read the same input, so that one all-reduce serves both."""
    position_rows: int = 0
    """Rows of learned position and token-type tables."""
    has_head: bool = True
    head_size: int = 0
    """Columns of the head where they are not the vocabulary (classifier, pooler)."""
    head_bias: bool = False
    patch_elements: int = 0
    """Inputs of one image patch (0: tokens are looked up)."""
    notes: tuple[str, ...] = ()
    """What the configuration holds that the lowered network leaves out."""

    @property
    def n_layers(self) -> int:
        """Layers of all stacks."""
        return len(self.layers)
