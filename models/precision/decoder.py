"""Forward pass of a llama-like decoder in NumPy, with a hook at every place where a format could round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from models.precision.weights import DecoderConfig, DecoderWeights

Float32Array = NDArray[np.float32]
Hook = Callable[[Float32Array, str, int], Float32Array]
"""(values, site, layer) -> values as the format of that site would hold them; rows along the last axis."""


def exact(values: Float32Array, site: str, layer: int) -> Float32Array:
    """Hook that rounds nothing."""
    return values


def logits(weights: DecoderWeights, tokens: NDArray[np.int64], hook: Hook = exact, *, every: int = 2) -> Float32Array:
    """
    Return the logits at every second position.

    Parameters
    ----------
    weights : DecoderWeights
    tokens : array of shape (n_sequences, n_tokens)
        Token ids. [1]
    hook : callable
        Sees every weight and activation by the site names of `sites.csv`.
    every : int
        Distance of the positions whose logits are returned. [1]

    Returns
    -------
    array of shape (n_positions, vocabulary_size)
        Logits of all sequences one after the other. [1]
    """
    config = weights.config
    if tokens.ndim != 2 or tokens.size == 0 or tokens.min() < 0 or tokens.max() >= config.vocabulary_size:
        raise ValueError(f"token ids must be a table of whole numbers below {config.vocabulary_size}")
    hidden = hook(weights.embedding, "embedding", 0)[tokens]
    rotation = _rotation(config, tokens.shape[1])
    for index, layer in enumerate(weights.layers):
        normed = hook(_rms_norm(hidden, layer["attention_norm"], config), "norm", index)
        hidden = hook(hidden + _attention(config, layer, normed, rotation, hook, index), "residual", index)
        normed = hook(_rms_norm(hidden, layer["ffn_norm"], config), "norm", index)
        hidden = hook(hidden + _ffn(layer, normed, hook, index), "residual", index)
    normed = hook(_rms_norm(hidden, weights.final_norm, config), "norm", config.n_layers)
    rows = normed[:, ::every].reshape(-1, config.hidden_size)
    return hook(rows, "head_input", 0) @ hook(weights.head, "head", 0).T


def _attention(config: DecoderConfig, layer, normed, rotation, hook: Hook, index: int) -> Float32Array:  # type: ignore[no-untyped-def]
    """Grouped-query attention of one layer, shape of the residual stream."""
    n_sequences, n_tokens, _ = normed.shape
    rows = hook(normed, "qkv_input", index)
    query, key, value = (rows @ hook(layer[f"w_{s}"], f"w_{s}", index).T + layer.get(f"b_{s}", 0) for s in "qkv")
    query = hook(_rotate(query, rotation, config), "query", index)
    key = hook(_rotate(key, rotation, config), "k_cache", index)
    value = hook(value, "v_cache", index)
    groups = config.n_heads // config.n_kv_heads
    query = query.reshape(n_sequences, n_tokens, config.n_kv_heads, groups, config.head_dim).transpose(0, 2, 3, 1, 4)
    key = key.reshape(n_sequences, n_tokens, config.n_kv_heads, 1, config.head_dim).transpose(0, 2, 3, 4, 1)
    value = value.reshape(n_sequences, n_tokens, config.n_kv_heads, 1, config.head_dim).transpose(0, 2, 3, 1, 4)
    future = np.triu(np.ones((n_tokens, n_tokens), dtype=bool), 1)
    scores = np.where(future, np.float32(0), (query @ key) / np.float32(np.sqrt(config.head_dim)))
    scores = np.where(future, np.float32(-np.inf), hook(scores, "scores", index))
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities = hook(powers / powers.sum(axis=-1, keepdims=True), "probabilities", index)
    mixed = (probabilities @ value).transpose(0, 3, 1, 2, 4).reshape(n_sequences, n_tokens, -1)
    return np.asarray(hook(mixed, "o_input", index) @ hook(layer["w_o"], "w_o", index).T)


def _ffn(layer, normed: Float32Array, hook: Hook, index: int) -> Float32Array:  # type: ignore[no-untyped-def]
    """SwiGLU of one layer, shape of the residual stream."""
    rows = hook(normed, "ffn_input", index)
    gate = rows @ hook(layer["w_gate"], "w_gate", index).T
    with np.errstate(over="ignore"):
        activated = hook(gate / (1 + np.exp(-gate)), "ffn_hidden", index)
    product = activated * (rows @ hook(layer["w_up"], "w_up", index).T)
    return np.asarray(hook(product, "down_input", index) @ hook(layer["w_down"], "w_down", index).T)


def _rms_norm(hidden: Float32Array, gain: Float32Array, config: DecoderConfig) -> Float32Array:
    mean_square = np.mean(hidden * hidden, axis=-1, keepdims=True)
    return np.asarray(hidden / np.sqrt(mean_square + np.float32(config.norm_epsilon)) * gain, dtype=np.float32)


def _rotation(config: DecoderConfig, n_tokens: int) -> tuple[Float32Array, Float32Array]:
    """Cosine and sine of shape (n_tokens, 1, head_dim / 2)."""
    frequency = config.rope_base ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
    angle = np.arange(n_tokens)[:, None, None] * frequency
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def _rotate(rows: Float32Array, rotation: tuple[Float32Array, Float32Array], config: DecoderConfig) -> Float32Array:
    """Rotary positions on all heads of a row."""
    cosine, sine = rotation
    heads = rows.reshape(*rows.shape[:-1], -1, config.head_dim)
    half = config.head_dim // 2
    split = (slice(0, None, 2), slice(1, None, 2)) if config.interleaved_rope else (slice(0, half), slice(half, None))
    first, second = heads[..., split[0]], heads[..., split[1]]
    turned = np.empty_like(heads)
    turned[..., split[0]] = first * cosine - second * sine
    turned[..., split[1]] = first * sine + second * cosine
    return turned.reshape(rows.shape)
