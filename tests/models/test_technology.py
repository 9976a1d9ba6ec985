"""Technology by node, private overlays and constants."""

import re

import numpy as np
import pytest

from models.checks import UnknownNameError
from models.hardware.area import die_area_mm2
from models.hardware.cost import unit_cost_breakdown_usd, unit_cost_usd
from models.hardware.design import MemoryKind, reference_design, replace
from models.hardware.energy import energy_per_access
from models.technology import default_technology, load_technology, technology_with

HEADER = "quantity,node_nm,precision,variant,value,unit,source,confidence\n"


def overlay(tmp_path, *lines):
    path = tmp_path / "overlay.csv"
    path.write_text(HEADER + "\n".join(lines) + "\n")
    return path


def test_a_node_of_the_table_returns_its_row():
    technology = default_technology()
    assert technology.at_node("area_model_logic_density", 7.0) == pytest.approx(96.3)
    assert not technology.is_interpolated(7.0)


def test_a_node_between_two_rows_lies_between_them_and_is_flagged():
    technology = default_technology()
    between = technology.at_node("energy_scale_used", np.array([5.0, 5.5, 6.0]))
    assert between[0] < between[1] < between[2]
    assert technology.is_interpolated(np.array([5.0, 5.5])).tolist() == [False, True]


@pytest.mark.parametrize("node_nm", [2.0, 90.0])
def test_a_node_outside_the_table_is_refused_with_the_range(node_nm):
    with pytest.raises(ValueError, match=rf"node_nm must be between 3 and 28 nm .* got {node_nm:g}"):
        default_technology().at_node("sram_bitcell", node_nm)


def test_an_overlay_replaces_a_node_row_and_a_constant(tmp_path):
    path = overlay(
        tmp_path,
        "wafer_price_used,5,,quote,30000,USD,supplier,private",
        "scratchpad_mm2_per_mib,,,macro,0.4,mm2/MiB,test chip,private",
    )
    ours = load_technology(path)
    design = reference_design()
    assert ours.at_node("wafer_price_used", 5.0) == pytest.approx(30000)
    assert ours.constants["area"]["scratchpad_mm2_per_mib"] == 0.4
    assert die_area_mm2(design, ours) < die_area_mm2(design)
    assert unit_cost_usd(design, ours) > unit_cost_usd(design)
    assert [row["source"] for row in ours.overlay] == ["supplier", "test chip"]


def test_the_digest_changes_with_the_values_and_only_with_them(tmp_path):
    same = overlay(tmp_path, "host_usd_per_chip,,,as shipped,1500,USD,repeated,private")
    assert load_technology(same).digest == default_technology().digest
    assert default_technology().with_constant("cost", "host_usd_per_chip", 1.0).digest != default_technology().digest


def test_an_overlay_row_of_an_unknown_quantity_is_refused_with_a_suggestion(tmp_path):
    path = overlay(tmp_path, "scratchpad_mm2_per_mb,,,x,0.4,mm2,me,private")
    with pytest.raises(UnknownNameError, match="did you mean 'scratchpad_mm2_per_mib'"):
        load_technology(path)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("wafer_price_used,5,,x,-3,USD,me,private", "value must be a positive number, got '-3'"),
        ("wafer_price_used,5,,x,cheap,USD,me,private", "value must be a positive number, got 'cheap'"),
        ("wafer_price_used,5,,x,3,,me,private", "unit must not be empty"),
        ("wafer_price_used,5,,x,3,USD,,private", "source must not be empty"),
    ],
)
def test_a_bad_overlay_row_is_refused_with_file_row_and_column(tmp_path, line, rule):
    with pytest.raises(ValueError, match=f"overlay.csv row 2: {rule}"):
        load_technology(overlay(tmp_path, line))


def test_an_overlay_replaces_what_one_kind_of_memory_costs_and_takes():
    rows = [
        {"quantity": "price_usd_per_byte", "variant": "HBM3", "value": "3e-8", "unit": "USD/B", "source": "contract"},
        {"quantity": "device_energy_j_per_bit", "variant": "hbm3", "value": "3e-12", "unit": "J/bit", "source": "lab"},
    ]
    ours, design = technology_with(rows), reference_design()
    dearer = (3e-8 - 1.49e-8) * design.memory_capacity_bytes[0]
    parts = [unit_cost_breakdown_usd(design, technology)["memory"][0] for technology in (ours, default_technology())]
    assert parts[0] - parts[1] == pytest.approx(dearer)
    saved = energy_per_access(design).dram_j_per_byte - energy_per_access(design, ours).dram_j_per_byte
    assert saved[0] == pytest.approx(8 * 1.5e-12)
    other = replace(design, memory_kind=MemoryKind.HBM2E)
    assert unit_cost_usd(other, ours) == unit_cost_usd(other)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"unit": "%"}, "row 2: unit must be 1, got '%'"),
        ({"value": "nan"}, "row 2: value must be a positive number, got 'nan'"),
        ({"node_nm": "0"}, "row 2: "),
        ({"quantity": "price_usd_per_byte", "unit": "USD/B", "variant": "hbm9"}, "did you mean 'hbm3'"),
        ({"quantity": "wafer_price_used", "unit": "USD"}, "node_nm must not be empty for a quantity by node"),
    ],
    ids=["unit", "value", "node", "kind", "no node"],
)
def test_a_bad_inline_row_is_refused_by_its_number(changes, rule):
    row = {"quantity": "utilization", "value": "0.5", "unit": "1", "source": "fleet"} | changes
    with pytest.raises((ValueError, UnknownNameError), match=re.escape(rule)):
        technology_with([row])
