"""Conservation: operators at an operating point add up to what the evaluation says."""

import numpy as np
import pytest

from models.architectures.plans import ParallelPlan
from models.evaluate import evaluate
from models.evaluation import take_alternatives
from models.hardware.design import replace, take
from models.hardware.figures import chip_figures
from models.metrics.phases import buffer_bytes, phases_of
from models.operators.factor_tables import FactorTables
from models.operators.step import run_step
from models.operators.topology import Interconnect
from models.serving.scenario import Speculation, System
from tests.models.random_designs import random_designs
from tests.models.serving_scenarios import compiled, scenario
from tests.models.throughput.works import convnet

DESIGNS = random_designs(23, 12, tdp_w=500.0, scale_up_bytes_per_s=2e11, scale_out_bytes_per_s=5e10)

COVERED = Interconnect(overlap_fraction=0.9)
SPECULATION = Speculation(3, 0.7, scenario("llama-3.1-8b").network)
WORKS = {
    "chunked": compiled(),
    "whole prompts": compiled(scheduling="whole_prompt"),
    "experts over nodes": compiled("qwen3-30b-a3b", mixes=("bf16",), n_chips=8, per_node=4),
    "covered messages": compiled("qwen3-30b-a3b", mixes=("bf16",), system=System(8, 4, interconnect=COVERED)),
    "pipeline": compiled(mixes=("w4a16",), n_chips=4, per_node=2, plans=[ParallelPlan(1, 1, 4)]),
    "speculative": compiled(mixes=("bf16",), speculation=SPECULATION),
    "convolutions": convnet(batch=4),
}


def at_operating_points(work, designs=DESIGNS, seed=1):
    """Random alternatives of every design: evaluation, phases and energies."""
    tables = FactorTables()
    chosen = np.random.default_rng(seed).integers(0, work.n_alternatives, designs.n_designs)
    (whole,) = evaluate(designs, designs, [work], tables)
    taken = take_alternatives(whole, chosen)
    phases = phases_of(work, taken, chosen, designs, chip_figures(designs).access, tables)
    return taken, phases, chosen


@pytest.mark.parametrize("name", WORKS)
def test_seconds_and_joules_of_the_phases_are_those_of_the_evaluation(name):
    taken, phases, _ = at_operating_points(WORKS[name])
    engines = taken.n_chips / phases[0].n_chips
    rate = engines / sum(phase.seconds_per_unit for phase in phases)
    energy_j = sum(phase.runs_per_unit * phase.n_chips * phase.settled.energy_j for phase in phases)
    np.testing.assert_allclose(rate, taken.units_per_s, rtol=1e-12)
    np.testing.assert_allclose(energy_j, taken.energy_per_unit_j, rtol=1e-12)


@pytest.mark.parametrize("name", ["chunked", "experts over nodes", "convolutions"])
def test_bytes_of_every_level_are_the_sums_of_the_operators(name):
    work = WORKS[name]
    _, phases, chosen = at_operating_points(work)
    whole = run_step(work.program, DESIGNS, FactorTables(), alternatives=chosen[:, None])
    operators = phases[0].operators
    for level in ("dram_bytes", "vector_ops", "link_bytes"):
        summed = sum(getattr(o.activity, level) for o in operators)
        np.testing.assert_allclose(np.broadcast_to(summed, whole.time_s.shape), getattr(whole, level), rtol=1e-12)
    fetched = sum(buffer_bytes(o.activity) for o in operators)
    np.testing.assert_allclose(np.broadcast_to(fetched, whole.time_s.shape), whole.l2_bytes, rtol=1e-12)


def test_moving_less_never_costs_more():
    # the same operators with half of each kind of traffic, one kind after the other, settle no slower and take no more
    from dataclasses import replace as changed

    from models.metrics.phases import _sum_of
    from models.operators.step_energy import settle

    _, phases, _ = at_operating_points(WORKS["experts over nodes"])
    access = chip_figures(DESIGNS).access
    busy = _sum_of(phases[0].operators, (DESIGNS.n_designs, 1))
    before = settle(busy, access, DESIGNS.tdp_w)
    for name in ("dram_bytes", "l2_bytes", "link_bytes", "vector_ops", "time_s"):
        after = settle(changed(busy, **{name: 0.5 * getattr(busy, name)}), access, DESIGNS.tdp_w)
        assert (after.energy_j <= before.energy_j * (1 + 1e-12)).all()
        if name == "time_s":
            assert (after.time_s <= before.time_s * (1 + 1e-12)).all()


def test_designs_together_are_taken_apart_as_each_alone():
    taken, phases, chosen = at_operating_points(WORKS["experts over nodes"])
    tables, access = FactorTables(), chip_figures(take(DESIGNS, [3])).access
    alone = phases_of(WORKS["experts over nodes"], _row(taken, 3), chosen[3:4], take(DESIGNS, [3]), access, tables)
    np.testing.assert_allclose(phases[0].seconds_per_unit[3], alone[0].seconds_per_unit[0], rtol=1e-12)


def _row(evaluation, index):
    return take_alternatives_of(evaluation, index)


def take_alternatives_of(evaluation, index):
    from dataclasses import replace as changed

    return changed(evaluation, choices={name: values[index : index + 1] for name, values in evaluation.choices.items()})


def test_a_fixed_piece_of_work_has_one_phase():
    designs = replace(take(DESIGNS, [0]), memory_capacity_bytes=1e12)
    _, phases, _ = at_operating_points(WORKS["convolutions"], designs)
    assert [phase.name for phase in phases] == ["step"]
