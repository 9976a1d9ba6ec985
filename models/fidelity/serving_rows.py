"""Reads published serving throughput: which rows can be predicted, and the engine and work behind each."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.architectures import load_network, lower
from models.architectures.lowered import LoweredNetwork
from models.checks import BoolArray, FloatArray, IntArray
from models.fidelity.rows import MeasuredRows, StringArray, chip_id_of_rows, read_measured, with_known_devices
from models.precision.mix import PrecisionMix, precision_mix, recipe
from models.tables import DATA, read_rows

COLUMNS = (
    "device", "n_devices", "model", "dtype_weights", "dtype_kv", "input_tokens", "output_tokens", "batch_size",
    "tensor_parallel", "pipeline_parallel", "expert_parallel", "attention_data_parallel", "metric", "value",
    "throughput_tokens_per_s", "batching", "framework", "version",
)  # fmt: skip
FIRST_TOKEN, THROUGHPUT = "first_token_latency_ms", "output_tokens_per_s"
RECIPE_OF = {"FP16": "bf16", "BF16": "bf16", "FP8": "fp8_kv8", "FP4": "nvfp4"}
"""Weight format as a page prints it -> precision mix; the cache is fp8 beside narrow weights."""
CACHE_OF = {"": None, "FP8": "fp8_e4m3", "FP16": "bf16", "BF16": "bf16"}
OTHER_REQUESTS = 3000.0
"""Requests of an in-flight run whose length pair `serving_runs.csv` does not name."""
NARROW_BITS = 5.0
"""A checkpoint whose experts are stored below this is served as it is, whatever a page's heading says."""


@dataclass(frozen=True)
class ServingRows:
    """Rows that can be predicted, arrays of shape (n_rows,), with the mixes that `mix` indexes."""

    rows: MeasuredRows
    chip_id: StringArray
    network: StringArray
    group: StringArray
    mixes: tuple[PrecisionMix, ...]
    mix: IntArray
    n_chips: FloatArray
    tensor_parallel: FloatArray
    pipeline_parallel: FloatArray
    attention_data_parallel: FloatArray
    on_lanes: FloatArray
    prompt_tokens: FloatArray
    output_tokens: FloatArray
    batch: FloatArray
    n_requests: FloatArray
    most_sequences: FloatArray
    host_sharing_exponent: FloatArray
    measured_s: FloatArray

    def take(self, index: BoolArray | NDArray[Any]) -> ServingRows:
        """Return the rows at `index`."""
        arrays = {
            name: getattr(self, name)[index] for name in self.__dataclass_fields__ if name not in ("rows", "mixes")
        }
        return replace(self, rows=self.rows.take(index), **arrays)


def serving_rows(path: Path) -> ServingRows:
    """
    Read `serving_throughput.csv`; rows that say too little to be predicted are counted in `skipped` with the reason.

    Raises
    ------
    TableError
        If the file is no such table.
    """
    rows = with_known_devices(read_measured(path, COLUMNS))
    reasons = np.array([_missing(row) for row in _records(rows)], dtype=np.str_)
    names, counts = np.unique(reasons[reasons != ""], return_counts=True)
    skipped = tuple({"reason": str(n), "rows": int(c)} for n, c in zip(names, counts, strict=True))
    kept = rows.take(reasons == "")
    return _read(replace(kept, skipped=rows.skipped + skipped))


def _records(rows: MeasuredRows) -> list[dict[str, str]]:
    columns = {name: rows.text(name).tolist() for name in COLUMNS}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _missing(row: Mapping[str, str]) -> str:
    """Why a row cannot be predicted, or an empty string."""
    if row["model"] not in networks():
        return f"network '{row['model']}' is not in the catalogue"
    if not (row["input_tokens"].isdigit() and (row["output_tokens"].isdigit() or row["metric"] == FIRST_TOKEN)):
        return "lengths of the requests are not printed"
    if row["framework"] not in engines():
        return f"engine '{row['framework']}' is not known"
    if row["dtype_weights"] not in RECIPE_OF or row["dtype_kv"] not in CACHE_OF:
        return f"format '{row['dtype_weights']}' is not known"
    if not (row["tensor_parallel"].isdigit() and row["pipeline_parallel"].isdigit()):
        return "parallelism is not printed"
    late = _version(row["version"]) >= _version(engines()[row["framework"]]["expert_parallel_version"])
    if _routed(networks()[row["model"]]) and int(row["n_devices"]) > 1 and not row["expert_parallel"] and late:
        return "expert and attention parallelism are not printed"
    return ""


@functools.cache
def networks() -> Mapping[str, LoweredNetwork]:
    """Model name of a published table -> its lowered network."""
    return {row["model"]: lowered(row["network"]) for row in read_rows(DATA / "serving_networks.csv")}


