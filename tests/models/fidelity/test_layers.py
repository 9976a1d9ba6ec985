"""Tables of network layers: sizes of the operators that layers are, and rows that are not theirs alone."""

import numpy as np
import pytest

from models.fidelity.layer_rows import cache_rows, chip_sizes, layer_rows
from models.fidelity.layers import layer_reports
from models.fidelity.report import TableError
from models.fidelity.rows import read_measured
from models.tables import DATA

SHIPPED = sorted((DATA / "measured").glob("llmservingsim_layers_*.csv"))
HEADER = "device,model,tp,op,tokens,kv_tokens,latency_us,source"


def table(tmp_path, *rows, name="llmservingsim_layers_gpu_v0.csv"):
    path = tmp_path / name
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return path


def test_layers_of_llama_have_the_sizes_of_its_config(tmp_path):
    ops = {"q_proj": (4096, 4096), "k_proj": (1024, 4096), "up_proj": (14336, 4096), "down_proj": (4096, 14336),
           "lm_head": (128256, 4096)}  # fmt: skip
    rows = layer_rows(table(tmp_path, *[f"H100,Llama-3.1-8B,1,{op},7,0,100,x" for op in ops])).linear
    assert list(zip(rows.n, rows.k, strict=True)) == list(ops.values())
    assert (rows.m == 7).all()


def test_tensor_parallel_chips_share_heads_and_columns_but_keep_one_kv_head():
    sizes = chip_sizes("Llama-3.1-8B", 16)
    assert sizes["q"] == 2 * 128
    assert sizes["kv"] == 128
    assert sizes["inter"] == 14336 / 16


def test_experts_are_whole_on_their_chip(tmp_path):
    rows = layer_rows(table(tmp_path, "H100,Mixtral-8x7B-v0.1,4,expert.w1,7,0,100,x")).linear
    assert rows.n[0] == 14336


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_row_is_reported_or_skipped_with_a_reason(path):
    reports = layer_reports(path)
    skipped = sum(entry["rows"] for report in reports for entry in report.skipped)
    assert sum(report.rows for report in reports) + skipped == len(read_measured(path, ()))


def test_decode_rows_count_their_cache_and_chunks_what_came_before():
    rows = cache_rows(DATA / "measured" / "llmservingsim_attention_tpu_v6e.csv")
    assert (rows.past_tokens[rows.decode] == 0).all()
    assert np.ptp(rows.past_tokens[~rows.decode]) > 0


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ("H100,Llama-3.1-8B,1,router,7,0,100,x", "line 2: op 'router' is not in layer_operators.csv"),
        ("H100,GPT-9,1,q_proj,7,0,100,x", "network 'GPT-9' is not in layer_networks.csv"),
        ("H100,Llama-3.1-8B,1,q_proj,0,0,100,x", "line 2: tokens must be a positive number, got '0'"),
        ("H900,Llama-3.1-8B,1,q_proj,7,0,100,x", "line 2: device 'H900' is no known chip"),
    ],
    ids=["op", "model", "tokens", "device"],
)
def test_a_bad_row_is_refused_by_line(tmp_path, row, match):
    with pytest.raises(TableError, match=match):
        layer_rows(table(tmp_path, row))
