"""`chipfit amplification`: a profile of a small checkpoint, and one line for bad input."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from models.precision.error import SITES
from models.precision.profile import read_profile
from models.tables import DATA
from service.cli import app

SIZES = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 24}


def checkpoint(folder: Path, *, layers: int = 1) -> Path:
    """A random decoder in safetensors whose vocabulary is the letters of the probe text."""
    text = (DATA / "precision" / "probe_text.txt").read_text(encoding="utf-8")
    letters = sorted({{" ": "Ġ", "\n": "Ċ"}.get(letter, letter) for letter in text})
    config = SIZES | {"model_type": "llama", "num_hidden_layers": layers, "vocab_size": len(letters)}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    vocabulary = {"model": {"vocab": {letter: i for i, letter in enumerate(letters)}}}
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    write_tensors(folder / "model.safetensors", shapes(len(letters), layers))
    return folder


def shapes(vocabulary: int, layers: int) -> dict[str, tuple[int, ...]]:
    """Tensors of the decoder as Hugging Face names them."""
    layer = {
        "self_attn.q_proj": (16, 16), "self_attn.k_proj": (8, 16), "self_attn.v_proj": (8, 16),
        "self_attn.o_proj": (16, 16), "mlp.gate_proj": (24, 16), "mlp.up_proj": (24, 16), "mlp.down_proj": (16, 24),
        "input_layernorm": (16,), "post_attention_layernorm": (16,),
    }  # fmt: skip
    named = {f"model.layers.{i}.{name}.weight": shape for i in range(layers) for name, shape in layer.items()}
    return named | {"model.embed_tokens.weight": (vocabulary, 16), "model.norm.weight": (16,)}


def write_tensors(path: Path, wanted: dict[str, tuple[int, ...]]) -> None:
    rng, header, data = np.random.default_rng(0), {}, b""
    for name, shape in wanted.items():
        raw = rng.normal(size=shape).astype(np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_profile_is_printed_as_json_and_written_for_later_use(tmp_path: Path) -> None:
    out = tmp_path / "profile.json"
    result = CliRunner().invoke(app, ["amplification", str(checkpoint(tmp_path / "tiny")), "--json", "--out", str(out)])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert set(document["float_amplification"]) == set(SITES)
    assert read_profile(out).n_layers == document["n_layers"] == 1


def test_table_lists_every_site(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["amplification", str(checkpoint(tmp_path / "tiny"))])
    assert result.exit_code == 0, result.output
    assert all(site in result.stdout for site in SITES)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "config.json").write_text("{"), "config.json must be a JSON file"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 64), "safetensors"),
        (lambda folder: write_tensors(folder / "model.safetensors", {"a": (2,)}), "is missing in checkpoint"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "vocabulary"),
    ],
    ids=["config", "header", "tensors", "vocabulary"],
)
def test_a_damaged_checkpoint_is_one_line_and_exit_code_two(tmp_path: Path, damage, message: str) -> None:
    folder = checkpoint(tmp_path / "tiny")
    damage(folder)
    result = CliRunner().invoke(app, ["amplification", str(folder), "--json"])
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_a_path_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["amplification", str(tmp_path / "nothing.gguf")])
    assert result.exit_code == 2
    assert "must be a .gguf file or a directory with safetensors" in result.stderr
