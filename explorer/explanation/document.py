"""The explanation of one design as one JSON document: what is cheap always, the rest where it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from explorer.bottleneck import alternative_of
from explorer.explanation.alternatives import build_or_buy
from explorer.explanation.chain import bottleneck_chain, time_shares
from explorer.explanation.neighbours import parameter_sensitivity
from explorer.explanation.questions import judging_questions
from explorer.explanation.returns import resource_return
from explorer.explanation.summary import summary_of
from explorer.explanation.work import Work, work_of
from explorer.problem import Judgement, Problem, judge_designs
from explorer.records import TrialRecord
from explorer.space import designs_at, point_of
from explorer.work_report import parts_of, work_report
from models.checks import IntArray
from models.hardware.design import DesignBatch
from models.serving.steady import CompiledServing


def work_at(problem: Problem, record: TrialRecord) -> Work:
    """A trial at the operating point that it was judged at."""
    document = problem.document
    point = point_of(problem.space, record.params)[None, :]
    designs = designs_at(problem.space, point, node_nm=document.technology.node_nm, tdp_w=document.budget.tdp)
    chosen = list(judge_designs(problem, designs).chosen)
    for i, compiled in enumerate(problem.scenarios):
        own = record.operating_point if len(chosen) == 1 else record.operating_point[compiled.name]
        if isinstance(compiled, CompiledServing):
            chosen[i] = np.array([alternative_of(compiled, own)])
    return work_of(problem, designs, chosen)


def work_of_judged(problem: Problem, designs: DesignBatch, judgement: Judgement) -> Work:
    """Any one design at the operating point that is best for it."""
    return work_of(problem, designs, judgement.chosen)


def quick_explanation(work: Work, excess: Mapping[str, float]) -> dict[str, Any]:
    """
    Return what a second of work tells of a design at its operating point.

    Parameters
    ----------
    work : Work
    excess : mapping
        Relative excess over each limit, at most 0 where it is kept.

    Returns
    -------
    dict
        summary, time_shares, bottleneck_chain, resource_return, questions, sizes, reshape_cost, slack_fractions.
    """
    shares, chain = time_shares(work), bottleneck_chain(work)
    problem = work.problem
    reports = work_report(
        work.compiled, work.alternatives, work.now().evaluations, work.performance, problem.tables, problem.technology
    )
    document: dict[str, Any] = {
        "time_shares": shares.document(),
        "bottleneck_chain": chain,
        "resource_return": resource_return(work),
        "questions": judging_questions(work, shares, chain),
        **parts_of(reports),
        "slack_fractions": {name: -value for name, value in excess.items()},
    }
    return {"summary": summary_of(document, problem.objectives[0].metric)} | document


def whole_explanation(
    work: Work, excess: Mapping[str, float], objectives: list[float], point: IntArray | None
) -> dict[str, Any]:
    """
    Return the quick explanation with the neighbours in the space and the chips of the catalogue.

    Parameters
    ----------
    objectives : list of float
        Of the design, in the order of the study.
    point : array of shape (n_parameters,), or None
        Where the design lies in the study's space, if it does.
    """
    problem = work.problem
    here = {o.metric: value for o, value in zip(problem.objectives, objectives, strict=True)}
    document = quick_explanation(work, excess)
    if point is not None:
        document["parameter_sensitivity"] = parameter_sensitivity(problem, point, here)
    document["build_or_buy"] = build_or_buy(problem, objectives)
    return document | {"summary": summary_of(document, problem.objectives[0].metric)}
