"""Designs of the history judged on another workload, all in one call, and what identifies an evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from explorer.batch_evaluation import read_designs
from explorer.document import StudyDocument, StudyError
from explorer.evaluation import judgement_document, read_design
from explorer.identity import design_hash, workload_hash
from explorer.inputs import Inputs
from explorer.known_work import KnownWork
from explorer.problem import judge_designs, prepare
from explorer.records import design_document
from models.checks import UnknownNameError
from models.hardware.catalog import chip_designs


def evaluate_designs(
    study: Mapping[str, Any],
    designs: Sequence[Mapping[str, Any]],
    inputs: Inputs = None,
    known: KnownWork | None = None,
) -> list[dict[str, Any]]:
    """
    Return the answers of `evaluate_document` for many designs on one workload, judged in one call.

    Parameters
    ----------
    study : dict
        A study document, whose space and search are not used.
    designs : sequence of n_designs dicts
        Field -> value in SI units, codes by name.
    inputs : Path or Uploads, optional
        Where files and networks named by the study lie.
    known : KnownWork, optional
        Work compiled by earlier calls.

    Raises
    ------
    StudyError
        With a pointer below `/study`, or to the design at fault.
    """
    known = known or KnownWork()
    checked = _read_study(study, inputs, known)
    if not designs:
        prepare(checked, inputs)
        return []
    batch = read_designs(list(designs))
    fitted = known.problem_for(checked, inputs, batch)
    judgement = judge_designs(fitted, batch)
    return [judgement_document(fitted, judgement, None, i) for i in range(len(designs))]


def evaluation_identity(
    document: Mapping[str, Any], inputs: Inputs = None, known: KnownWork | None = None
) -> str | None:
    """Return what tells an evaluation from others: workload, design, chip and replay; None where it is at fault."""
    try:
        work = workload_hash(_read_study(document["study"], inputs, known or KnownWork()), inputs)
        named = "chip" in document
        designs = chip_designs([str(document["chip"])]) if named else read_design(document["design"])
    except (StudyError, UnknownNameError, ValueError, LookupError, TypeError):
        return None
    others = {name: value for name, value in document.items() if name not in ("study", "design")}
    return json.dumps([work, design_hash(design_document(designs, 0)), others], sort_keys=True)


def _read_study(study: Any, inputs: Inputs, known: KnownWork) -> StudyDocument:
    try:
        return known.study_of(study, inputs)
    except StudyError as error:
        raise StudyError([{**each, "pointer": "/study" + each["pointer"]} for each in error.errors]) from None
