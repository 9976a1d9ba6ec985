"""Every metric: finite, of its shape, and bounded by corners exactly where its flag says so."""

import numpy as np
import pytest

from models.evaluate import evaluate
from models.hardware.design import reference_design, replace
from models.metrics import EVERY, METRICS, metrics_of
from models.operators.factor_tables import FactorTables
from tests.models.random_designs import between, random_designs, with_more
from tests.models.serving_scenarios import compiled

SCENARIOS = [compiled(), compiled(scheduling="whole_prompt"), compiled("qwen3-30b-a3b", mixes=("bf16",))]
TABLES = FactorTables()

LOW = random_designs(11, 60, tdp_w=600.0, memory_bandwidth_bytes_per_s=8e11, memory_stacks=1)
HIGH = with_more(LOW, 12)
INSIDE = between(LOW, HIGH, 13)
BOUNDS = evaluate(HIGH, LOW, SCENARIOS, TABLES)
POINTS = evaluate(INSIDE, INSIDE, SCENARIOS, TABLES)

FASTER = replace(LOW, clock_hz=LOW.clock_hz * 2.5)
CLOCK_BOUNDS = evaluate(FASTER, LOW, SCENARIOS, TABLES)
SLOW_POINTS = evaluate(LOW, LOW, SCENARIOS, TABLES)

UNBOUNDED = {"usd_per_hour", "average_power_w", "peak_power_w", "idle_power_fraction"}
"""Rates times costs, energies over times: what raises one raises the other, so the corners bound neither way."""


def read(name, evaluation):
    return np.broadcast_to(METRICS[name].read(evaluation), evaluation.units_per_s.shape)


def breach(name, bounds=BOUNDS, points=POINTS):
    """By how much points are better than the bound of their box at worst, relative."""
    sign = 1.0 if METRICS[name].direction == "minimize" else -1.0
    worst = -np.inf
    for bound, point in zip(bounds, points, strict=True):
        values, limits = sign * read(name, point), sign * read(name, bound)
        worst = max(worst, float(np.max((limits - values) / np.abs(values))))
    return worst


@pytest.mark.parametrize("name", metrics_of("llm_serving"))
class TestEveryServingMetric:
    def test_is_finite_positive_and_of_one_value_per_design_and_alternative(self, name):
        for point in POINTS:
            values = read(name, point)
            assert np.isfinite(values).all() and (values > 0).all()

    def test_is_bounded_by_the_corners_of_a_box_exactly_where_it_says_so(self, name):
        assert METRICS[name].bounded == (name not in UNBOUNDED)
        if METRICS[name].bounded:
            assert breach(name) <= 1e-9
        else:
            assert breach(name, CLOCK_BOUNDS, SLOW_POINTS) > 1e-3

    def test_has_a_unit_a_direction_and_a_description(self, name):
        metric = METRICS[name]
        assert metric.direction in ("minimize", "maximize")
        assert metric.unit and metric.description.endswith("].")


def test_each_kind_of_scenario_has_the_metrics_that_name_it():
    for kind in EVERY:
        assert set(metrics_of(kind)) == {name for name, metric in METRICS.items() if kind in metric.kinds}
        assert {"area_mm2", "units_per_s", "usd_per_unit", "energy_per_unit_j"} <= set(metrics_of(kind))


class TestRelations:
    """Metrics that say the same in other units agree."""

    def values(self, name):
        return read(name, POINTS[0])

    def test_energy_per_token_is_the_reciprocal_of_tokens_per_joule(self):
        product = self.values("energy_per_output_token_j") * self.values("sustainable_output_tokens_per_s_per_w")
        np.testing.assert_allclose(product, 1.0)

    def test_power_of_all_chips_over_the_rate_is_energy_per_token(self):
        power = self.values("average_power_w") * POINTS[0].n_chips
        np.testing.assert_allclose(power / self.values("output_tokens_per_s"), self.values("energy_per_output_token_j"))

    def test_cost_per_hour_over_tokens_per_hour_is_cost_per_token(self):
        per_token = self.values("usd_per_hour") / (3600 * self.values("output_tokens_per_s"))
        np.testing.assert_allclose(1e6 * per_token, self.values("usd_per_million_output_tokens"))

    def test_cost_is_capital_and_electricity(self):
        figures, found = POINTS[0].figures, POINTS[0]
        capital = figures.usd_per_s * found.n_chips / found.units_per_s
        electricity = found.energy_per_unit_j * figures.usd_per_j
        np.testing.assert_allclose(self.values("usd_per_unit"), capital + electricity)

    def test_rates_per_chip_area_and_price_divide_the_rate(self):
        rate = self.values("output_tokens_per_s")
        per_chip = rate / POINTS[0].n_chips
        np.testing.assert_allclose(self.values("output_tokens_per_s_per_chip"), per_chip)
        np.testing.assert_allclose(self.values("output_tokens_per_s_per_mm2"), per_chip / self.values("area_mm2"))
        np.testing.assert_allclose(self.values("output_tokens_per_s_per_usd"), per_chip / self.values("unit_cost_usd"))
        np.testing.assert_allclose(rate, self.values("requests_per_s") * POINTS[0].tokens_per_unit)


def test_rated_power_is_full_power_or_the_cap():
    design = reference_design()
    for cap in (100.0, 1e5):
        chip = replace(design, tdp_w=cap)
        found = evaluate(chip, chip, SCENARIOS[:1], TABLES)[0]
        full = read("full_rate_power_w", found)
        np.testing.assert_allclose(read("tdp_w", found), np.minimum(full, cap))
        assert (read("static_power_w", found) < full).all()
