"""Rate, burstiness and drift, observed and drawn."""

from __future__ import annotations

import numpy as np
import pytest

from models.workload.arrivals import (
    Arrivals,
    arrival_statistics,
    dispersion,
    draw_arrivals,
    follow_profile,
    scaled_to_rate,
)
from models.workload.presets import shipped_trace


@pytest.mark.parametrize(
    ("name", "rate", "cv", "short", "long"),
    [
        # computed from the source files when they were collected; whole windows only
        ("azure2023_code", 2.5664, 13.151, 71.64, 163.96),
        ("azure2023_conv", 5.5301, 1.094, 3.86, 16.13),
        ("servegen_deepseek_r1_generated", 33.4989, 1.271, 4.53, 8.10),
        ("servegen_mm_image_generated", 12.6986, 1.396, 8.43, 11.84),
    ],
)
def test_statistics_of_the_shipped_traces(name, rate, cv, short, long):
    statistics = arrival_statistics(shipped_trace(name).arrival_s)
    assert statistics.rate_per_s == pytest.approx(rate, rel=1e-4)
    assert statistics.interarrival_cv == pytest.approx(cv, rel=1e-3)
    assert statistics.dispersion_10_s == pytest.approx(short, rel=2e-3)
    assert statistics.dispersion_60_s == pytest.approx(long, rel=2e-3)


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_drawn_gaps_have_the_rate_and_spread_asked_for(cv):
    statistics = arrival_statistics(draw_arrivals(4.0, cv, 100_000, seed=1))
    # standard error of the mean gap is cv / 316: 5 of them
    assert statistics.rate_per_s == pytest.approx(4.0, rel=5 * cv / 316)
    assert statistics.interarrival_cv == pytest.approx(cv, rel=0.05)


def test_drawn_drift_has_the_dispersion_asked_for():
    # 2,000 minutes: the relative standard error of a variance is near 4 %
    drawn = draw_arrivals(5.5, 1.0, 660_000, seed=2, dispersion_60_s=16.0)
    statistics = arrival_statistics(drawn)
    assert statistics.dispersion_60_s == pytest.approx(16.0, rel=0.2)
    assert statistics.interarrival_cv < 1.3
    assert (np.diff(drawn) >= 0).all()


def test_seed_fixes_the_arrivals_and_the_rate_only_stretches_them():
    np.testing.assert_allclose(draw_arrivals(2.0, 1.5, 50, seed=4), draw_arrivals(4.0, 1.5, 50, seed=4) * 2)


def test_dispersion_counts_empty_windows():
    # counts 2, 0, 0, 2 in whole windows of 1 s
    arrival_s = np.array([0.0, 0.1, 3.0, 3.1, 4.5])
    assert dispersion(arrival_s, 1.0) == pytest.approx(1.0)
    few = np.array([0.0, 0.1, 1e6])
    counts = np.zeros(10**6)
    counts[0] = 2
    assert dispersion(few, 1.0) == pytest.approx(counts.var() / counts.mean())


def test_too_few_arrivals_have_no_statistics():
    statistics = arrival_statistics(np.array([3.0]))
    assert (statistics.rate_per_s, statistics.interarrival_cv, statistics.dispersion_10_s) == (None, None, None)
    assert arrival_statistics(np.zeros(5)).rate_per_s is None


def test_profile_bends_the_rate():
    bent = follow_profile(draw_arrivals(1.0, 0.0, 101, seed=0), np.array([0.0, 10.0]), np.array([1.0, 9.0]))
    assert bent[10] == pytest.approx(10.0)
    assert bent[100] == pytest.approx(20.0)


def test_scaling_sets_the_rate_and_keeps_the_burstiness():
    arrival_s = shipped_trace("azure2023_code").arrival_s
    scaled = arrival_statistics(scaled_to_rate(arrival_s, 10.0))
    assert scaled.rate_per_s == pytest.approx(10.0)
    assert scaled.interarrival_cv == pytest.approx(arrival_statistics(arrival_s).interarrival_cv)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: draw_arrivals(0.0, 1.0, 5, 0), "rate must be positive"),
        (lambda: draw_arrivals(1.0, -1.0, 5, 0), "cv must be zero or positive"),
        (lambda: draw_arrivals(1.0, 1.0, 0, 0), "n must be at least 1"),
        (lambda: draw_arrivals(1.0, 3.0, 5, 0, dispersion_60_s=4.0), "dispersion_60_s must be at least"),
        (lambda: scaled_to_rate(np.zeros(3), 1.0), "must not all fall together"),
        (lambda: Arrivals(rate_per_s=1.0, load=0.5), "must give a rate or a load"),
        (lambda: Arrivals(load=-0.5), "arrivals load must be positive"),
        (lambda: Arrivals(cv=np.nan), "arrivals cv must be zero or positive"),
        (lambda: follow_profile(np.zeros(2), np.array([1.0]), np.array([1.0])), "profile times must begin at 0"),
    ],
)
def test_bad_arrivals_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
