"""One transformer layer timed part by part with a host timer: every part is a framework call of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from models.checks import FloatArray
from models.fidelity.fitting import merged_constants
from models.fidelity.grouped import Labels, grouped_reports
from models.fidelity.report import GroupReport, TableReader
from models.fidelity.rows import (
    MeasuredRows,
    chip_id_of_rows,
    designs_of_chips,
    read_measured,
    with_known,
    with_known_devices,
)
from models.hardware.design import DesignBatch, peak_flop_per_s, take
from models.hardware.rates import class_code
from models.operators.collective import collective_latency_ratio, collective_time_s, wire_bytes
from models.operators.elementwise import elementwise_time_s
from models.operators.factor_tables import FactorTables
from models.operators.step import run_step, step_program, term
from models.tables import constants

COLUMNS = (
    "device", "phase", "component", "d_model", "n_heads", "tp", "batch", "query_tokens", "kv_tokens", "dtype",
    "latency_us",
)  # fmt: skip
ELEMENT_BYTES = 2.0
NOTE = "every part was timed alone from the host: launch and framework are constants of that harness"
Sizes = Mapping[str, FloatArray]

GEMMS: Mapping[str, Callable[[Sizes], tuple[FloatArray, FloatArray, FloatArray, FloatArray, float]]] = {
    "q_k_v_proj": lambda s: (s["rows"], s["d_model"] / s["tp"], s["d_model"], s["one"], 3.0),
    "o_proj": lambda s: (s["rows"], s["d_model"], s["d_model"] / s["tp"], s["one"], 1.0),
    "w1_proj": lambda s: (s["rows"], 4.0 * s["d_model"] / s["tp"], s["d_model"], s["one"], 1.0),
    "w2_proj": lambda s: (s["rows"], s["d_model"], 4.0 * s["d_model"] / s["tp"], s["one"], 1.0),
    "q_mul_k": lambda s: (s["query_tokens"], s["keys"], s["head_dim"], s["heads"], 1.0),
    "a_mul_v": lambda s: (s["query_tokens"], s["head_dim"], s["keys"], s["heads"], 1.0),
}
"""Matrix products by component: m, n, k, equal products of one call, calls."""

ELEMENTWISE_PARTS: Mapping[str, tuple[str, float, Callable[[Sizes], tuple[FloatArray, FloatArray]]]] = {
    "softmax": ("softmax", 2.0, lambda s: (s["heads"] * s["query_tokens"], s["keys"])),
    "layernorm_mha": ("layer_norm", 2.0, lambda s: (s["rows"], s["d_model"])),
    "layernorm_ffn": ("layer_norm", 2.0, lambda s: (s["rows"], s["d_model"])),
    "gelu": ("activation", 2.0, lambda s: (s["rows"], 4.0 * s["d_model"] / s["tp"])),
}
"""Elementwise parts: operator, reads and writes of an element, rows and columns."""

COLLECTIVES = ("allreduce_mha", "allreduce_ffn")


def layer_reports(path: Path) -> Iterable[GroupReport]:
    """
    Return one report per phase and chip.

    Raises
    ------
    TableError
        If the file is not such a table.
    """
    rows = with_known_devices(read_measured(path, COLUMNS))
    rows = with_known(rows, "component", (*GEMMS, *ELEMENTWISE_PARTS, *COLLECTIVES))
    sizes, chips = _sizes(rows), chip_id_of_rows(rows)
    predicted, bound = np.zeros(len(rows)), np.zeros(len(rows))
    for i, component in enumerate(rows.text("component").tolist()):
        design = take(designs_of_chips(chips), [i])
        one = {name: values[i : i + 1] for name, values in sizes.items()}
        predicted[i], bound[i] = _part_s(component, one, design)
    labels = Labels(rows.text("phase"), chips, rows.text("dtype"))
    notes = dict.fromkeys(np.unique(rows.text("phase")).tolist(), NOTE)
    measured = rows.number("latency_us") * 1e-6
    return grouped_reports(rows, labels, measured, predicted, bound, predicted, notes=notes)


def _sizes(rows: MeasuredRows) -> Sizes:
    sizes = {name: rows.number(name) for name in ("d_model", "n_heads", "tp", "batch", "query_tokens")}
    cached = rows.number("kv_tokens", or_zero=True)
    return sizes | {
        "rows": sizes["batch"] * sizes["query_tokens"],
        "keys": np.where(cached > 0, cached, sizes["query_tokens"]),
        "heads": sizes["batch"] * sizes["n_heads"] / sizes["tp"],
        "head_dim": sizes["d_model"] / sizes["n_heads"],
        "one": np.ones(len(rows)),
    }


def _part_s(component: str, sizes: Sizes, design: DesignBatch) -> tuple[float, float]:
    """Predicted time of one part on one chip, and its bound [s]."""
    if component in GEMMS:
        return _gemm_s(component, sizes, design)
    if component in ELEMENTWISE_PARTS:
        return _elementwise_s(component, sizes, design)
    message = sizes["rows"] * sizes["d_model"] * ELEMENT_BYTES
    link, host = design.scale_up_bytes_per_s, design.host_bytes_per_s
    time_s = collective_time_s(
        "all_reduce", sizes["tp"], message, link, host_bytes_per_s=host,
        latency_scale_ratio=collective_latency_ratio(design),
    )  # fmt: skip
    wire = float(wire_bytes("all_reduce", sizes["tp"], message)[0])
    return float(time_s[0, 0]), wire / float(np.maximum(link, host)[0])


def _gemm_s(component: str, sizes: Sizes, design: DesignBatch) -> tuple[float, float]:
    m, n, k, instances, calls = GEMMS[component](sizes)
    each = term(
        component, "gemm", "", 1.0, m=m, n=n, k=k, instances=instances, weight_bytes=ELEMENT_BYTES,
        input_bytes=ELEMENT_BYTES, output_bytes=ELEMENT_BYTES, rate_class=float(class_code("bf16")), dequant_ops=0.0,
        copies=1.0, useful_fraction=1.0,
    )  # fmt: skip
    activity = run_step(step_program([each], 0.0), design, FactorTables())
    host_s = constants("gemm")["host_timer_start_s"] - constants("launch")["kernel_launch_s"]
    flop, moved = 2.0 * m * n * k * instances, ELEMENT_BYTES * instances * (m * k + n * k + m * n)
    bound_s = np.maximum(flop / peak_flop_per_s(design), moved / design.memory_bandwidth_bytes_per_s)
    return calls * (float(activity.time_s[0, 0]) + host_s), calls * float(bound_s[0])


def _elementwise_s(component: str, sizes: Sizes, design: DesignBatch) -> tuple[float, float]:
    operator, passes, shape = ELEMENTWISE_PARTS[component]
    n_rows, n_columns = shape(sizes)
    moved = passes * ELEMENT_BYTES * n_rows * n_columns
    start_s = merged_constants(("elementwise", "elementwise_sources"))[f"llmcompass_{operator}_start_s"]
    time_s = elementwise_time_s(design, operator, n_rows * n_columns, moved, rows=n_rows, start_s=start_s)
    return float(time_s[0, 0]), float((moved / design.memory_bandwidth_bytes_per_s)[0])


TABLES: dict[str, TableReader] = {"llmcompass_transformer_layer*.csv": layer_reports}
