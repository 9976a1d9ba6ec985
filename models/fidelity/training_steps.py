"""Published training steps of large decoders on clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace as replaced
from pathlib import Path

import numpy as np

from models.architectures import lower
from models.architectures.config import read_network
from models.architectures.lowered import LoweredNetwork
from models.architectures.training_memory import TrainingPlan
from models.fidelity.report import GroupReport, TableError, TableReader, error_statistics
from models.fidelity.rows import chip_id_of_rows, designs_of_chips, read_measured, with_known_devices
from models.hardware.design import DesignBatch, peak_flop_per_s, replace
from models.hardware.energy import energy_per_access
from models.operators.factor_tables import FactorTables
from models.operators.step import run_step
from models.operators.step_energy import settle
from models.precision.mix import recipe
from models.serving.scenario import System
from models.tables import DATA, read_rows
from models.throughput.fixed import compile_fixed_work
from models.throughput.scenario import TrainingScenario

WHOLE_NUMBERS = (
    "n_devices", "tp", "pp", "dp", "global_batch", "microbatch", "interleave", "hidden", "n_heads", "n_layers",
    "seq_tokens",
)  # fmt: skip
COLUMNS = ("device", "model", "recompute", "step_ms", *WHOLE_NUMBERS)
RECOMPUTE = {"full": ("full", False), "seqsel": ("selective", True), "none": ("none", False)}
"""Name of the table -> what is recomputed, and whether norms and residuals are split by tokens."""
MIX = "bf16_training"
MLP_RATIO = 4
"""Hidden units of the feed-forward part over the width of the network in every row's family."""
NOTE = "attention without a fused kernel, as in 2022; links between nodes and vocabulary are stated inputs"


def training_reports(path: Path) -> Iterable[GroupReport]:
    """
    Return one report per chip over its training steps.

    Raises
    ------
    TableError
        If the file is not such a table, or a step breaks a rule of its plan.
    """
    rows = with_known_devices(read_measured(path, COLUMNS))
    systems = {row["device"]: row for row in read_rows(DATA / "training_systems.csv")}
    sizes = {name: rows.number(name).astype(np.int64) for name in WHOLE_NUMBERS}
    names, recompute, devices = rows.text("model"), rows.text("recompute"), rows.text("device")
    for i, (kind, device) in enumerate(zip(recompute, devices, strict=True)):
        for column, value, known in (("recompute", kind, RECOMPUTE), ("device", device, systems)):
            if str(value) not in known:
                raise TableError(
                    f"{column} must be one of {', '.join(known)}, got '{value}'", rows.file, int(rows.lines[i]), column
                )
    times_s = np.array([
        _step_s(str(names[i]), RECOMPUTE[str(recompute[i])], {n: int(v[i]) for n, v in sizes.items()},
                systems[str(devices[i])], designs_of_chips(chip_id_of_rows(rows)[i : i + 1]))
        for i in range(len(rows))
    ])  # fmt: skip
    chips, measured_s = chip_id_of_rows(rows), rows.number("step_ms") * 1e-3
    reports: list[GroupReport] = []
    for chip in np.unique(chips):
        own = chips == chip
        statistics = error_statistics(times_s[own, 0], measured_s[own], roofline=times_s[own, 1])
        reports.append(
            GroupReport(
                table=rows.table, group="training_step", device=str(chip), dtype="bf16", quantity="step_time",
                constants="global", rows=int(own.sum()), skipped=list(rows.skipped) if not reports else [], note=NOTE,
                **statistics,  # type: ignore[arg-type]
            )
        )  # fmt: skip
    return reports


def _network(name: str, sizes: Mapping[str, int], vocabulary_size: int) -> LoweredNetwork:
    """A decoder with layer norms and a plain feed-forward part, as the rows' family is."""
    config = {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": sizes["hidden"],
        "n_inner": MLP_RATIO * sizes["hidden"], "n_layer": sizes["n_layers"], "n_head": sizes["n_heads"],
        "n_positions": sizes["seq_tokens"], "vocab_size": vocabulary_size, "tie_word_embeddings": True,
        "torch_dtype": "float16", "activation_function": "gelu",
    }  # fmt: skip
    return lower(read_network(config, name))


def _step_s(
    name: str, kind: tuple[str, bool], sizes: Mapping[str, int], system: Mapping[str, str], design: DesignBatch
) -> tuple[float, float]:
    """Predicted time of one step, and arithmetic at the peak or traffic at the bandwidth [s]."""
    plan = TrainingPlan(
        tensor_parallel=sizes["tp"], pipeline_parallel=sizes["pp"], data_parallel=sizes["dp"],
        microbatch_sequences=sizes["microbatch"], interleave=sizes["interleave"], sequence_parallel=kind[1],
        zero_stage=0, recompute=kind[0], fused_attention=False,  # type: ignore[arg-type]
    )  # fmt: skip
    network = _network(name, sizes, int(system["vocabulary_size"]))
    chips = System(sizes["n_devices"], int(system["n_chips_per_node"]))
    work = compile_fixed_work(
        TrainingScenario(name, network, (plan,), recipe(MIX), sizes["seq_tokens"], sizes["global_batch"], chips)
    )
    linked = replace(design, scale_out_bytes_per_s=float(system["scale_out_bytes_per_s"]))
    activity, access = run_step(work.program, linked, FactorTables()), energy_per_access(linked)
    busy = replaced(activity, time_s=activity.time_s * (1.0 + work.idle_ratio))
    step = settle(busy, access, linked.tdp_w)
    multiplied_s = 2.0 * sum(float(macs[0, 0]) for macs in activity.macs.values()) / float(peak_flop_per_s(linked)[0])
    moved_s = float(activity.dram_bytes[0, 0] / linked.memory_bandwidth_bytes_per_s[0])
    return float(step.time_s[0, 0]), max(multiplied_s, moved_s)


TABLES: dict[str, TableReader] = {"megatron_training_step*.csv": training_reports}
