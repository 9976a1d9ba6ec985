"""Tables of an evaluation on a narrow terminal."""

import io

import pytest
from rich.console import Console

from explorer.evaluation import evaluate_document
from service.tables import print_evaluation
from tests.explorer.small_studies import CHAT, study

VISION = {"name": "vision", "kind": "convnet", "network": "resnet-50", "batch": 4, "weight": 1.0}


def printed(document):
    console = Console(file=io.StringIO(), width=80)
    print_evaluation(evaluate_document(document), console)
    return console.file.getvalue()


def mixture():
    document = study(quality={"no_worse_than": "w8a8_kv8"})
    document["workload"] = {"scenarios": [CHAT | {"weight": 1.0}, VISION]}
    return document | {"objectives": [{"metric": "combined_relative_rate", "direction": "maximize"}]}


@pytest.fixture(scope="module")
def text():
    return printed({"chip": "a100_sxm", "against": {"chip": "l40s"}, "study": mixture(), "unrolling": True})


def test_every_scenario_has_its_sizes_its_movement_and_its_convolutions(text):
    for name in ("chat", "vision"):
        assert f"and the work of {name}" in " ".join(text.split())
        assert f"Moving without computing of {name}" in " ".join(text.split())
    assert "ms through im2col" in " ".join(text.split()) and "layer1.0.conv2" in text


def test_the_comparison_and_the_cuts_fit_80_columns(text):
    assert "Where the cost of movement went, against NVIDIA L40S" in " ".join(text.split())
    cuts = [line for line in text.splitlines() if "16x16x16" in line]
    assert len(cuts) == 2 and all("…" not in line for line in cuts)


def test_an_operating_point_in_a_second_tier_is_shown():
    document = study({"network": "mixtral-8x7b"}, quality={"no_worse_than": "bf16"})
    document["system"] = {"n_chips": 1, "offload": True}
    design = evaluate_document({"chip": "h100_sxm", "study": document})["design"]
    text = printed({"design": design | {"second_tier": "lpddr5x_256gb"}, "study": document})
    assert "second_tier" in text and "second_tier_fetch" in text
