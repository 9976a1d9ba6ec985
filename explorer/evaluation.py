"""What-if: one design or catalogue chip on the workload of a study, outside any search."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from explorer.chip_report import figures_document, idle_document, technology_document, warnings_of
from explorer.document import StudyDocument, StudyError
from explorer.identity import model_version
from explorer.inputs import Inputs, named_trace
from explorer.intervals import chosen_steps, intervals_document
from explorer.known_work import KnownWork
from explorer.percentiles import design_percentiles, states_arrivals
from explorer.problem import Judgement, Problem, evaluate_all, judge_evaluated
from explorer.records import CODES, design_document, metrics_document, operating_point
from explorer.reshape_report import moved_cost
from explorer.runners_up import with_runners_up
from explorer.scaling.chip_counts import read_chip_counts
from explorer.scaling.report import scaling_document
from explorer.unrolling import unrolling_document
from explorer.work_report import with_work_report
from explorer.workload import pointing_at, require_links
from models.checks import UnknownNameError, require_known
from models.hardware.catalog import chip, chip_designs, field_provenance
from models.hardware.design import BOUND_FIELDS, DESIGN_FIELDS, DesignBatch, design_batch, one_of, require_equal_groups
from models.hardware.memory import memory_bandwidth_bytes_per_s, memory_capacity_bytes
from models.serving.steady import CompiledServing
from models.workload.requests import Requests

LARGEST_NUMBER = 1e30
"""Beyond this no design parameter means anything, and products of some would be infinite."""

OPTIONS = ("replay", "profile", "scaling", "against", "unrolling", "sizes")
"""What may be asked of an evaluation beside a design and a workload."""

KNOWN_FIELDS = DESIGN_FIELDS.keys() - BOUND_FIELDS

CHIP_LIMITS = ("area", "unit_cost", "memory_stacks", "reticle", "memory_edge", "tdp")
"""Limits of a budget that do not ask whether a chip can do the work."""


def evaluate_document(
    document: dict[str, Any], inputs: Inputs = None, known: KnownWork | None = None
) -> dict[str, Any]:
    """
    Return a design or chip judged on a workload.

    Parameters
    ----------
    document : dict
        {chip: id} or {design: {...}}, and {study: a study document}, whose space and search are not used; with
        {replay: true} the study's arrivals are replayed, with {replay: name} a trace at its own times; with
        {profile: ...} a calibration profile in place of the study's; with {scaling: true}, {scaling: {max_chips: n}}
        or {scaling: {chips: [n, ...]}} the design in systems of other sizes too; with {against: {chip: id}} or
        {against: {design: {...}}} a second design on the same work, and where the cost of moving data went from it to
        the first; with {unrolling: true} the same peak cut into the other arrays of the full space; with
        {sizes: false} without sizes of the work and cost of moving data, which take a third of the time.
    inputs : Path or Uploads, optional
        Where files and networks named by the study lie.
    known : KnownWork, optional
        Work compiled by earlier calls.

    Raises
    ------
    StudyError
        With a pointer to every field at fault.
    """
    if not isinstance(document, dict) or not isinstance(document.get("study"), dict):
        raise StudyError([{"pointer": "/study", "detail": "must be a study document"}])
    unknown = set(document) - {"chip", "design", "study", *OPTIONS}
    if unknown:
        raise StudyError([{"pointer": f"/{name}", "detail": "is no known field"} for name in sorted(unknown)])
    if ("chip" in document) == ("design" in document):
        raise StudyError([{"pointer": "/chip", "detail": "must hold exactly one of chip and design"}])
    known = known or KnownWork()
    designs = _designs(document)
    beside = _against(document, inputs, known)
    asked = document["study"]
    if "profile" in document:
        asked = asked | {"profile": document["profile"]}
    try:
        study = known.study_of(asked, inputs)
        problem = known.problem_for(study, inputs, designs)
    except StudyError as error:
        raise StudyError([{**each, "pointer": "/study" + each["pointer"]} for each in error.errors]) from None
    _require_links(study, designs, document)
    trace = _replayed_trace(problem, document.get("replay", False), inputs)
    asked_sizes, asked_unrolling = document.get("scaling", False), _asked(document, "unrolling", False)
    reported = _asked(document, "sizes", True) or beside is not None
    chips = [] if asked_sizes is False else read_chip_counts(asked_sizes, problem.scenarios[0].system)
    evaluations = evaluate_all(problem, designs)
    judgement = judge_evaluated(problem, designs, evaluations)
    answer = judgement_document(problem, judgement, document.get("chip"))
    answer["operating_point"] = with_runners_up(problem, designs, answer["operating_point"], evaluations)
    if reported:
        answer = with_work_report(problem, judgement, answer)
    if beside is not None:
        answer["against"] = beside | {"moved_cost": moved_cost(beside.pop("reshape_cost"), answer["reshape_cost"])}
    if document.get("replay", False):
        points = [answer["operating_point"]]
        answer["percentiles"] = design_percentiles(problem, designs, points, trace, timeline=True)[0]
    if asked_unrolling:
        answer["unrolling"] = unrolling_document(problem, designs)
    if chips:
        stated = isinstance(asked_sizes, dict) and "chips" in asked_sizes
        answer["scaling"] = scaling_document(problem, designs, chips, stated=stated)
    return answer


def _asked(document: Mapping[str, Any], name: str, default: bool) -> bool:
    asked = document.get(name, default)
    if not isinstance(asked, bool):
        raise StudyError([{"pointer": f"/{name}", "detail": f"must be true or false, got {asked!r}"}])
    return asked


def _require_links(study: StudyDocument, designs: DesignBatch, document: Mapping[str, Any]) -> None:
    pointer = "/chip" if "chip" in document else "/design/scale_up_bytes_per_s"
    require_links(study.system, float(designs.scale_up_bytes_per_s[0]), pointer)


def _against(document: dict[str, Any], inputs: Inputs, known: KnownWork | None) -> dict[str, Any] | None:
    """The design to compare with, judged on the same work; None where there is none."""
    other = document.get("against")
    if other is None:
        return None
    if not isinstance(other, dict) or set(other) not in ({"chip"}, {"design"}):
        raise StudyError([{"pointer": "/against", "detail": "must hold exactly one of chip and design"}])
    shared: dict[str, Any] = {name: document[name] for name in ("study", "profile") if name in document}
    try:
        answer = evaluate_document(shared | other, inputs, known)
    except StudyError as error:
        own = [f"/{name}" for name in other]
        raise StudyError(
            [
                {**each, "pointer": "/against" + each["pointer"]} if each["pointer"].startswith(tuple(own)) else each
                for each in error.errors
            ]
        ) from None
    kept = ("chip", "design", "operating_point", "metrics", "serves", "feasible", "sizes", "reshape_cost")
    return {name: answer[name] for name in kept if name in answer}


def _replayed_trace(problem: Problem, asked: Any, inputs: Inputs) -> Requests | None:
    """The trace to replay, or None for the study's own arrivals."""
    served = any(isinstance(each, CompiledServing) for each in problem.scenarios)
    if asked and not served:
        raise StudyError([{"pointer": "/replay", "detail": "needs a scenario of kind llm_serving"}])
    if isinstance(asked, str):
        with pointing_at("/replay"):
            trace = named_trace(asked, inputs)
            if trace.arrival_s is None:
                raise ValueError(f"trace '{asked}' must have arrivals to be replayed at its own times")
            return trace
    if not isinstance(asked, bool):
        raise StudyError([{"pointer": "/replay", "detail": f"must be true or the name of a trace, got {asked!r}"}])
    if asked and not states_arrivals(problem):
        detail = "needs arrivals in the study (a load, a rate, or a trace's own times), or the name of a trace"
        raise StudyError([{"pointer": "/replay", "detail": detail}])
    return None


