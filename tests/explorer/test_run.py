"""A whole study in this process."""

import json

import pytest

from explorer.document import StudyError
from explorer.run import explore_study
from tests.explorer.small_studies import study

ONE_MIX = {"no_worse_than": "bf16"}


def told(document):
    calls = []
    result = explore_study(document, None, lambda done, of: calls.append((done, of)))
    return result, calls


@pytest.mark.parametrize("sampler", ["random", "exact"])
def test_progress_rises_to_the_trials_evaluated(sampler):
    result, calls = told(study(quality=ONE_MIX, search={"sampler": sampler, "trials": 45}))
    done = [each for each, _ in calls]
    assert done == sorted(set(done)) and done[-1] == result["evaluated"]
    assert {of for _, of in calls} == {45}
    assert result["wall_s"] > 0


def test_the_same_document_gives_the_same_answer():
    documents = [study(quality=ONE_MIX, search={"sampler": "exact"}) for _ in range(2)]
    first, second = (told(each)[0] for each in documents)
    for result in (first, second):
        result.pop("wall_s")
        for entry in result["certificate"]:
            entry.pop("wall_s")
    assert json.dumps(first) == json.dumps(second)


def test_a_document_at_fault_runs_nothing():
    calls = []
    with pytest.raises(StudyError, match=r"budget\.area: must carry a unit"):
        explore_study(study(budget={"area": 5, "tdp": "9 W"}), None, lambda *each: calls.append(each))
    assert calls == []


def test_a_trace_beside_the_study_is_found(tmp_path):
    rows = "".join(f"{i},{300 + i},{100 + i % 7}\n" for i in range(50))
    (tmp_path / "mine.csv").write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    document = study({"requests": {"trace": "mine.csv"}}, quality=ONE_MIX, search={"trials": 5})
    assert explore_study(document, tmp_path, lambda *_: None)["evaluated"] == 5
