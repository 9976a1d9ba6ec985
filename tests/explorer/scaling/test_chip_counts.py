"""Chip counts of a scaling report: the ladder, and what a request may ask for."""

import pytest

from explorer.document import StudyError
from explorer.scaling.chip_counts import MOST_CHIPS, chip_ladder, read_chip_counts
from models.operators.topology import Interconnect, ScaleOut
from models.serving.scenario import System

NODES_OF_8 = System(64, 8)


def test_the_ladder_goes_from_one_chip_through_the_node_to_many_nodes():
    assert chip_ladder(8) == [2**i for i in range(15)]
    assert chip_ladder(8)[-1] == MOST_CHIPS
    assert chip_ladder(72, 300) == [1, 2, 4, 8, 16, 32, 64, 72, 144, 288]
    assert chip_ladder(1, 4) == [1, 2, 4]


def test_a_rack_is_a_size_of_its_own():
    racks_of_6 = System(64, 8, interconnect=Interconnect(scale_out=ScaleOut(nodes_per_leaf=6)))
    assert read_chip_counts({"max_chips": 64}, racks_of_6) == [1, 2, 4, 8, 16, 32, 48, 64]


@pytest.mark.parametrize("node", [1, 3, 8, 72])
def test_every_size_of_the_ladder_is_part_of_a_node_or_whole_nodes(node):
    assert all(n <= node or n % node == 0 for n in chip_ladder(node))


def test_stated_counts_come_back_rising_and_once():
    assert read_chip_counts({"chips": [16, 2, 16]}, NODES_OF_8) == [2, 16]
    assert read_chip_counts({"max_chips": 20}, NODES_OF_8) == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"chips": [8, 12]}, "scaling.chips.1: must be at most 8 or a multiple of 8, the chips of a node, got 12"),
        ({"chips": [0]}, "scaling.chips.0: must be a whole number, 1 to 65536, got 0"),
        ({"chips": [8.5]}, "scaling.chips.0: must be a whole number, 1 to 65536, got 8.5"),
        ({"chips": []}, "scaling.chips: must be a list of 1 to 64 chip counts"),
        ({"max_chips": True}, "scaling.max_chips: must be a whole number, 1 to 65536, got True"),
        ({"max_chips": 8, "chips": [8]}, "scaling: must be true, or hold exactly one of chips and max_chips"),
        ("all", "scaling: must be true, or hold exactly one of chips and max_chips"),
    ],
)
def test_counts_that_cannot_be_are_refused_by_name(asked, rule):
    with pytest.raises(StudyError) as refused:
        read_chip_counts(asked, NODES_OF_8)
    assert str(refused.value) == rule
