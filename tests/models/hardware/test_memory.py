"""Memory kinds and second tiers."""

import numpy as np
import pytest

from models.checks import UnknownNameError
from models.hardware import memory
from models.hardware.catalog import chip_designs
from models.hardware.design import MemoryKind, SecondTier, reference_design, replace


def test_every_memory_kind_has_a_row():
    assert all(len(column) == len(MemoryKind) for column in memory.memory_table().values())
    assert all(len(column) == len(SecondTier) for column in memory.second_tier_table().values())


def test_bandwidth_and_capacity_grow_in_proportion_to_the_stacks():
    kinds = np.full(3, MemoryKind.HBM3E)
    assert memory.memory_bandwidth_bytes_per_s(kinds, [1, 2, 8]) == pytest.approx(1.024e12 * np.array([1, 2, 8]))
    assert memory.memory_capacity_bytes(kinds, [1, 2, 8]) == pytest.approx(24 * 2**30 * np.array([1, 2, 8]))


def test_nominal_bandwidth_of_a_stack_is_at_least_that_of_products():
    # Data-sheet bandwidth per stack of A100 (HBM2e), H100 (HBM3), B200 (HBM3e): 408, 670, 1000 GB/s.
    chips = chip_designs(["a100_sxm", "h100_sxm", "b200_sxm"])
    nominal = memory.memory_bandwidth_bytes_per_s(chips.memory_kind, chips.memory_stacks)
    assert (nominal >= chips.memory_bandwidth_bytes_per_s).all()
    assert (nominal <= 1.3 * chips.memory_bandwidth_bytes_per_s).all()


def test_a_design_without_second_tier_has_none_of_its_capacity():
    designs = replace(reference_design(), second_tier=[SecondTier.NONE, SecondTier.CXL_512GB])
    assert memory.second_tier_capacity_bytes(designs).tolist() == [0, 512 * 2**30]
    assert memory.second_tier_bandwidth_bytes_per_s(designs)[0] == 0


def test_unknown_memory_kind_is_refused_with_a_suggestion():
    with pytest.raises(UnknownNameError, match="did you mean 'lpddr5x'"):
        memory.memory_kind("lpddr5y")


def test_a_code_beyond_the_table_is_refused():
    with pytest.raises(ValueError, match="memory_kind must be a code below 11, got 11"):
        memory.memory_bandwidth_bytes_per_s([11], [1])