@functools.cache
def lowered(name: str) -> LoweredNetwork:
    """A network of the catalogue, lowered once."""
    return lower(load_network(name))


@functools.cache
def engines() -> Mapping[str, dict[str, str]]:
    """Serving framework -> what is known of it."""
    return {row["framework"]: row for row in read_rows(DATA / "serving_engines.csv")}


@functools.cache
def _runs() -> Mapping[tuple[float, float], float]:
    return {
        (float(row["input_tokens"]), float(row["output_tokens"])): float(row["n_requests"])
        for row in read_rows(DATA / "serving_runs.csv")
    }


def _version(text: str) -> tuple[int, ...]:
    """Numbers of a version; what is left open counts as late."""
    numbers = [int(part) for part in re.findall(r"\d+", text.split(" ")[0])[:2]]
    return tuple([*numbers, 99, 99][:2])


def _routed(network: LoweredNetwork) -> bool:
    return any(linear.rows == "routed" for linear in network.linears)


def published_mix(network: LoweredNetwork, weights: str, cache: str) -> PrecisionMix:
    """The formats behind the names a page prints for weights and cache."""
    mix = recipe(RECIPE_OF[weights])
    narrow = {each.module: each.format for each in network.stored if each.bits_per_element < NARROW_BITS}
    if narrow:
        mix = precision_mix("as stored", weights=narrow, kv=("fp8_e4m3", "fp8_e4m3"))
    stated = CACHE_OF[cache]
    return mix if stated is None else replace(mix, key_format=stated, value_format=stated)


def _decodes_on_lanes(network: LoweredNetwork, framework: str, version: str) -> float:
    """1 where the engine had no decode attention for the network's groups of query heads that uses the arrays."""
    group = max(a.n_heads // a.n_kv_heads for a in network.attentions)
    shared = any(a.shared_latent for a in network.attentions)
    needed = "any_group_version" if group & (group - 1) else "grouped_kernel_version"
    return float(group > 1 and not shared and _version(version) < _version(engines()[framework][needed]))


def _read(rows: MeasuredRows) -> ServingRows:
    """All columns as numbers, and what the engine's table adds to each row."""
    records = _records(rows)
    lowered_of = [networks()[row["model"]] for row in records]
    keys = [(net.name, row["dtype_weights"], row["dtype_kv"]) for net, row in zip(lowered_of, records, strict=True)]
    distinct = sorted(set(keys))
    by_name = {net.name: net for net in lowered_of}
    mixes = tuple(published_mix(by_name[name], weights, cache) for name, weights, cache in distinct)
    prompt, output, batch = (_number(rows, name) for name in ("input_tokens", "output_tokens", "batch_size"))
    groups = _number(rows, "attention_data_parallel")
    first, throughput = rows.text("metric") == FIRST_TOKEN, _number(rows, "throughput_tokens_per_s", 0.0)
    n_requests = np.array([_runs().get(pair, OTHER_REQUESTS) for pair in zip(prompt, output, strict=True)])
    static = np.char.startswith(rows.text("batching"), "static")
    routed = np.array([_routed(net) for net in lowered_of], dtype=bool)
    sequences = np.where(static, batch, n_requests)
    made_s = sequences * output / np.where(throughput > 0, throughput, np.nan)
    engine = [engines()[row["framework"]] for row in records]
    return ServingRows(
        rows=rows,
        chip_id=chip_id_of_rows(rows),
        network=np.array([net.name for net in lowered_of], dtype=np.str_),
        group=np.where(first, "first_token", np.where(static, "static", np.where(routed, "moe", "in_flight"))),
        mixes=mixes,
        mix=np.array([distinct.index(key) for key in keys], dtype=np.int64),
        n_chips=_number(rows, "n_devices"),
        tensor_parallel=np.where(groups > 1, 1.0, _number(rows, "tensor_parallel")),
        pipeline_parallel=_number(rows, "pipeline_parallel"),
        attention_data_parallel=groups,
        on_lanes=np.array(
            [_decodes_on_lanes(n, r["framework"], r["version"]) for n, r in zip(lowered_of, records, strict=True)]
        ),
        prompt_tokens=prompt,
        output_tokens=output,
        batch=batch,
        n_requests=n_requests,
        most_sequences=np.array([float(each["most_sequences"]) for each in engine]) * groups,
        host_sharing_exponent=np.array([float(each["host_sharing_exponent"]) for each in engine]),
        measured_s=np.where(first, _number(rows, "value") * 1e-3, made_s),
    )


def _number(rows: MeasuredRows, column: str, empty: float = 1.0) -> FloatArray:
    values = rows.number(column, or_empty=True)
    return np.where(np.isnan(values), empty, values)
