"""Collectives: wire bytes, bounds, monotone, golden rows, bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.checks import UnknownNameError
from models.hardware.catalog import chip_designs
from models.hardware.design import reference_design, replace
from models.operators.collective import COLLECTIVES, collective_latency_ratio, collective_time_s, wire_bytes

LINK = 450e9


@pytest.mark.parametrize("kind", COLLECTIVES)
class TestEveryCollective:
    def test_grows_with_the_message_and_is_zero_for_one_chip(self, kind):
        time_s = collective_time_s(kind, [[1], [2]], [1e3, 1e6, 1e9], LINK)
        assert (time_s[0] == 0).all()
        assert (np.diff(time_s[1]) > 0).all()

    @settings(max_examples=20, deadline=None)
    @given(
        n=st.integers(2, 512), message=st.floats(0.0, 1e10), factor=st.floats(1.01, 10.0),
        link=st.one_of(st.just(0.0), st.floats(1e8, 2e12)), host=st.floats(1e9, 1e12),
    )  # fmt: skip
    def test_a_faster_link_or_host_is_never_slower_and_the_wire_bounds_it(self, kind, n, message, factor, link, host):
        base = collective_time_s(kind, n, message, link, host_bytes_per_s=host)[0, 0]
        faster_link = collective_time_s(kind, n, message, link * factor + 1.0, host_bytes_per_s=host)[0, 0]
        faster_host = collective_time_s(kind, n, message, link, host_bytes_per_s=host * factor)[0, 0]
        assert max(faster_link, faster_host) <= base * (1 + 1e-12)
        assert base >= wire_bytes(kind, n, message)[0] / max(link, host) * (1 - 1e-12)


def test_all_reduce_moves_twice_what_its_two_halves_move():
    halves = wire_bytes("reduce_scatter", 8, 1e6) + wire_bytes("all_gather", 8, 1e6)
    assert wire_bytes("all_reduce", 8, 1e6) == pytest.approx(halves)


def test_designs_and_shapes_broadcast_as_one_at_a_time():
    links, sizes = np.array([3e11, 0.0]), np.array([1e4, 1e8])
    together = collective_time_s("all_reduce", 4, sizes, links, host_bytes_per_s=[6e10, 3e10])
    one = collective_time_s("all_reduce", 4, 1e8, 0.0, host_bytes_per_s=3e10)
    assert together.shape == (2, 2)
    assert together[1, 1] == pytest.approx(one[0, 0], rel=1e-12)


@pytest.mark.parametrize(
    ("chip", "n", "elements_bytes", "seconds"),
    [("h100_sxm", 8, 536870912, 2112e-6), ("a100_sxm", 4, 536870912, 3716e-6), ("b200_sxm", 8, 1024, 26e-6)],
    ids=["h100 bandwidth", "a100 bandwidth", "b200 latency"],
)  # fmt: skip
def test_all_reduce_lies_within_30_percent_of_nccl(chip, n, elements_bytes, seconds):
    # ai-dynamo/aiconfigurator nccl_perf, 2-byte elements, median over versions; worst group error of the fit is 15 %
    design = chip_designs([chip])
    time_s = collective_time_s(
        "all_reduce", n, elements_bytes, design.scale_up_bytes_per_s,
        latency_scale_ratio=collective_latency_ratio(design), in_switch_reduction=n == 8,
    )  # fmt: skip
    assert time_s[0, 0] == pytest.approx(seconds, rel=0.3)


def test_latency_falls_with_the_clock_and_grows_with_dies():
    design = reference_design()
    ratio = collective_latency_ratio(design)
    assert collective_latency_ratio(replace(design, clock_hz=design.clock_hz * 2))[0] == pytest.approx(ratio[0] / 2)
    assert collective_latency_ratio(replace(design, n_dies=2))[0] > ratio[0]


def test_more_chips_on_one_host_share_its_links():
    two, eight = (collective_time_s("all_gather", n, 1e9, 0.0, host_bytes_per_s=32e9)[0, 0] for n in (2, 8))
    assert eight > 4 * two


def test_unknown_kind_and_negative_rates_are_refused():
    with pytest.raises(UnknownNameError, match="unknown collective 'allreduce', did you mean 'all_reduce'"):
        collective_time_s("allreduce", 2, 1, LINK)
    with pytest.raises(ValueError, match=r"link_bytes_per_s must be zero or positive \[B/s\], got -1"):
        collective_time_s("all_reduce", 2, 1, -1.0)
    with pytest.raises(ValueError, match=r"n_chips must be at least 1, got 0"):
        collective_time_s("all_reduce", 0, 1, LINK)


def test_one_shot_all_reduce_wins_for_small_messages_alone_and_never_costs():
    sizes = np.array([1e3, 1e5, 1e8])
    plain = collective_time_s("all_reduce", 8, sizes, LINK)
    engine = collective_time_s("all_reduce", 8, sizes, LINK, one_shot_start_s=4e-6)
    assert (engine <= plain).all()
    assert engine[0, 0] < 0.4 * plain[0, 0]
    assert engine[0, 2] == plain[0, 2]
