from __future__ import annotations

import os
import subprocess
import sys

from service.jobs.process import current_process, is_known_dead, new_executor_id, start_time


def test_a_process_is_known_dead_once_it_has_ended() -> None:
    me = current_process()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = start_time(child.pid)
    assert began is not None
    assert not is_known_dead(me.machine, child.pid, began)
    child.communicate(b"\n")
    assert is_known_dead(me.machine, child.pid, began)


def test_nothing_is_known_of_another_machine_or_an_unknown_start() -> None:
    assert not is_known_dead("elsewhere", os.getpid(), "1")
    assert not is_known_dead(current_process().machine, os.getpid(), "unknown")


def test_an_executor_id_is_never_given_twice() -> None:
    assert len({new_executor_id() for _ in range(100)}) == 100
