import numpy as np
import pytest

from models.architectures.convnet import CONVNETS, load_convnet, lower_convnet, read_layer_table
from models.checks import UnknownNameError

HEADER = "name,in_h,in_w,in_c,out_c,kernel_h,kernel_w,stride,padding,groups\n"

# torchvision weights metadata: num_params and _ops of ResNet50 and MobileNetV2.
PUBLISHED = {"resnet-50": (4.089e9, 25_557_032, 54), "mobilenet-v2": (0.3008e9, 3_504_872, 53)}


@pytest.mark.parametrize("name", CONVNETS)
def test_multiply_accumulates_and_parameters_equal_the_published_ones(name):
    macs, parameters, n_layers = PUBLISHED[name]
    layers = load_convnet(name)
    assert layers.macs.sum() == pytest.approx(macs, rel=2e-4)
    assert layers.parameters.sum() == parameters
    assert len(layers.names) == n_layers


@pytest.mark.parametrize("lowering", ["direct", "im2col"])
@pytest.mark.parametrize("name", CONVNETS)
def test_lowering_conserves_the_work_of_the_layers(name, lowering):
    layers = load_convnet(name)
    assert lower_convnet(layers, 7, lowering).gemms.flop == pytest.approx(2 * 7 * layers.macs)


def test_the_first_layer_of_resnet_expands_by_its_window_over_its_stride():
    lowered = lower_convnet(load_convnet("resnet-50"), 1, "im2col")
    assert lowered.expansion_elements[0] == 112 * 112 * 3 * 7 * 7
    # Each expanded element is written and read once more.
    assert lowered.expansion_bytes(16)[0] == 2 * 2 * 112 * 112 * 147


def test_a_1_by_1_layer_of_stride_1_is_a_matrix_already():
    lowered = lower_convnet(load_convnet("resnet-50"), 4, "im2col")
    layers = load_convnet("resnet-50")
    plain = (layers.kernel_h == 1) & (layers.stride == 1)
    assert (lowered.expansion_elements[plain] == 0).all()
    assert (lowered.expansion_elements[~plain] > 0).all()


def test_direct_convolution_expands_nothing():
    assert lower_convnet(load_convnet("mobilenet-v2"), 4).expansion_elements.sum() == 0


def test_a_depthwise_layer_is_one_small_gemm_per_channel():
    lowered = lower_convnet(load_convnet("mobilenet-v2"), 2)
    index = lowered.names.index("features.1.depthwise")
    gemms = lowered.gemms
    sizes = [values[index] for values in (gemms.m, gemms.n, gemms.k, gemms.batch)]
    assert sizes == [2 * 112 * 112, 1, 9, 32]


def test_all_layers_at_once_equal_one_at_a_time(tmp_path):
    rows = ["a,8,8,4,8,3,3,1,1,1", "b,8,8,8,8,3,3,2,1,8"]
    (tmp_path / "both.csv").write_text(HEADER + "\n".join(rows))
    both = lower_convnet(read_layer_table(tmp_path / "both.csv"), 3, "im2col")
    for index, row in enumerate(rows):
        (tmp_path / "one.csv").write_text(HEADER + row)
        one = lower_convnet(read_layer_table(tmp_path / "one.csv"), 3, "im2col")
        assert one.gemms.flop[0] == both.gemms.flop[index]
        assert one.expansion_elements[0] == both.expansion_elements[index]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HEADER + "a,8,8,4,8,3,3,1,1,1\nb,8,8,4,8,3,-3,1,1,1\n",
            r"layers\.csv line 3: column kernel_w must be between 1",
        ),
        (HEADER + "a,8,8,4,8,3,3,0,1,1\n", r"line 2: column stride must be between 1"),
        (HEADER + "a,8,8,4,8,3,x,1,1,1\n", r"line 2: column kernel_w must be a whole number, got 'x'"),
        (HEADER + "a,8,8,4,8,3,,1,1,1\n", r"line 2: column kernel_w is missing"),
        (HEADER + "a,8,8,4,8,3,3,1,1,3\n", r"line 2: column groups must divide in_c \(4\), got 3"),
        (HEADER + "a,8,8,4,8,11,3,1,1,1\n", r"line 2: column kernel_h must be at most the padded input in_h"),
        (HEADER + "a,8,8,4,8,3\n", r"line 2 must have 10 cells as the header, got 6"),
        (HEADER, r"layers\.csv must have a header and at least one row"),
        ("", r"layers\.csv must have a header and at least one row"),
        (HEADER.strip() + ",wheels\n" + "a,8,8,4,8,3,3,1,1,1,4\n", r"line 2: unknown column 'wheels'"),
        (HEADER.strip() + ",macs\n" + "a,8,8,4,8,3,3,1,1,1,4\n", r"line 2: column macs must be 18432, got 4"),
    ],
    ids=range(11),
)
def test_a_bad_layer_table_is_named_by_line_and_column(tmp_path, text, message):
    (tmp_path / "layers.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_layer_table(tmp_path / "layers.csv")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "layers.csv").write_bytes(HEADER.encode() + b"\xff\xfe")
    with pytest.raises(ValueError, match=r"layers\.csv must be UTF-8 text"):
        read_layer_table(tmp_path / "layers.csv")


@pytest.mark.parametrize("batch", [0, -1, 1.5, True])
def test_a_bad_batch_is_refused(batch):
    with pytest.raises(ValueError, match="batch must be"):
        lower_convnet(load_convnet("resnet-50"), batch)


def test_unknown_names_are_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'resnet-50'"):
        load_convnet("resnet50")
    with pytest.raises(UnknownNameError, match="unknown lowering 'winograd'"):
        lower_convnet(load_convnet("resnet-50"), 1, "winograd")


def test_sizes_are_float_arrays_with_one_entry_per_layer():
    lowered = lower_convnet(load_convnet("resnet-50"), 1)
    assert lowered.gemms.m.shape == lowered.input_elements.shape == (54,)
    assert lowered.gemms.m.dtype == np.float64
