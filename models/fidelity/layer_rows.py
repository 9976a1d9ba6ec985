"""Reads tables of network layers (LLMServingSim) as rows of the operators that the layers are."""

from __future__ import annotations

import fnmatch
import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from models.checks import BoolArray, FloatArray
from models.fidelity.attention import AttentionRows
from models.fidelity.elementwise import ElementwiseRows
from models.fidelity.gemm_rows import GemmRows, gemm_source
from models.fidelity.report import TableError
from models.fidelity.rows import MeasuredRows, chip_id_of_rows, designs_of_chips, read_measured, with_known_devices
from models.tables import DATA, read_json, read_rows

LAYER_COLUMNS = ("device", "model", "tp", "op", "tokens", "latency_us")
CACHE_COLUMNS = ("device", "op", "model", "batch", "prefill_chunk_tokens", "kv_tokens", "latency_us")
DTYPE = "bf16"
"""Format of every profiled layer."""
KINDS = ("linear", "vector", "attention")


@dataclass(frozen=True)
class LayerRows:
    """The rows of one table by the operator they ran; a kind without rows is None."""

    table: str
    linear: GemmRows | None
    resident: BoolArray
    """Linear rows whose weights the program keeps on the chip from call to call."""
    vector: ElementwiseRows | None
    attention: AttentionRows | None
    skipped: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class LayerOperator:
    """What a layer ran: its kind, the sizes it has as products of network sizes, and how its software treats them."""

    kind: str
    operator: str
    n: str
    k: str
    columns: str
    kernels: float
    bytes_per_element: float
    reason: str


def layer_rows(path: Path) -> LayerRows:
    """
    Read `llmservingsim_layers_*.csv`: linear layers, row-wise operators and prompts of one sequence.

    Raises
    ------
    TableError
        If the file is no such table, or names a network or layer that is not known.
    """
    rows = with_known_devices(read_measured(path, LAYER_COLUMNS))
    rows = replace(rows, columns={"dtype": np.full(len(rows), DTYPE), **rows.columns})
    operators = [_operator(rows, i) for i in range(len(rows))]
    kind = np.array([each.kind for each in operators])
    reasons = Counter(each.reason for each in operators if each.kind == "none")
    skipped = tuple({"reason": reason, "rows": count} for reason, count in sorted(reasons.items()))
    parts = {name: np.flatnonzero(kind == name) for name in KINDS}
    return LayerRows(
        rows.table,
        _linear(rows.take(parts["linear"]), [operators[i] for i in parts["linear"]]) if parts["linear"].size else None,
        np.array([bool(operators[i].reason) for i in parts["linear"]], dtype=np.bool_),
        _vector(rows.take(parts["vector"]), [operators[i] for i in parts["vector"]]) if parts["vector"].size else None,
        _prompts(rows.take(parts["attention"])) if parts["attention"].size else None,
        rows.skipped + skipped,
    )


def cache_rows(path: Path) -> AttentionRows:
    """Read `llmservingsim_attention_*.csv`: chunks of one prompt after a cache, and steps of a batch over it."""
    rows = with_known_devices(read_measured(path, CACHE_COLUMNS))
    chunk = rows.number("prefill_chunk_tokens", or_zero=True)
    decode = rows.text("op") == "attention_decode"
    cached = rows.number("kv_tokens", or_zero=True)
    return _attention(rows, decode, rows.number("batch"), np.where(decode, cached, chunk), np.where(decode, 0, cached))


@functools.cache
def network_sizes(model: str) -> Mapping[str, float]:
    """
    Return the sizes of a profiled network by name.

    Raises
    ------
    LookupError
        If the network is in neither table.
    """
    for row in read_rows(DATA / "layer_networks.csv"):
        if row["model"] == model:
            return _catalogue_sizes(row["network"]) if row["network"] else _stated_sizes(row)
    raise LookupError(f"network '{model}' is not in layer_networks.csv")


def _stated_sizes(row: Mapping[str, str]) -> dict[str, float]:
    names = ("hidden", "n_heads", "n_kv_heads", "head_dim", "inter", "n_experts", "vocab")
    return {name: float(row[name]) for name in names}


def _catalogue_sizes(network: str) -> dict[str, float]:
    config = read_json(DATA / "networks" / f"{network}.json")
    heads = float(config["num_attention_heads"])
    return {
        "hidden": float(config["hidden_size"]),
        "n_heads": heads,
        "n_kv_heads": float(config["num_key_value_heads"]),
        "head_dim": float(config.get("head_dim", config["hidden_size"] / heads)),
        "inter": float(config["intermediate_size"]),
        "n_experts": float(config.get("num_local_experts", 0)),
        "vocab": float(config["vocab_size"]),
    }


