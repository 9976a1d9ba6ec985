"""Studies whose designs are judged elsewhere: what they ask, what to try next, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from explorer.document import StudyError, TechnologyDocument, read_document
from explorer.objectives import Objective
from explorer.quantities import Duration, Power
from explorer.records import TrialRecord, design_document
from explorer.report import binding_limit, front_of, recommended_of
from explorer.samplers import AUTO, EXACT, SAMPLERS, Asker, distinct, seed_of, seen_points
from explorer.space import Space, designs_at, point_of, read_space, values_at
from models.checks import IntArray, UnknownNameError, require_known

OUTSIDE = "outside"
"""Value of `evaluator` in the document of such a study."""

DEFAULT_SAMPLER = "tpe"
"""What `auto` means here: nothing can be bounded that is judged elsewhere."""

Name = Annotated[str, StringConstraints(pattern="^[a-z][a-z0-9_]{0,79}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class OutsideBudgetDocument(_Strict):
    """What is stated in every design that is handed out."""

    tdp: Power = Field(description="power cap of one chip")


class OutsideObjectiveDocument(_Strict):
    """A figure that the evaluator reports, and the better direction."""

    metric: Name = Field(description="name of the figure, its unit at the end", examples=["latency_s"])
    direction: Literal["minimize", "maximize"] = Field(description="which way is better", examples=["minimize"])


class OutsideSearchDocument(_Strict):
    """How to search."""

    sampler: str = Field(AUTO, description="sampler by name; `auto` is TPE", examples=["tpe"])
    trials: int = Field(200, ge=1, le=10_000, description="trials handed out in all", examples=[200])
    seed: int = Field(0, ge=0, lt=2**32, description="seed of the search", examples=[0])
    lease: Duration = Field(600.0, description="time for which a trial is a client's own, such as '10 min'")


class OutsideStudyDocument(_Strict):
    """A study whose trials are handed out by `:suggest` and come back by `:complete`."""

    name: str = Field(min_length=1, max_length=200, description="name of the study", examples=["rtl-sweep"])
    evaluator: Literal["outside"] = Field(description="the trials are judged elsewhere", examples=["outside"])
    budget: OutsideBudgetDocument = Field(description="what is stated in every design")
    technology: TechnologyDocument = Field(default_factory=TechnologyDocument, description="process of the die")
    space: Literal["full"] | dict[str, Any] = Field("full", description="`full`, or rows that narrow it")
    objectives: list[OutsideObjectiveDocument] = Field(min_length=1, max_length=4, description="figures to improve")
    constraints: list[Name] = Field(
        default_factory=list, max_length=20, examples=[["area"]],
        description="limits of which every result states the excess: at most 0 where the limit is kept",
    )  # fmt: skip
    search: OutsideSearchDocument = Field(default_factory=OutsideSearchDocument, description="how to search")


@dataclass(frozen=True)
class OutsideProblem:
    """Everything that proposing designs and reading results needs."""

    document: OutsideStudyDocument
    space: Space
    objectives: tuple[Objective, ...]

    @property
    def n_trials(self) -> int:
        """Trials that are handed out in all, at most the designs of the space."""
        return min(self.document.search.trials, self.space.n_designs)


@dataclass(frozen=True)
class Proposal:
    """One design to be judged: values of the space as a study writes them, and the whole design in units."""

    params: dict[str, Any]
    design: dict[str, Any]


def is_outside(document: Any) -> bool:
    """Whether a document asks for a study that is judged elsewhere."""
    return isinstance(document, dict) and document.get("evaluator") == OUTSIDE


def prepare_outside(document: Any) -> OutsideProblem:
    """
    Return the problem of a study that is judged elsewhere.

    Raises
    ------
    StudyError
        With a pointer to every field that breaks its rule.
    """
    study: OutsideStudyDocument = read_document(document, OutsideStudyDocument)
    if study.search.sampler == EXACT:
        detail = "must not be 'exact': what is judged elsewhere has no bound"
        raise StudyError([{"pointer": "/search/sampler", "detail": detail}])
    try:
        require_known("sampler", study.search.sampler, (AUTO, *SAMPLERS))
    except UnknownNameError as error:
        raise StudyError([{"pointer": "/search/sampler", "detail": str(error)}]) from None
    for pointer, names in (
        ("/objectives", [each.metric for each in study.objectives]),
        ("/constraints", study.constraints),
    ):
        if len(set(names)) != len(names):
            raise StudyError([{"pointer": pointer, "detail": "must not repeat a name"}])
    objectives = tuple(Objective(each.metric, each.direction == "maximize") for each in study.objectives)
    return OutsideProblem(study, read_space(study.space), objectives)


def propose_outside(
    problem: OutsideProblem, records: Sequence[TrialRecord], away: Sequence[Mapping[str, Any]], count: int
) -> list[Proposal]:
    """
    Return `count` new designs (fewer where trials or space are exhausted): a function of its arguments alone.

    Parameters
    ----------
    records : sequence of TrialRecord
        Trials that came back with figures.
    away : sequence of mapping
        Parameters of trials that are being judged or have failed; the sampler keeps off them.
    """
    number, space = len(records) + len(away), problem.space
    gone = [point_of(space, dict(params)) for params in away]
    name = problem.document.search.sampler
    count = max(0, min(count, problem.n_trials - number))
    if not count:
        return []
    seeds = [problem.document.search.seed, number]
    asker = Asker(DEFAULT_SAMPLER if name == AUTO else name, space, problem.objectives, records, seeds[0])
    points = asker.ask(seed_of(seeds), count, gone)
    seen = seen_points(space, records) | {tuple(point) for point in gone}
    return _proposals(problem, distinct(points, space, seen, np.random.default_rng([*seeds, 1])))


def _proposals(problem: OutsideProblem, points: IntArray) -> list[Proposal]:
    document = problem.document
    designs = designs_at(problem.space, points, node_nm=document.technology.node_nm, tdp_w=document.budget.tdp)
    return [Proposal(values_at(problem.space, points[i]), design_document(designs, i)) for i in range(len(points))]


def outside_record(
    problem: OutsideProblem,
    number: int,
    proposal: Proposal,
    metrics: Mapping[str, float],
    excess: Mapping[str, float],
    pointer: str,
) -> TrialRecord:
    """
    Return the record of a trial that came back.

    Raises
    ------
    StudyError
        If an objective or constraint is missing, unknown or not finite; `pointer` is where the result stands.
    """
    needed = {"metrics": [o.metric for o in problem.objectives], "constraints": list(problem.document.constraints)}
    faults = []
    for part, names, given in (("metrics", needed["metrics"], metrics), ("constraints", needed["constraints"], excess)):
        faults += [{"pointer": f"{pointer}/{part}/{n}", "detail": "is missing"} for n in names if n not in given]
        faults += [
            {"pointer": f"{pointer}/{part}/{n}", "detail": f"must be a finite number, got {value!r}"}
            for n, value in given.items() if not math.isfinite(value)
        ]  # fmt: skip
    unknown = set(excess) - set(needed["constraints"])
    faults += [{"pointer": f"{pointer}/constraints/{n}", "detail": "is no constraint of the study"} for n in unknown]
    if faults:
        raise StudyError(faults)
    worst = max(excess, key=lambda name: excess[name], default=None)
    feasible = worst is None or excess[worst] <= 0
    return TrialRecord(
        number=number, params=proposal.params, feasible=feasible, violated=None if feasible else worst,
        excess={name: float(value) for name, value in excess.items()},
        objectives=[float(metrics[o.metric]) for o in problem.objectives],
        design=proposal.design, operating_point={}, metrics={name: float(value) for name, value in metrics.items()},
    )  # fmt: skip


def _point(record: TrialRecord) -> dict[str, Any]:
    return {
        "trial": record.number, "params": record.params, "design": record.design,
        "operating_point": record.operating_point, "metrics": record.metrics,
    }  # fmt: skip


def outside_result(problem: OutsideProblem, records: Sequence[TrialRecord]) -> dict[str, Any]:
    """Return the recommendation and the front in the form of every other study's result."""
    front = front_of(problem, records)
    best = recommended_of(problem, front)
    document: dict[str, Any] = {
        "study": problem.document.model_dump(mode="json", exclude_none=True),
        "feasible": best is not None,
        "recommended": None if best is None else _point(best),
        "pareto": [_point(record) for record in front],
        "certificate": [],
        "explanation": {},
        "evaluated": len(records),
        "feasible_designs": sum(record.feasible for record in records),
        "space_designs": problem.space.n_designs,
    }
    if best is None:
        document["binding_limit"] = binding_limit(records)
    return document
