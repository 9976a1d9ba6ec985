"""Networks with an encoder: BERT, vision transformers, and T5 with its decoder."""

from __future__ import annotations

from models.architectures.checkpoint import Checkpoint
from models.architectures.decoder import require_divides
from models.architectures.fields import CONTEXT_LIMIT, LAYER_LIMIT, Fields
from models.architectures.network import Attention, FeedForward, Layer, Network


def read_bert(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """BERT and RoBERTa with their pooler, without a task head."""
    layer, hidden = _encoder_layer(fields, bias=True)
    positions = fields.size("max_position_embeddings", maximum=CONTEXT_LIMIT)
    return Network(
        name, fields.text("model_type"), "encoder", hidden, fields.size("vocab_size"), positions,
        (layer,) * fields.size("num_hidden_layers", maximum=LAYER_LIMIT), checkpoint,
        norm_parameters_per_element=2, n_final_norms=1, head_size=hidden, head_bias=True,
        position_rows=positions + fields.size("type_vocab_size", default=2, minimum=0),
        notes=("the pooler is the head; heads of pre-training and tasks are left out",),
    )  # fmt: skip


def read_vit(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """Vision transformer with a class token and a linear classifier."""
    layer, hidden = _encoder_layer(fields, bias=fields.flag("qkv_bias", True))
    image, patch = fields.size("image_size"), fields.size("patch_size")
    require_divides(fields, "patch_size", patch, "image_size", image)
    n_tokens = (image // patch) ** 2 + 1
    n_labels = fields.size("num_labels", default=_n_labels(fields))
    return Network(
        name, "vit", "encoder", hidden, 0, n_tokens,
        (layer,) * fields.size("num_hidden_layers", maximum=LAYER_LIMIT), checkpoint, norm_parameters_per_element=2,
        position_rows=n_tokens + 1, head_size=n_labels, head_bias=True,
        patch_elements=patch**2 * fields.size("num_channels", default=3),
    )  # fmt: skip


def read_t5(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """T5: an encoder over the source, a decoder with cross attention, relative positions in the first layers."""
    hidden, n_heads, head_dim = fields.size("d_model"), fields.size("num_heads"), fields.size("d_kv")
    buckets = fields.size("relative_attention_num_buckets", default=32)
    activation = fields.text("feed_forward_proj", default="relu")
    part = FeedForward(fields.size("d_ff"), gated=activation.startswith("gated-"))
    fields.flag("is_gated_act", part.gated)
    n_encoder = fields.size("num_layers", maximum=LAYER_LIMIT)
    n_decoder = fields.size("num_decoder_layers", default=n_encoder, maximum=LAYER_LIMIT)
    fields.flag("is_encoder_decoder", True)

    def attention(causal: bool, n_buckets: int = 0) -> Attention:
        return Attention(n_heads, n_heads, head_dim, head_dim, causal=causal, relative_buckets=n_buckets)

    encoder = tuple(
        Layer(attention(False, 0 if layer else buckets), part, stack="source") for layer in range(n_encoder)
    )
    decoder = tuple(
        Layer(attention(True, 0 if layer else buckets), part, attention(False), n_norms=3) for layer in range(n_decoder)
    )
    return Network(
        name, fields.text("model_type"), "encoder_decoder", hidden, fields.size("vocab_size"),
        fields.size("n_positions", default=512, maximum=CONTEXT_LIMIT), encoder + decoder, checkpoint,
        tied_embeddings=fields.flag("tie_word_embeddings", True), n_final_norms=2,
    )  # fmt: skip


def _n_labels(fields: Fields) -> int:
    return max(len(fields.object("id2label").config), 1) if fields.has("id2label") else 2


def _encoder_layer(fields: Fields, bias: bool) -> tuple[Layer, int]:
    hidden, n_heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    require_divides(fields, "num_attention_heads", n_heads, "hidden_size", hidden)
    head_dim = hidden // n_heads
    attention = Attention(n_heads, n_heads, head_dim, head_dim, causal=False, qkv_bias=bias, output_bias=True)
    return Layer(attention, FeedForward(fields.size("intermediate_size"), gated=False, bias=True)), hidden