@functools.cache
def chip_sizes(model: str, tensor_parallel: float) -> Mapping[str, float]:
    """Sizes on one of `tensor_parallel` chips, by the names that `layer_operators.csv` uses [1]."""
    sizes = network_sizes(model)
    heads = sizes["n_heads"] / tensor_parallel
    kv_heads = max(sizes["n_kv_heads"] / tensor_parallel, 1.0)
    dim = sizes["head_dim"]
    return {
        "": 0.0, "hidden": sizes["hidden"], "q": heads * dim, "kv": kv_heads * dim, "qkv": (heads + 2 * kv_heads) * dim,
        "q_and_k": (heads + kv_heads) * dim, "inter": sizes["inter"] / tensor_parallel,
        "whole_inter": sizes["inter"], "two_inter": 2.0 * sizes["inter"] / tensor_parallel,
        "vocab": sizes["vocab"] / tensor_parallel,
        "n_heads": heads, "n_kv_heads": kv_heads, "head_dim": dim,
    }  # fmt: skip


@functools.cache
def _operators() -> list[tuple[dict[str, str], LayerOperator]]:
    return [
        (row, LayerOperator(row["kind"], row["operator"], row["n"], row["k"], row["columns"],
                            float(row["kernels"] or 1), float(row["bytes_per_element"] or 0), row["reason"]))
        for row in read_rows(DATA / "layer_operators.csv")
    ]  # fmt: skip


@functools.cache
def layer_operator(table: str, model: str, op: str) -> LayerOperator | None:
    """Return what a layer of a table ran, from the first row of `layer_operators.csv` that fits; None if none does."""
    for row, found in _operators():
        if row["op"] == op and fnmatch.fnmatch(model, row["models"]) and fnmatch.fnmatch(table, row["tables"]):
            return found
    return None


def _operator(rows: MeasuredRows, index: int) -> LayerOperator:
    model, op = str(rows.text("model")[index]), str(rows.text("op")[index])
    found = layer_operator(rows.table, model, op)
    if found is None:
        raise TableError(f"op '{op}' is not in layer_operators.csv", rows.file, int(rows.lines[index]), "op")
    return found


def _sizes(rows: MeasuredRows, names: list[str]) -> FloatArray:
    """One size of every row on its chip, shape (n_rows,) [1]."""
    tensor_parallel = rows.number("tp")
    try:
        found = [
            chip_sizes(str(model), float(degree))[name]
            for model, degree, name in zip(rows.text("model"), tensor_parallel, names, strict=True)
        ]
    except LookupError as error:
        raise TableError(str(error.args[0]), rows.file, int(rows.lines[0]), "model") from None
    return np.array(found)


def _linear(rows: MeasuredRows, operators: list[LayerOperator]) -> GemmRows:
    return GemmRows(
        table=rows.table,
        source=gemm_source(rows.file),
        device=rows.text("device").astype(object),
        chip=chip_id_of_rows(rows).astype(object),
        dtype=np.full(len(rows), DTYPE, dtype=object),
        m=rows.number("tokens"),
        n=_sizes(rows, [each.n for each in operators]),
        k=_sizes(rows, [each.k for each in operators]),
        latency_s=rows.number("latency_us") * 1e-6,
        lines=rows.lines,
        skipped=[],
    )


def _vector(rows: MeasuredRows, operators: list[LayerOperator]) -> ElementwiseRows:
    tokens = rows.number("tokens")
    kernels = np.array([each.kernels for each in operators])
    elements = tokens * _sizes(rows, [each.columns for each in operators])
    chip_id = chip_id_of_rows(rows)
    return ElementwiseRows(
        rows=rows,
        designs=designs_of_chips(chip_id),
        chip_id=chip_id,
        operator=np.array([each.operator for each in operators]),
        elements=elements,
        traffic_bytes=elements * np.array([each.bytes_per_element for each in operators]) / kernels,
        n_rows=tokens,
        n_kernels=kernels,
        measured_s=rows.number("latency_us") * 1e-6,
    )


def _prompts(rows: MeasuredRows) -> AttentionRows:
    one = np.ones(len(rows))
    return _attention(rows, one < 0, one, rows.number("tokens"), 0.0 * one)


def _attention(
    rows: MeasuredRows, decode: BoolArray, batch: FloatArray, tokens: FloatArray, past: FloatArray
) -> AttentionRows:
    """Attention rows of profiled networks; a table without tensor parallelism ran on one chip."""
    if "tp" not in rows.columns:
        rows = MeasuredRows(rows.file, rows.lines, {**rows.columns, "tp": np.full(len(rows), "1")}, rows.skipped)
    heads, kv_heads, dim = (_sizes(rows, [name] * len(rows))[:, None] for name in ("n_heads", "n_kv_heads", "head_dim"))
    chip_id = chip_id_of_rows(rows)
    no = np.zeros(len(rows), dtype=np.bool_)
    return AttentionRows(
        rows=rows,
        designs=designs_of_chips(chip_id),
        chip_id=chip_id,
        dtype=np.full(len(rows), DTYPE),
        decode=decode,
        batch=batch[:, None],
        tokens=tokens[:, None],
        past_tokens=past[:, None],
        n_heads=heads,
        n_kv_heads=kv_heads,
        head_dim_qk=dim,
        head_dim_v=dim,
        kv_bytes=np.full((len(rows), 1), 2.0),
        kv_elements=2.0 * kv_heads * dim,
        trtllm=no,
        sglang=no,
        infersim=no,
        measured_s=rows.number("latency_us") * 1e-6,
    )
