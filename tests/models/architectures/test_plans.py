"""Ways to deal a network to chips."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.architectures import load_network, lower
from models.architectures.plans import ParallelPlan, pipeline_depths, stage_plans, stage_share

LLAMA, MIXTRAL, DEEPSEEK = (lower(load_network(name)) for name in ("llama-3.1-8b", "mixtral-8x7b", "deepseek-v3"))


def pairs(*args):
    return [(plan.tensor_parallel, plan.attention_data_parallel) for plan in stage_plans(*args)]


def test_a_dense_network_is_shared_by_tensor_parallelism_alone():
    assert pairs(LLAMA, 16, 8) == [(1, 1), (2, 1), (4, 1), (8, 1), (16, 1)]


def test_groups_share_experts_over_as_many_chips_as_there_are_experts():
    assert pairs(MIXTRAL, 8, 8) == [
        (1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2), (8, 1),
    ]  # fmt: skip
    # eight experts: no group of chips beyond eight
    assert max(t * d for t, d in pairs(MIXTRAL, 16, 16) if d > 1) == 8


def test_groups_of_several_nodes_each_are_left_out():
    found = pairs(DEEPSEEK, 64, 8)
    assert (8, 8) in found and (16, 1) in found and (16, 2) not in found
    assert len(found) == len(set(found)) == 25


def test_chips_of_an_engine_are_the_product_of_its_degrees():
    assert ParallelPlan(2, 4, 3).stage_chips == 8 and ParallelPlan(2, 4, 3).n_chips == 24


@given(n_layers=st.integers(1, 130), most=st.integers(1, 256))
def test_depths_divide_and_their_padding_never_falls(n_layers, most):
    depths = pipeline_depths(n_layers, most)
    counted = [p * math.ceil(n_layers / p) for p in depths]
    assert all(most % p == 0 and p <= n_layers for p in depths)
    assert depths == sorted(depths) and counted == sorted(counted)
    assert depths[0] == 1 and counted[0] == n_layers


@pytest.mark.parametrize(("n_layers", "stages", "fullest"), [(80, 8, 10), (61, 4, 16), (5, 5, 1)])
def test_the_fullest_stage_holds_the_rounded_up_share(n_layers, stages, fullest):
    assert stage_share(n_layers, stages) == fullest / n_layers


def test_more_stages_than_layers_are_refused():
    with pytest.raises(ValueError, match="pipeline_parallel must be at most 3, the number of layers, got 4"):
        stage_share(3, 4)
