"""Fits the collective constants: run with `--data DIR` and `--published DIR`, it writes them with residuals."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.checks import FloatArray, IntArray
from models.fidelity.collective import (
    CollectiveRows,
    aiconfigurator_rows,
    predicted_time_s,
    transfer_rows,
    vidur_rows,
)
from models.fidelity.fitting import (
    Parameter,
    Sample,
    fit_constants,
    left_out_ranges,
    write_constants,
    write_left_out,
)

LINKED = (
    Parameter("clock_reference_hz", 1.83e9, 1.83e9, 1.83e9, "Hz", "clock for which the latencies are stated"),
    Parameter("latency_per_further_die_fraction", 0.53, 0.001, 2, "1", "latency added by each further die"),
    Parameter("all_reduce_start_s", 5.3e-6, 1e-6, 2e-5, "s", "smallest message"),
    Parameter("all_reduce_step_s", 1.7e-6, 5e-8, 5e-6, "s", "each further chip"),
    Parameter("all_gather_start_s", 5.3e-6, 1e-6, 2e-5, "s", "smallest message"),
    Parameter("all_gather_step_s", 0.92e-6, 5e-8, 5e-6, "s", "each further chip"),
    Parameter("reduce_scatter_start_s", 5.3e-6, 1e-6, 2e-5, "s", "smallest message"),
    Parameter("reduce_scatter_step_s", 0.92e-6, 5e-8, 5e-6, "s", "each further chip"),
    Parameter("all_to_all_start_s", 7e-6, 1e-6, 2e-5, "s", "smallest message"),
    Parameter("all_to_all_step_s", 0.13e-6, 1e-8, 5e-6, "s", "each further chip"),
    Parameter("ring_flagged_fraction", 0.25, 0.01, 0.5, "1", "of the link while data carries its flags, 4 chips"),
    Parameter("all_to_all_flagged_fraction", 0.03, 0.001, 0.5, "1", "the same for all-to-all"),
    Parameter("flagged_chips_exponent", 0.46, 0.001, 2, "1", "growth of that share with the chips"),
    Parameter("setup_s", 1.4e-5, 1e-7, 8e-5, "s", "synchronisation before the link is filled"),
    Parameter("setup_step_s", 1.2e-6, 1e-8, 2e-5, "s", "each further chip"),
    Parameter("ring_setup_ratio", 1, 1, 1, "1", "reference"),
    Parameter("all_to_all_setup_ratio", 0.3, 0.02, 5, "1", "that synchronisation for all-to-all"),
    Parameter("link_efficiency_fraction", 0.98, 0.5, 1, "1", "of the link"),
    Parameter("in_switch_wire_ratio", 0.76, 0.4, 1, "1", "wire time where the switch adds the vectors"),
    Parameter("all_reduce_extra_passes", 0.61, 0.001, 3, "1", "messages of link time beyond the wire: copies"),
    Parameter("all_gather_extra_passes", 0.43, 0.001, 3, "1", "messages of link time beyond the wire: copies"),
    Parameter("reduce_scatter_extra_passes", 0.43, 0.001, 3, "1", "messages of link time beyond the wire: copies"),
    Parameter("all_to_all_extra_passes", 0.61, 0.001, 3, "1", "messages of link time beyond the wire: copies"),
)
HOST_PATH = (
    Parameter("host_efficiency_fraction", 0.7, 0.1, 1, "1", "of the host link between two chips"),
    Parameter(
        "host_sharing_exponent",
        1,
        1,
        1,
        "1",
        "rate falls as (n/2)^x on a host that is not known; two measured "
        "hosts have 0.5 and 1.9 (collective_systems.csv)",
    ),
)
FRAMEWORK = (
    Parameter("send_recv_start_s", 5e-6, 1e-6, 2e-5, "s", "smallest message, vidur rows"),
    Parameter("send_recv_step_s", 0, 0, 0, "s", "two chips only"),
    Parameter("send_recv_extra_passes", 0.3, 0.001, 3, "1", "messages of link time beyond the wire, vidur rows"),
)
ONE_SHOT = (
    Parameter("one_shot_link_efficiency_fraction", 0.9, 0.2, 1, "1", "of the link while reading all vectors"),
    Parameter("one_shot_start_s", 4e-6, 4e-6, 4e-6, "s", "engine's own all-reduce, default: that of TensorRT-LLM"),
)
ENGINES = (
    Parameter("trtllm_one_shot_start_s", 4e-6, 1e-6, 1e-4, "s", "engine's own all-reduce"),
    Parameter("sglang_one_shot_start_s", 8e-6, 1e-6, 1e-4, "s", "engine's own all-reduce; 4 to 27 us by system"),
    Parameter("vllm_one_shot_start_s", 1.4e-5, 1e-6, 1e-4, "s", "engine's own all-reduce; 12 to 27 us by system"),
)
FLOORS = (
    Parameter("vidur_all_reduce_floor_s", 4e-5, 1e-6, 2e-4, "s", "shortest call that harness can time"),
    Parameter("transfer_start_s", 1.7e-3, 1e-5, 1e-2, "s", "software of a cache transfer (Mooncake)"),
)
SOURCE = "least squares on measured/aic_collectives.csv, models/fidelity/fit_collective.py"
FLOOR_SOURCE = "least squares on measured/vidur_collectives.csv and published/interconnect_throughput.csv"


def fit_all(aic: CollectiveRows, others: Sequence[CollectiveRows], left_out: str) -> dict[str, float]:
    """All constants without one chip: linked systems first, then the host path, then floors of other harnesses."""
    seen = aic.chip_id != left_out
    linked = np.flatnonzero(seen & (aic.group == "nccl"))
    starts = {each.name: each.start for each in HOST_PATH}
    values = fit_constants(LINKED, _sample([aic], starts), linked, rows_per_group=150)
    hosted = np.flatnonzero(seen & (aic.group == "pcie"))
    values |= fit_constants(HOST_PATH, _sample([aic], values), hosted, rows_per_group=150)
    engines = np.flatnonzero(seen & (aic.engine != "") & (aic.link_bytes_per_s > 0))
    values |= fit_constants(ONE_SHOT[:1] + ENGINES, _sample([aic], values), engines, rows_per_group=150)
    values["one_shot_start_s"] = values["trtllm_one_shot_start_s"]
    chips = np.concatenate([part.chip_id for part in others])
    transfer = np.concatenate([part.group == "transfer" for part in others])
    rows = np.flatnonzero((chips != left_out) | transfer)
    return values | fit_constants(FRAMEWORK + FLOORS, _sample(others, values), rows, rows_per_group=150)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit on all rows and again without each chip, and write the constants of collectives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the measured tables")
    parser.add_argument("--published", type=Path, required=True, help="folder with interconnect_throughput.csv")
    options = parser.parse_args(arguments)
    aic = aiconfigurator_rows(options.data / "aic_collectives.csv")
    vidur, _ = vidur_rows(options.data / "vidur_collectives.csv")
    dgx = vidur.take(np.char.endswith(vidur.device, "_dgx"))
    others = [dgx, transfer_rows(options.published / "interconnect_throughput.csv")]
    values = fit_all(aic, others, "")
    fitted = np.unique(aic.chip_id[np.isin(aic.group, ("nccl", "pcie"))])
    left_out = {str(chip): fit_all(aic, others, str(chip)) for chip in fitted}
    notes = left_out_ranges(left_out)
    write_constants("collective", LINKED + HOST_PATH + FRAMEWORK + ONE_SHOT, values, SOURCE, notes)
    write_constants("collective_sources", ENGINES + FLOORS, values, FLOOR_SOURCE, notes)
    write_left_out("collective", LINKED + HOST_PATH + FRAMEWORK + ONE_SHOT + ENGINES + FLOORS, left_out, SOURCE)


def _sample(parts: Sequence[CollectiveRows], known: Mapping[str, float]) -> Sample:
    starts = np.cumsum([0] + [len(part.measured_s) for part in parts])

    def predictor(index: IntArray) -> Callable[[Mapping[str, float]], FloatArray]:
        taken = [
            part.take(index[(index >= low) & (index < high)] - low)
            for part, low, high in zip(parts, starts[:-1], starts[1:], strict=True)
        ]
        return lambda values: np.concatenate([predicted_time_s(part, {**known, **values}) for part in taken])

    groups: list[NDArray[np.str_]] = [
        np.char.add(np.char.add(part.device, " "), np.char.add(part.kind, part.engine)) for part in parts
    ]
    return Sample(predictor, np.concatenate([part.measured_s for part in parts]), np.concatenate(groups))


if __name__ == "__main__":
    main()
