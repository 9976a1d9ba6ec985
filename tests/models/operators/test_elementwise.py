"""Elementwise operators: registry, bounds, monotone, golden rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.checks import UnknownNameError
from models.hardware.catalog import chip_designs
from models.hardware.design import reference_design, replace, take
from models.operators.elementwise import ELEMENTWISE, elementwise_time_s

RESOURCES = ("n_cores", "clock_hz", "vector_lanes_per_core", "l2_bytes", "memory_bandwidth_bytes_per_s", "array_m")


def traffic_bytes(op, elements):
    return (ELEMENTWISE[op].reads + ELEMENTWISE[op].writes) * 2.0 * np.asarray(elements)


@pytest.mark.parametrize("op", ELEMENTWISE)
class TestEveryOperator:
    def test_gives_one_positive_time_per_design_and_shape(self, op):
        elements = np.array([1.0, 1e5, 1e9])
        time_s = elementwise_time_s(take(reference_design(), [0, 0]), op, elements, traffic_bytes(op, elements))
        assert time_s.shape == (2, 3)
        assert (time_s > 0).all() and (np.diff(time_s, axis=1) > 0).all()

    @settings(max_examples=10, deadline=None)
    @given(resource=st.sampled_from(RESOURCES), factor=st.floats(1.05, 4.0), elements=st.floats(1.0, 1e9))
    def test_more_of_any_resource_is_never_slower(self, op, resource, factor, elements):
        design = reference_design()
        better = replace(design, **{resource: getattr(design, resource) * factor})
        moved = traffic_bytes(op, elements)
        before, after = (
            elementwise_time_s(d, op, elements, moved, rows=elements / 4096)[0, 0] for d in (design, better)
        )
        assert after <= before * (1 + 1e-12)

    def test_large_operands_are_never_faster_than_main_memory(self, op):
        moved = traffic_bytes(op, 1e9)
        design = reference_design()
        time_s = elementwise_time_s(design, op, 1e9, moved)[0, 0]
        assert time_s >= moved / design.memory_bandwidth_bytes_per_s[0]


def test_operands_that_fit_the_shared_buffer_are_faster_than_main_memory():
    design = replace(reference_design(), memory_bandwidth_bytes_per_s=1e11)
    small = replace(design, l2_bytes=1e5)
    moved = traffic_bytes("residual", 2e6)
    kept, spilled = (elementwise_time_s(d, "residual", 2e6, moved)[0, 0] for d in (design, small))
    assert kept < 0.5 * spilled


def test_a_fused_operator_has_no_start():
    fused = elementwise_time_s(reference_design(), "activation", 1e6, 6e6, start_s=0.0)
    alone = elementwise_time_s(reference_design(), "activation", 1e6, 6e6)
    assert (alone - fused)[0, 0] > 1e-6


def test_norm_of_a_large_batch_on_a_chip_lies_within_15_percent_of_vidur():
    # microsoft/vidur compute profile, A100 80GB, Llama-2-70b post_attention_layernorm, device kernel time: median of
    # rows with 4096 tokens and more of width 8192 is 590 us (30 720 rows)
    rows = 30720.0
    time_s = elementwise_time_s(
        chip_designs(["a100_sxm"]), "norm", rows * 8192, traffic_bytes("norm", rows * 8192), rows=rows
    )[0, 0]
    assert time_s / (traffic_bytes("norm", rows * 8192) / 2.039e12) == pytest.approx(2.9, rel=0.15)


def test_unknown_operator_is_refused_with_a_suggestion():
    with pytest.raises(UnknownNameError, match="unknown elementwise operator 'normal', did you mean 'norm'"):
        elementwise_time_s(reference_design(), "normal", 1, 1)
