"""Topologies: closed forms of ring, mesh, torus and fat tree, counted routes, and what must never happen."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.hardware.design import reference_design, replace
from models.operators.collective import COLLECTIVES, wire_bytes
from models.operators.collective_terms import Place, path_columns, two_level_terms
from models.operators.factor_tables import FactorTables
from models.operators.step import run_step, step_program
from models.operators.topology import Interconnect, ScaleOut, ScaleUp, scale_out_paths, scale_up_paths

FEW = settings(max_examples=30, deadline=None)
GRIDS = [ScaleUp("ring", (8,)), ScaleUp("mesh", (4, 4)), ScaleUp("torus", (4, 4)), ScaleUp("torus", (4, 2, 2))]
LINKED = replace(reference_design(), scale_up_bytes_per_s=300e9, scale_out_bytes_per_s=25e9, host_bytes_per_s=1e9)
FAR = {"host_sharing_exponent": 0.0}


def fraction(links, op, n, stride=1):
    (path,) = scale_up_paths(links, op, n, stride)
    return path.link_fraction


def counted_all_to_all(sides, closed):
    """Share of the links that dimension-ordered all-to-all over a whole grid uses, by walking every message."""
    load = Counter()
    places = list(itertools.product(*map(range, sides)))
    for source, target in itertools.permutations(places, 2):
        here = list(source)
        for i, d in enumerate(sides):
            distance = target[i] - here[i]
            ways = [(distance > 0) * 2 - 1]
            if closed:
                around = distance % d
                ways = [1] if around < d - around else [-1] if around > d - around else [1, -1]
            start = here[i]
            for way in ways:
                here[i] = start
                while here[i] != target[i]:
                    load[(*here, i, way)] += 1 / len(ways)
                    here[i] = (here[i] + way) % d
    ports, n = 2 * len(sides), len(places)
    return (n - 1) / (max(load.values()) * ports)


class TestGrids:
    @pytest.mark.parametrize(
        ("links", "n", "share"),
        [
            (ScaleUp("ring", (8,)), 8, 1.0), (ScaleUp("ring", (8,)), 4, 0.5), (ScaleUp("torus", (4, 4)), 16, 1.0),
            (ScaleUp("torus", (4, 4, 4)), 64, 1.0), (ScaleUp("mesh", (4, 4)), 16, 0.5),
            (ScaleUp("torus", (4, 4)), 4, 0.5), (ScaleUp("mesh", (4, 4)), 2, 0.25),
        ],
        ids=["closed ring", "half a ring", "torus", "cube", "mesh", "one row of a torus", "neighbours of a mesh"],
    )  # fmt: skip
    def test_rings_use_every_port_where_dimensions_are_whole(self, links, n, share):
        for op in ("all_reduce", "all_gather", "reduce_scatter"):
            assert fraction(links, op, n) == pytest.approx(share)

    @pytest.mark.parametrize(
        ("links", "sides"),
        [(ScaleUp("ring", (8,)), (8,)), (ScaleUp("ring", (5,)), (5,)), (ScaleUp("torus", (4, 4)), (4, 4)),
         (ScaleUp("torus", (4, 6)), (4, 6)), (ScaleUp("mesh", (4, 3)), (4, 3)), (ScaleUp("mesh", (6,)), (6,))],
        ids=str,
    )  # fmt: skip
    def test_all_to_all_takes_as_long_as_its_busiest_link(self, links, sides):
        counted = counted_all_to_all(sides, closed=links.topology != "mesh")
        assert fraction(links, "all_to_all", int(np.prod(sides))) == pytest.approx(min(counted, 1.0), rel=1e-9)

    def test_the_bisection_of_a_torus_limits_all_to_all(self):
        # d x d: d^2/2 chips send half of d^2/2 messages each over 2 d links of a quarter of a chip's rate
        d = 8
        bisection_s = (d * d / 2) * (d * d / 2) / (d * d) / (2 * d * 0.25)
        assert fraction(ScaleUp("torus", (d, d)), "all_to_all", d * d) == pytest.approx((1 - 1 / d**2) / bisection_s)

    def test_groups_of_distant_chips_share_the_links_between_them(self):
        ring = ScaleUp("ring", (8,))
        assert fraction(ring, "all_reduce", 2, stride=4) == pytest.approx(1 / 4)
        assert fraction(ring, "send_recv", 2, stride=2) == pytest.approx(1 / 4)
        assert fraction(ring, "send_recv", 2) == pytest.approx(1 / 2)

    def test_a_group_that_is_no_block_goes_along_a_row(self):
        (path,) = scale_up_paths(ScaleUp("torus", (4, 2)), "all_reduce", 3)
        assert (path.link_fraction, path.n_steps) == (0.25, 2)

    def test_a_torus_takes_fewer_steps_than_a_ring_of_as_many(self):
        (torus,), (ring,) = (scale_up_paths(ScaleUp(*each), "all_gather", 64) for each in
                             (("torus", (8, 8)), ("ring", (64,))))  # fmt: skip
        assert (torus.n_steps, ring.n_steps) == (14, 63)

    @FEW
    @given(
        sides=st.lists(st.integers(2, 6), min_size=1, max_size=3), op=st.sampled_from(list(COLLECTIVES)),
        n=st.integers(2, 64), stride=st.integers(1, 8), kind=st.sampled_from(["ring", "mesh", "torus"]),
    )  # fmt: skip
    def test_no_group_uses_more_than_its_links_and_a_mesh_no_more_than_a_torus(self, sides, op, n, stride, kind):
        links = ScaleUp(kind, (int(np.prod(sides)),) if kind == "ring" else tuple(sides))
        n = 2 if op == "send_recv" else n
        assert 0 < fraction(links, op, n, stride) <= 1
        whole = int(np.prod(sides))
        mesh, torus = (fraction(ScaleUp(each, tuple(sides)), op, whole) for each in ("mesh", "torus"))
        assert mesh <= torus * (1 + 1e-12)


class TestFatTree:
    def test_a_ring_bears_the_oversubscription_that_a_leaf_covers(self):
        shares = [scale_out_paths(ScaleOut(8, r), "all_reduce", 64)[0].link_fraction for r in (1.0, 8.0, 16.0)]
        assert shares == pytest.approx([1.0, 1.0, 0.5])

    def test_all_to_all_is_limited_by_what_leaves_a_leaf(self):
        # 32 nodes in leaves of 8: 24 of 31 messages go up, at a quarter of the rate
        (path,) = scale_out_paths(ScaleOut(8, 4.0), "all_to_all", 32)
        assert path.link_fraction == pytest.approx(31 / (24 * 4))
        (inside,) = scale_out_paths(ScaleOut(8, 4.0), "all_to_all", 8)
        assert inside.link_fraction == 1

    def test_halving_distances_sends_little_upwards(self):
        # nodes 0..15 in leaves of 4: of 15 parts 3 come from other leaves, one of each, and 12 pass on inside
        _, halving = scale_out_paths(ScaleOut(4, 5.0), "all_gather", 16)
        assert halving.link_fraction == pytest.approx(15 / (12 + 5 * 3))

    def test_trees_take_the_logarithm_of_the_steps_and_send_twice_the_message(self):
        ring, tree = scale_out_paths(ScaleOut(), "all_reduce", 1024)
        assert (ring.n_steps, tree.n_steps) == (1023, 10)
        sent = wire_bytes("all_reduce", 1024, 1e6)[0] * tree.wire_ratio
        assert sent == pytest.approx(2e6)

    @FEW
    @given(
        op=st.sampled_from(list(COLLECTIVES)), n=st.integers(2, 4096), leaf=st.integers(1, 64),
        ratio=st.floats(1.0, 16.0), stride=st.integers(1, 16),
    )  # fmt: skip
    def test_more_oversubscription_is_never_faster_and_larger_leaves_are_never_slower(self, op, n, leaf, ratio, stride):
        def shares(leaf, ratio):
            return np.array([path.link_fraction for path in scale_out_paths(ScaleOut(leaf, ratio), op, n, stride)])

        here = shares(leaf, ratio)
        assert ((here > 0) & (here <= 1 + 1e-12)).all()
        assert (shares(leaf, 2 * ratio) <= here + 1e-12).all()
        assert (shares(2 * leaf, ratio) >= here - 1e-12).all()


def time_s(interconnect, n_chips, n_inside, message_bytes, design=LINKED, op="all_reduce"):
    terms = two_level_terms(
        "sum", op, 1.0, n_chips=np.array([float(n_chips)]), place=Place(n_inside),
        message_bytes=np.array([float(message_bytes)]), interconnect=interconnect, **FAR,
    )  # fmt: skip
    return float(run_step(step_program(terms, overhead_s=0.0), design, FactorTables()).time_s[0, 0])


def test_between_nodes_a_large_message_takes_longer_by_the_ratio_of_the_links():
    # 300 GB/s inside against 25 GB/s outside, both of one direction: 12
    plain = Interconnect()
    inside, outside = time_s(plain, 2, 2, 1e10), time_s(plain, 2, 1, 1e10)
    assert outside / inside == pytest.approx(12.0, rel=0.01)


def test_a_group_over_nodes_pays_for_the_share_that_each_chip_sends_out():
    # sixteen chips: all-reduce in the node, then an eighth of the message between the two nodes at 25 GB/s
    plain = Interconnect()
    eight, sixteen = time_s(plain, 8, 8, 1e10), time_s(plain, 16, 8, 1e10)
    at_300 = time_s(plain, 2, 2, 1e10 / 8)
    assert sixteen == pytest.approx(eight + 12 * at_300, rel=0.01)
    assert sixteen > 2 * eight


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_between_many_nodes_small_messages_take_the_short_way_and_large_ones_the_ring(op):
    # leaves of 4 nodes cover an oversubscription of 4 for rings
    network = Interconnect(scale_out=ScaleOut(4, 4.0))
    ring = Interconnect()
    assert time_s(network, 1024, 1, 1e4, op=op) < 0.2 * time_s(ring, 1024, 1, 1e4, op=op)
    large = time_s(network, 1024, 1, 1e11, op=op)
    assert large == pytest.approx(time_s(ring, 1024, 1, 1e11, op=op), rel=0.02)


def test_the_port_of_the_network_limits_a_faster_link():
    slow = Interconnect(scale_out=ScaleOut(port_bytes_per_s=12.5e9))
    ratio = time_s(slow, 2, 1, 1e10) / time_s(Interconnect(), 2, 1, 1e10)
    assert ratio == pytest.approx(2.0, rel=0.01)


def test_every_hop_adds_its_latency():
    hop = 1e-6
    later = Interconnect(ScaleUp(hop_latency_s=hop), ScaleOut(hop_latency_s=hop))
    same = Interconnect(ScaleUp(), ScaleOut())
    assert time_s(later, 8, 8, 1e9) - time_s(same, 8, 8, 1e9) == pytest.approx(14 * hop)
    two = time_s(later, 2, 1, 1e9) - time_s(same, 2, 1, 1e9)
    assert two == pytest.approx(2 * hop)


@pytest.mark.parametrize("links", GRIDS, ids=lambda links: f"{links.topology} {links.dimensions}")
@FEW
@given(message=st.floats(1.0, 1e10), op=st.sampled_from(["all_reduce", "all_gather", "all_to_all"]),
       factor=st.floats(1.01, 10.0), host=st.floats(1e9, 1e12))  # fmt: skip
def test_more_links_are_never_slower_and_the_wire_bounds_a_grid(links, message, op, factor, host):
    n, lie = int(np.prod(links.dimensions)), Interconnect(links)
    slow = replace(LINKED, host_bytes_per_s=host)
    fast = replace(slow, scale_up_bytes_per_s=300e9 * factor)
    base = time_s(lie, n, n, message, slow, op)
    assert time_s(lie, n, n, message, fast, op) <= base * (1 + 1e-12)
    assert base >= wire_bytes(op, n, message)[0] / max(300e9, host) * (1 - 1e-12)


def test_work_covers_no_more_of_the_messages_than_there_is_time():
    whole, half, all_of_it = (Interconnect(overlap_fraction=f) for f in (0.0, 0.5, 1.0))
    alone = time_s(whole, 8, 8, 1e9)
    # nothing else to do: all of it stays
    assert time_s(half, 8, 8, 1e9) == pytest.approx(alone)
    assert time_s(all_of_it, 8, 8, 1e9) == pytest.approx(alone)


def test_the_measured_topology_needs_no_columns():
    assert path_columns(Interconnect(), "all_reduce", [2.0, 8.0], scale_out=False) == {}
    assert path_columns(Interconnect(), "all_reduce", [2.0, 8.0], scale_out=True) == {}


def test_alternatives_have_the_paths_that_each_would_have_alone():
    lie = Interconnect(ScaleUp("torus", (4, 4), 1e-7))
    together = path_columns(lie, "all_to_all", [1.0, 4.0, 16.0], [1.0, 2.0, 1.0], scale_out=False)
    for i, (n, stride) in enumerate([(1.0, 1.0), (4.0, 2.0), (16.0, 1.0)]):
        alone = path_columns(lie, "all_to_all", n, stride, scale_out=False)
        assert {name: values[i] for name, values in together.items()} == {k: v[0] for k, v in alone.items()}
