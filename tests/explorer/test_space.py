"""The design space: rows checked, points and values inverse, designs of the right sizes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.document import StudyError
from explorer.space import DECLARED, designs_at, full_space, point_of, read_space, values_at
from models.hardware.design import MemoryKind, SecondTier
from tests.explorer.small_studies import SPACE, all_points

FULL = read_space("full")


def at(space, points):
    return designs_at(space, np.asarray(points), node_nm=5, tdp_w=400.0)


def test_the_full_space_has_every_parameter_and_about_1e13_designs():
    assert [p.name for p in FULL.parameters] == list(DECLARED) and set(full_space()) == set(DECLARED)
    assert 1e12 < FULL.n_designs < 1e14
    assert FULL.n_designs == np.prod(FULL.sizes.astype(object))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_values_of_a_point_lead_back_to_it(seed):
    point = np.random.default_rng(seed).integers(0, FULL.sizes)
    np.testing.assert_array_equal(point_of(FULL, values_at(FULL, point)), point)


def test_ordered_values_rise_whatever_order_they_are_written_in():
    space = read_space({"n_cores": [96, 8, 32]})
    assert next(p.values for p in space.parameters if p.name == "n_cores") == (8, 32, 96)


def test_a_single_value_fixes_its_row():
    space = read_space(
        {"array_shape": [16, 8, 4], "native_formats": ["bf16", "fp8"], "clock": 1.5, "memory_kind": "hbm3"}
    )
    fixed = {p.name: p.values for p in space.parameters if len(p.values) == 1}
    assert fixed["array_shape"] == ((16, 8, 4),) and fixed["native_formats"] == (("bf16", "fp8"),)
    assert fixed["clock"] == (1.5,) and fixed["memory_kind"] == ("hbm3",)


def test_designs_carry_the_values_in_units():
    space = read_space(SPACE | {"array_shape": [32, 16, 8], "second_tier": "cxl_512gb", "scale_up_link": 450})
    design = at(space, [space.sizes - 1])
    assert (design.array_m[0], design.array_n[0], design.array_k[0]) == (32, 16, 8)
    assert design.clock_hz[0] == 1.6e9 and design.l2_bytes[0] == 64 * 2**20
    assert design.scratchpad_bytes_per_core[0] == 256 * 1024 and design.scale_up_bytes_per_s[0] == 450e9
    assert design.memory_kind[0] == MemoryKind.HBM3 and design.second_tier[0] == SecondTier.CXL_512GB
    assert design.memory_stacks[0] == 4 and design.memory_bandwidth_bytes_per_s[0] == pytest.approx(4 * 819.2e9)
    assert (design.fp8_rate_ratio[0], design.int8_rate_ratio[0], design.fp4_rate_ratio[0]) == (2, 0, 0)
    assert design.tdp_w[0] == 400 and design.node_nm[0] == 5


def test_every_ordered_parameter_raises_a_resource_and_lowers_none():
    low, high = at(FULL, [np.zeros(len(FULL.sizes), dtype=int)]), None
    for i, p in enumerate(FULL.parameters):
        if p.ordered:
            point = np.zeros(len(FULL.sizes), dtype=int)
            point[i] = len(p.values) - 1
            high = at(FULL, [point])
            changes = {
                name: getattr(high, name)[0] - getattr(low, name)[0]
                for name in high.__dataclass_fields__
                if getattr(high, name)[0] != getattr(low, name)[0]
            }
            assert changes and all(change > 0 for change in changes.values()), p.name


def test_a_batch_of_points_equals_one_at_a_time():
    space = read_space(SPACE)
    points = all_points(space)[::13]
    together = at(space, points)
    for i, point in enumerate(points):
        alone = at(space, [point])
        for name in together.__dataclass_fields__:
            assert getattr(together, name)[i] == getattr(alone, name)[0]


@pytest.mark.parametrize(
    ("rows", "pointer", "detail"),
    [
        ({"core": [1]}, "/space/core", "unknown space parameter 'core', did you mean 'n_cores'"),
        ({"base": "half"}, "/space/base", "must be 'full', got 'half'"),
        ({"n_cores": []}, "/space/n_cores", "must hold at least one value"),
        ({"array_shape": []}, "/space/array_shape", "must hold at least one value"),
        ({"native_formats": []}, "/space/native_formats", "must hold at least one value"),
        ({"n_cores": [8, 8.0]}, "/space/n_cores", "must not repeat a value"),
        ({"n_cores": [8, 1.5]}, "/space/n_cores/1", "must be a whole number, got 1.5"),
        ({"n_cores": ["8"]}, "/space/n_cores/0", "must be a number, got '8'"),
        ({"n_cores": None}, "/space/n_cores/0", "must be a number, got None"),
        ({"n_cores": {"a": 1}}, "/space/n_cores/0", "must be a number"),
        ({"n_cores": [10**400]}, "/space/n_cores/0", "must lie between 1 and 4096"),
        ({"n_cores": [float("nan")]}, "/space/n_cores/0", "must lie between 1 and 4096, got nan"),
        ({"clock": [-1]}, "/space/clock/0", "must lie between 0.05 and 5, got -1"),
        ({"l2": [True]}, "/space/l2/0", "must be a number, got True"),
        ({"array_shape": [[1, 2]]}, "/space/array_shape/0", "must be three sizes"),
        ({"array_shape": [[1, 2, 0]]}, "/space/array_shape/0", "must lie between 1 and 1024, got 0"),
        ({"native_formats": [["fp8"]]}, "/space/native_formats/0", "must be a list that holds bf16"),
        ({"native_formats": [["bf16", "fp9"]]}, "/space/native_formats/0", "unknown native format 'fp9'"),
        ({"memory_kind": ["hbm9"]}, "/space/memory_kind/0", "unknown memory kind 'hbm9'"),
        ({"memory_kind": ["none"]}, "/space/memory_kind/0", "unknown memory kind 'none'"),
        ({"second_tier": ["cxl"]}, "/space/second_tier/0", "unknown second tier 'cxl', did you mean 'cxl_512gb'"),
        ({"stationarity": ["row"]}, "/space/stationarity/0", "unknown stationarity 'row'"),
    ],
)
def test_a_bad_row_is_refused_with_its_pointer(rows, pointer, detail):
    with pytest.raises(StudyError) as caught:
        read_space(rows)
    assert caught.value.errors[0]["pointer"] == pointer
    assert detail in caught.value.errors[0]["detail"]


def test_all_bad_rows_are_told_at_once():
    with pytest.raises(StudyError) as caught:
        read_space({"n_cores": [0, -1], "clock": [99], "speed": [1]})
    assert {e["pointer"] for e in caught.value.errors} == {
        "/space/n_cores/0", "/space/n_cores/1", "/space/clock/0", "/space/speed",
    }  # fmt: skip


def test_a_value_outside_the_space_has_no_point():
    space = read_space(SPACE)
    values = values_at(space, np.zeros(len(space.sizes), dtype=int)) | {"n_cores": 17}
    with pytest.raises(ValueError, match="n_cores must be one of the space's values, got 17"):
        point_of(space, values)
