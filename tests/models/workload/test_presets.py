"""Profiles and traces that come with chipfit."""

from __future__ import annotations

import pytest

from models.checks import UnknownNameError
from models.workload.presets import preset, preset_names, profiles, shipped_trace
from models.workload.requests import Requests


@pytest.mark.parametrize(
    ("name", "input_std", "output_std"),
    [
        # ray-project/llmperf: argument defaults, README examples, default of the prompt helper
        ("llmperf-550-150", 150, 80),
        ("llmperf-550-150-cli", 150, 80),
        ("llmperf-550-150-readme", 150, 10),
        ("llmperf-550-150-helper", 250, 0),
    ],
)
def test_llmperf_profile_has_each_published_spread(name, input_std, output_std):
    formula = profiles()[name]
    assert (formula.input.mean_tokens, formula.output.mean_tokens) == (550, 150)
    assert (formula.input.std_tokens, formula.output.std_tokens) == (input_std, output_std)


@pytest.mark.parametrize(
    ("name", "n", "mean_input", "mean_output"),
    [
        # whole files of Azure/AzurePublicDataset (commit b469a113): rows and means
        ("azure2023_conv", 19366, 1154.7, 211.1),
        ("azure2023_code", 8819, 2047.8, 27.9),
        ("servegen_deepseek_r1_generated", 20000, 610.7, 806.9),
        ("servegen_mm_image_generated", 20000, 1216.0, 124.1),
        ("sharegpt_llama31_300", 300, 857.5, 651.9),
        ("arxiv_summarization_lengths", 20000, 2581.7, 296.1),
    ],
)
def test_shipped_trace_has_the_rows_and_means_of_its_source(name, n, mean_input, mean_output):
    trace = preset(name)
    assert isinstance(trace, Requests)
    assert trace.n == n
    assert trace.input_tokens.mean() == pytest.approx(mean_input, rel=1e-3)
    assert trace.output_tokens.mean() == pytest.approx(mean_output, rel=2e-3)


def test_file_names_of_the_reference_studies_find_the_shipped_traces():
    for name in ("azure2023_conv.csv", "azure2023_code.csv", "servegen_deepseek_r1_generated.csv"):
        assert shipped_trace(name).n > 0


def test_every_preset_resolves():
    assert len(preset_names()) == len(set(preset_names()))
    for name in preset_names():
        preset(name)


def test_unknown_preset_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown preset 'llmperf-500-150', did you mean 'llmperf-550-150"):
        preset("llmperf-500-150")
    with pytest.raises(UnknownNameError, match="unknown trace 'azure2023_chat'"):
        shipped_trace("azure2023_chat.csv")
