"""Collectives that span nodes."""

import numpy as np
import pytest

from models.hardware.design import reference_design, replace
from models.operators.collective_terms import Place, two_level_terms
from models.operators.factor_tables import FactorTables
from models.operators.step import run_step, step_program


def terms(n_chips, n_inside, message_bytes=1e8, **options):
    n_chips = np.atleast_1d(np.asarray(n_chips, dtype=float))
    sizes = {"n_chips": n_chips, "place": Place(n_inside), "message_bytes": np.full(len(n_chips), message_bytes)}
    return two_level_terms("sum", "all_reduce", 1.0, **sizes, **options)


def time_s(design, *args, **options):
    return run_step(step_program(terms(*args, **options), overhead_s=0.0), design, FactorTables()).time_s


def test_a_group_in_one_node_uses_scale_up_links_alone():
    (only,) = terms(8, 8)
    assert only.columns["n_chips"].tolist() == [8]
    assert only.columns["scale_out"].tolist() == [0]


def test_a_group_of_single_chips_sends_nothing():
    assert terms([1, 1], 8) == []


def test_nodes_exchange_the_share_that_each_chip_holds():
    inside, between = terms(32, 8)
    assert (inside.columns["n_chips"][0], between.columns["n_chips"][0]) == (8, 4)
    assert between.columns["message_bytes"][0] == pytest.approx(1e8 / 8)
    assert between.columns["scale_out"][0] == 1


def test_alternatives_that_stay_inside_take_part_between_nodes_alone():
    _, between = terms([4, 32], 8)
    assert between.columns["n_chips"][between.index].tolist() == [1, 4]


def test_what_other_work_covers_takes_no_time():
    design = replace(reference_design(), scale_out_bytes_per_s=50e9)
    np.testing.assert_allclose(time_s(design, 32, 8, exposed_fraction=0.25), 0.25 * time_s(design, 32, 8))


def test_more_of_either_link_is_never_slower():
    design = replace(reference_design(), scale_out_bytes_per_s=50e9)
    for name in ("scale_up_bytes_per_s", "scale_out_bytes_per_s"):
        more = replace(design, **{name: 2 * getattr(design, name)})
        assert time_s(more, 32, 8) < time_s(design, 32, 8)
