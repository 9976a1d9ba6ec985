"""Measured attention, elementwise, collective and expert tables: errors, rows kept, bad input."""

import dataclasses
import re

import numpy as np
import pytest

from models.fidelity import attention, collective, elementwise, fit_elementwise, moe
from models.fidelity.fitting import Parameter, Sample, constants_without, fit_constants, merged_constants, subsample
from models.fidelity.report import TableError
from models.fidelity.rows import read_measured
from models.tables import DATA, read_rows

MEASURED = DATA / "measured"
TABLES = attention.TABLES | elementwise.TABLES | collective.TABLES | moe.TABLES
FILES = {path.name: reader for glob, reader in TABLES.items() for path in MEASURED.glob(glob)}


def weighted(reports, field, group):
    chosen = [r for r in reports if r.group == group]
    return sum(getattr(r, field) * r.rows for r in chosen) / sum(r.rows for r in chosen)


@pytest.mark.parametrize("name", FILES)
def test_every_row_is_reported_or_counted_out_of_scope(name):
    reports = list(FILES[name](MEASURED / name))
    skipped = sum(skip["rows"] for r in reports for skip in r.skipped)
    assert sum(r.rows + r.out_of_scope for r in reports) + skipped == len(read_rows(MEASURED / name))


@pytest.mark.parametrize(
    ("table", "group", "fitted", "left_out"),
    [
        ("aic_attention_prefill.csv", "large", 0.12, 0.14),
        ("aic_attention_decode.csv", "decode", 0.15, 0.22),
        ("vidur_elementwise.csv", "input_layernorm", 0.15, 0.18),
        ("vidur_elementwise.csv", "attn_rope", 0.15, 0.18),
        ("vidur_elementwise.csv", "mlp_act", 0.15, 0.18),
        ("vidur_elementwise.csv", "add", 0.15, 0.18),
        ("vidur_elementwise.csv", "emb", 0.15, 0.18),
        ("aic_collectives.csv", "nccl", 0.10, 0.15),
        ("aic_moe.csv", "tuned", 0.15, 0.25),
    ],
)  # fmt: skip
def test_errors_stay_within_their_limits_and_far_below_the_roofline(table, group, fitted, left_out):
    reports = list(FILES[table](MEASURED / table))
    assert weighted(reports, "mape", group) <= fitted
    assert weighted(reports, "leave_one_device_out_mape", group) <= left_out
    assert weighted(reports, "roofline_mape", group) > weighted(reports, "mape", group) * 1.5


def test_prefill_and_decode_of_each_device_stay_within_the_limit_where_all_are_fitted():
    for table, group, limit in (
        ("aic_attention_prefill.csv", "large", 0.12),
        ("aic_attention_decode.csv", "decode", 0.15),
    ):
        reports = [r for r in FILES[table](MEASURED / table) if r.group == group]
        assert {r.device for r in reports} == {"a100_sxm", "b200_sxm", "h100_sxm", "h200_sxm"}
        assert max(r.mape for r in reports) <= limit


def test_untuned_series_are_kept_apart_by_measured_times_alone():
    rows = moe.aiconfigurator_rows(MEASURED / "aic_moe.csv")
    slow = moe.is_fallback(rows)
    values = merged_constants(moe.FAMILIES)
    ratio = rows.measured_s / moe.layer_time_s(rows, values)
    assert 0.01 < slow.mean() < 0.12
    assert np.median(ratio[slow]) > 3
    hastened = dataclasses.replace(rows, measured_s=np.where(slow, rows.measured_s / 6, rows.measured_s))
    assert moe.is_fallback(hastened).mean() < 0.02


def test_left_out_constants_never_come_from_the_device_itself():
    for families, chip in (
        (attention.FAMILIES, "b200_sxm"),
        (collective.FAMILIES, "h100_sxm"),
        (moe.FAMILIES, "a100_sxm"),
    ):
        everywhere, without = merged_constants(families), constants_without(families, chip)
        assert without is not None and dict(without) != dict(everywhere)
        assert constants_without(families, "tpu_v6e") is None


def test_a_fit_finds_the_constants_that_made_its_rows():
    size = np.linspace(1.0, 100.0, 40)
    parameters = (
        Parameter("start_s", 1.0, 0.1, 10.0, "s", ""), Parameter("rate", 1.0, 0.1, 100.0, "1/s", ""),
        Parameter("fixed", 3.0, 3.0, 3.0, "1", ""),
    )  # fmt: skip
    sample = Sample(lambda rows: lambda v: v["start_s"] + size[rows] / v["rate"], 2.0 + size / 7.0, np.full(40, "all"))
    values = fit_constants(parameters, sample, np.arange(40))
    assert values == pytest.approx({"start_s": 2.0, "rate": 7.0, "fixed": 3.0}, rel=1e-3)


def test_subsample_takes_all_of_small_groups_and_repeats_itself():
    groups = np.array(["a"] * 100 + ["b"] * 5)
    picked = subsample(groups, 10, seed=1)
    assert (groups[picked] == "b").sum() == 5 and len(picked) == 15
    assert (picked == subsample(groups, 10, seed=1)).all()


def test_stored_elementwise_constants_are_those_the_fit_declares():
    names = {p.name for p in fit_elementwise.VIDUR} | {p.name for p in fit_elementwise.HOST}
    assert names <= set(merged_constants(elementwise.FAMILIES))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("latency_us", "latency_ms", "line 2: column latency_us is missing, got 'latency_ms' in another unit"),
        (",0.5\n", ",-0.5\n", "line 3: latency_us must be a positive number, got '-0.5'"),
        (",0.5\n", ",fast\n", "line 3: latency_us must be a positive number, got 'fast'"),
        ("h100_sxm", "h10", "line 3: device 'h10' is no known chip"),
        (",mlp_act,", ",mlp_sum,", "line 3: op 'mlp_sum' must be one of"),
    ],
    ids=["unit", "negative", "text", "device", "operator"],
)  # fmt: skip
def test_a_bad_table_names_file_line_column_and_rule(tmp_path, old, new, message):
    text = "# made up\ndevice,op,rows,cols,dtype,source,latency_us\nh100_sxm,mlp_act,8,4096,fp16,vidur:x,0.5\n"
    assert old in text
    path = tmp_path / "vidur_elementwise.csv"
    path.write_text(text.replace(old, new))
    with pytest.raises(TableError, match=re.escape(f"vidur_elementwise.csv {message}")):
        elementwise.elementwise_reports(path)


def test_a_table_without_rows_is_refused(tmp_path):
    path = tmp_path / "aic_moe.csv"
    path.write_text("device,tokens\n")
    with pytest.raises(TableError, match="no rows below the header"):
        read_measured(path, ("device",))
