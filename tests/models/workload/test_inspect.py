"""The statistics a planner sees before any hardware is chosen."""

from __future__ import annotations

import json

import numpy as np
import pytest

from models.workload.inspect import workload_statistics
from models.workload.parametric import formula_distribution
from models.workload.presets import profiles, shipped_trace
from models.workload.requests import Requests


def test_conversation_trace_has_its_published_statistics():
    # mean, p50, p90, p99 and burstiness as collected from Azure/AzurePublicDataset with the trace
    requests = workload_statistics(shipped_trace("azure2023_conv"))["requests"]
    expected = {"mean": 1155, "p50": 1020, "p90": 2734, "p99": 4142}
    assert {key: round(requests["input_tokens"][key]) for key in expected} == expected
    assert requests["output_tokens"]["p50"] == 129
    assert requests["rate_per_s"] == pytest.approx(5.5301, rel=1e-4)
    assert requests["dispersion_60_s"] == pytest.approx(16.13, rel=1e-3)
    assert requests["length_correlation"] == pytest.approx(0.09, abs=0.02)


def test_every_source_gives_plain_json():
    sources = [shipped_trace("servegen_mm_image_generated"), formula_distribution(profiles()["llmperf-550-150"])]
    for source in sources:
        json.dumps(workload_statistics(source), allow_nan=False)


def test_histogram_holds_all_requests_and_tokens():
    bins = workload_statistics(shipped_trace("azure2023_code"))["requests"]["input_tokens"]["histogram"]
    assert sum(row["request_fraction"] for row in bins) == pytest.approx(1)
    assert sum(row["token_fraction"] for row in bins) == pytest.approx(1)
    assert all(row["from_tokens"] < row["to_tokens"] for row in bins)


def test_prefix_reuse_and_sessions_are_reported():
    trace = Requests(
        np.array([0.0, 6.0, 6.2]),
        np.array([2100.0, 2700.0, 900.0]),
        np.array([300.0, 280.0, 120.0]),
        np.array([0.0, 2048.0, 512.0]),
        np.array([0, 0, 1]),
    )
    requests = workload_statistics(trace)["requests"]
    assert requests["prefix_hit_fraction"] == pytest.approx(2560 / 5700)
    assert requests["sessions"] == {"count": 2, "requests_per_session": 1.5}


def test_classes_state_the_error_they_keep():
    classes = workload_statistics(shipped_trace("azure2023_code"), 0.02)["classes"]
    assert classes["error_fraction"] == 0.02
    assert 0 < classes["prefill_error_fraction"] <= 0.02
    assert len(classes["weight"]) == classes["n_classes"]


def test_one_request_without_arrivals_is_inspected():
    requests = workload_statistics(Requests(None, *np.array([[550.0], [150.0], [0.0]])))["requests"]
    assert (requests["count"], requests["rate_per_s"], requests["length_correlation"]) == (1, None, None)