def _designs(document: dict[str, Any]) -> DesignBatch:
    if "chip" in document:
        with pointing_at("/chip"):
            return chip_designs([str(document["chip"])])
    return read_design(document["design"])


def read_design(document: Any, pointer: str = "/design") -> DesignBatch:
    """
    Return one design from field -> value, codes by name; memory rates may be left to kind and stacks.

    `pointer` says where it stands in the document.

    Raises
    ------
    StudyError
        With a pointer to the field at fault.
    """
    columns = design_columns(document, pointer)
    with pointing_at(pointer):
        return design_of(columns)


def design_columns(document: Any, pointer: str = "/design") -> dict[str, float]:
    """Return field -> number of one design, codes of names; rules of the numbers are not checked yet."""
    if not isinstance(document, dict):
        raise StudyError([{"pointer": pointer, "detail": "must be a mapping of design parameters"}])
    columns: dict[str, float] = {}
    for name, value in document.items():
        with pointing_at(f"{pointer}/{name}"):
            require_known("design parameter", name, KNOWN_FIELDS)
            columns[name] = _number(name, value)
    return columns


def design_of(columns: Mapping[str, ArrayLike]) -> DesignBatch:
    """Return designs from field -> values, shape (n_designs,) or one; memory rates follow kind and stacks."""
    stated = dict(columns)
    kind, stacks = stated.get("memory_kind"), stated.get("memory_stacks")
    if kind is not None and stacks is not None:
        stated.setdefault("memory_bandwidth_bytes_per_s", memory_bandwidth_bytes_per_s(kind, stacks))
        stated.setdefault("memory_capacity_bytes", memory_capacity_bytes(kind, stacks))
    return require_equal_groups(design_batch(**stated))


