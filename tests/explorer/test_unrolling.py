"""The same machine cut into other arrays, and both ways of convolutions."""

import json
from pathlib import Path

import numpy as np
import pytest

from explorer.document import StudyError
from explorer.evaluation import evaluate_document, read_design
from explorer.files import read_yaml
from explorer.space import read_space
from explorer.unrolling import same_peak
from models.architectures.convnet import load_convnet, lower_convnet
from models.hardware.area import die_area_mm2
from models.hardware.design import macs_per_cycle_per_core, reference_design, replace

UNROLLING = Path(__file__).parents[2] / "docs" / "unrolling"
VISION = read_yaml(UNROLLING / "conv.yaml")
WORKLOADS = ("conv", "chat", "mixture")


@pytest.fixture(scope="module")
def answer():
    return evaluate_document({"chip": "a100_sxm", "study": VISION, "unrolling": True})


def test_every_cut_keeps_the_peak_and_the_memories_of_the_chip():
    design = reference_design()
    cut = same_peak(design)
    assert cut.n_designs > 10
    np.testing.assert_allclose(macs_per_cycle_per_core(cut) * cut.n_cores, 64 * 4096)
    for name in ("scratchpad_bytes_per_core", "noc_bytes_per_cycle_per_core", "vector_lanes_per_core"):
        np.testing.assert_allclose(getattr(cut, name) * cut.n_cores, getattr(design, name)[0] * 64)


def test_an_inner_product_shares_accumulators_and_is_smaller_at_equal_peak():
    cut = same_peak(reference_design())
    area = die_area_mm2(cut)
    named = {tuple(s): i for i, s in enumerate(zip(cut.array_m, cut.array_n, cut.array_k, strict=True))}
    assert area[named[(16, 16, 16)]] < 0.8 * area[named[(64, 64, 1)]]


def test_the_best_cut_is_marked_at_every_scale(answer):
    found = answer["unrolling"]["scenarios"]["vision"]
    rates = found["units_per_s"]
    for i, best in enumerate(found["best_shape"]):
        assert rates[best][i] == max(values[i] for values in rates.values())
    kinds = found["best_kind"]
    assert found["flips_at"] == [found["scales"][i] for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]]
    json.dumps(answer, allow_nan=False)


def test_a_chip_at_its_own_shape_is_one_of_the_cuts():
    design = replace(reference_design(), node_nm=7)
    document = {"design": _document(design), "study": VISION | {"quality": {"no_worse_than": "bf16"}}}
    found = evaluate_document(document | {"unrolling": True})
    scenario = found["unrolling"]["scenarios"]["vision"]
    own = scenario["units_per_s"]["16x16x16"][scenario["scales"].index(16)]
    assert own == pytest.approx(found["metrics"]["images_per_s"])


def _document(design):
    from explorer.records import design_document

    return design_document(design, 0)


def test_expansion_bytes_of_the_layers_are_those_of_the_lowered_network(answer):
    lowering = answer["sizes"]["lowering"]
    layers = load_convnet("resnet-50")
    # all layers of the 8-bit mix but the first and the last have activations of 8.004 bit
    expected = lower_convnet(layers, 16, "im2col").expansion_bytes(8.004)
    inner = sum(row["count"] * row["expansion_bytes"] for row in lowering["layers"][1:])
    assert inner == pytest.approx(expected[1:].sum(), rel=1e-3)
    assert sum(row["count"] for row in lowering["layers"]) == len(layers.names)


def test_both_ways_of_the_layers_add_up_to_the_two_alternatives(answer):
    lowering = answer["sizes"]["lowering"]
    assert lowering["direct_s"] < lowering["im2col_s"]
    assert lowering["best_of_each_layer_s"] <= min(lowering["direct_s"], lowering["im2col_s"])
    forced = VISION["workload"]["scenarios"][0] | {"lowering": "im2col"}
    study = VISION | {"workload": {"scenarios": [forced]}}
    found = evaluate_document({"chip": "a100_sxm", "study": study})
    assert found["sizes"]["lowering"] is None
    own = evaluate_document({"chip": "a100_sxm", "study": VISION})
    assert found["metrics"]["step_s"] > own["metrics"]["step_s"]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_best_design_of_each_workload_is_worse_on_the_others(workload):
    """Snapshot of the table in docs/unrolling.md: designs that the exact search found at one budget."""
    study = read_yaml(UNROLLING / f"{workload}.yaml")
    metric = study["objectives"][0]["metric"]
    rates = {}
    for name in WORKLOADS:
        found = evaluate_document({"design": read_yaml(UNROLLING / f"design-{name}.yaml"), "study": study})
        assert found["feasible"]
        rates[name] = found["metrics"][metric]
    assert max(rates, key=rates.get) == workload


def test_a_peak_that_no_array_divides_is_named():
    design = replace(reference_design(), array_m=3, array_n=1, array_k=1, n_cores=1)
    with pytest.raises(StudyError, match="needs a peak that some array of the full space divides"):
        evaluate_document({"design": _document(design), "study": VISION, "unrolling": True})


def test_only_true_and_false_ask_for_other_arrays():
    with pytest.raises(StudyError, match="must be true or false, got 3"):
        evaluate_document({"chip": "a100_sxm", "study": VISION, "unrolling": 3})


def test_groups_that_do_not_divide_an_array_are_named_in_a_design_and_in_a_space():
    with pytest.raises(
        StudyError, match="array_groups must divide array_m x array_n, got 3 groups of 16 x 16"
    ) as caught:
        read_design(_document(reference_design()) | {"array_groups": 3})
    assert caught.value.errors[0]["pointer"] == "/design"
    with pytest.raises(StudyError, match="must divide array_m x array_n, got 64 groups of 4 x 4") as caught:
        read_space({"array_groups": [1, 64]})
    assert caught.value.errors[0]["pointer"] == "/space/array_groups"
