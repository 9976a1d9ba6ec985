"""Reads the weights of a llama-like decoder from a GGUF file or a safetensors directory, trusting nothing in them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.checks import require_known
from models.precision.gguf_file import gguf_tensors
from models.precision.safetensors_file import safetensors_tensors

Float32Array = NDArray[np.float32]

WEIGHT_SITES = ("w_q", "w_k", "w_v", "w_o", "w_gate", "w_up", "w_down")
"""Matrices of one layer, each of shape (n_out, n_in)."""

_HF_NAMES = {
    "w_q": "self_attn.q_proj", "w_k": "self_attn.k_proj", "w_v": "self_attn.v_proj", "w_o": "self_attn.o_proj",
    "w_gate": "mlp.gate_proj", "w_up": "mlp.up_proj", "w_down": "mlp.down_proj",
    "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
_GGUF_NAMES = {
    "w_q": "attn_q", "w_k": "attn_k", "w_v": "attn_v", "w_o": "attn_output",
    "w_gate": "ffn_gate", "w_up": "ffn_up", "w_down": "ffn_down",
    "attention_norm": "attn_norm", "ffn_norm": "ffn_norm",
}  # fmt: skip
_MODEL_TYPES = ("llama", "mistral", "qwen2")
"""Decoders with RMSNorm, rotary positions, grouped-query attention and a SwiGLU, which the forward pass computes."""


_MAX_LAYERS = 1024
"""More than any decoder has; a larger number in a configuration is not believed."""


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a decoder; `interleaved_rope` says that pairs (2i, 2i+1) rotate, not (i, i + head_dim / 2)."""

    name: str
    n_layers: int
    hidden_size: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    ffn_size: int
    vocabulary_size: int
    rope_base: float
    norm_epsilon: float
    interleaved_rope: bool


@dataclass(frozen=True)
class DecoderWeights:
    """All weights in float32; `layers[i]` maps the sites, the two norms and optional `b_q`, `b_k`, `b_v`."""

    config: DecoderConfig
    embedding: Float32Array
    head: Float32Array
    final_norm: Float32Array
    layers: tuple[Mapping[str, Float32Array], ...]
    vocabulary: tuple[str, ...] = ()


def read_weights(path: Path, *, max_bytes: float = 8 * 2.0**30) -> DecoderWeights:
    """
    Return the weights of a decoder in float32.

    Parameters
    ----------
    path : Path
        A `.gguf` file, or a directory with `config.json` and `*.safetensors`.
    max_bytes : float
        Largest size of the float32 weights that is read; checked on the header, before any weight is. [B]

    Raises
    ------
    ValueError
        If the file is truncated or its header lies, the decoder is of another family, a tensor is missing, has the
        wrong shape or holds NaN or infinity, or the weights exceed `max_bytes`.
    """
    if path.is_dir():
        return _read_safetensors_directory(path, max_bytes)
    if path.suffix == ".gguf" and path.is_file():
        return _read_gguf(path, max_bytes)
    raise ValueError(f"checkpoint must be a .gguf file or a directory with safetensors, got {path.name}")


