"""Published serving rows: which are predicted, how well, and what the closed forms do."""

import numpy as np
import pytest

from models.fidelity.mlperf import mlperf_reports
from models.fidelity.ranking import ranking_report
from models.fidelity.report import PER_CHIP, TableError
from models.fidelity.rows import designs_of_chips
from models.fidelity.serving import predicted_runs, serving_reports
from models.fidelity.serving_rows import COLUMNS, lowered, serving_rows
from models.fidelity.training_steps import training_reports
from models.fidelity.vllm_requests import request_reports
from models.operators.factor_tables import FactorTables
from models.precision.mix import recipe
from models.serving.engines import Engines, pass_time, sequences_held
from models.serving.offline import first_token, queued_run, static_batch
from models.serving.programs import StepLoad

MADE, FIRST = "output_tokens_per_s", "first_token_latency_ms"
PRODUCTION = ("production", "production")
STEP_HEAD = (
    "device,model,recompute,n_devices,tp,pp,dp,global_batch,microbatch,interleave,hidden,n_heads,n_layers,seq_tokens,"
    "step_ms\n"
)
ROWS = [  # TensorRT-LLM performance pages, as published
    # device, chips, model, weights, cache, in, out, batch, tp, pp, ep, adp, metric, value, tokens/s, kind, version
    ("h200_sxm", 1, "GPT-J-6B", "FP8", "FP8", 128, 128, 1024, 1, 1, 1, 1, MADE, 29168, 29168, "static batch", "v0.8.0"),
    ("a100_sxm", 4, "Llama-2-70B", "FP16", "FP16", 2048, 128, 32, 4, 1, 1, 1, MADE, 66, 264, "static batch", "v0.8.0"),
    ("h200_sxm", 8, "Llama-2-70B", "FP8", "FP8", 2048, 1, 1, 8, 1, 1, 1, FIRST, 78.8, "", "static batch", "v0.8.0"),
    ("h100_sxm", 4, "Llama-3.1-70B", "FP8", "", 2048, 128, "", 4, 1, "", 1, MADE, 1302.6, 1302.6, "in-flight", "v0.17"),
    ("h200_sxm", 1, "Mixtral-8x7B", "FP8", "", 1000, 1000, "", 1, 1, "", 1, MADE, 10371.36, 10371.36, "queue", "v0.17"),
    ("h100_sxm", 8, "Qwen3-235B-A22B", "FP8", "", 1000, 1000, "", 8, 1, "", 1, MADE, 14898, 14898, "queue", "v1.0"),
    ("h800_sxm", 32, "DeepSeek-V3", "FP8", "", *PRODUCTION, "", "", "", 32, 32, "x", 73700, "", "pool", "2025"),
]  # fmt: skip


def written(path, rows=ROWS):
    names = [name for name in COLUMNS if name not in ("framework",)]
    text = [",".join([*names, "framework"])]
    text += [",".join(map(str, (*row, "TensorRT-LLM"))) for row in rows]
    path.write_text("\n".join(text) + "\n")
    return path


def engines(n=1, degree=1, **changes):
    ones = np.ones(n)
    stated = {
        "network": lowered("llama-3.1-8b"), "mixes": (recipe("fp8_kv8"),),
        "designs": designs_of_chips(np.array(["h100_sxm"] * n)), "mix": np.zeros(n, dtype=np.int64),
        "tensor_parallel": np.full(n, degree), "pipeline_parallel": ones, "attention_data_parallel": ones,
        "decode_on_lanes": 0.0 * ones, "step_overhead_s": 0.002,
    }  # fmt: skip
    return Engines(**(stated | changes))


def test_rows_without_parallelism_or_lengths_are_skipped_by_name_and_all_rows_add_up(tmp_path):
    reports = [r for r in serving_reports(written(tmp_path / "serving_throughput.csv")) if r.group != PER_CHIP]
    reasons = {skip["reason"]: skip["rows"] for report in reports for skip in report.skipped}
    assert reasons == {
        "expert and attention parallelism are not printed": 1,
        "lengths of the requests are not printed": 1,
    }
    assert sum(report.rows for report in reports) + sum(reasons.values()) == len(ROWS)
    assert {report.group for report in reports} == {"static", "first_token", "in_flight", "moe"}


def test_published_rows_are_predicted_within_a_quarter_and_never_below_the_bound(tmp_path):
    rows = serving_rows(written(tmp_path / "serving_throughput.csv"))
    found = predicted_runs(rows)
    np.testing.assert_allclose(found.time_s, rows.measured_s, rtol=0.25)
    assert (found.bound_s < found.time_s).all()


def test_a_row_alone_is_predicted_as_in_company(tmp_path):
    together = predicted_runs(serving_rows(written(tmp_path / "a.csv"))).time_s
    alone = predicted_runs(serving_rows(written(tmp_path / "b.csv", ROWS[3:4]))).time_s
    np.testing.assert_allclose(alone, together[3], rtol=1e-12)


def test_a_static_batch_is_its_prompts_and_then_its_passes():
    one, tables = engines(), FactorTables()
    whole = static_batch(one, np.array([8.0]), np.array([100.0]), np.array([1.0]), tables)
    prompts = StepLoad(*np.array([800.0, 8.0, 0.0, 0.0, 8.0, 100.0])[:, None, None])
    np.testing.assert_allclose(whole.time_s, pass_time(one, prompts, tables).time_s[:, 0])
    first = first_token(one, np.array([100.0]), tables)
    assert first.time_s[0] < whole.time_s[0]


