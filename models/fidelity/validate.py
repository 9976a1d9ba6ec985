"""Runs every reader on the measured tables below a folder; a bad table is named and the others are still reported."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from models.fidelity import FAMILIES
from models.fidelity.report import GroupReport, TableError, TableReader
from models.tables import DATA

SHIPPED = (DATA / "chips.csv", DATA / "measured", DATA / "precision" / "published_quality.csv")
"""Tables of the package: the catalogue, samples of measured tables, published quality."""

REFUSED = (ValueError, LookupError, ArithmeticError, OSError)
"""What a reader or the model raises on input that it cannot use."""


@dataclass(frozen=True)
class TableProblem:
    """One rule that a file breaks, and where."""

    file: str
    line: int | None
    column: str
    rule: str


@dataclass(frozen=True)
class FileReport:
    """One group of one file, and the family of its reader."""

    file: str
    family: str
    report: GroupReport


@dataclass(frozen=True)
class Validation:
    """What the tables of a folder show: reports in a fixed order, problems, files that no reader knows."""

    reports: tuple[FileReport, ...]
    problems: tuple[TableProblem, ...]
    unrecognised: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Rows with a prediction."""
        return sum(each.report.rows for each in self.reports)

    def document(self, model_version: str) -> dict[str, Any]:
        """The validation as one JSON document."""
        return {
            "model_version": model_version,
            "tables": [each.report.as_json() | {"file": each.file, "family": each.family} for each in self.reports],
            "errors": [asdict(problem) for problem in self.problems],
            "unrecognised_files": list(self.unrecognised),
        }


def validate(places: Sequence[Path] = SHIPPED) -> Validation:
    """
    Return predicted against measured for every table that a reader knows by its file name.

    Parameters
    ----------
    places : sequence of Path
        Folders, searched to any depth, and single files; the shipped tables where left out.

    Raises
    ------
    FileNotFoundError
        If a place does not exist.
    """
    reports: list[FileReport] = []
    problems: list[TableProblem] = []
    unrecognised: list[str] = []
    for path, name in _files(places):
        readers = readers_of(path.name)
        if not readers:
            unrecognised.append(name)
        for family, reader in readers:
            found, broken = _read(path, name, reader)
            reports += [FileReport(name, family, report) for report in found]
            problems += [problem for problem in broken if problem not in problems]
    return Validation(tuple(reports), tuple(problems), tuple(unrecognised))


def readers_of(file_name: str) -> list[tuple[str, TableReader]]:
    """Return family and reader of every glob that fits a file name, its compressed form included."""
    plain = file_name.removesuffix(".gz")
    return [
        (family, reader)
        for family, tables in FAMILIES.items()
        for readers in tables
        for glob, reader in readers.items()
        if fnmatch.fnmatchcase(plain, glob)
    ]


def _files(places: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """CSV files of all places in sorted order, each with its name relative to the place."""
    for place in places:
        if not place.exists():
            raise FileNotFoundError(f"no such file or folder: {place}")
        if place.is_file():
            yield place, place.name
            continue
        for path in sorted(place.rglob("*")):
            if path.name.endswith((".csv", ".csv.gz")) and path.is_file():
                yield path, path.relative_to(place).as_posix()


def _read(path: Path, name: str, reader: TableReader) -> tuple[list[GroupReport], list[TableProblem]]:
    """Reports of one reader and the problems that it met."""
    try:
        reports = list(reader(path))
    except TableError as error:
        return [], [TableProblem(name, error.line, error.column, error.rule)]
    except REFUSED as error:
        return [], [TableProblem(name, None, "", f"the table cannot be predicted: {' '.join(str(error).split())}")]
    problems = [
        TableProblem(name, skip["line"], skip["column"], f"{skip['reason']} ({skip['rows']} rows)")
        for report in reports
        for skip in report.skipped
        if "line" in skip
    ]
    return reports, problems
