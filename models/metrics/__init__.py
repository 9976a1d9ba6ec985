"""Metrics: each reads one number per design and alternative from an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from models.checks import FloatArray
from models.evaluation import ScenarioEvaluation
from models.metrics import carbon, cost, energy, latency, throughput

SERVING = ("llm_serving",)
TOKENS = ("llm_serving", "training")
EVERY = ("llm_serving", "training", "convnet", "gemm_list")


@dataclass(frozen=True)
class Metric:
    """What a metric is called by, its unit and better direction, which scenarios have it, and how it is read."""

    unit: str
    direction: str
    kinds: tuple[str, ...]
    read: Callable[[ScenarioEvaluation], FloatArray]
    bounded: bool = True
    """Whether the two-batch evaluation of a box bounds the metric in its better direction."""
    of_prompts: bool = False
    """Whether it follows from prompts computed alone, which bounds of other metrics may leave out."""

    @property
    def description(self) -> str:
        """First line of the reading function."""
        return (self.read.__doc__ or "").strip().splitlines()[0]


METRICS: Mapping[str, Metric] = {
    "sustainable_requests_per_s": Metric("1/s", "maximize", SERVING, throughput.units_per_s),
    "requests_per_s": Metric("1/s", "maximize", SERVING, throughput.units_per_s),
    "sustainable_output_tokens_per_s": Metric("1/s", "maximize", SERVING, throughput.tokens_per_s),
    "output_tokens_per_s": Metric("1/s", "maximize", SERVING, throughput.tokens_per_s),
    "output_tokens_per_s_per_chip": Metric("1/s", "maximize", SERVING, throughput.tokens_per_s_per_chip),
    "sustainable_output_tokens_per_s_per_w": Metric("1/J", "maximize", SERVING, throughput.tokens_per_s_per_w),
    "output_tokens_per_s_per_mm2": Metric("1/(s mm2)", "maximize", SERVING, throughput.tokens_per_s_per_mm2),
    "output_tokens_per_s_per_usd": Metric("1/(s USD)", "maximize", SERVING, throughput.tokens_per_s_per_usd),
    "ttft_p95_s": Metric("s", "minimize", SERVING, latency.ttft_s, of_prompts=True),
    "tpot_p95_s": Metric("s", "minimize", SERVING, latency.tpot_s),
    "step_s": Metric("s", "minimize", EVERY, latency.step_s),
    "energy_per_output_token_j": Metric("J", "minimize", SERVING, energy.energy_per_token_j),
    "energy_per_request_j": Metric("J", "minimize", SERVING, energy.energy_per_unit_j),
    "usd_per_million_output_tokens": Metric("USD", "minimize", SERVING, cost.usd_per_million_tokens),
    "usd_per_hour": Metric("USD/h", "minimize", EVERY, cost.usd_per_hour, bounded=False),
    "units_per_s": Metric("1/s", "maximize", EVERY, throughput.units_per_s),
    "energy_per_unit_j": Metric("J", "minimize", EVERY, energy.energy_per_unit_j),
    "usd_per_unit": Metric("USD", "minimize", EVERY, cost.usd_per_unit),
    "images_per_s": Metric("1/s", "maximize", ("convnet",), throughput.units_per_s),
    "trained_tokens_per_s": Metric("1/s", "maximize", ("training",), throughput.tokens_per_s),
    "trained_tokens_per_s_per_w": Metric("1/J", "maximize", ("training",), throughput.tokens_per_s_per_w),
    "usd_per_million_trained_tokens": Metric("USD", "minimize", ("training",), cost.usd_per_million_tokens),
    "usd_per_session": Metric("USD", "minimize", SERVING, cost.usd_per_session),
    "facility_energy_per_million_output_tokens_j": Metric(
        "J", "minimize", SERVING, energy.facility_energy_per_million_tokens_j
    ),
    "facility_energy_per_session_j": Metric("J", "minimize", SERVING, energy.facility_energy_per_session_j),
    "kgco2e_per_million_output_tokens": Metric("kg", "minimize", SERVING, carbon.kgco2e_per_million_tokens),
    "embodied_kgco2e_per_million_output_tokens": Metric(
        "kg", "minimize", SERVING, carbon.embodied_kgco2e_per_million_tokens
    ),
    "operational_kgco2e_per_million_output_tokens": Metric(
        "kg", "minimize", SERVING, carbon.operational_kgco2e_per_million_tokens
    ),
    "kgco2e_per_session": Metric("kg", "minimize", SERVING, carbon.kgco2e_per_session),
    "kgco2e_per_unit": Metric("kg", "minimize", EVERY, carbon.kgco2e_per_unit),
    "kgco2e_per_million_trained_tokens": Metric("kg", "minimize", ("training",), carbon.kgco2e_per_million_tokens),
    "embodied_kgco2e": Metric("kg", "minimize", EVERY, carbon.embodied_kgco2e),
    "area_mm2": Metric("mm2", "minimize", EVERY, cost.area_mm2),
    "unit_cost_usd": Metric("USD", "minimize", EVERY, cost.unit_cost_usd),
    "tdp_w": Metric("W", "minimize", EVERY, energy.tdp_w),
    "average_power_w": Metric("W", "minimize", EVERY, energy.average_power_w, bounded=False),
    "peak_power_w": Metric("W", "minimize", EVERY, energy.peak_power_w, bounded=False),
    "idle_power_fraction": Metric("1", "minimize", EVERY, energy.idle_power_fraction, bounded=False),
    "full_rate_power_w": Metric("W", "minimize", EVERY, energy.full_rate_power_w),
    "static_power_w": Metric("W", "minimize", EVERY, energy.static_power_w),
}
"""Metric key, the same everywhere (API, CLI, columns) -> how it is read."""


def metrics_of(kind: str) -> dict[str, Metric]:
    """The metrics that a scenario of this kind has."""
    return {name: metric for name, metric in METRICS.items() if kind in metric.kinds}
