"""Programs of convolution networks."""

import numpy as np
import pytest

from models.architectures.convnet import ConvLayers
from models.hardware.design import peak_flop_per_s, reference_design
from models.serving.scenario import System
from models.throughput.convnet import compile_convnet
from models.throughput.scenario import ConvnetScenario
from tests.models.throughput.works import BF16, INT8, convnet, judged, term_macs

DIRECT, IM2COL = 0, 1


def term_named(work, name):
    return next(each for each in work.program.terms if each.name == name)


@pytest.mark.parametrize("alternative", [DIRECT, IM2COL], ids=["direct", "im2col"])
def test_resnet_50_has_the_published_multiply_accumulates(alternative):
    # torchvision ResNet50_Weights: 4.089 GMAC at 224 x 224; padding of channels is no work
    assert term_macs(convnet(batch=2), alternative) == pytest.approx(2 * 4.089e9, rel=5e-4)


def test_mobilenet_v2_has_the_published_multiply_accumulates():
    # torchvision MobileNet_V2_Weights: 0.3008 GMAC (0.301 with the classifier)
    assert term_macs(convnet("mobilenet-v2", batch=1), IM2COL) == pytest.approx(0.3008e9, rel=2e-3)


def test_depthwise_layers_run_on_the_lanes_in_the_direct_form_alone():
    work = convnet("mobilenet-v2")
    lanes = [each for each in work.program.terms if each.name.startswith("depthwise")]
    assert lanes
    assert all(each.count[DIRECT] > 0 and each.count[IM2COL] == 0 for each in lanes)


def test_im2col_pays_for_writing_and_reading_its_expansion():
    work = convnet(batch=1, mixes=(BF16,))
    first, expansion = term_named(work, "convolution_0"), term_named(work, "im2col_0")
    c = {name: values[first.index[IM2COL]] for name, values in first.columns.items()}
    expanded, image = 112 * 112 * 147, 224 * 224 * 3
    assert c["m"] * c["k"] * c["input_bytes"] == pytest.approx(2 * expanded)
    assert expansion.columns["bytes_moved"][expansion.index[IM2COL]] == pytest.approx(2 * (image + expanded))
    assert expansion.count[DIRECT] == 0


def test_direct_convolution_reads_its_input_once_and_pads_three_channels_to_a_vector():
    work = convnet(batch=1, mixes=(BF16,))
    first = term_named(work, "convolution_0")
    c = {name: values[first.index[DIRECT]] for name, values in first.columns.items()}
    assert c["k"] == 49 * 8
    assert c["m"] * c["k"] * c["input_bytes"] == pytest.approx(2 * 224 * 224 * 3)


def test_one_by_one_layers_cost_the_same_both_ways():
    sizes = [np.array([float(v)]) for v in (56, 56, 64, 64, 1, 1, 1, 0, 1, np.nan)]
    layers = ConvLayers(("only",), *sizes)
    work = compile_convnet(ConvnetScenario("one", layers, 8, (BF16,), System(1, 1)))
    rates = judged(work, reference_design()).units_per_s[0]
    assert rates[DIRECT] == pytest.approx(rates[IM2COL])


def test_images_per_s_never_beat_the_arrays():
    design = reference_design()
    rate = judged(convnet(batch=64), design).units_per_s.max()
    assert rate <= 2 * peak_flop_per_s(design)[0] / (2 * 4.089e9)


def test_first_layer_and_classifier_stay_wide_where_the_recipe_keeps_embedding_and_head():
    work = convnet(mixes=(INT8,))
    first, inner = term_named(work, "convolution_0"), term_named(work, "convolution_1")
    assert first.columns["weight_bytes"][0] == 2.0
    assert inner.columns["weight_bytes"][0] < 1.1


def test_a_scenario_without_mixes_is_refused():
    with pytest.raises(ValueError, match="at least one precision mix"):
        convnet(mixes=())


def test_a_batch_of_none_is_refused():
    with pytest.raises(ValueError, match="batch must be at least 1"):
        convnet(batch=0)
