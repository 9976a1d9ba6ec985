"""Checkpoints that lie: truncated and hostile headers, wrong shapes, NaN, too much memory."""

from __future__ import annotations

import dataclasses
import json
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from models.precision.decoder import logits
from models.precision.safetensors_file import safetensors_tensors
from models.precision.weights import read_weights

CONFIG = {
    "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2,
    "num_key_value_heads": 1, "intermediate_size": 12, "vocab_size": 16, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
}  # fmt: skip

SHAPES = {
    "model.embed_tokens.weight": (16, 8), "model.norm.weight": (8,),
    "model.layers.0.self_attn.q_proj.weight": (8, 8), "model.layers.0.self_attn.k_proj.weight": (4, 8),
    "model.layers.0.self_attn.v_proj.weight": (4, 8), "model.layers.0.self_attn.o_proj.weight": (8, 8),
    "model.layers.0.mlp.gate_proj.weight": (12, 8), "model.layers.0.mlp.up_proj.weight": (12, 8),
    "model.layers.0.mlp.down_proj.weight": (8, 12), "model.layers.0.input_layernorm.weight": (8,),
    "model.layers.0.post_attention_layernorm.weight": (8,),
}  # fmt: skip


def tiny_tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def write_checkpoint(folder: Path, tensors: dict[str, np.ndarray], config: dict | None = None) -> Path:
    """Write a directory as Hugging Face does, in fp32."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, values in tensors.items():
        raw = values.tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    write_raw(folder, json.dumps(header).encode(), data)
    (folder / "config.json").write_text(json.dumps(CONFIG | (config or {})))
    return folder


def write_raw(folder: Path, header: bytes, data: bytes, length: int | None = None) -> None:
    prefix = struct.pack("<Q", len(header) if length is None else length)
    (folder / "model.safetensors").write_bytes(prefix + header + data)


def test_safetensors_directory_is_read_and_gives_logits(tmp_path: Path) -> None:
    tensors = tiny_tensors()
    weights = read_weights(write_checkpoint(tmp_path, tensors))
    assert np.array_equal(weights.layers[0]["w_down"], tensors["model.layers.0.mlp.down_proj.weight"])
    assert weights.head is weights.embedding
    result = logits(weights, np.arange(10).reshape(2, 5))
    assert result.shape == (6, 16)
    assert np.isfinite(result).all()


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F64"])
def test_every_stored_type_is_widened_to_float32(tmp_path: Path, dtype: str) -> None:
    values = np.array([1.5, -2.0, 0.25, 3.0], dtype=np.float32)  # exact in every type
    raw = {
        "BF16": (values.view(np.uint32) >> 16).astype(np.uint16).tobytes(),
        "F16": values.astype(np.float16).tobytes(),
        "F64": values.astype(np.float64).tobytes(),
    }[dtype]
    write_raw(tmp_path, entry(dtype=dtype, data_offsets=[0, len(raw)]), raw)
    shapes, load = safetensors_tensors(tmp_path)
    assert shapes == {"a": (2, 2)}
    assert load("a").ravel().tolist() == values.tolist()


def test_forward_pass_is_causal(tmp_path: Path) -> None:
    weights = read_weights(write_checkpoint(tmp_path, tiny_tensors()))
    first, second = np.array([[1, 2, 3, 4]]), np.array([[1, 2, 3, 9]])
    early = [logits(weights, tokens, every=1)[:3] for tokens in (first, second)]
    assert np.allclose(early[0], early[1])


def test_both_layouts_of_rotary_pairs_give_the_same_logits_after_reordering(tmp_path: Path) -> None:
    weights = read_weights(write_checkpoint(tmp_path, tiny_tensors()))
    order = np.array([0, 2, 1, 3])  # halves (i, i + 2) -> pairs (2i, 2i + 1)
    layer = dict(weights.layers[0])
    for site in ("w_q", "w_k"):
        heads = layer[site].reshape(-1, 4, 8)
        layer[site] = heads[:, order].reshape(layer[site].shape)
    config = dataclasses.replace(weights.config, interleaved_rope=True)
    paired = dataclasses.replace(weights, config=config, layers=(layer,))
    tokens = np.arange(12).reshape(1, 12)
    assert np.allclose(logits(weights, tokens), logits(paired, tokens), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused_by_name(tmp_path: Path, bad: float) -> None:
    tensors = tiny_tensors()
    tensors["model.norm.weight"][3] = bad
    with pytest.raises(ValueError, match=r"tensor model\.norm.weight must be finite, got (nan|inf) at index 3"):
        read_weights(write_checkpoint(tmp_path, tensors))


def test_wrong_shape_and_missing_tensor_are_refused_by_name(tmp_path: Path) -> None:
    tensors = tiny_tensors()
    tensors["model.norm.weight"] = np.zeros(9, dtype=np.float32)
    with pytest.raises(ValueError, match=r"tensor model.norm.weight must have shape \(8,\), got \(9,\)"):
        read_weights(write_checkpoint(tmp_path, tensors))
    del tensors["model.norm.weight"]
    with pytest.raises(ValueError, match=r"tensor model\.norm.weight is missing"):
        read_weights(write_checkpoint(tmp_path, tensors))


def test_memory_is_bounded_before_weights_are_loaded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"weights must fit 1e\+03 bytes in float32, got"):
        read_weights(write_checkpoint(tmp_path, tiny_tensors()), max_bytes=1000)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "unknown decoder family 'mamba'"),
        ({"num_hidden_layers": 10**8}, "layers must be at most 1024"),
        ({"hidden_size": -8}, "hidden_size must be a positive number in config.json, got -8"),
        ({"vocab_size": "many"}, "vocab_size must be a positive number in config.json, got 'many'"),
        ({"num_key_value_heads": 3}, "heads must be a multiple of key-value heads"),
    ],
)
def test_configuration_that_makes_no_sense_is_refused(tmp_path: Path, change: dict, message: str) -> None:
    with pytest.raises((ValueError, LookupError), match=message):
        read_weights(write_checkpoint(tmp_path, tiny_tensors(), change))


def entry(**change: object) -> bytes:
    row = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]} | change
    return json.dumps({"a": row}).encode()


@pytest.mark.parametrize(
    ("header", "length", "message"),
    [
        (entry(), 2**62, "header of 4611686018427387904 bytes does not fit the file"),
        (entry(), 10_000, "header of 10000 bytes does not fit the file"),
        (b"{", None, "header must be JSON"),
        (b"[" * 50_000, None, "header must be JSON"),
        (b"[]", None, "header must be a JSON object, got list"),
        (b'{"a": 3}', None, "tensor a must be described by an object, got int"),
        (entry(shape=[2**40, 2**40]), None, "does not take the 16 bytes it claims"),
        (entry(shape=[-2, -2]), None, "must have a shape of whole numbers"),
        (entry(shape="2"), None, "must have a shape of whole numbers"),
        (entry(dtype="Q9"), None, "must have a dtype of F64, F32, F16, BF16, got Q9"),
        (entry(data_offsets=[0, 2**40]), None, "must lie inside the 16 bytes of data"),
        (entry(data_offsets=[16, 0]), None, "must lie inside the 16 bytes of data"),
        (entry(data_offsets=[0]), None, "must have two data_offsets"),
        (json.dumps({n: json.loads(entry())["a"] for n in "ab"}).encode(), None, "tensor b overlaps another one"),
    ],
)  # fmt: skip
def test_hostile_safetensors_header_is_refused(tmp_path: Path, header: bytes, length: int | None, message: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    write_raw(tmp_path, header, b"\0" * 16, length)
    with pytest.raises(ValueError, match=message):
        read_weights(tmp_path)


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, tiny_tensors())
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    for size in (0, 5, 100, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            read_weights(tmp_path)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is truncated"),
        (b"GGML" + b"\0" * 30, "must be a GGUF file of version 2 or 3"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 2**60, 1), r"claims 1152921504606846976 tensors"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 5), "is truncated: the header asks for byte"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + struct.pack("<Q", 2**60), "is truncated"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 0, 2**60), "an array of"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 8, 2**60), "an array of"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 9, 1), "unknown array type 9"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + text("k") + struct.pack("<I", 77), "unknown field type 77"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + text("t") + struct.pack("<I", 2**31), "a tensor claims 2147483648"),
    ],
)  # fmt: skip
def test_hostile_gguf_header_is_refused(tmp_path: Path, raw: bytes, message: str) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(raw)
    with pytest.raises(ValueError, match=message):
        read_weights(file)


def test_gguf_without_a_known_family_and_other_files_are_refused(tmp_path: Path) -> None:
    fields = text("general.architecture") + struct.pack("<I", 8) + text("mamba")
    (tmp_path / "x.gguf").write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + fields)
    with pytest.raises(LookupError, match="unknown decoder family 'mamba'"):
        read_weights(tmp_path / "x.gguf")
    with pytest.raises(
        ValueError, match=r"checkpoint must be a \.gguf file or a directory with safetensors, got y\.bin"
    ):
        read_weights(tmp_path / "y.bin")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(ValueError, match=r"must hold a .safetensors file, found none"):
        read_weights(tmp_path)


def test_hostile_json_takes_at_most_forty_bytes_for_each_of_its_own_and_its_length_is_limited(tmp_path: Path) -> None:
    header = b'{"a":[' + b"{}," * 100_000 + b"0]}"
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="must be described by an object"):
            read_weights(tmp_path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 40 * len(header)
    longest = b" " * 8_000_001
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(longest)) + longest)
    with pytest.raises(ValueError, match="header must be at most 8000000 bytes long, got 8000001"):
        read_weights(tmp_path)


def test_a_file_of_zeros_claims_no_memory_beyond_its_limit(tmp_path: Path) -> None:
    with (tmp_path / "x.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", 2**62))
        file.truncate(2**33)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(ValueError, match="does not fit the file of 8589934592 bytes"):
        read_weights(tmp_path)
