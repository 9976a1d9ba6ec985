"""Processes that help with proofs: started when asked for, anew where they died, gone when stopped."""

import os
import signal

import pytest
from fastapi.testclient import TestClient

from explorer import team
from explorer.problem import prepare
from explorer.study import read_study
from explorer.team import join_team
from service.app import create_app
from service.jobs.proof_processes import ProofProcesses
from service.real_engine import real_engine
from tests.explorer.small_studies import study
from tests.service.conftest import quick_settings
from tests.service.test_real_engine import ended
from tests.service.test_shards import timeless

NEVER = pytest.fail
EXACT = study(search={"sampler": "exact", "trials": 20})


@pytest.fixture
def one():
    asked = ProofProcesses(1)
    yield asked
    asked.stop()


def pid_of(asked):
    return asked()[0].submit(os.getpid).result(timeout=60)


def test_a_process_stays_as_long_as_it_lives(one):
    first = pid_of(one)
    assert first != os.getpid() and pid_of(one) == first
    os.kill(first, signal.SIGKILL)
    for _ in range(50):  # the pool notices after a moment
        try:
            second = pid_of(one)
            break
        except Exception:
            continue
    assert second not in (first, os.getpid())


def test_none_is_started_where_none_is_wanted():
    assert list(ProofProcesses(0)()) == []


def test_only_a_study_that_is_to_be_proven_asks_for_other_processes():
    sampled = prepare(read_study(study(search={"sampler": "random"})))
    join_team(sampled, lambda: NEVER("asked for processes"))
    assert sampled.team == []
    exact = prepare(read_study(EXACT))
    join_team(exact, lambda: ())
    assert exact.team == []


def test_a_study_is_helped_once(one):
    exact = prepare(read_study(EXACT))
    join_team(exact, one)
    join_team(exact, lambda: NEVER("asked again"))
    assert len(exact.team) == 1


def test_a_study_over_http_that_is_helped_ends_as_one_that_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(team, "LEAST_ROWS", 2)
    results = []
    for processes in (1, 2):
        stated = {"processes": processes}
        settings = quick_settings(f"sqlite:///{tmp_path}/{processes}.sqlite").model_copy(update=stated)
        with TestClient(create_app(settings, real_engine())) as client:
            done = ended(client, EXACT)
            assert done["error"] is None
            results.append(timeless(done["result"]))
    assert results[0] == results[1] and results[0]["certificate"][0]["complete"]
