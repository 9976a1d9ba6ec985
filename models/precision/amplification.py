"""Measures how strongly each rounding site of a real network moves its logits, by fake quantisation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.precision.decoder import Float32Array, logits
from models.precision.error import SITES
from models.precision.formats import FORMATS, fake_quantise, relative_error
from models.precision.mix import PrecisionMix
from models.precision.probe import probe_tokens
from models.precision.profile import AmplificationProfile
from models.precision.weights import WEIGHT_SITES, DecoderWeights, read_weights

DEFAULT_FORMATS = ("fp8_e4m3", "int8", "nvfp4", "int4_g64")
"""Two of each kind: what tells floating point from integer and eight bits from four."""

_WEIGHTS = (*WEIGHT_SITES, "embedding", "head")

_MODULE_OF_SITE = {
    "w_q": "attention_qkv", "w_k": "attention_qkv", "w_v": "attention_qkv", "w_o": "attention_output",
    "w_gate": "ffn_up", "w_up": "ffn_up", "w_down": "ffn_down", "embedding": "embedding", "head": "output_head",
    "qkv_input": "attention_qkv", "o_input": "attention_output", "ffn_input": "ffn_up", "down_input": "ffn_down",
    "head_input": "output_head",
}  # fmt: skip


@dataclass(frozen=True)
class Divergence:
    """How far the logits of a rounded network are from the exact ones."""

    relative_error: float
    """RMS(delta logits) / RMS(logits), both centred over the vocabulary [1]."""
    kl_nats: float
    """Mean KL divergence per token from the exact network [nat]."""
    same_top_fraction: float
    """Share of positions whose most likely token stays."""


@dataclass
class RoundingMeter:
    """Hook that rounds by site and remembers the squared per-row error it made at each."""

    formats: Mapping[str, str]
    """Format of each site that is rounded; the others pass."""
    cache: dict[tuple[str, int, str], NDArray[np.float16]] = field(default_factory=dict)
    """Rounded weights by (site, layer, format), for callers that measure many mixes."""
    squared: dict[str, list[float]] = field(default_factory=dict)

    def __call__(self, values: Float32Array, site: str, layer: int) -> Float32Array:
        """Round `values` where the site has a format."""
        if site not in self.formats:
            return values
        number = self.formats[site]
        if (site, layer, number) in self.cache:
            return self.cache[site, layer, number].astype(np.float32)
        rounded = np.asarray(fake_quantise(values, number), dtype=np.float32)
        self.squared.setdefault(site, []).append(relative_error(values, rounded) ** 2)
        return rounded

    def eps(self, site: str) -> float:
        """RMS over layers of the per-row relative error at a site [1]."""
        return float(np.sqrt(np.mean(self.squared[site])))


def divergence(exact_logits: Float32Array, rounded_logits: Float32Array) -> Divergence:
    """
    Return how far `rounded_logits` are from `exact_logits`, both of shape (n_positions, vocabulary_size).

    Examples
    --------
    >>> divergence(np.array([[1.0, 2.0]]), np.array([[1.0, 2.0]])).kl_nats
    0.0
    """
    exact, rounded = (rows.astype(np.float64) for rows in (exact_logits, rounded_logits))
    centred = exact - exact.mean(axis=1, keepdims=True)
    delta = rounded - exact
    delta -= delta.mean(axis=1, keepdims=True)
    log_p, log_q = _log_softmax(exact), _log_softmax(rounded)
    kl = np.sum(np.exp(log_p) * (log_p - log_q), axis=1)
    return Divergence(
        relative_error=float(np.sqrt(np.mean(delta**2) / np.mean(centred**2))),
        kl_nats=float(kl.mean()),
        same_top_fraction=float(np.mean(exact.argmax(axis=1) == rounded.argmax(axis=1))),
    )


def measure_amplification(
    weights: DecoderWeights,
    tokens: NDArray[np.int64],
    *,
    formats: Iterable[str] = DEFAULT_FORMATS,
    noise_eps: float = 0.03,
    seed: int = 0,
    report: Callable[[str], None] = lambda site: None,
) -> AmplificationProfile:
    """
    Return the amplification of every site: relative logit error per relative rounding error.

    Each site is rounded alone, in all layers at once, with each format. A is e/eps of the formats of a kind, and of
    noise of the size `noise_eps` where no format of that kind was asked for. One probe is one forward pass.

    Parameters
    ----------
    weights : DecoderWeights
    tokens : array of shape (n_sequences, n_tokens)
        Token ids of ordinary text, 160 in all are enough. [1]
    formats : iterable of str
        Formats to round with; their own error is kept in the profile too.
    noise_eps : float
        Size of the noise; amplification is linear from 0.01 to 0.2. [1]
    report : callable
        Called with each site before it is measured.

    Raises
    ------
    ValueError
        If the unrounded network overflows.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        exact_logits = logits(weights, tokens)
    if not np.isfinite(exact_logits).all():
        raise ValueError(f"logits of '{weights.config.name}' must be finite before anything is rounded")
    measured = {}
    for site in SITES:
        report(site)
        measured[site] = {name: _probe_format(weights, tokens, exact_logits, site, name) for name in formats}
        noise = NoiseHook(site, noise_eps, np.random.default_rng(seed))
        e = divergence(exact_logits, logits(weights, tokens, noise)).relative_error
        measured[site]["noise"] = (noise_eps, e)
    return AmplificationProfile(
        name=weights.config.name,
        n_layers=weights.config.n_layers,
        float_amplification={site: _amplification(row, "float") for site, row in measured.items()},
        int_amplification={site: _amplification(row, "int") for site, row in measured.items()},
        eps_at={s: {name: v[0] for name, v in row.items() if name != "noise"} for s, row in measured.items()},
        error_at={s: {name: v[1] for name, v in row.items() if name != "noise"} for s, row in measured.items()},
        source=f"measured on {tokens.size} tokens, one site at a time in all layers",
    )


