"""What a replay is offered: traces at their own times, drawn lengths and arrivals, everything at once."""

from __future__ import annotations

import numpy as np
import pytest

from models.workload.arrivals import Arrivals, arrival_statistics
from models.workload.offered import offered_requests
from models.workload.presets import profiles, shipped_trace


def test_load_is_a_share_of_the_sustainable_rate():
    offered = offered_requests(profiles()["llmperf-550-150"], Arrivals(load=0.7, cv=1.0), 20.0)
    # 10,000 Poisson gaps: one percent standard error
    assert arrival_statistics(offered.arrival_s).rate_per_s == pytest.approx(14.0, rel=0.05)
    assert offered.input_tokens.mean() == pytest.approx(550, rel=0.02)


def test_trace_keeps_its_burstiness_at_another_rate():
    trace = shipped_trace("azure2023_code")
    offered = offered_requests(trace, Arrivals(load=0.5, from_trace=True), 10.0)
    statistics = arrival_statistics(offered.arrival_s)
    assert statistics.rate_per_s == pytest.approx(5.0)
    assert statistics.interarrival_cv == pytest.approx(13.15, rel=1e-2)
    assert offered.n == trace.n


def test_trace_keeps_its_own_times_where_no_rate_is_given():
    trace = shipped_trace("azure2023_conv")
    np.testing.assert_array_equal(offered_requests(trace, Arrivals(from_trace=True), 1.0).arrival_s, trace.arrival_s)


def test_offline_requests_wait_all_at_once():
    assert offered_requests(shipped_trace("azure2023_conv"), Arrivals(), 1.0).arrival_s is None


def test_lengths_of_a_trace_can_meet_drawn_arrivals():
    trace = shipped_trace("arxiv_summarization_lengths")
    offered = offered_requests(trace, Arrivals(rate_per_s=3.0, cv=2.0), 0.0)
    assert arrival_statistics(offered.arrival_s).interarrival_cv == pytest.approx(2.0, rel=0.1)
    np.testing.assert_array_equal(offered.input_tokens, trace.input_tokens)


def test_impossible_arrivals_are_refused():
    with pytest.raises(ValueError, match="arrivals must not come from the trace, it has none"):
        offered_requests(shipped_trace("arxiv_summarization_lengths"), Arrivals(load=0.5, from_trace=True), 1.0)
    with pytest.raises(ValueError, match="sustains some rate"):
        offered_requests(shipped_trace("azure2023_conv"), Arrivals(load=0.5), 0.0)
