"""Real chips as designs."""

import csv

import numpy as np
import pytest

from models.checks import UnknownNameError
from models.hardware.catalog import CHIPS, chip, chip_designs, chip_ids, chip_of_device, chip_rows, field_provenance
from models.hardware.datasheet import matrix_geometry
from models.hardware.design import DESIGN_FIELDS, CoreControl, MemoryKind, peak_flop_per_s


def test_every_chip_becomes_a_design():
    designs = chip_designs(chip_ids())
    assert designs.n_designs == len(chip_ids())
    assert (peak_flop_per_s(designs) > 0).all()


def test_every_quoted_bf16_peak_is_reproduced():
    ids = [chip_id for chip_id in chip_ids() if chip_rows()[chip_id]["tflops_bf16"]]
    designs = chip_designs(ids)
    quoted = np.array([float(chip_rows()[chip_id]["tflops_bf16"]) for chip_id in ids]) * 1e12
    assert peak_flop_per_s(designs, designs.bf16_rate_ratio) == pytest.approx(quoted, rel=1e-3)


def test_every_device_string_of_the_measured_tables_names_a_chip():
    assert set(chip_of_device().values()) <= set(chip_ids())
    assert chip_of_device()["H100-SXM-80GB"] == "h100_sxm"


@pytest.mark.parametrize("chip_id", chip_ids())
def test_every_field_of_every_chip_has_a_source_and_a_confidence(chip_id):
    entry = chip(chip_id)
    fields = field_provenance(entry)
    assert {each["confidence"] for each in fields.values()} <= {"verified", "partial", "weak", "memory", "inferred"}
    assert all(each["source"] and each["value"] for each in fields.values())
    assert all(fields[name]["confidence"] == "inferred" for name in entry.inferred_fields)
    assert all(fields[name]["confidence"] == "memory" for name in entry.unverified_fields if name in fields)


def test_every_field_from_memory_and_every_inferred_one_is_marked():
    added = chip("rtx_4090")
    assert added.confidence == "weak"
    assert "tdp_w" in added.unverified_fields
    inferred = chip("tpu_v6e").inferred_fields
    assert "clock_hz" in inferred
    assert "whole arrays" in inferred["clock_hz"]


def test_capacities_are_binary_and_links_are_per_direction():
    design = chip_designs(["h100_sxm"])
    assert design.memory_capacity_bytes[0] == 80 * 2**30
    assert design.scale_up_bytes_per_s[0] == 450e9
    assert design.memory_kind[0] == MemoryKind.HBM3


def test_a_clock_that_no_silicon_reaches_becomes_more_arrays():
    # TPU v6e: "two 256x256" would need 3.5 GHz for the quoted 918 TFLOP/s.
    design = chip_designs(["tpu_v6e"])
    assert design.clock_hz[0] < 2e9
    assert design.arrays_per_core[0] == 4


def test_an_eight_bit_array_computes_sixteen_bit_in_passes():
    design = chip_designs(["groq_tsp"])
    assert design.bf16_rate_ratio[0] == pytest.approx(0.25, abs=0.01)
    assert design.int8_rate_ratio[0] == pytest.approx(1.0, abs=0.01)


def test_designs_of_many_chips_equal_those_taken_one_at_a_time():
    ids = ["t4", "mi300x", "wse_2"]
    together = chip_designs(ids)
    for i, chip_id in enumerate(ids):
        alone = chip_designs([chip_id])
        assert all(getattr(alone, name)[0] == getattr(together, name)[i] for name in DESIGN_FIELDS)


def test_a_table_without_the_added_columns_takes_them_from_the_catalogue_or_infers_them(tmp_path):
    rows = [dict(chip_rows()[chip_id]) for chip_id in ("h100_sxm", "tpu_v4")]
    rows[1]["id"] = "unheard_of"
    columns = [name for name in rows[0] if name not in ("core_control", "bulk_async_copy", "fp64_lanes_per_core")]
    path = tmp_path / "chips.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    designs = chip_designs(["h100_sxm", "unheard_of"], path)
    assert designs.core_control.tolist() == [CoreControl.SIMT, CoreControl.TENSOR]
    assert "core_control" in chip("unheard_of", path).inferred_fields
    assert designs.fp64_lanes_per_core[0] == 128


def test_unknown_chip_is_refused_with_a_suggestion():
    with pytest.raises(UnknownNameError, match="unknown chip 'h100_sx', did you mean 'h100_sxm'"):
        chip("h100_sx")


def test_a_cell_that_is_no_number_is_refused_with_chip_and_column(tmp_path):
    path = tmp_path / "chips.csv"
    path.write_text(CHIPS.read_text().replace(",1410,1095,", ",fast,1095,"))
    with pytest.raises(ValueError, match="chip a100_sxm_40gb: clock_mhz must be a number, got 'fast'"):
        chip_designs(["a100_sxm_40gb"], path)


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("8x4x16", (8, 4, 16)),
        ("256x256", (256, 256, 1)),
        ("8x16 x 16 per Tensix", (8, 16, 16)),
        ("32x32 (int8) DPE", (32, 32, 1)),
        ("PCU as systolic array or SIMD", None),
        ("", None),
    ],
)
def test_matrix_geometry_is_read_from_its_first_numbers(text, sides):
    assert matrix_geometry(text) == sides
