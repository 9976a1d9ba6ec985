"""Rows on their way to experts and back."""

import numpy as np
import pytest

from models.architectures import load_network, lower
from models.architectures.plans import ParallelPlan
from models.operators.collective import wire_bytes
from models.serving.expert_exchange import expert_exchange_terms
from models.serving.scenario import alternatives

DEEPSEEK, LLAMA = lower(load_network("deepseek-v3")), lower(load_network("llama-3.1-8b"))


def wire(tensor=1, groups=1, node=8, tokens=128.0, element_bytes=1.0, network=DEEPSEEK):
    """Bytes that one chip sends in one layer, by term."""
    choices, one = alternatives([ParallelPlan(tensor, groups)], 1, [1]), np.ones(1)
    terms = expert_exchange_terms(network, choices, tokens * one, node, element_bytes * one, {})
    columns = {t.name: t.columns for t in terms}
    return {name: float(wire_bytes("all_to_all", c["n_chips"], c["message_bytes"])[0]) for name, c in columns.items()}


def test_every_row_goes_once_to_each_chip_of_its_eight_experts():
    # 256 chips of one node with an expert each: 8 of 256 chips get the row, 1/256 of them stay where they are
    found = wire(groups=256, node=256)
    assert found["experts_dispatch"] == pytest.approx(128 * 8 * 7168 * 255 / 256)
    assert found["experts_combine"] == pytest.approx(2 * found["experts_dispatch"])


def test_few_chips_get_nearly_every_row_once():
    # 8 experts of 256 on 8 chips: a chip has none of them with chance 0.34
    none = np.prod([(224 - i) / (256 - i) for i in range(8)])
    assert wire(groups=8)["experts_dispatch"] == pytest.approx(128 * 7 * (1 - none) * 7168)


def test_between_nodes_a_row_goes_once_to_each_node_of_its_experts():
    found = wire(groups=64)
    none = np.prod([(224 - i) / (256 - i) for i in range(8)])
    assert found["experts_dispatch_between_nodes"] == pytest.approx(128 * 7 * (1 - none) * 7168)
    # inside, the rows that all 64 chips send to a chip, but for those that came to it over its own link
    held = np.prod([(252 - i) / (256 - i) for i in range(8)])
    assert found["experts_dispatch"] == pytest.approx(128 * 64 * (1 - held) * 7168 * 7 / 8)


def test_chips_of_a_tensor_parallel_group_share_its_rows():
    assert wire(tensor=2, groups=4)["experts_dispatch"] == pytest.approx(wire(groups=8)["experts_dispatch"] / 2)


def test_one_group_and_dense_networks_exchange_nothing():
    assert wire(tensor=8) == {} and wire(network=LLAMA) == {}


def test_a_row_never_crosses_more_than_if_all_chips_gathered_all_rows():
    for groups in (2, 4, 8):
        assert wire(groups=groups, element_bytes=2.0)["experts_dispatch"] <= 128 * (groups - 1) * 7168 * 2
