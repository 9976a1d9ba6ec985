"""One process as executor of studies: launches DBOS, beats, supervises, and stops in order."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import structlog
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetEnqueueOptions, SetWorkflowID

from service.db import executors, migrate, queries
from service.db.session import Database, reading, writing
from service.engine import Document, StudyEngine
from service.jobs.process import current_process, new_executor_id
from service.jobs.proof_processes import ProofProcesses
from service.jobs.runner import DrainedError, StudyRunner
from service.jobs.schedule_clerk import ScheduleClerk
from service.jobs.supervisor import Heartbeat, orphans
from service.settings import Settings

LOG = structlog.get_logger("chipfit.jobs")

SHARDS = "shards"
QUEUES = ("studies", "sweeps", SHARDS)
"""Studies that people wait for, those of sweeps and schedules, shards of proofs; a process takes from all at once."""

WORKFLOWS = ["run_study", "run_shard"]
"""What executors run, and take over from those that died."""

APPLICATION_VERSION = "1"
"""Version of the workflow's steps. A change that old checkpoints cannot replay needs a new one and a migration."""

_LOST_AFTER_S = 5.0


@dataclass
class JobExecutor:
    """The background part of a process: everything that runs beside HTTP."""

    database: Database
    engine: StudyEngine
    settings: Settings
    executor_id: str = field(default_factory=new_executor_id)
    stopping: threading.Event = field(default_factory=threading.Event)
    wake: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    lost_since_s: dict[str, float] = field(default_factory=dict)
    running_steps: int = 0
    launched: bool = False
    heartbeat: Heartbeat = field(init=False)

    def __post_init__(self) -> None:
        self.heartbeat = Heartbeat(self.settings.beat_interval_s)
        self.proof_processes = ProofProcesses(self.settings.processes - 1)
        self.runner = StudyRunner(self.database, self.engine, self.stopping, self.proof_processes)
        self._steps = threading.Lock()

    def start(self) -> None:
        """Start beating and working; where the schema is missing, as soon as it is there."""
        for work in (self._beat_until_stopped, self._supervise_until_stopped, self._schedule_until_stopped):
            thread = threading.Thread(target=work, name=f"chipfit-{work.__name__.strip('_')}", daemon=True)
            thread.start()
            self.threads.append(thread)

    def stop(self) -> None:
        """Finish the step in flight, hand everything else back, and forget this executor."""
        self.stopping.set()
        self.wake.set()
        deadline_s = time.monotonic() + self.settings.stop_timeout_s
        while self.running_steps and time.monotonic() < deadline_s:
            time.sleep(0.02)
        for thread in self.threads:
            thread.join(timeout=max(0.1, deadline_s - time.monotonic()))
        self.proof_processes.stop()
        if self.launched:
            DBOS.destroy(destroy_registry=True)
            self.launched = False
        try:
            with writing(self.database) as session:
                executors.remove_executor(session, self.executor_id)
        except Exception as error:
            LOG.warning("executor could not sign off", executor_id=self.executor_id, reason=str(error))

    def is_beating(self) -> bool:
        """Whether the last heartbeat is young enough for others to count on this executor."""
        return self.heartbeat.age_s() < self.settings.stale_after_s

    def _launch(self) -> None:
        """Register this executor, then its workflow, then begin to take work."""
        self._beat()
        with writing(self.database) as session:
            executors.forget_old_executors(session)
        _quiet_dbos()
        DBOS(config=self._dbos_config())
        try:
            self._workflow = self._register_workflow()
            DBOS.listen_queues(list(QUEUES) if self.settings.run_studies else [])
            DBOS.launch()
            self._register_queues()
        except BaseException:
            DBOS.destroy(destroy_registry=True)
            raise
        self.launched = True

    def _register_queues(self) -> None:
        """Declare the queues with the limits of this process's settings; the last process to start decides."""
        limits = {
            "studies": (self.settings.study_concurrency, self.settings.max_running_studies),
            "sweeps": (self.settings.cell_concurrency, self.settings.max_running_cells),
            SHARDS: (self.settings.shard_concurrency, None),
        }
        for name, (own, of_all) in limits.items():
            DBOS.register_queue(
                name, worker_concurrency=own, global_concurrency=of_all,
                polling_interval_sec=self.settings.queue_interval_s,
            )  # fmt: skip

    def _dbos_config(self) -> DBOSConfig:
        return DBOSConfig(
            name="chipfit",
            system_database_url=self.database.url.set(
                drivername="sqlite" if self.database.is_sqlite else "postgresql"
            ).render_as_string(hide_password=False),
            executor_id=self.executor_id,
            application_version=APPLICATION_VERSION,
            serializer=DBOSPortableJSONSerializer(),
            log_level="WARNING",
            sys_db_pool_size=8,
            scheduler_polling_interval_sec=5.0,
        )

    def _register_workflow(self) -> Any:
        """Register the workflows with their steps; each step is idempotent and answers in plain data."""
        begin = DBOS.step(name="begin")(self._counted(self.runner.begin))
        run_chunk = DBOS.step(name="run_chunk")(self._counted(self.runner.run_chunk))
        finish = DBOS.step(name="finish")(self._counted(self.runner.finish))
        shard_step = DBOS.step(name="shard")(self._counted(self.runner.run_shard))

        def run_shard(study_id: str, attempt: int, shard: int) -> str:
            workflow_id = _shard_id(study_id, attempt, shard)
            self.running.add(workflow_id)
            try:
                return str(shard_step(study_id, attempt, shard)["state"])
            finally:
                self.running.discard(workflow_id)

        shard_workflow = DBOS.workflow(name="run_shard", max_recovery_attempts=None)(run_shard)

        def run_study(study_id: str, attempt: int) -> str:
            workflow_id = _workflow_id(study_id, attempt)
            self.running.add(workflow_id)
            try:
                answer = begin(study_id, attempt)
                chunk = answer.get("chunk", 0)
                for shard in range(chunk, answer.get("shards", 0)):
                    with SetWorkflowID(_shard_id(study_id, attempt, shard)):
                        DBOS.enqueue_workflow(SHARDS, shard_workflow, study_id, attempt, shard)
                while answer["state"] == "running":
                    if self.stopping.is_set():
                        raise DrainedError
                    answer = run_chunk(study_id, attempt, chunk)
                    chunk += 1
                if answer["state"] == "finished":
                    answer = finish(study_id, attempt)
                return str(answer["state"])
            finally:
                self.running.discard(workflow_id)

        return DBOS.workflow(name="run_study", max_recovery_attempts=None)(run_study)

    def _counted(self, step: Any) -> Any:
        """The step, counted while it runs, so that a stop can wait for it."""

        def run(*arguments: Any) -> Document:
            with self._steps:
                self.running_steps += 1
            try:
                return step(*arguments)  # type: ignore[no-any-return]
            finally:
                with self._steps:
                    self.running_steps -= 1

        return run

    def _beat_until_stopped(self) -> None:
        while not self.stopping.wait(self.settings.beat_interval_s):
            try:
                if self.launched:
                    self._beat()
            except Exception as error:
                LOG.warning("heartbeat failed", executor_id=self.executor_id, reason=" ".join(str(error).split()))

    def _beat(self) -> None:
        me, runs_studies = current_process(), self.settings.run_studies
        with writing(self.database) as session:
            executors.beat(session, self.executor_id, me.machine, me.pid, me.started, runs_studies)
        self.heartbeat.note()

    def _supervise_until_stopped(self) -> None:
        while not self.stopping.is_set():
            try:
                if not self.launched and migrate.current_revision(self.database) == migrate.head_revision():
                    self._launch()
                if self.launched:
                    self._enqueue_new()
                    self._take_over_orphans()
                    self._requeue_broken()
            except Exception as error:
                LOG.warning("supervisor failed, trying again", reason=" ".join(str(error).split()))
            self.wake.wait(self.settings.supervise_interval_s)
            self.wake.clear()

    def _schedule_until_stopped(self) -> None:
        """Fire schedules, start their runs, compare those that have ended: apart, since it prepares whole studies."""
        clerk = ScheduleClerk(self.database, self.engine, self.settings)
        while not self.stopping.wait(self.settings.schedule_interval_s):
            try:
                if self.launched and clerk.act(self.stopping):
                    self.wake.set()
            except Exception as error:
                LOG.warning("schedules failed, trying again", reason=" ".join(str(error).split()))

    def _enqueue_new(self) -> None:
        """Make a job for every queued study that has none; its id makes a second one impossible."""
        with reading(self.database) as session:
            waiting = queries.studies_to_enqueue(session)
        for each in waiting:
            with SetWorkflowID(_workflow_id(each.id, each.attempt)), SetEnqueueOptions(priority=each.priority):
                DBOS.enqueue_workflow(each.queue, self._workflow, each.id, each.attempt)
            with writing(self.database) as session:
                queries.mark_enqueued(session, each.id, each.attempt)

    def _take_over_orphans(self) -> None:
        """Put work that nobody runs back into the queue; the eldest live executor does it for the dead ones."""
        pending = DBOS.list_workflows(status="PENDING", name=WORKFLOWS, load_input=False, load_output=False)
        owners = {workflow.workflow_id: str(workflow.executor_id) for workflow in pending}
        queue_of = {workflow.workflow_id: workflow.queue_name or QUEUES[0] for workflow in pending}
        with reading(self.database) as session:
            known = executors.list_executors(session) if owners else []
        taken = orphans(owners, known, self.executor_id, self.heartbeat, self.settings.stale_after_s)
        for workflow_id in [*taken, *self._lost(owners)]:
            LOG.warning("taking over", workflow_id=workflow_id, executor_id=owners[workflow_id])
            DBOS.resume_workflow(workflow_id, queue_name=queue_of[workflow_id])

    def _lost(self, owners: dict[str, str]) -> list[str]:
        """Workflows this executor owns but has not been running for a while, as after a full disk."""
        now_s = time.monotonic()
        idle = [name for name, owner in owners.items() if owner == self.executor_id and name not in self.running]
        self.lost_since_s = {name: self.lost_since_s.get(name, now_s) for name in idle}
        return [name for name, since_s in self.lost_since_s.items() if now_s - since_s > _LOST_AFTER_S]

    def _requeue_broken(self) -> None:
        """Give an unfinished study whose workflow has broken a new attempt, which goes on after its last chunk."""
        with reading(self.database) as session:
            unfinished = queries.enqueued_studies(session)
        names = {_workflow_id(study_id, attempt): (study_id, attempt) for study_id, attempt in unfinished}
        if not names:
            return
        broken = DBOS.list_workflows(
            workflow_ids=list(names), status=["ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"],
            load_input=False, load_output=False,
        )  # fmt: skip
        for workflow in broken:
            LOG.warning("starting again", workflow_id=workflow.workflow_id, status=workflow.status)
            with writing(self.database) as session:
                queries.retry_study(session, *names[workflow.workflow_id])


def _workflow_id(study_id: str, attempt: int) -> str:
    """Id that makes a second workflow for the same attempt impossible."""
    return f"{study_id}.{attempt}"


def _shard_id(study_id: str, attempt: int, shard: int) -> str:
    return f"{_workflow_id(study_id, attempt)}.shard{shard}"


def _quiet_dbos() -> None:
    """Send DBOS's messages through our logs instead of a console handler of its own."""
    logger = logging.getLogger("dbos")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.propagate = True
