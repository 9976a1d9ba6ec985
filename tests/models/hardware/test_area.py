"""Die area: parts, limits, monotonicity, interval."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.hardware.area import (
    area_breakdown_mm2,
    area_interval_mm2,
    area_limits,
    area_violation_ratio,
    die_area_mm2,
    edge_area_mm2,
)
from models.hardware.area_terms import matrix_mm2_per_core, physical_cores
from models.hardware.catalog import chip_designs
from models.hardware.design import (
    CoreControl,
    MemoryKind,
    SecondTier,
    concatenate,
    reference_design,
    replace,
    take,
)
from models.technology import default_technology

RESOURCES = (
    "array_m", "array_n", "arrays_per_core", "n_cores", "vector_lanes_per_core", "scratchpad_bytes_per_core",
    "l2_bytes", "noc_bytes_per_cycle_per_core", "memory_stacks", "scale_up_bytes_per_s", "scale_out_bytes_per_s",
    "host_bytes_per_s", "array_groups", "fp8_rate_ratio", "fp4_rate_ratio", "int8_rate_ratio", "fp32_rate_ratio",
    "register_file_bytes_per_core", "fp64_lanes_per_core", "spare_core_fraction", "spare_l2_fraction",
    "spare_memory_stacks", "short_reach_bytes_per_s", "other_area_mm2", "bf16_rate_ratio",
)  # fmt: skip


def larger(design, name, factor):
    value = getattr(design, name)
    return replace(design, **{name: value * factor + (factor - 1.0) * (value == 0)})


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(RESOURCES),
    factor=st.floats(1.0, 8.0),
    control=st.sampled_from(list(CoreControl)),
    kind=st.sampled_from(list(MemoryKind)),
    node_nm=st.sampled_from([3.0, 4.0, 5.0, 5.5, 7.0, 12.0, 28.0]),
)
def test_more_of_any_resource_never_takes_less_area(name, factor, control, kind, node_nm):
    design = replace(reference_design(), core_control=control, memory_kind=kind, node_nm=node_nm, n_dies=2)
    assert die_area_mm2(larger(design, name, factor))[0] >= die_area_mm2(design)[0] * (1 - 1e-12)


@settings(max_examples=30, deadline=None)
@given(
    cores=st.integers(1, 256),
    stacks=st.integers(0, 16),
    scratchpad_kib=st.integers(16, 16384),
    control=st.sampled_from(list(CoreControl)),
    tier=st.sampled_from(list(SecondTier)),
)
def test_parts_add_up_to_the_die(cores, stacks, scratchpad_kib, control, tier):
    design = replace(
        reference_design(), n_cores=cores, memory_stacks=stacks, core_control=control, second_tier=tier,
        scratchpad_bytes_per_core=scratchpad_kib * 1024,
    )  # fmt: skip
    parts = area_breakdown_mm2(design)
    assert all((part >= 0).all() for part in parts.values())
    assert sum(part[0] for part in parts.values()) == pytest.approx(die_area_mm2(design)[0], rel=1e-12)


def test_a_smaller_node_never_takes_more_area():
    design = replace(reference_design(), node_nm=[28.0, 16.0, 12.0, 8.0, 7.0, 5.0, 4.0, 3.0])
    assert (np.diff(die_area_mm2(design)) <= 0).all()


def test_six_stacks_on_one_die_need_21_mm2_times_the_square_of_their_number():
    # 11 mm of edge a stack in 60 % of the perimeter: (11 s / 2.4)^2; Gaudi 2's six stacks explain its large die.
    design = replace(reference_design(), memory_stacks=6)
    assert edge_area_mm2(design)[0] == pytest.approx(21.0 * 36, rel=0.01)
    assert die_area_mm2(design)[0] == pytest.approx(756, rel=0.01)
    assert area_breakdown_mm2(design)["edge_fill"][0] > 0


def test_a_systolic_array_takes_twice_the_area_of_a_dot_product_one_of_equal_rate():
    # Fitted die data: 1.5 to 1.7e-3 mm2 against 0.7 to 0.85e-3 mm2 per bf16 multiply-accumulate at 7 nm.
    shapes = replace(reference_design(), array_m=[64, 16], array_n=[64, 16], array_k=[1, 16])
    area = matrix_mm2_per_core(shapes, default_technology().constants["area"]) / 4096
    assert area[0] == pytest.approx(1.7e-3, rel=0.15)
    assert area[1] == pytest.approx(0.75e-3, rel=0.15)


def test_one_core_of_ga100_matches_the_annotated_die_photo():
    # LLMCompass figure 6b: 3.75 mm2; tolerance: the photo's block borders and 10 % uncore that it includes.
    design = chip_designs(["a100_sxm"])
    parts = area_breakdown_mm2(design)
    core = sum(
        parts[name] for name in ("matrix_arrays", "vector_lanes", "core_control", "register_files", "scratchpad")
    )
    assert (core / physical_cores(design))[0] == pytest.approx(3.75, rel=0.15)


def test_a_die_beyond_the_reticle_is_infeasible_with_the_excess():
    design = replace(reference_design(), n_cores=[64, 400])
    excess = area_limits(design)["reticle_excess_mm2"]
    assert excess[0] < 0 < excess[1]
    assert excess[1] == pytest.approx(die_area_mm2(design)[1] - 858)
    assert area_violation_ratio(design)["reticle"][1] > 0


def test_stacks_that_do_not_fit_the_largest_die_are_infeasible():
    design = replace(reference_design(), memory_stacks=[6, 7, 16])
    assert (area_limits(design)["edge_excess_mm"] > 0).tolist() == [False, True, True]


def test_interval_holds_the_area_and_is_wide_enough_for_a_new_design():
    design = reference_design()
    low, high = area_interval_mm2(design)
    area = die_area_mm2(design)
    assert low[0] < area[0] < high[0]
    assert 1.2 < (high / area)[0] < 1.45
    assert (area / low)[0] == pytest.approx((high / area)[0])


def test_areas_of_a_batch_equal_those_one_at_a_time():
    batch = concatenate([chip_designs(["t4", "mi300x", "tpu_v4i", "wse_2"]), reference_design()])
    alone = [die_area_mm2(take(batch, [i]))[0] for i in range(batch.n_designs)]
    assert die_area_mm2(batch) == pytest.approx(alone, rel=1e-14)


def test_a_node_outside_the_table_is_refused():
    with pytest.raises(ValueError, match="node_nm must be between 3 and 28 nm"):
        die_area_mm2(replace(reference_design(), node_nm=2))


def test_two_dies_pay_for_the_links_between_them():
    one, two = (area_breakdown_mm2(replace(reference_design(), n_dies=n))["links"][0] for n in (1, 2))
    declared = replace(reference_design(), n_dies=2, short_reach_bytes_per_s=5e12)
    assert one < two < area_breakdown_mm2(declared)["links"][0]