def test_longer_prompts_more_output_and_fewer_chips_never_take_less_time():
    tables, ones = FactorTables(), np.ones(3)
    runs = [
        queued_run(engines(3, degree), 1000.0 * ones, np.array([128.0, 128.0, 2048.0]), np.array([128.0, 256.0, 256.0]),
                   256.0 * ones, tables).time_s
        for degree in (2, 1)
    ]  # fmt: skip
    assert (np.diff(runs[0]) > 0).all()
    # small steps wait for the processes of a group instead
    assert runs[1][2] > runs[0][2]


def test_a_network_that_does_not_fit_takes_for_ever():
    large = engines(network=lowered("llama-3.1-405b"))
    assert sequences_held(large, np.array([1000.0]))[0] < 1
    run = queued_run(large, *(np.array([n]) for n in (10.0, 100.0, 100.0, 8.0)), FactorTables())
    assert run.time_s[0] == np.inf


def test_room_for_the_cache_makes_throughput_grow_faster_than_chips():
    # Llama-3-70B FP16, 1000/1000 on H100: 777, 3730, 5963 tokens/s at 2, 4 and 8 chips (performance page, v0.14)
    degrees = np.array([2, 4, 8])
    group = engines(
        3, network=lowered("llama-3.1-70b"), mixes=(recipe("bf16"),), tensor_parallel=degrees,
    )  # fmt: skip
    rate = 1.0 / queued_run(group, *(np.full(3, n) for n in (3000.0, 1000.0, 1000.0, 2048.0)), FactorTables()).time_s
    assert rate[1] / rate[0] > 3.0
    assert 1.0 < rate[2] / rate[1] < 2.0


def test_the_eighth_chip_without_links_of_its_own_brings_no_gain():
    # Llama-3-70B FP8, 2048/128 on L40S: 169 tokens/s at 4 chips, 160 at 8 (performance page, v0.14)
    degrees = np.array([4, 8])
    group = engines(
        2, network=lowered("llama-3.1-70b"), tensor_parallel=degrees, designs=designs_of_chips(np.array(["l40s"] * 2)),
        host_sharing_exponent=0.3,
    )  # fmt: skip
    rate = 1.0 / queued_run(group, *(np.full(2, n) for n in (3000.0, 2048.0, 128.0, 2048.0)), FactorTables()).time_s
    assert rate[1] / rate[0] == pytest.approx(160 / 169, abs=0.12)


def test_a_ranking_takes_the_best_plan_of_each_chip():
    work, chips = np.array(["a", "a", "a", "b"]), np.array(["x", "x", "y", "y"])
    report = ranking_report("t", "g", work, chips, np.array([1.0, 9.0, 2.0, 1.0]), np.array([9.0, 1.0, 2.0, 1.0]))
    assert (report.pairs, report.kendall_tau, report.concordance) == (1, 1.0, 1.0)


def test_mlperf_takes_the_median_of_the_submitters_and_leaves_other_scenarios_out(tmp_path):
    path = tmp_path / "mlperf.csv"
    head = "device,round,benchmark,scenario,n_devices,dtype_weights,unit,value_per_device"
    line = "H200-SXM-141GB,v4.1,llama2-70b-99,{},8,,tokens/s,{}"
    rows = [line.format("Offline", value) for value in (3000, 3990, 4100)] + [line.format("Server", 3000)]
    path.write_text("\n".join([head, *rows]) + "\n")
    reports = list(mlperf_reports(path))
    assert reports[0].rows == 3
    assert reports[0].mape < 0.2
    assert sum(report.out_of_scope for report in reports) == 1


def test_training_steps_of_published_clusters(tmp_path):
    # arXiv 2205.05198 table 5
    path = tmp_path / "megatron_training_step.csv"
    path.write_text(STEP_HEAD + "A100_80GB,megatron-22B,full,8,8,1,1,4,4,1,6144,64,48,2048,1420\n")
    assert next(iter(training_reports(path))).mape < 0.1


def test_an_unknown_kind_of_recomputation_is_named(tmp_path):
    path = tmp_path / "megatron_training_step.csv"
    path.write_text(STEP_HEAD + "A100_80GB,megatron-22B,some,8,8,1,1,4,4,1,6144,64,48,2048,1420\n")
    with pytest.raises(TableError, match="line 2: recompute must be one of full, seqsel, none, got 'some'"):
        list(training_reports(path))


def test_a_missing_column_of_serving_rows_is_named(tmp_path):
    path = tmp_path / "serving_throughput.csv"
    path.write_text("device,model\nL4,GPT-J-6B\n")
    with pytest.raises(TableError, match="column n_devices is missing"):
        serving_rows(path)


def test_requests_of_a_run_are_replayed_and_settings_must_agree(tmp_path):
    path = tmp_path / "llmservingsim_vllm_requests.csv"
    settings, times = "device,model,tp,max_num_seqs,max_num_batched_tokens", "ttft_ms,e2e_ms,tpot_ms"
    head = f"{settings},arrival_ms,input_tokens,output_tokens,{times}"
    line = "RTXPRO6000,Llama-3.1-8B,1,{},2048,{},1000,100,80,1500,14"
    path.write_text("\n".join([head, *(line.format(128, 1000 * i) for i in range(4))]) + "\n")
    report = next(iter(request_reports(path, "ttft")))
    assert (report.rows, report.quantity) == (4, "ttft")
    assert 0.3 < report.bias + 1.0 < 3.0
    path.write_text("\n".join([head, line.format(128, 0), line.format(256, 1000)]) + "\n")
    with pytest.raises(TableError, match="max_num_seqs must be the same in all rows of a run, got 128, 256"):
        list(request_reports(path, "ttft"))