def measure_checkpoint(
    path: Path,
    *,
    formats: Iterable[str] = DEFAULT_FORMATS,
    max_bytes: float = 8 * 2.0**30,
    report: Callable[[str], None] = lambda site: None,
) -> AmplificationProfile:
    """
    Return the amplification profile of a GGUF file or a safetensors directory, measured on the shipped probe text.

    Write it with `profile.write_profile` and read it back with `profile.read_profile`.

    Parameters
    ----------
    path : Path
        A `.gguf` file, or a directory with `config.json`, `tokenizer.json` and `*.safetensors`.
    formats : iterable of str
        Formats to round with.
    max_bytes : float
        Largest size of the float32 weights. [B]
    report : callable
        Called with each site before it is measured.
    """
    weights = read_weights(path, max_bytes=max_bytes)
    return measure_amplification(weights, probe_tokens(weights.vocabulary), formats=formats, report=report)


def measure_mix(
    weights: DecoderWeights, tokens: NDArray[np.int64], exact_logits: Float32Array, formats: Mapping[str, str]
) -> Divergence:
    """Return the divergence with every site of `formats` (site to format) rounded at once."""
    return divergence(exact_logits, logits(weights, tokens, RoundingMeter(formats)))


def site_formats(mix: PrecisionMix) -> dict[str, str]:
    """Format of every site of a plain dense decoder under a mix without blends."""
    chosen = {"k_cache": mix.key_format, "v_cache": mix.value_format, **mix.vector_format}
    for site, module in _MODULE_OF_SITE.items():
        operand = mix.weight_format if site in _WEIGHTS else mix.activation_format
        chosen[site] = operand[module]
    return chosen


@dataclass(frozen=True)
class NoiseHook:
    """Hook that adds noise of a stated relative size at one site."""

    site: str
    eps: float
    rng: np.random.Generator

    def __call__(self, values: Float32Array, site: str, layer: int) -> Float32Array:
        """Gaussian noise of the matrix's RMS on weights; proportional to each value, as a float rounds, elsewhere."""
        if site != self.site:
            return values
        draw = self.rng.standard_normal(values.shape, dtype=np.float32) * np.float32(self.eps)
        if site in _WEIGHTS:
            return np.asarray(values + draw * np.sqrt(np.mean(values**2)))
        noisy: Float32Array = values * (1 + draw)
        return noisy


def _probe_format(
    weights: DecoderWeights, tokens: NDArray[np.int64], exact_logits: Float32Array, site: str, name: str
) -> tuple[float, float]:
    """Rounding error and logit error of one site in one format."""
    meter = RoundingMeter({site: name})
    e = divergence(exact_logits, logits(weights, tokens, meter)).relative_error
    return meter.eps(site), e


def _amplification(row: Mapping[str, tuple[float, float]], kind: str) -> float:
    """Geometric mean of e/eps over the formats of a kind, of the noise where there is none."""
    of_kind = [row[n] for n in row if n != "noise" and FORMATS[n].kind == kind] or [row["noise"]]
    return float(np.exp(np.mean([np.log(max(e, 1e-12) / max(eps, 1e-12)) for eps, e in of_kind])))


def _log_softmax(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = rows - rows.max(axis=1, keepdims=True)
    normalised: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return normalised
