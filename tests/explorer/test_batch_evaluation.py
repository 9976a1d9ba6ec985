"""Many designs on one workload against one at a time, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from explorer.batch_evaluation import evaluate_batch
from explorer.document import StudyError
from explorer.evaluation import evaluate_document
from explorer.known_work import KnownWork
from explorer.records import design_document
from models.hardware.catalog import chip_designs
from models.metrics.reported import REPORTED
from tests.service.test_real_engine import study_document

H100 = design_document(chip_designs(["h100_sxm"]), 0)
SAME = ("design", "operating_point", "metrics", "serves", "feasible", "excess_fractions")


def designs() -> list[dict[str, Any]]:
    short = {name: value for name, value in H100.items() if name not in ("memory_capacity_bytes", "tdp_w")}
    return [H100 | {"n_cores": 96}, short | {"tdp_w": 450.0}, H100 | {"clock_hz": 1.2e9}]


def errors_of(document: dict[str, Any]) -> list[dict[str, str]]:
    with pytest.raises(StudyError, match=r".") as caught:
        evaluate_batch(document)
    return caught.value.errors


def test_designs_together_are_as_one_at_a_time_and_in_their_order() -> None:
    together = evaluate_batch({"designs": designs(), "study": study_document()})["items"]
    alone = [evaluate_document({"design": each, "study": study_document()}) for each in designs()]
    assert len(together) == 3
    for one, other in zip(together, alone, strict=True):
        point = {name: other["operating_point"][name] for name in one["operating_point"]}
        searched = {name: value for name, value in other["metrics"].items() if name not in REPORTED}
        other = other | {"operating_point": point, "metrics": searched}
        assert {name: one[name] for name in SAME} == {name: other[name] for name in SAME}


def test_more_designs_than_are_judged_in_one_call_come_whole() -> None:
    many = [H100 | {"clock_hz": 1.0e9 + 1e6 * i} for i in range(300)]
    items = evaluate_batch({"designs": many, "study": study_document()})["items"]
    assert [each["design"]["clock_hz"] for each in items] == [each["clock_hz"] for each in many]


def test_every_design_at_fault_is_pointed_to() -> None:
    wrong = [H100 | {"n_cores": 0}, H100, H100 | {"cores": 3}, 7, H100 | {"clock_hz": "fast"}]
    errors = errors_of({"designs": wrong, "study": study_document()})
    assert [each["pointer"] for each in errors] == [
        "/designs/0",
        "/designs/2/cores",
        "/designs/3",
        "/designs/4/clock_hz",
    ]
    assert "n_cores must be at least 1 [1], got 0" in errors[0]["detail"]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"designs": []}, "/designs"),
        ({"designs": {}}, "/designs"),
        ({"chip": "h100_sxm"}, "/chip"),
        ({"study": 3}, "/study"),
        ({"study": study_document(budget__area="no area")}, "/study/budget/area"),
    ],
)
def test_a_batch_at_fault_is_refused_with_a_pointer(change: dict[str, Any], pointer: str) -> None:
    errors = errors_of({"designs": [H100], "study": study_document()} | change)
    assert [each["pointer"] for each in errors] == [pointer]


def test_a_design_without_links_in_a_ring_is_pointed_to() -> None:
    study = study_document(system={"n_chips": 8, "scale_up": {"topology": "ring"}})
    asked = [*designs(), H100 | {"scale_up_bytes_per_s": 0.0}]
    detail = "needs scale-up links above 0 B/s, since the chips of a node form a ring"
    assert errors_of({"designs": asked, "study": study}) == [
        {"pointer": "/designs/3/scale_up_bytes_per_s", "detail": detail}
    ]


def test_work_known_from_before_changes_no_answer() -> None:
    known = KnownWork(n_kept=3)
    tighter = study_document(budget__area="500 mm2")
    for study in (study_document(), tighter, study_document()):
        for design in designs()[1:]:
            asked = {"design": design, "study": study}
            assert evaluate_document(asked, None, known) == evaluate_document(asked)


def test_a_study_is_read_once_and_a_faulty_one_is_refused_each_time() -> None:
    known = KnownWork()
    assert known.study_of(study_document(), None) is known.study_of(study_document(), None)
    assert known.study_of(study_document(), None) is not known.study_of(study_document(budget__area="500 mm2"), None)
    for _ in range(2):
        with pytest.raises(StudyError, match="area: Input should be greater than 0"):
            known.study_of(study_document(budget__area="-1 mm2"), None)
