"""Studies whose designs are judged elsewhere: what they ask, what to try next, and what came of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import optuna
from optuna.trial import TrialState, create_trial
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from explorer.document import StudyError, TechnologyDocument, read_document
from explorer.objectives import Objective
from explorer.quantities import Duration, Power
from explorer.records import TrialRecord, design_document
from explorer.report import binding_limit, front_of, recommended_of
from explorer.samplers import AUTO, EXACT, SAMPLERS, distributions, optuna_study, unseen
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
    number = len(records) + len(away)
    rng = np.random.default_rng([problem.document.search.seed, number])
    gone = [point_of(problem.space, dict(params)) for params in away]
    asked = _asked(problem, records, gone, int(rng.integers(2**31)), min(count, problem.n_trials - number))
    seen = {tuple(point_of(problem.space, record.params)) for record in records} | {tuple(point) for point in gone}
    points = []
    for params in asked:
        point = unseen(np.array([int(value) for value in params.values()]), problem.space, seen, rng)
        seen.add(tuple(point))
        points.append(point)
    return _proposals(problem, np.array(points, dtype=np.int64)) if points else []


def _asked(
    problem: OutsideProblem, records: Sequence[TrialRecord], gone: Sequence[IntArray], seed: int, count: int
) -> list[dict[str, Any]]:
    """What Optuna's sampler asks for, knowing what came back and what is away."""
    name, allowed = problem.document.search.sampler, distributions(problem.space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = SAMPLERS[DEFAULT_SAMPLER if name == AUTO else name](seed)
        study = optuna_study(problem.space, problem.objectives, records, sampler)
        for point in gone:
            params = {name: int(value) for name, value in zip(allowed, point, strict=True)}
            study.add_trial(create_trial(state=TrialState.RUNNING, params=params, distributions=allowed))
        return [study.ask(allowed).params for _ in range(count)]


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
