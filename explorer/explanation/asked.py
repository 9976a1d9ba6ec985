"""Explanations that are asked for: of a trial, of a chip or design of one's own, with the parts that take seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from explorer.bottleneck import bottleneck
from explorer.document import StudyError
from explorer.evaluation import read_design
from explorer.explanation.document import whole_explanation, work_at
from explorer.explanation.next_budget import next_budget
from explorer.explanation.work import work_of
from explorer.flip_distance import flip_distances
from explorer.inputs import Inputs, with_named_workload
from explorer.known_work import fitted_to
from explorer.precision_report import precision_report
from explorer.problem import Problem, judge_designs, prepare
from explorer.records import TrialRecord, design_document, operating_point
from explorer.report import front_of, recommended_of
from explorer.space import designs_at, point_of
from explorer.study import read_study
from explorer.workload import pointing_at
from models.hardware.catalog import chip_designs
from models.hardware.design import DesignBatch


@dataclasses.dataclass(frozen=True)
class Asked:
    """What is to be explained, and how far; the recommended trial where neither `trial` nor `chip` is stated."""

    trial: int | None = None
    chip: str | None = None
    next_budget: bool = False
    """Search again with ten percent more area, and power: half a minute."""
    flip_distance: bool = False
    """How far each technology constant must move to change the recommendation: some seconds."""


def explain(problem: Problem, records: Sequence[TrialRecord], asked: Asked) -> dict[str, Any]:
    """
    Return the whole explanation of one design of a study, or of a chip on its work.

    Parameters
    ----------
    problem : Problem
    records : sequence of TrialRecord
        Trials of the study.
    asked : Asked

    Returns
    -------
    dict
        `trial` or `chip`, design, operating_point and explanation; empty where nothing is feasible and nothing named.

    Raises
    ------
    StudyError
        If there is no such trial or chip.
    """
    if asked.chip is not None:
        with pointing_at("/chip"):
            designs = chip_designs([asked.chip])
        return {"chip": asked.chip} | explain_design(problem, designs)
    record = _chosen(problem, records, asked.trial)
    if record is None:
        return {}
    document = explain_trial(problem, record)
    if asked.next_budget:
        document["explanation"]["next_budget"] = next_budget(problem)
    if asked.flip_distance:
        document["explanation"]["flip_distance"] = flip_distances(problem, records)
    return document


def explain_trial(problem: Problem, record: TrialRecord) -> dict[str, Any]:
    """The whole explanation of a trial at the operating point that it was judged at."""
    work, point = work_at(problem, record), point_of(problem.space, record.params)
    return {
        "trial": record.number,
        "design": record.design,
        "operating_point": record.operating_point,
        "explanation": {
            **whole_explanation(work, record.excess, record.objectives, point),
            "bottleneck": bottleneck(problem, record),
            "precision": precision_report(problem, record),
        },
    }


def explain_design(problem: Problem, designs: DesignBatch) -> dict[str, Any]:
    """The explanation of any one design at the operating point that is best for it; it need not lie in the space."""
    fitted = fitted_to(problem, designs)
    judgement = judge_designs(fitted, designs)
    excess = {name: float(max(values[0], -1.0)) for name, values in judgement.excess.items()}
    work = work_of(fitted, designs, judgement.chosen)
    return {
        "design": design_document(designs, 0),
        "operating_point": operating_point(fitted, judgement, 0),
        "explanation": whole_explanation(work, excess, [float(v) for v in judgement.objectives[0]], None),
    }


def _chosen(problem: Problem, records: Sequence[TrialRecord], trial: int | None) -> TrialRecord | None:
    if trial is None:
        return recommended_of(problem, front_of(problem, records))
    found = next((each for each in records if each.number == trial), None)
    if found is None:
        raise StudyError([{"pointer": "/trial", "detail": f"must be a trial of the study, got {trial}"}])
    return found


def explain_file(document: Any, inputs: Inputs, design: Mapping[str, Any] | None, asked: Asked) -> dict[str, Any]:
    """
    Return the explanation of a design of a result, or of a design or chip on a study.

    Parameters
    ----------
    document : dict
        What `explore` printed, or a study.
    inputs : Path or Uploads, optional
        Where files and networks named by the study lie.
    design : mapping, optional
        Fields of a design of one's own.
    asked : Asked
        Its trial is one of the result's front.

    Raises
    ------
    StudyError
        If the document is neither, or names no such design.
    """
    if not isinstance(document, dict):
        raise StudyError([{"pointer": "", "detail": "must be a study or the result of one"}])
    is_result = "pareto" in document and isinstance(document.get("study"), dict)
    study = document["study"] if is_result else document
    problem = prepare(read_study(with_named_workload(study, inputs)), inputs)
    if design is not None:
        return explain_design(problem, read_design(design))
    if not is_result and asked.chip is None:
        raise StudyError([{"pointer": "", "detail": "a study alone has no designs: name a chip or a design file"}])
    records = _front_records(problem, document["pareto"]) if is_result else []
    if asked.trial is None and is_result and document.get("recommended"):
        asked = dataclasses.replace(asked, trial=int(document["recommended"]["trial"]))
    return explain(problem, records, asked)


def _front_records(problem: Problem, front: Sequence[Mapping[str, Any]]) -> list[TrialRecord]:
    """The designs of a result's front as trials, their limits worked out again."""
    return [_record(problem, each) for each in front]


def _record(problem: Problem, point: Mapping[str, Any]) -> TrialRecord:
    """One design of a result; the excess over its limits at the operating point that the result states."""
    record = TrialRecord(
        number=int(point["trial"]), params=dict(point["params"]), feasible=True, violated=None, excess={},
        objectives=[float(point["metrics"][each.metric]) for each in problem.objectives],
        design=dict(point["design"]), operating_point=dict(point["operating_point"]), metrics=dict(point["metrics"]),
    )  # fmt: skip
    document = problem.document
    designs = designs_at(
        problem.space, point_of(problem.space, record.params)[None, :],
        node_nm=document.technology.node_nm, tdp_w=document.budget.tdp,
    )  # fmt: skip
    alternatives = work_at(problem, record).alternatives
    judgement = judge_designs(problem, designs, np.array([alternatives[0]]))
    excess = {name: float(max(values[0], -1.0)) for name, values in judgement.excess.items()}
    return dataclasses.replace(record, excess=excess)