def _read_gguf(path: Path, max_bytes: float) -> DecoderWeights:
    fields, shapes, load = gguf_tensors(path)
    family = require_known("decoder family", str(fields.get("general.architecture")), _MODEL_TYPES)

    def number(key: str, default: float | None = None) -> float:
        value = fields.get(f"{family}.{key}", default)
        return _positive(f"{family}.{key}", value, path.name)

    heads = number("attention.head_count")
    hidden = number("embedding_length")
    config = DecoderConfig(
        name=str(fields.get("general.name") or path.stem),
        n_layers=int(number("block_count")),
        hidden_size=int(hidden),
        n_heads=int(heads),
        n_kv_heads=int(number("attention.head_count_kv", heads)),
        head_dim=int(number("attention.key_length", hidden // heads)),
        ffn_size=int(number("feed_forward_length")),
        vocabulary_size=(*shapes.get("token_embd.weight", ()), 0)[0],
        rope_base=number("rope.freq_base", 10000.0),
        norm_epsilon=number("attention.layer_norm_rms_epsilon", 1e-5),
        interleaved_rope=family != "qwen2",
    )
    names = {"embedding": "token_embd.weight", "final_norm": "output_norm.weight", "head": "output.weight"}
    layer_names = {ours: f"blk.{{}}.{theirs}.weight" for ours, theirs in _GGUF_NAMES.items()}
    layer_names |= {f"b_{s}": f"blk.{{}}.attn_{s}.bias" for s in "qkv"}
    tokens = fields.get("tokenizer.ggml.tokens")
    vocabulary = tuple(map(str, tokens)) if isinstance(tokens, list) else ()
    return _assemble(config, shapes, load, names, layer_names, vocabulary, max_bytes)


def _read_safetensors_directory(path: Path, max_bytes: float) -> DecoderWeights:
    document = _json_object(path / "config.json")
    require_known("decoder family", str(document.get("model_type")), _MODEL_TYPES)

    def number(key: str, default: float | None = None) -> float:
        return _positive(key, document.get(key, default), "config.json")

    heads = number("num_attention_heads")
    hidden = number("hidden_size")
    config = DecoderConfig(
        name=path.name,
        n_layers=int(number("num_hidden_layers")),
        hidden_size=int(hidden),
        n_heads=int(heads),
        n_kv_heads=int(number("num_key_value_heads", heads)),
        head_dim=int(number("head_dim", hidden // heads) if document.get("head_dim") else hidden // heads),
        ffn_size=int(number("intermediate_size")),
        vocabulary_size=int(number("vocab_size")),
        rope_base=number("rope_theta", 10000.0),
        norm_epsilon=number("rms_norm_eps", 1e-6),
        interleaved_rope=False,
    )
    shapes, load = safetensors_tensors(path)
    names = {"embedding": "model.embed_tokens.weight", "final_norm": "model.norm.weight", "head": "lm_head.weight"}
    layer_names = {ours: f"model.layers.{{}}.{theirs}.weight" for ours, theirs in _HF_NAMES.items()}
    layer_names |= {f"b_{s}": f"model.layers.{{}}.self_attn.{s}_proj.bias" for s in "qkv"}
    return _assemble(config, shapes, load, names, layer_names, _hf_vocabulary(path), max_bytes)


def _assemble(
    config: DecoderConfig,
    shapes: Mapping[str, tuple[int, ...]],
    load: Callable[[str], Float32Array],
    names: Mapping[str, str],
    layer_names: Mapping[str, str],
    vocabulary: tuple[str, ...],
    max_bytes: float,
) -> DecoderWeights:
    """Check every shape against the configuration, then load one tensor after the other."""
    expected = dict(_expected_shapes(config, names, layer_names))
    present = {name: shape for name, shape in expected.items() if name in shapes or not _is_optional(name, names)}
    for name, shape in present.items():
        if name not in shapes:
            raise ValueError(f"tensor {name} is missing in checkpoint '{config.name}'")
        if shapes[name] != shape:
            raise ValueError(f"tensor {name} must have shape {shape}, got {shapes[name]}")
    size_bytes = 4.0 * sum(math.prod(shape) for shape in present.values())
    if size_bytes > max_bytes:
        raise ValueError(f"weights must fit {max_bytes:.3g} bytes in float32, got {size_bytes:.3g}")
    read = {name: _finite(name, load(name)) for name in present}
    layers = tuple(
        {ours: read[t.format(i)] for ours, t in layer_names.items() if t.format(i) in read}
        for i in range(config.n_layers)
    )
    embedding = read[names["embedding"]]
    return DecoderWeights(
        config, embedding, read.get(names["head"], embedding), read[names["final_norm"]], layers, vocabulary
    )


def _expected_shapes(
    config: DecoderConfig, names: Mapping[str, str], layer_names: Mapping[str, str]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    c = config
    if c.n_layers > _MAX_LAYERS:
        raise ValueError(f"layers must be at most {_MAX_LAYERS}, got {c.n_layers}")
    q, kv = c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
    if c.n_heads % c.n_kv_heads or c.head_dim % 2:
        raise ValueError(f"heads must be a multiple of key-value heads, got {c.n_heads} and {c.n_kv_heads}")
    shapes: dict[str, tuple[int, ...]] = {
        "w_q": (q, c.hidden_size), "w_k": (kv, c.hidden_size), "w_v": (kv, c.hidden_size),
        "w_o": (c.hidden_size, q), "w_gate": (c.ffn_size, c.hidden_size), "w_up": (c.ffn_size, c.hidden_size),
        "w_down": (c.hidden_size, c.ffn_size), "attention_norm": (c.hidden_size,), "ffn_norm": (c.hidden_size,),
        "b_q": (q,), "b_k": (kv,), "b_v": (kv,),
    }  # fmt: skip
    yield names["embedding"], (c.vocabulary_size, c.hidden_size)
    yield names["head"], (c.vocabulary_size, c.hidden_size)
    yield names["final_norm"], (c.hidden_size,)
    for i in range(c.n_layers):
        for ours, template in layer_names.items():
            yield template.format(i), shapes[ours]


def _is_optional(name: str, names: Mapping[str, str]) -> bool:
    return name == names["head"] or name.endswith(".bias")


def _finite(name: str, values: Float32Array) -> Float32Array:
    bad = ~np.isfinite(values)
    if bad.any():
        first = int(np.flatnonzero(bad.ravel())[0])
        raise ValueError(f"tensor {name} must be finite, got {values.ravel()[first]} at index {first}")
    return values


def _positive(name: str, value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ValueError(f"{name} must be a positive number in {where}, got {value!r}")
    return float(value)


def _json_object(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path.name} must be a JSON file: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path.name} must hold a JSON object, got {type(document).__name__}")
    return document


def _hf_vocabulary(path: Path) -> tuple[str, ...]:
    """Tokens in the order of their ids, or nothing where the directory has no `tokenizer.json`."""
    if not (path / "tokenizer.json").is_file():
        return ()
    model = _json_object(path / "tokenizer.json").get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict):
        return ()
    return tuple(sorted(vocabulary, key=lambda token: int(vocabulary[token])))
