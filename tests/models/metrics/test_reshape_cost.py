"""What is spent on moving without computing."""

import numpy as np
import pytest

from models.hardware.design import replace
from models.hardware.energy import energy_per_access, operand_bytes_per_mac, operand_delivery_j_per_byte
from models.hardware.figures import chip_figures
from models.metrics.reshape_cost import LEVELS, level_bytes, moved_bytes, moved_items, reshape_fraction
from tests.models.metrics.test_phases import DESIGNS, WORKS, at_operating_points
from tests.models.serving_scenarios import compiled

ACCESS = chip_figures(DESIGNS).access


def items_of(work, designs=DESIGNS):
    taken, phases, _ = at_operating_points(work, designs)
    return moved_items(phases, designs, chip_figures(designs).access), phases, taken


def seconds(items, name):
    return sum((each.seconds for each in items if each.item == name), np.zeros((1, 1)))


@pytest.mark.parametrize("name", WORKS)
class TestEveryWork:
    def test_items_take_part_of_the_time_and_part_of_the_energy(self, name):
        items, phases, taken = items_of(WORKS[name])
        share = reshape_fraction(items, phases)
        energy_j = sum(each.energy_j for each in items)
        assert ((share >= 0) & (share <= 1)).all()
        assert all((each.seconds >= 0).all() and (each.energy_j >= 0).all() for each in items)
        assert (energy_j < taken.energy_per_unit_j).all()

    def test_no_level_moves_more_for_the_items_than_in_all(self, name):
        items, phases, _ = items_of(WORKS[name])
        whole, moved = level_bytes(phases, DESIGNS), moved_bytes(items)
        for level in LEVELS:
            assert (moved[level] <= whole[level] * (1 + 1e-9)).all(), level

    def test_every_item_of_an_operator_is_within_its_time(self, name):
        items, phases, _ = items_of(WORKS[name])
        for phase in phases:
            for work in phase.operators:
                own = sum(
                    (i.seconds for i in items if i.operator == work.name and i.phase == phase.name), np.zeros((1, 1))
                )
                whole = work.activity.time_s * phase.slowdown * phase.runs_per_unit
                assert (own <= whole * (1 + 1e-9)).all(), work.name


def test_links_are_all_of_the_interconnect_and_counted_at_their_level():
    items, phases, _ = items_of(WORKS["experts over nodes"])
    links = [each for each in items if each.layer == "interconnect"]
    assert {each.item for each in links} >= {"expert_dispatch", "expert_combine", "cross_chip_reduction"}
    whole = level_bytes(phases, DESIGNS)
    for level in ("scale_up", "scale_out"):
        np.testing.assert_allclose(sum(each.bytes[level] for each in links), whole[level])


def test_im2col_is_paid_where_it_is_chosen_alone():
    work = WORKS["convolutions"]
    taken, phases, chosen = at_operating_points(work)
    items = moved_items(phases, DESIGNS, ACCESS)
    expanded = np.broadcast_to(seconds(items, "im2col"), chosen[:, None].shape)[:, 0]
    is_im2col = taken.choices["im2col"][:, 0] == 1
    assert is_im2col.any() and not is_im2col.all()
    assert (expanded[is_im2col] > 0).all() and (expanded[~is_im2col] == 0).all()


def test_a_pipeline_hands_over_and_a_single_stage_does_not():
    assert (seconds(items_of(WORKS["pipeline"])[0], "pipeline_handover") > 0).all()
    assert not np.any(seconds(items_of(WORKS["chunked"])[0], "pipeline_handover"))


def test_prompts_of_their_own_are_paid_by_request_and_steps_by_step():
    items, _, _ = items_of(WORKS["whole prompts"])
    assert {(each.phase, each.paid) for each in items} == {("step", "step"), ("prompt", "request")}


def test_a_cache_sent_to_other_engines_is_paid_by_request():
    work = compiled(mixes=("bf16",), n_chips=4, scheduling="disaggregated")
    items, _, _ = items_of(work)
    sent = [each for each in items if each.item == "cache_transfer"]
    assert [each.paid for each in sent] == ["request"] and (sent[0].seconds > 0).all()


def test_a_wider_port_waits_less_for_operands():
    work = compiled(mixes=("bf16",))
    narrow, wide = (replace(DESIGNS, noc_bytes_per_cycle_per_core=width) for width in (16.0, 1e6))
    waits = []
    for designs in (narrow, wide):
        items, phases, _ = items_of(work, designs)
        waits.append(seconds(items, "operand_broadcast") / phases[0].settled.slowdown)
    assert (waits[1] < 0.01 * waits[0]).all()


def test_a_large_outer_product_array_delivers_operands_for_a_sixteenth_of_the_bytes():
    # equal peak; b (1/m + 1/n) bytes of operands for each product
    large, small = (replace(DESIGNS, array_m=side, array_n=side, array_k=1) for side in (256, 16))
    ratio = operand_bytes_per_mac(small, "bf16") / operand_bytes_per_mac(large, "bf16")
    np.testing.assert_allclose(ratio, 16.0)


def test_delivery_is_the_part_of_a_product_that_the_shape_of_the_array_decides():
    # with operands shared without end nothing is left of it
    shared = replace(DESIGNS, array_m=1e12, array_n=1e12)
    per_byte = operand_delivery_j_per_byte(DESIGNS)
    own = energy_per_access(DESIGNS, area_mm2=np.full(DESIGNS.n_designs, 100.0)).mac_j["bf16"]
    rest = energy_per_access(shared, area_mm2=np.full(DESIGNS.n_designs, 100.0)).mac_j["bf16"]
    np.testing.assert_allclose(own - rest, per_byte * operand_bytes_per_mac(DESIGNS, "bf16"), rtol=1e-9)
