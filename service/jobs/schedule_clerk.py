"""Fires schedules, starts their runs and compares them; every step may be done twice and counts once."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import structlog

from service.db import queries, schedules
from service.db.session import Database, clock_s, reading, writing
from service.db.tables import Schedule, ScheduleRun
from service.engine import Document, StudyEngine
from service.errors import InvalidRequestError
from service.jobs.fire_times import fire_times
from service.settings import Settings
from service.stored_inputs import prepare_study
from service.study_creation import plan_study, queue_planned

LOG = structlog.get_logger("chipfit.schedules")

QUEUE, PRIORITY = "sweeps", 150
MOST_AT_ONCE = 20
"""Runs started, or compared, in one look."""

MOST_MISSED = 1000
"""Missed fires that are noted one by one."""

LATEST = "latest:"
"""What a schedule writes before the name of an upload to mean the newest one of that name."""


@dataclass(frozen=True)
class ScheduleClerk:
    """What a process does for the schedules of its database."""

    database: Database
    engine: StudyEngine
    settings: Settings

    def act(self, stopping: threading.Event) -> bool:
        """Do everything that is due and return whether a study was queued."""
        with reading(self.database) as session:
            due = schedules.due_schedules(session, clock_s(session))
        for schedule_id in due:
            self._fire(schedule_id)
        with reading(self.database) as session:
            waiting = schedules.runs_to_start(session, MOST_AT_ONCE)
        for run in waiting:
            if not stopping.is_set():
                self._start(run)
        with reading(self.database) as session:
            ended = schedules.runs_to_compare(session, MOST_AT_ONCE)
        for run, before in ended:
            if not stopping.is_set():
                self._compare(run, before)
        return bool(waiting)

    def _fire(self, schedule_id: str) -> None:
        """Note every fire that has come, as the policy on missed ones says, and when the next one is."""
        with writing(self.database) as session:
            schedule = schedules.locked_schedule(session, schedule_id)
            now_s = clock_s(session)
            if schedule.state != "active" or schedule.next_fire_at_s is None or schedule.next_fire_at_s > now_s:
                return
            coming = fire_times(schedule.cron, schedule.time_zone, now_s)
            earlier = fire_times(schedule.cron, schedule.time_zone, schedule.next_fire_at_s)
            due = [schedule.next_fire_at_s, *takewhile(lambda fire_s: fire_s <= now_s, earlier)][-MOST_MISSED:]
            for fire_s, reason in judged_fires(due, now_s, schedule.missed, schedule.missed_after_s):
                study_id = run_id(schedule_id, fire_s) if reason is None else None
                schedules.add_run(session, schedule_id, fire_s, "scheduled", study_id, reason)
            schedule.next_fire_at_s = next(coming, None)
            schedule.version += 1

    def _start(self, run: ScheduleRun) -> None:
        """Queue the study of a run on the workload as it is now, as the policy on earlier runs that go on says."""
        assert run.study_id is not None
        with reading(self.database) as session:
            schedule = schedules.get_schedule(session, run.schedule_id)
            unfinished = schedules.unfinished_studies(session, run.schedule_id) if run.kind == "scheduled" else []
        if unfinished and schedule.overlap == "skip":
            self._skip(run, f"the run of study {unfinished[0]} had not ended")
            return
        try:
            document = self.current_document(schedule.document)
            planned = plan_study(self.database, self.engine, self.settings, document)
        except (self.engine.study_error, InvalidRequestError) as error:
            self._skip(run, f"the study cannot be run: {error}")
            return
        with writing(self.database) as session:
            for study_id in unfinished if schedule.overlap == "cancel_previous" else []:
                queries.cancel_study(session, study_id)
            queue_planned(session, self.engine, run.study_id, planned, schedule.owner, QUEUE, PRIORITY)
        LOG.info("schedule fired", schedule_id=run.schedule_id, study_id=run.study_id, kind=run.kind)

    def current_document(self, document: Document) -> Document:
        """
        Return the study with every `latest:NAME` replaced by the id of the newest upload of that name.

        Raises
        ------
        InvalidRequestError
            With a pointer to a name that nothing was uploaded under.
        """
        named = dict(_latest_names(document, ""))
        with reading(self.database) as session:
            ids = schedules.latest_workloads(session, sorted(set(named.values())))
        for pointer, name in named.items():
            if name not in ids:
                raise InvalidRequestError(pointer, f"no workload was uploaded under the name '{name}'")
        pinned: Document = _pinned(document, ids)
        return pinned

    def _skip(self, run: ScheduleRun, reason: str) -> None:
        LOG.warning("schedule skips a run", schedule_id=run.schedule_id, reason=reason)
        with writing(self.database) as session:
            schedules.skip_run(session, run.schedule_id, run.fire_at_s, reason)

    def _compare(self, run: ScheduleRun, before_id: str) -> None:
        """Keep what moved since the run before, or why that cannot be said."""
        assert run.study_id is not None
        try:
            old, was = self._outcome(before_id)
            new, now = self._outcome(run.study_id)
            report = self.engine.drift_report(old, was, new, now)
        except Exception as error:  # inputs may be gone, or an old result may not be readable by this version
            LOG.warning("runs cannot be compared", study_id=run.study_id, before=before_id, reason=str(error))
            report = {"error": f"{type(error).__name__}: {error}"}
        report = {**report, "previous_study_id": before_id, "study_id": run.study_id}
        with writing(self.database) as session:
            schedules.store_drift(session, run.schedule_id, run.fire_at_s, report)

    def _outcome(self, study_id: str) -> tuple[Any, Document]:
        with reading(self.database) as session:
            study = queries.get_study(session, study_id)
            return prepare_study(session, self.engine, study.document), study.result or {}


def judged_fires(
    due: Sequence[float], now_s: float, missed: str, missed_after_s: float
) -> list[tuple[float, str | None]]:
    """
    Return every fire with the reason why it is skipped, or None.

    A fire is missed where it is looked at more than `missed_after_s` late. Missed fires run all, none, or only the
    latest of them, and that only where no fire in time makes up for it.
    """
    late = [fire_s for fire_s in due if now_s - fire_s > missed_after_s]
    in_time = len(late) < len(due)
    judged: list[tuple[float, str | None]] = []
    for fire_s in due:
        runs = (
            fire_s not in late or missed == "run_all" or (missed == "run_latest" and fire_s == late[-1] and not in_time)
        )
        judged.append((fire_s, None if runs else "nothing was running when it should have fired"))
    return judged


def run_id(schedule_id: str, fire_at_s: float) -> str:
    """Id of the study of one fire, so that a second one is impossible."""
    return hashlib.sha256(f"{schedule_id}/{fire_at_s!r}".encode()).hexdigest()[:32]


def first_fire_s(schedule: Schedule, now_s: float) -> float | None:
    """When a schedule fires next from now on."""
    return next(fire_times(schedule.cron, schedule.time_zone, now_s), None)


def _latest_names(value: Any, pointer: str) -> list[tuple[str, str]]:
    if isinstance(value, str):
        return [(pointer, value.removeprefix(LATEST))] if value.startswith(LATEST) else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for name, inner in items for found in _latest_names(inner, f"{pointer}/{name}")]


def _pinned(value: Any, ids: dict[str, str]) -> Any:
    if isinstance(value, str):
        return ids[value.removeprefix(LATEST)] if value.startswith(LATEST) else value
    if isinstance(value, dict):
        return {name: _pinned(inner, ids) for name, inner in value.items()}
    return [_pinned(inner, ids) for inner in value] if isinstance(value, list) else value
