"""Boxes that several processes bound: the same bounds, with or without them, and when they die."""

from __future__ import annotations

import os
import signal
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest

from explorer import team as teams
from explorer.bounds import bound_boxes, root_boxes, tighten
from explorer.exact import ExactSearch
from explorer.problem import prepare
from explorer.study import read_study
from explorer.team import Team, team
from tests.explorer.small_studies import study

STUDY = study(space={"n_cores": [8, 16, 24, 32, 48, 64], "clock": [0.8, 1.0, 1.2, 1.4], "l2": [0, 4, 16, 64]})


@pytest.fixture
def helped(monkeypatch: pytest.MonkeyPatch):
    """A study whose boxes one other process helps to bound, however few they are."""
    monkeypatch.setattr(teams, "LEAST_ROWS", 2)
    small = read_study(STUDY)
    with team(small, None, 2) as others:
        for each in others[0]._ready:
            assert each.result(timeout=60)
        yield prepare(small, None, others)


def test_a_search_gives_the_same_however_many_processes_bound(helped):
    alone, together = (ExactSearch(p, p.objectives[0], 0.01) for p in (prepare(helped.document), helped))
    for search in (alone, together):
        search.advance(8)
    assert together.incumbent.cost == alone.incumbent.cost
    assert together.bound == alone.bound and together.boxes_bounded == alone.boxes_bounded > 20


def test_work_goes_on_here_when_the_other_process_dies(helped):
    boxes = tighten(helped, root_boxes(helped))
    whole = bound_boxes(prepare(helped.document), boxes, helped.objectives).cost
    (pid,) = helped.team[0]._pool._processes
    os.kill(pid, signal.SIGKILL)
    np.testing.assert_array_equal(bound_boxes(helped, boxes, helped.objectives).cost, whole)


def test_work_is_done_here_where_the_pool_is_broken(helped):
    others = helped.team[0]
    (pid,) = others._pool._processes
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(BrokenProcessPool):
        others._pool.submit(int).result(timeout=60)
    for _ in range(2):
        assert sum(others.shared(helped, len_of, (np.arange(10_000),), ())) == 10_000


def test_a_process_that_could_not_prepare_is_left_out(helped):
    others = Team(helped.team[0]._pool, 1)
    others._ready[0].result(timeout=60)
    failed = type(others._ready[0])()
    failed.set_exception(BrokenProcessPool())
    others._ready = [failed]
    assert others.shared(helped, len_of, (np.arange(10_000),), ()) == [10_000]


def test_no_process_is_started_for_one():
    with team(read_study(STUDY), None, 1) as others:
        assert others == []


def test_a_team_that_is_not_ready_is_not_waited_for(helped):
    never = Team(helped.team[0]._pool, 0)
    never._ready = [type(helped.team[0]._ready[0])()]
    assert never.shared(helped, len_of, (np.arange(10_000),), ()) == [10_000]


def len_of(problem, rows):
    return len(rows)
