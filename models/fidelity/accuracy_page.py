"""
Writes the tables of the accuracy page and of the README, each between its two marker comments.

`python -m models.fidelity.accuracy_page FILE...` rewrites the blocks of the files from the shipped tables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from models.fidelity import FAMILIES
from models.fidelity.interval_classes import interval_class
from models.fidelity.report import PER_CHIP, GroupReport
from models.fidelity.targets import ErrorFigure, TargetLine, target_lines
from models.fidelity.validate import Validation, validate
from models.operators.intervals import operator_spread

PAGES = ("README.md", "docs/accuracy.md")
BLOCK = re.compile(r"(<!-- (accuracy[a-z:-]*):begin -->\n).*?(<!-- \2:end -->)", re.DOTALL)


def blocks(validation: Validation) -> dict[str, str]:
    """Return the Markdown of every block by its name: summary, promises, one table per family, chips."""
    reports = [each.report for each in validation.reports]
    lines = target_lines(reports)
    families = {
        f"accuracy:{family}": _family_table(
            each.report for each in validation.reports if each.family == family and each.report.group != PER_CHIP
        )
        for family in FAMILIES
    }
    return {
        "accuracy": _summary_table(lines),
        "accuracy:targets": _target_table(lines),
        "accuracy:intervals": _interval_table(reports),
        "accuracy:chips": _chip_table(reports),
        "accuracy:skipped": _skipped_table(reports),
        **families,
    }


def rewritten(text: str, tables: Mapping[str, str]) -> str:
    """
    Return a page with the content of each of its blocks replaced.

    Raises
    ------
    LookupError
        If the page has a block that is not known.
    """
    for _, name, _ in BLOCK.findall(text):
        if name not in tables:
            raise LookupError(f"unknown block '{name}', known: {', '.join(tables)}")
    return BLOCK.sub(lambda found: f"{found[1]}{tables[found[2]]}{found[3]}", text)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], n_names: int) -> str:
    """A Markdown table whose first `n_names` columns are text and the others numbers."""
    rule = ["---"] * n_names + ["--:"] * (len(headings) - n_names)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (headings, rule, *rows))


def _percent(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{100 * value:.{digits}f}"


def _figure(figure: ErrorFigure | None) -> str:
    return "" if figure is None else _percent(figure.mean)


def _with_worst(figure: ErrorFigure | None) -> str:
    if figure is None:
        return ""
    worst = f" ({_percent(figure.worst)} {figure.worst_device})"
    return _percent(figure.mean) + (worst if figure.worst > figure.mean else "")


def _limits(line: TargetLine) -> str:
    limits = (line.fitted_limit, line.left_out_limit, line.calibrated_limit)
    return " / ".join("-" if limit is None else f"{100 * limit:g}" for limit in limits)


def _summary_table(lines: Sequence[TargetLine]) -> str:
    headings = ("mean error in %", "rows", "all devices fitted", "device left out", "calibrated", "roofline")
    return _table(
        headings,
        (
            (
                line.label, str(line.rows), _figure(line.fitted), _figure(line.left_out), _figure(line.calibrated),
                _figure(line.roofline),
            )
            for line in lines
        ),
        1,
    )  # fmt: skip


def _target_table(lines: Sequence[TargetLine]) -> str:
    headings = (
        "what", "rows", "fitted (worst device)", "left out (worst device)", "calibrated (worst device)", "roofline",
        "target fitted / left out / calibrated", "verdict", "simpler form",
    )  # fmt: skip
    return _table(
        headings,
        (
            (
                line.label, str(line.rows), _with_worst(line.fitted), _with_worst(line.left_out),
                _with_worst(line.calibrated), _figure(line.roofline), _limits(line), line.verdict, line.prototype,
            )
            for line in lines
        ),
        1,
    )  # fmt: skip


COLUMNS: Mapping[str, Callable[[GroupReport], str]] = {
    "fitted": lambda report: _percent(report.mape),
    "calibrated": lambda report: _percent(report.calibrated_mape),
    "left out": lambda report: _percent(report.leave_one_device_out_mape),
    "roofline": lambda report: _percent(report.roofline_mape),
    "median": lambda report: _percent(report.median_ape),
    "bias": lambda report: _percent(report.bias),
    "tau": lambda report: "" if report.kendall_tau is None else f"{report.kendall_tau:.2f}",
    "pairs in order": lambda report: _percent(report.concordance),
    "inside 90 %": lambda report: _percent(report.interval_coverage, 0),
    "factor": lambda report: "" if report.interval_width is None else f"{1 + report.interval_width:.2f}",
}
"""Heading -> text of a group; a column that no group fills is left out."""


def _family_table(reports: Iterable[GroupReport]) -> str:
    groups = list(reports)
    columns = {heading: text for heading, text in COLUMNS.items() if any(text(report) for report in groups)}
    headings = ("table", "group", "device", "format", "rows", *columns)
    return _table(
        headings,
        (
            (
                report.table, report.group, report.device, report.dtype, str(report.rows),
                *(text(report) for text in columns.values()),
            )
            for report in groups
        ),
        4,
    )  # fmt: skip


def _interval_table(reports: Sequence[GroupReport]) -> str:
    """Coverage and width of the stated 90 % interval on devices left out, by class of operators."""
    by_class: dict[str, list[GroupReport]] = {}
    for report in reports:
        found = interval_class(report.table, report.group, report.device, report.dtype)
        if found is not None and found[1] and report.interval_coverage is not None:
            by_class.setdefault(found[0], []).append(report)
    headings = ("class of operators", "rows", "dies", "inside 90 %", "median factor, die left out", "factor, all dies")
    return _table(headings, (_interval_row(name, by_class[name]) for name in sorted(by_class)), 1)


def _interval_row(name: str, reports: Sequence[GroupReport]) -> tuple[str, ...]:
    rows = np.array([report.rows for report in reports])
    inside = np.array([report.interval_coverage for report in reports], dtype=np.float64)
    width = np.repeat([1.0 + (report.interval_width or 0.0) for report in reports], rows)
    spread = operator_spread(name)
    return (
        name if spread.calibrated else f"{name} (uncalibrated)", str(rows.sum()), str(spread.n_dies),
        _percent(float(rows @ inside / rows.sum()), 0), f"{np.median(width):.2f}", f"{np.exp(spread.half_width):.2f}",
    )  # fmt: skip


def _chip_table(reports: Sequence[GroupReport]) -> str:
    """Area and power of each chip: given, predicted, error fitted and left out."""
    chips = [report for report in reports if report.group == PER_CHIP and report.measured is not None]
    headings = ("chip", "quantity", "given", "predicted", "left out", "error", "error left out", "inside 90 %")
    return _table(
        headings,
        (
            (
                report.device, report.quantity, _whole(report.measured), _whole(report.predicted),
                _whole(report.leave_one_device_out_predicted), _percent(report.mape),
                _percent(report.leave_one_device_out_mape), "yes" if report.interval_coverage else "no",
            )
            for report in chips
        ),
        2,
    )  # fmt: skip


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _skipped_table(reports: Sequence[GroupReport]) -> str:
    rows: dict[tuple[str, str], int] = {}
    for report in reports:
        entries = [(skip["reason"], skip["rows"]) for skip in report.skipped]
        if report.out_of_scope:
            entries.append(("out of scope", report.out_of_scope))
        for reason, count in entries:
            rows[report.table, reason] = rows.get((report.table, reason), 0) + count
    return _table(("table", "why", "rows"), ((*key, str(count)) for key, count in rows.items()), 2)


def rewrite(pages: Iterable[Path], tables: Mapping[str, str]) -> None:
    """Replace the content of the blocks of files."""
    for page in pages:
        page.write_text(rewritten(page.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    rewrite(map(Path, sys.argv[1:] or PAGES), blocks(validate()))
