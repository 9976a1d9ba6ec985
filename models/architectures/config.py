"""Reads a Hugging Face `config.json` into a `Network`, and the catalogue of networks that come with chipfit."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from models.architectures.checkpoint import Checkpoint, read_checkpoint, read_dtype, unmatched_exclusions
from models.architectures.families import ARCHITECTURES
from models.architectures.fields import Fields
from models.architectures.network import Network
from models.checks import require_known
from models.tables import DATA, read_json

__all__ = ["Network", "load_network", "network_names", "read_network"]

LEFT_OUT_PARTS = ("vision_config", "audio_config", "speech_config")
"""Towers beside the text model: accepted, left out and noted."""


PREDICTION_KEYS = (
    "num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_hybrid_override_pattern", "mtp_layers_block_type",
    "use_mtp", "num_mtp_modules", "mtp_transformer_layers",
)  # fmt: skip
"""Layers that predict further tokens: in no published total, left out and noted."""


def read_network(config: Mapping[str, Any], name: str) -> Network:
    """
    Return the meaning of a configuration as Hugging Face writes it.

    A key that changes the shape and is not understood is an error; keys that leave the shape alone are listed in
    `models/data/networks/harmless_keys.csv`. A multimodal file is read through its `text_config`; the towers beside
    it are left out and noted.

    Parameters
    ----------
    config : mapping
        The parsed JSON object, with `text_config` and `quantization_config` where it has them.
    name : str
        What the network is called in results.

    Raises
    ------
    UnknownNameError
        If `model_type`, the quantisation method or the type of the weights is not known.
    ValueError
        If a key is missing, out of bounds, contradictory or not understood; the message names its path.

    Examples
    --------
    >>> load_network("llama-3.1-8b").n_layers
    32
    """
    outer = Fields(config, "network")
    notes = [f"{part}: left out, the text model alone is read" for part in LEFT_OUT_PARTS if outer.has(part)]
    inner = outer.object("text_config") if outer.has("text_config") else outer
    notes += [f"{key}: prediction layers are left out" for key in PREDICTION_KEYS if inner.raw(key)]
    model_type = inner.text("model_type", default="") or outer.text("model_type")
    reader = ARCHITECTURES[require_known(f"{inner.path}.model_type", model_type, ARCHITECTURES)]
    network = reader(_with_shared_keys(inner, outer), name, _read_checkpoint(outer, inner))
    inner.require_all_understood()
    if inner is not outer:
        outer.text("model_type", default="")
        outer.require_all_understood()
    notes += [
        f"quantization_config: '{pattern}' names no module of a known name"
        for pattern in unmatched_exclusions(network.checkpoint, network.n_layers)
    ]
    return dataclasses.replace(network, notes=network.notes + tuple(notes))


@functools.cache
def load_network(name: str) -> Network:
    """Return a network of the catalogue by its name."""
    require_known("network", name, network_names())
    return read_network(read_json(DATA / "networks" / f"{name}.json"), name)


@functools.cache
def network_names() -> tuple[str, ...]:
    """Names of the networks of the catalogue, sorted."""
    return tuple(sorted(path.stem for path in (DATA / "networks").glob("*.json")))


def _read_checkpoint(outer: Fields, inner: Fields) -> Checkpoint:
    holder = inner if inner.has("torch_dtype") or inner.has("dtype") else outer
    dtype = read_dtype(holder)
    for fields in (outer, inner):
        for key in ("quantization_config", "compression_config"):
            if fields.has(key):
                return read_checkpoint(fields.object(key), dtype)
    return Checkpoint(dtype)


def _with_shared_keys(inner: Fields, outer: Fields) -> Fields:
    """Let a nested model see the one shape key that files write beside `text_config`."""
    if inner is not outer and outer.has("tie_word_embeddings") and not inner.has("tie_word_embeddings"):
        inner.config = {**inner.config, "tie_word_embeddings": outer.config["tie_word_embeddings"]}
    return inner
