"""A tiny search with the explorer's signatures: quick, deterministic, and dependent on its past."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from explorer.explanation.asked import Asked
from explorer.inputs import Uploads
from service.catalogues import chip_documents, network_documents
from service.engine import Extent, StudyEngine


class FakeStudyError(ValueError):
    def __init__(self, errors: list[dict[str, str]]) -> None:
        super().__init__("; ".join(error["detail"] for error in errors))
        self.errors = errors


class FakeStudy(BaseModel):
    """A study of the fake engine."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, description="name of the study")
    trials: int = Field(40, ge=1, le=1_000_000, description="trials that are made")
    chunk_trials: int = Field(10, ge=1, description="trials of a chunk")
    chunk_s: float = Field(0.0, ge=0, description="time that a chunk takes [s]")
    timeout_s: float = Field(1e9, description="search time after which it ends [s]")
    seed: int = Field(0, description="seed of the values")
    fails_at_chunk: int | None = Field(None, description="chunk that raises")
    work: str = Field("chat", description="what stands for the workload")
    search: dict[str, Any] = Field(default_factory=dict, description="may hold trials")


@dataclass(frozen=True)
class FakeRecord:
    number: int
    params: dict[str, Any]
    feasible: bool
    violated: str | None
    excess: dict[str, float]
    objectives: list[float]
    design: dict[str, Any]
    operating_point: dict[str, Any]
    metrics: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def read_study(document: dict[str, Any]) -> FakeStudy:
    try:
        study = FakeStudy.model_validate(document)
        return study.model_copy(update={"trials": study.search.get("trials", study.trials)})
    except ValidationError as error:
        raise FakeStudyError(
            [{"pointer": "".join(f"/{step}" for step in e["loc"]), "detail": e["msg"]} for e in error.errors()]
        ) from error


def n_chunks(problem: FakeStudy) -> int:
    return -(-problem.trials // problem.chunk_trials)


def run_chunk(problem: FakeStudy, past: list[FakeRecord], chunk: int) -> list[FakeRecord]:
    if problem.fails_at_chunk == chunk:
        raise ZeroDivisionError("asked to fail")
    time.sleep(problem.chunk_s)
    best = min((r.objectives[0] for r in past), default=1.0)
    rng = np.random.default_rng([problem.seed, chunk, len(past)])
    size = min(problem.chunk_trials, problem.trials - len(past))
    values = best * (0.5 + rng.random(size))
    return [record(len(past) + i, float(value)) for i, value in enumerate(values)]


def record(number: int, value: float) -> FakeRecord:
    feasible = number % 3 != 0
    return FakeRecord(
        number=number,
        params={"n_cores": number + 1},
        feasible=feasible,
        violated=None if feasible else "area",
        excess={"area": -0.5 if feasible else 0.5},
        objectives=[value],
        design={"n_cores": number + 1, "memory_kind": "hbm3", "tdp_w": 500.0},
        operating_point={"batch": 8},
        metrics={"area_mm2": 100.0 + number, "ttft_p95_s": value, "bottleneck": "compute"},
    )


def result_document(problem: FakeStudy, records: list[FakeRecord]) -> dict[str, Any]:
    best = min((r for r in records if r.feasible), key=lambda r: r.objectives, default=None)
    point = None if best is None else {k: best.as_json()[k] for k in ("design", "operating_point", "metrics")}
    return {
        "study": problem.name,
        "feasible": best is not None,
        "recommended": point,
        "pareto": [point] if point else [],
        "evaluated": len(records),
    }


def explain(problem: FakeStudy, records: list[FakeRecord], asked: Asked) -> dict[str, Any]:
    if asked.chip is not None:
        return {"chip": asked.chip, "explanation": {"summary": "a chip"}}
    if asked.trial is not None and asked.trial >= len(records):
        raise FakeStudyError([{"pointer": "/trial", "detail": "must be a trial of the study"}])
    best = min((r for r in records if r.feasible), key=lambda r: r.objectives, default=None)
    chosen = best if asked.trial is None else records[asked.trial]
    if chosen is None:
        return {}
    return {"trial": chosen.number, "design": chosen.as_json()["design"], "explanation": {"summary": "a trial"}}


def evaluated(design: Any) -> dict[str, Any]:
    """One design of a batch as the specification has it."""
    own = design if isinstance(design, dict) else {}
    return {
        "design": own, "operating_point": {}, "metrics": {"area_mm2": 800.0}, "serves": True, "feasible": True,
        "excess_fractions": {},
    }  # fmt: skip


TECHNOLOGY = {"technology": {"digest": "", "overlay": []}, "model_version": "fake-1", "profile": None}


def evaluate_document(document: dict[str, Any], _uploads: Uploads | None = None) -> dict[str, Any]:
    if "chip" not in document:
        raise FakeStudyError([{"pointer": "/chip", "detail": "chip is missing"}])
    parts: dict[str, Any] = {
        "intervals": {},
        "figures": {},
        "idle": {},
        "sizes": {},
        "reshape_cost": {},
        "warnings": [],
    }
    return evaluated({}) | TECHNOLOGY | parts | {"chip": {"id": str(document["chip"])}}


def evaluation_identity(document: dict[str, Any], _uploads: Uploads | None = None) -> str | None:
    if "chip" not in document and "design" not in document:
        return None
    return json.dumps({name: value for name, value in document.items() if name != "name"}, sort_keys=True)


def fake_engine() -> StudyEngine:
    return StudyEngine(
        read_study=read_study,
        prepare=lambda spec, _uploads=None: spec,
        n_chunks=n_chunks,
        run_chunk=run_chunk,
        catch_up=lambda problem, chunk: None,
        is_finished=lambda problem, past: len(past) >= problem.trials,
        result_document=result_document,
        final_document=result_document,
        explain=explain,
        record_from_json=lambda row: FakeRecord(**row),
        evaluate_document=evaluate_document,
        evaluate_designs=lambda study, designs, _uploads: [
            {"metrics": {"area_mm2": study.get("area", 1.0)}} for _ in designs
        ],
        evaluate_batch=lambda document, _uploads: (
            TECHNOLOGY | {"items": [evaluated(each) for each in document["designs"]]}
        ),
        evaluation_identity=evaluation_identity,
        workload_hash=lambda problem: f"work-{problem.work}",
        judges_freely=lambda problem: False,
        n_shards=lambda problem: 0,
        run_shard=lambda problem, index, keep_going: None,
        join_team=lambda problem, others: None,
        with_outcomes=lambda problem, outcomes: problem,
        with_history=lambda problem, lookup: problem,
        similarity_fraction=lambda one, other: float(one.work == other.work),
        warm_designs=lambda problem, candidates: (candidates, {}),
        with_warm_start=lambda problem, designs: problem,
        drift_report=lambda old, was, new, now: {"before": was["evaluated"], "after": now["evaluated"]},
        chips=chip_documents,
        networks=network_documents,
        study_schema=FakeStudy.model_json_schema,
        timeout_s=lambda problem: problem.timeout_s,
        extent=lambda spec: Extent(spec.trials, spec.chunk_s, 1e6),
        model_version="fake-1",
        study_error=FakeStudyError,
    )
