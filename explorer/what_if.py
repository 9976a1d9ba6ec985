"""What-if: a chip or a design on a workload, and why it does what it does where that is asked for."""

from __future__ import annotations

from typing import Any

from explorer.document import StudyError
from explorer.evaluation import evaluate_document, read_design
from explorer.explanation.asked import explain_design
from explorer.inputs import Inputs
from explorer.known_work import KnownWork
from models.hardware.catalog import chip_designs


def what_if(document: dict[str, Any], inputs: Inputs = None, known: KnownWork | None = None) -> dict[str, Any]:
    """
    Return the answer of `evaluate_document`, sizes and cost of moving data only where they are asked for.

    With {explanation: true} the explanation of the design stands beside it.

    Parameters
    ----------
    document : dict
        As `evaluate_document` takes it.
    inputs : Path or Uploads, optional
        Where files and networks named by the study lie.
    known : KnownWork, optional
        Work compiled by earlier calls.

    Raises
    ------
    StudyError
        With a pointer to every field at fault.
    """
    known = known or KnownWork()
    asked = document.get("explanation", False)
    if not isinstance(asked, bool):
        raise StudyError([{"pointer": "/explanation", "detail": f"must be true or false, got {asked!r}"}])
    plain = {"sizes": False} | {name: each for name, each in document.items() if name != "explanation"}
    answer = evaluate_document(plain, inputs, known)
    if asked:
        profile = {"profile": document["profile"]} if "profile" in document else {}
        study = known.study_of(document["study"] | profile, inputs)
        designs = chip_designs([document["chip"]]) if "chip" in document else read_design(document["design"])
        answer["explanation"] = explain_design(known.problem_for(study, inputs, designs), designs)["explanation"]
    return answer
