"""Contracts that every fixed piece of work keeps, whatever its kind."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.evaluation import worst_violation
from models.hardware.design import reference_design, replace, take
from models.metrics import metrics_of
from tests.models.random_designs import RESOURCES, between, random_designs, with_more
from tests.models.serving_scenarios import same
from tests.models.throughput.works import convnet, gemms, judged, training

LIST = [{"m": 512, "n": 1024, "k": 2048, "count": 3}, {"m": 64, "n": 64, "k": 128, "batch": 32, "format": "fp16"}]
WORKS = {
    "convnet": convnet("mobilenet-v2"),
    "gemm_list": gemms(LIST),
    "training": training(),
    "training of experts": training("qwen3-30b-a3b", sequences=16),
}
FEW = settings(max_examples=3, deadline=None)


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
class TestEveryFixedWork:
    @FEW
    @given(seed=st.integers(0, 10_000))
    def test_the_corners_of_a_box_bound_every_design_inside(self, work, seed):
        low = random_designs(seed, 6, tdp_w=500.0)
        high = with_more(low, seed + 1, (*RESOURCES, "memory_stacks"))
        bound, point = judged(work, high, low), judged(work, between(low, high, seed + 2))
        assert (bound.units_per_s >= point.units_per_s * (1 - 1e-9)).all()
        assert (bound.energy_per_unit_j <= point.energy_per_unit_j * (1 + 1e-9)).all()
        assert (worst_violation(bound) <= worst_violation(point) + 1e-9).all()

    def test_more_of_a_resource_is_never_slower(self, work):
        designs = random_designs(5, 12, tdp_w=1e6)
        before = judged(work, designs)
        for resource in RESOURCES:
            after = judged(work, with_more(designs, 7, (resource,)))
            assert (after.step_s <= before.step_s * (1 + 1e-9)).all(), resource

    def test_a_batch_of_designs_equals_one_at_a_time(self, work):
        designs = random_designs(11, 4)
        whole = judged(work, designs)
        for i in range(4):
            one = judged(work, take(designs, [i]))
            np.testing.assert_allclose(one.units_per_s[0], whole.units_per_s[i], rtol=1e-12)
            np.testing.assert_allclose(one.energy_per_unit_j[0], whole.energy_per_unit_j[i], rtol=1e-12)

    def test_chosen_alternatives_equal_columns_of_all(self, work):
        designs = random_designs(13, 3)
        whole, last = judged(work, designs), work.n_alternatives - 1
        some = judged(work, designs, alternatives=np.array([[0, last]] * 3))
        np.testing.assert_allclose(some.units_per_s, whole.units_per_s[:, [0, last]], rtol=1e-12)
        np.testing.assert_allclose(
            some.violations["memory_capacity"], whole.violations["memory_capacity"][:, [0, last]], rtol=1e-12
        )

    def test_evaluating_twice_gives_the_same(self, work):
        designs = random_designs(17, 3)
        assert same(judged(work, designs), judged(work, designs))

    def test_every_metric_of_the_kind_is_a_number(self, work):
        evaluation = judged(work, reference_design())
        for name, metric in metrics_of(work.kind).items():
            assert np.isfinite(metric.read(evaluation)).all(), name

    def test_windows_cover_every_alternative_once(self, work):
        covered = [a for first, last in work.windows for a in range(first, last + 1)]
        assert covered == list(range(work.n_alternatives))

    def test_more_work_than_memory_holds_is_a_violation_and_no_exception(self, work):
        tiny = replace(reference_design(), memory_capacity_bytes=1e4)
        assert (judged(work, tiny).violations["memory_capacity"] > 0).all()


def test_twice_the_chips_pass_twice_the_images_at_the_same_energy_each():
    one, two = (judged(convnet(n_chips=n), reference_design()) for n in (1, 2))
    np.testing.assert_allclose(two.units_per_s, 2 * one.units_per_s)
    np.testing.assert_allclose(two.energy_per_unit_j, one.energy_per_unit_j)


def test_work_without_communication_uses_no_links():
    for work, links in (
        (convnet(n_chips=8), set()),
        (gemms(LIST, n_chips=8), set()),
        (training(), {"scale_up", "scale_out"}),
    ):
        assert work.used_links(np.arange(work.n_alternatives)) == links
