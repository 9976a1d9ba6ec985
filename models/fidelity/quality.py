"""Published quality of low-precision recipes: does the predicted KL order them as the tables do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from models.checks import BoolArray, FloatArray
from models.fidelity.report import GroupReport, TableError, TableReader
from models.fidelity.rows import MeasuredRows, read_measured, table_name
from models.precision.profile import default_profile
from models.precision.scheme import SchemeRow, scheme_kl_nats
from models.tables import DATA, read_rows

_REQUIRED = (
    "model", "scheme", "module_scope", "weight_bits", "activation_bits", "kv_bits", "block", "metric", "baseline",
    "value", "source",
)  # fmt: skip


@dataclass(frozen=True)
class PublishedRow:
    """One published number with the scheme it belongs to."""

    model: str
    metric: str
    scheme: SchemeRow
    baseline: float | None
    value: float


@dataclass(frozen=True)
class Metric:
    """How values of a metric are compared; one row of `quality_metrics.csv`."""

    low_is_better: bool
    relative: bool
    noise: float
    noise_fraction: float

    def degradation(self, row: PublishedRow) -> float:
        """How much worse than 16 bit, comparable within one model and metric."""
        if self.relative:
            worse = np.log(row.value) - (np.log(row.baseline) if row.baseline else 0.0)
        else:
            worse = row.value - (row.baseline or 0.0)
        return float(worse if self.low_is_better else -worse)


def quality_reports(path: Path) -> Iterator[GroupReport]:
    """
    Report each model and metric of a table of published quality.

    `spearman` ranks predicted KL against the published degradation; `concordance` is the share of pairs in the same
    order, over all pairs whose degradations differ by more than the noise of the metric. A group without such a
    pair says so in its note.
    """
    groups: dict[tuple[str, str], list[PublishedRow]] = {}
    for row in read_published(path):
        groups.setdefault((row.model, row.metric), []).append(row)
    for (model, metric), rows in groups.items():
        yield _group_report(table_name(path.name), model, metric, rows)


def read_published(path: Path) -> list[PublishedRow]:
    """
    Return the rows of a table with the columns of `published_quality.csv`.

    Raises
    ------
    TableError
        If a column is missing or a number cannot be read; the message names the line.
    """
    rows = read_measured(path, _REQUIRED)
    values, baseline = _any_number(rows, "value"), _any_number(rows, "baseline", or_empty=True)
    _require_positive_ratios(rows, values, baseline)
    weights, activations, cache = (
        _any_number(rows, f"{name}_bits", or_empty=True) for name in ("weight", "activation", "kv")
    )
    model, metric, scheme, scope, block = (
        rows.text(column).tolist() for column in ("model", "metric", "scheme", "module_scope", "block")
    )
    return [
        PublishedRow(
            model[i], metric[i],
            SchemeRow(
                scheme[i], scope[i], _given(weights[i]), _given(activations[i]), _given(cache[i]), block[i].strip()
            ),
            _given(baseline[i]), float(values[i]),
        )
        for i in range(len(rows))
    ]  # fmt: skip


def concordance(predicted: FloatArray, degradation: FloatArray, metric: Metric) -> tuple[float | None, int]:
    """
    Return the share of pairs that are ordered alike and the number of pairs that count.

    Parameters
    ----------
    predicted, degradation : arrays of shape (n_rows,)
        In any units; larger is worse.
    metric : Metric
        Its noise decides which pairs count.
    """
    counts = _distinct_pairs(degradation, metric)
    alike = (predicted[:, None] - predicted[None, :]) * (degradation[:, None] - degradation[None, :]) > 0
    pairs = int(counts.sum())
    return (float(alike[counts].mean()), pairs) if pairs else (None, 0)


def metric_of(name: str, metrics: Sequence[Mapping[str, str]] | None = None) -> Metric | None:
    """How the metric `name` is compared, None where no prefix of it is known."""
    for row in metrics if metrics is not None else read_rows(DATA / "precision" / "quality_metrics.csv"):
        if name.startswith(row["prefix"]):
            noise, fraction = float(row["noise"]), float(row["noise_fraction"])
            return Metric(row["better"] == "low", row["relative"] == "1", noise, fraction)
    return None


def _group_report(table: str, model: str, name: str, rows: Sequence[PublishedRow]) -> GroupReport:
    metric = metric_of(name)
    constants = f"amplification profile {default_profile().name}"
    if metric is None:
        skipped = [{"reason": f"metric {name} has no row in quality_metrics.csv", "rows": len(rows)}]
        return GroupReport(table, f"{model} {name}", model, "", name, constants, 0, skipped=skipped)
    predicted = np.array([scheme_kl_nats(row.scheme) for row in rows])
    degradation = np.array([metric.degradation(row) for row in rows])
    share, pairs = concordance(predicted, degradation, metric)
    ranked = len(rows) > 2 and np.ptp(predicted) > 0 and np.ptp(degradation) > 0
    return GroupReport(
        table=table,
        group=f"{model} {name}",
        device=model,
        dtype="",
        quantity=name,
        constants=constants,
        rows=len(rows),
        kendall_tau=float(stats.kendalltau(predicted, degradation).statistic) if ranked else None,
        spearman=float(stats.spearmanr(predicted, degradation).statistic) if ranked else None,
        concordance=share,
        pairs=pairs,
        note=f"{pairs} pairs differ by more than noise",
    )


def _distinct_pairs(degradation: FloatArray, metric: Metric) -> BoolArray:
    """Upper triangle of the pairs whose difference is above the noise, shape (n_rows, n_rows)."""
    first, second = degradation[:, None], degradation[None, :]
    noise = metric.noise + metric.noise_fraction * np.maximum(np.abs(first), np.abs(second))
    distinct: BoolArray = np.triu(np.abs(first - second) > noise, 1)
    return distinct


def _any_number(rows: MeasuredRows, column: str, *, or_empty: bool = False) -> FloatArray:
    """One column of finite numbers of any sign, NaN where it is empty and may be, shape (n_rows,)."""
    texts = np.char.strip(rows.text(column))
    values = np.full(len(texts), np.nan)
    for i, text in enumerate(texts.tolist()):
        if not text and or_empty:
            continue
        with contextlib.suppress(ValueError):
            values[i] = float(text)
        if not np.isfinite(values[i]):
            raise TableError(f"{column} must be a finite number, got '{text}'", rows.file, int(rows.lines[i]), column)
    return values


def _require_positive_ratios(rows: MeasuredRows, values: FloatArray, baseline: FloatArray) -> None:
    """Metrics compared as ratios have values above zero."""
    metrics = {str(name): metric_of(str(name)) for name in np.unique(rows.text("metric"))}
    relative = np.array([metric is not None and metric.relative for metric in map(metrics.get, rows.text("metric"))])
    for column, numbers in (("value", values), ("baseline", baseline)):
        bad = np.flatnonzero(relative & (numbers <= 0))
        if bad.size:
            rule = f"{column} of {rows.text('metric')[bad[0]]} must be positive, got {numbers[bad[0]]:g}"
            raise TableError(rule, rows.file, int(rows.lines[bad[0]]), column)


def _given(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


TABLES: dict[str, TableReader] = {"published_quality*.csv": quality_reports}