def _number(name: str, value: Any) -> float:
    if name in CODES and isinstance(value, str):
        members = {member.name.lower(): int(member) for member in CODES[name]}
        return float(members[require_known(name.replace("_", " "), value, members)])
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number [{DESIGN_FIELDS[name].metadata['unit']}], got {value!r}")
    if name in CODES and value not in list(CODES[name]):
        raise ValueError(f"must be a name or code of {CODES[name].__name__}, got {value!r}")
    if abs(value) > LARGEST_NUMBER:
        raise ValueError(f"must be at most {LARGEST_NUMBER:g}, got {str(value)[:20]}")
    return float(value)


def judgement_document(problem: Problem, judgement: Judgement, chip_id: str | None, index: int = 0) -> dict[str, Any]:
    """One judged design as plain data; `serves` says whether it does the work, `feasible` whether it is in budget."""
    metrics = metrics_document(problem, judgement, index)
    figures = figures_document(problem, judgement.designs, index, judgement.evaluations[0])
    steps = chosen_steps(problem, judgement, index)
    document: dict[str, Any] = {
        "design": design_document(judgement.designs, index),
        "operating_point": operating_point(problem, judgement, index),
        "metrics": metrics,
        "intervals": intervals_document(problem, judgement, index, metrics, figures, steps),
        "serves": serves(judgement, index),
        "feasible": bool(judgement.feasible[index]),
        "excess_fractions": excess_document(judgement, index),
        "figures": figures,
        "idle": idle_document(judgement, index, steps[0], figures["area_mm2"]),
        "warnings": warnings_of(
            problem,
            one_of(judgement.designs, index),
            figures["full_rate_power_w"]["value"],
            figures["area_mm2"]["value"],
        ),
        "technology": technology_document(problem),
        "model_version": model_version(),
        "profile": problem.document.profile,
    }
    if chip_id is not None:
        entry = chip(chip_id)
        document["chip"] = {
            "id": entry.id,
            "name": entry.name,
            "confidence": entry.confidence,
            "inferred_fields": dict(entry.inferred_fields),
            "fields": field_provenance(entry),
            "unverified_fields": list(entry.unverified_fields),
        }
    return document


def serves(judgement: Judgement, index: int) -> bool:
    """Whether a design does the work inside the limits of the work itself, whatever the budget."""
    return max(float(values[index]) for name, values in judgement.excess.items() if name not in CHIP_LIMITS) <= 0


def excess_document(judgement: Judgement, index: int) -> dict[str, float]:
    """By which share a design exceeds each limit, at least -1; limits that nothing sets are left out."""
    excess = {name: float(values[index]) for name, values in judgement.excess.items()}
    return {name: max(value, -1.0) for name, value in excess.items() if np.isfinite(value)}


def chip_or_design(name: str, folder: Path) -> dict[str, Any]:
    """Read `evaluate`'s first argument: a design file where one of that name exists, else a chip id."""
    path = folder / name
    if path.is_file():
        from explorer.files import read_yaml

        return {"design": read_yaml(path)}
    try:
        chip(name)
    except UnknownNameError as error:
        raise StudyError([{"pointer": "/chip", "detail": str(error)}]) from None
    return {"chip": name}
