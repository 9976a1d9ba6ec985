import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.architectures import load_network, lower, network_names, read_network
from models.architectures.lowered import matrix_elements, weight_elements_per_module
from models.architectures.parallel import kv_bytes_per_token_per_chip, split
from tests.models.architectures.test_lowering import GOLDEN

NETWORKS = [*network_names(), *GOLDEN]


def lowered_network(name):
    return lower(read_network(GOLDEN[name][0], name)) if name in GOLDEN else lower(load_network(name))


@pytest.mark.parametrize("name", NETWORKS)
def test_one_chip_is_the_whole_network(name):
    whole = lowered_network(name)
    assert split(whole, 1) == whole


def replicated(whole):
    return sum(matrix_elements(linear) for linear in whole.linears if linear.shard == "replicated")


@pytest.mark.parametrize("degree", [2, 4])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3", "mixtral-8x7b", "gpt-3-175b", "gemma-3-12b"])
def test_work_is_conserved_where_everything_divides(name, degree):
    whole = lowered_network(name)
    chip = split(whole, degree)
    total = sum(matrix_elements(linear) for linear in whole.linears)
    on_chip = sum(matrix_elements(linear) for linear in chip.linears)
    assert on_chip * degree == pytest.approx(total + (degree - 1) * replicated(whole))


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(NETWORKS), degree=st.integers(1, 8))
def test_no_work_is_lost_by_splitting(name, degree):
    whole = lowered_network(name)
    chip = split(whole, degree)
    for before, after in zip(whole.linears, chip.linears, strict=True):
        assert matrix_elements(after) * degree >= matrix_elements(before) * (1 - 1e-12)
        assert matrix_elements(after) <= matrix_elements(before)
    assert chip.n_parameters * degree >= whole.n_parameters * (1 - 1e-12)
    assert sum(weight_elements_per_module(chip).values()) == pytest.approx(chip.n_parameters)
    for before, after in zip(whole.attentions, chip.attentions, strict=True):
        assert after.n_heads * degree >= before.n_heads


def test_key_and_value_heads_are_replicated_beyond_one_per_chip():
    whole = lower(load_network("llama-3.1-70b"))
    columns = {d: next(x.n_out for x in split(whole, d).linears if x.module == "attention_qkv") for d in (8, 16, 32)}
    assert columns == {8: (8 + 2) * 128, 16: (4 + 2) * 128, 32: (2 + 2) * 128}
    assert kv_bytes_per_token_per_chip(whole, [1, 8, 16, 64], 16).tolist() == [327680, 40960, 40960, 40960]


def test_the_latent_is_kept_on_every_chip():
    whole = lower(load_network("deepseek-v3"))
    assert kv_bytes_per_token_per_chip(whole, [1, 8, 64], 16).tolist() == [61 * 576 * 2] * 3


def test_heads_that_do_not_divide_are_padded():
    attention = split(lower(load_network("falcon-7b")), 8).attentions[0]
    assert (attention.n_heads, attention.n_kv_heads) == (9, 1)
    output = next(x for x in split(lower(load_network("falcon-7b")), 8).linears if x.module == "attention_output")
    assert output.n_in == 9 * 64


def test_experts_are_dealt_out_whole_and_each_chip_meets_its_share():
    whole = lower(load_network("deepseek-v3"))
    up = next(linear for linear in split(whole, 8).linears if linear.module == "expert_up")
    assert (up.n_experts, up.top_k, up.n_out) == (32, 1.0, 4096)


def test_experts_can_be_cut_instead():
    up = next(
        x for x in split(lower(load_network("mixtral-8x7b")), 8, expert_parallel=1).linears if x.module == "expert_up"
    )
    assert (up.n_experts, up.top_k, up.n_out) == (8, 2, 2 * 14336 / 8)


def test_kv_bytes_of_many_alternatives_equal_one_at_a_time():
    whole = lower(load_network("gpt-oss-20b"))
    together = kv_bytes_per_token_per_chip(whole, [1, 2, 8], [16, 8, 4])
    singles = [float(kv_bytes_per_token_per_chip(whole, d, b)) for d, b in ((1, 16), (2, 8), (8, 4))]
    assert together.tolist() == singles


@pytest.mark.parametrize(
    ("degrees", "message"),
    [
        ((0,), "tensor_parallel must be a whole number of at least 1, got 0"),
        ((1.5,), "tensor_parallel must be a whole number of at least 1, got 1.5"),
        ((128,), "tensor_parallel must be at most 32, the number of heads, got 128"),
        ((8, 3), r"expert_parallel must divide tensor_parallel \(8\), got 3"),
    ],
    ids=str,
)
def test_a_bad_degree_is_refused(degrees, message):
    with pytest.raises(ValueError, match=message):
        split(lower(load_network("mixtral-8x7b")), *degrees)
