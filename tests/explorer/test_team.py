"""Boxes that several processes bound: the same bounds, with or without them, and when they die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children

import numpy as np
import pytest

from explorer import team as teams
from explorer.bounds import bound_boxes
from explorer.boxes import root_boxes
from explorer.budget_cuts import tighten
from explorer.exact import ExactSearch
from explorer.problem import prepare
from explorer.processes import other_processes
from explorer.study import read_study
from explorer.team import STUDIES_KEPT, Team
from tests.explorer.small_studies import study

STUDY = study(space={"n_cores": [8, 16, 24, 32, 48, 64], "clock": [0.8, 1.0, 1.2, 1.4], "l2": [0, 4, 16, 64]})


@pytest.fixture(scope="module")
def pools():
    """One other process for all tests that leave it alive."""
    with other_processes(1) as started:
        yield started


@pytest.fixture
def own_pools():
    """One other process for a test that ends it."""
    with other_processes(1) as started:
        yield started


def ready_team(pools):
    """A team that has prepared the small study."""
    together = Team(pools, read_study(STUDY), None)
    for each in together._ready:
        each.result(timeout=60)
    return together


@pytest.fixture
def helped(pools, monkeypatch: pytest.MonkeyPatch):
    """A study whose boxes one other process helps to bound, however few they are."""
    monkeypatch.setattr(teams, "LEAST_ROWS", 2)
    return prepare(read_study(STUDY), None, [ready_team(pools)])


@pytest.fixture
def forsaken(own_pools, monkeypatch: pytest.MonkeyPatch):
    """A helped study whose other process is killed."""
    monkeypatch.setattr(teams, "LEAST_ROWS", 2)
    problem = prepare(read_study(STUDY), None, [ready_team(own_pools)])
    (pid,) = own_pools[0]._processes
    os.kill(pid, signal.SIGKILL)
    return problem


def test_a_search_gives_the_same_however_many_processes_bound(helped):
    alone, together = (ExactSearch(p, p.objectives[0], 0.01) for p in (prepare(helped.document), helped))
    for search in (alone, together):
        search.advance(8)
    assert together.incumbent.cost == alone.incumbent.cost
    assert together.bound == alone.bound and together.boxes_bounded == alone.boxes_bounded > 20


def test_work_goes_on_here_when_the_other_process_dies(forsaken):
    boxes = tighten(forsaken, root_boxes(forsaken))
    whole = bound_boxes(prepare(forsaken.document), boxes, forsaken.objectives).cost
    np.testing.assert_array_equal(bound_boxes(forsaken, boxes, forsaken.objectives).cost, whole)


def test_work_is_done_here_where_the_pool_is_broken(forsaken):
    others = forsaken.team[0]
    with pytest.raises(BrokenProcessPool):
        others._pools[0].submit(int).result(timeout=60)
    for _ in range(2):
        assert sum(others.shared(forsaken, len_of, (np.arange(10_000),), ())) == 10_000


def test_a_process_that_could_not_prepare_is_left_out(helped):
    others = helped.team[0]
    failed = type(others._ready[0])()
    failed.set_exception(BrokenProcessPool())
    others._ready = [failed]
    assert others.shared(helped, len_of, (np.arange(10_000),), ()) == [10_000]


def test_a_team_that_is_not_ready_is_not_waited_for(helped):
    others = helped.team[0]
    others._ready = [type(others._ready[0])()]
    assert others.shared(helped, len_of, (np.arange(10_000),), ()) == [10_000]


def test_a_process_that_keeps_the_study_no_longer_is_left_out(helped):
    others = helped.team[0]
    assert others.shared(helped, len_of, (np.arange(10_000),), ()) == [5_000, 5_000]
    for _ in range(STUDIES_KEPT):
        Team(others._pools, helped.document, None)._ready[0].result(timeout=60)
    for _ in range(2):
        assert sum(others.shared(helped, len_of, (np.arange(10_000),), ())) == 10_000
    assert others.shared(helped, len_of, (np.arange(10_000),), ()) == [10_000]


def test_work_that_is_under_way_when_the_processes_are_ended_is_done_here(helped):
    others = helped.team[0]
    pending = type(others._ready[0])()
    pending.cancel()
    assert others._result(pending) is None
    assert others.shared(helped, len_of, (np.arange(10_000),), ()) == [10_000]


def test_each_other_process_always_does_the_same_places(helped, own_pools):
    three = ready_team([*helped.team[0]._pools, *own_pools])
    place = np.arange(9_000) * 7
    found = [three.shared_by_place(helped, who_and_what, (place,), (), place) for _ in range(2)]
    owners = [[who for who, _ in parts] for parts, _ in found]
    assert owners[0] == owners[1] and len(set(owners[0])) == 3
    for parts, position in found:
        np.testing.assert_array_equal(np.concatenate([what for _, what in parts])[position], place)


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def gone_within(seconds, pids):
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s and not all(map(is_gone, pids)):
        time.sleep(0.05)
    return all(map(is_gone, pids))


def test_processes_end_with_their_block_and_a_team_of_them_works_alone(helped):
    before = set(active_children())
    with other_processes(1) as ended:
        pids = [child.pid for child in set(active_children()) - before]
        assert len(pids) == 1 and not any(map(is_gone, pids))
    assert gone_within(20, pids)
    assert Team(ended, helped.document, None).shared(helped, len_of, (np.arange(10_000),), ()) == [10_000]


def test_an_interrupt_from_the_terminal_is_left_to_the_first_process(pools):
    pid = pools[0].submit(os.getpid).result(timeout=60)
    os.kill(pid, signal.SIGINT)
    assert pools[0].submit(os.getpid).result(timeout=60) == pid


def test_processes_end_when_the_first_one_is_killed():
    script = (
        "import multiprocessing, os, signal\n"
        "from explorer.processes import other_processes\n"
        "if __name__ == '__main__':\n"
        "    with other_processes(1) as pools:\n"
        "        print(pools[0].submit(os.getpid).result(), flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert gone_within(20, [int(ended.stdout)])


def who_and_what(problem, rows):
    return os.getpid(), rows


def len_of(problem, rows):
    return len(rows)
