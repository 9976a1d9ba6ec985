"""Order of published low-precision recipes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models.fidelity.quality import Metric, concordance, metric_of, quality_reports, read_published
from models.fidelity.report import TableError
from models.tables import DATA

TABLE = DATA / "precision" / "published_quality.csv"


def test_recipes_are_ordered_as_published_in_85_percent_of_pairs_above_noise() -> None:
    reports = [report for report in quality_reports(TABLE) if report.concordance is not None]
    pairs = np.array([int(report.note.split()[0]) for report in reports])
    shares = np.array([report.concordance for report in reports])
    assert pairs.sum() > 500
    assert np.average(shares, weights=pairs) >= 0.95
    assert min(share for share, n in zip(shares, pairs, strict=True) if n >= 8) >= 0.85


def test_ranks_agree_in_every_group_of_five_or_more_of_one_source() -> None:
    # LLaMA-7B at context 2048 merges two projects, one of them an early GPTQ that is worse than plain rounding.
    reports = [r for r in quality_reports(TABLE) if r.rows >= 5 and r.group != "LLaMA-7B ppl_wikitext2_ctx2048"]
    assert len(reports) >= 8
    assert min(r.spearman or 0.0 for r in reports) >= 0.8


def test_every_row_is_in_one_group() -> None:
    assert sum(report.rows for report in quality_reports(TABLE)) == len(read_published(TABLE)) == 171


def test_concordance_counts_only_pairs_above_noise() -> None:
    metric = Metric(low_is_better=True, relative=False, noise=0.5, noise_fraction=0.0)
    share, pairs = concordance(np.array([1.0, 3.0, 2.0]), np.array([0.0, 1.0, 1.2]), metric)
    assert (share, pairs) == (1.0, 2)
    assert concordance(np.array([1.0, 2.0]), np.array([0.0, 0.1]), metric) == (None, 0)


@pytest.mark.parametrize(
    ("name", "low"), [("ppl_wikitext2", True), ("kld_vs_fp16", True), ("acc_gsm8k", False), ("mmlu_pct", False)]
)
def test_direction_of_known_metrics(name: str, low: bool) -> None:
    metric = metric_of(name)
    assert metric is not None
    assert metric.low_is_better is low


def write(path: Path, line: str) -> Path:
    header = "model,scheme,module_scope,weight_bits,activation_bits,kv_bits,block,metric,baseline,value,source"
    path.write_text(f"# provenance\n{header}\n{line}\n")
    return path


def test_unknown_metric_is_reported_as_skipped(tmp_path: Path) -> None:
    (report,) = quality_reports(write(tmp_path / "t.csv", "m,Q8_0,w,8,16,16,32,bleu,1,2,s"))
    assert report.rows == 0
    assert "no row in quality_metrics.csv" in report.skipped[0]["reason"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("m,Q8_0,w,eight,16,16,32,ppl,1,2,s", "t.csv line 3: weight_bits must be a finite number, got 'eight'"),
        ("m,Q8_0,w,8,16,16,32,ppl,1,,s", "t.csv line 3: value must be a finite number, got ''"),
        ("m,Q8_0,w,8,16,16,32,ppl,1,nan,s", "t.csv line 3: value must be a finite number, got 'nan'"),
    ],
)
def test_bad_number_names_line_and_column(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(TableError, match=message):
        list(quality_reports(write(tmp_path / "t.csv", line)))


def test_missing_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("model,scheme\na,b\n")
    with pytest.raises(TableError, match=r"t\.csv line 1: column module_scope is missing"):
        list(quality_reports(tmp_path / "t.csv"))
