"""Grids of studies: every combination of some values of a study's fields, and the matrix of what came out."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from explorer.document import StudyError, read_document
from models.metrics import METRICS

AXES: Mapping[str, str] = {
    "area": "/budget/area",
    "tdp": "/budget/tdp",
    "unit_cost": "/budget/unit_cost",
    "memory_stacks": "/budget/memory_stacks",
    "node_nm": "/technology/node_nm",
    "n_chips": "/system/n_chips",
    "workload": "/workload",
    "network": "/workload/scenarios/0/network",
    "requests": "/workload/scenarios/0/requests",
    "ttft_p95": "/workload/scenarios/0/slo/ttft_p95",
    "tpot_p95": "/workload/scenarios/0/slo/tpot_p95",
    "quality": "/quality",
}
"""Usual axes by name -> the field of the study that they vary."""

LONGEST_LABEL = 60


class StrictDocument(BaseModel):
    """A document without unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AxisDocument(StrictDocument):
    """One field and the values it takes."""

    name: str = Field(min_length=1, max_length=60, description="a usual axis, or any name with a pointer")
    pointer: str | None = Field(None, pattern="^/", max_length=200, description="JSON pointer to a field of the study")
    values: list[Any] = Field(min_length=1, max_length=1000, description="values as a study writes them")
    labels: list[str] | None = Field(None, description="one short text for each value")

    @model_validator(mode="after")
    def _known_and_labelled(self) -> AxisDocument:
        if self.pointer is None and self.name not in AXES:
            raise ValueError(f"name must be one of {', '.join(AXES)}, or come with a pointer, got '{self.name}'")
        if self.labels is not None and len(self.labels) != len(self.values):
            raise ValueError(f"labels must be as many as values, got {len(self.labels)} and {len(self.values)}")
        return self

    @property
    def field(self) -> str:
        """The field that the axis varies."""
        return AXES[self.name] if self.pointer is None else self.pointer

    def label(self, index: int) -> str:
        """What a value is called."""
        if self.labels is not None:
            return self.labels[index]
        value = self.values[index]
        name = value.get("name") if isinstance(value, dict) else None
        return str(value if name is None else name)[:LONGEST_LABEL]


class SweepDocument(StrictDocument):
    """A study and the axes along which it is varied."""

    name: str = Field(min_length=1, max_length=200)
    study: dict[str, Any] = Field(description="a study document; the axes replace fields of it")
    axes: list[AxisDocument] = Field(min_length=1, max_length=6)

    @property
    def shape(self) -> tuple[int, ...]:
        """Values of each axis."""
        return tuple(len(axis.values) for axis in self.axes)


@dataclass(frozen=True)
class Cell:
    """One study of a grid, with its place on each axis."""

    position: int
    coordinates: tuple[int, ...]
    document: dict[str, Any]


def read_sweep(raw: Any, most_cells: int) -> SweepDocument:
    """
    Return the checked sweep.

    Raises
    ------
    StudyError
        With a pointer to what is at fault; a grid of too many cells is refused before any of them is made.
    """
    sweep: SweepDocument = read_document(raw, SweepDocument)
    n_cells = math.prod(sweep.shape)
    if n_cells > most_cells:
        detail = f"axes must make at most {most_cells} cells, got {' x '.join(map(str, sweep.shape))} = {n_cells}"
        raise StudyError([{"pointer": "/axes", "detail": detail}])
    names = [axis.name for axis in sweep.axes]
    fields = [axis.field for axis in sweep.axes]
    for what, given in (("names", names), ("fields", fields)):
        if len(set(given)) != len(given):
            raise StudyError([{"pointer": "/axes", "detail": f"axes must have different {what}, got {given}"}])
    return sweep


def cells(sweep: SweepDocument) -> Iterator[Cell]:
    """Yield the cells of a grid, the last axis fastest."""
    for position, coordinates in enumerate(itertools.product(*(range(size) for size in sweep.shape))):
        document = copy.deepcopy(sweep.study)
        for number, (axis, index) in enumerate(zip(sweep.axes, coordinates, strict=True)):
            _put(document, axis.field, axis.values[index], number)
        document["name"] = cell_name(sweep, coordinates)
        yield Cell(position, coordinates, document)


def cell_name(sweep: SweepDocument, coordinates: Sequence[int]) -> str:
    """Name of a cell's study: the sweep's, and where on each axis."""
    places = [f"{axis.name} {axis.label(index)}" for axis, index in zip(sweep.axes, coordinates, strict=True)]
    return f"{sweep.name}: {', '.join(places)}"[:200]


def pointing_to_axis(sweep: SweepDocument, cell: Cell, error: StudyError) -> StudyError:
    """The faults of a cell's study, at the axis that brought the value in, or at the study."""
    errors = []
    for each in error.errors:
        pointer = f"/study{each['pointer']}"
        for number, (axis, index) in enumerate(zip(sweep.axes, cell.coordinates, strict=True)):
            if f"{each['pointer']}/".startswith(f"{axis.field}/"):
                pointer = f"/axes/{number}/values/{index}{each['pointer'].removeprefix(axis.field)}"
        errors.append({"pointer": pointer, "detail": each["detail"]})
    return StudyError(errors)


def _put(document: dict[str, Any], pointer: str, value: Any, axis: int) -> None:
    """Replace the value at a pointer; mappings on the way are made where they are missing."""
    *parents, last = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    node: Any = document
    try:
        for step in parents:
            node = node.setdefault(step, {}) if isinstance(node, dict) else node[int(step)]
        if isinstance(node, list):
            node[int(last)] = value
        else:
            node[last] = value
    except (ValueError, IndexError, TypeError, KeyError):
        detail = f"the study has no field {pointer}"
        raise StudyError([{"pointer": f"/axes/{axis}/pointer", "detail": detail}]) from None


def axes_document(sweep: SweepDocument) -> list[dict[str, Any]]:
    """The axes with a label for each value."""
    return [
        {"name": axis.name, "pointer": axis.field, "labels": [axis.label(i) for i in range(len(axis.values))]}
        for axis in sweep.axes
    ]


def objective_metrics(sweep: SweepDocument) -> list[str]:
    """Metrics that the studies of a sweep optimise."""
    objectives = sweep.study.get("objectives")
    if not isinstance(objectives, list):
        return []
    return [str(each["metric"]) for each in objectives if isinstance(each, dict) and each.get("metric")]


def heat_map(
    sweep: SweepDocument,
    values: Mapping[tuple[int, ...], float | None],
    metric: str,
    x: str | None = None,
    y: str | None = None,
    at: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """
    Return a metric of the recommended designs over two axes.

    Parameters
    ----------
    values : mapping
        Coordinates of a cell -> the metric, None where nothing is feasible; cells that have not ended are missing.
    x, y : str, optional
        Names of axes; the last and the one before it where left out. A sweep of one axis has no `y`.
    at : mapping, optional
        Index on each other axis, 0 where left out.

    Returns
    -------
    dict
        `values[y][x]`, null where a cell has not ended or nothing in it is feasible, and which of both.
    """
    numbers = {axis.name: number for number, axis in enumerate(sweep.axes)}
    across = x or sweep.axes[-1].name
    down = y or next((axis.name for axis in reversed(sweep.axes) if axis.name != across), None)
    fixed = {axis.name: (at or {}).get(axis.name, 0) for axis in sweep.axes if axis.name not in (across, down)}
    places = {numbers[name]: index for name, index in fixed.items()}

    def coordinates(i: int, j: int) -> tuple[int, ...]:
        own = {numbers[across]: i} | ({} if down is None else {numbers[down]: j})
        return tuple({**places, **own}[k] for k in range(len(sweep.axes)))

    shape = sweep.shape
    rows = [[coordinates(i, j) for i in range(shape[numbers[across]])]
            for j in range(1 if down is None else shape[numbers[down]])]  # fmt: skip
    known = METRICS.get(metric)
    labels = {axis["name"]: axis["labels"] for axis in axes_document(sweep)}
    return {
        "metric": metric,
        "unit": "" if known is None else known.unit,
        "direction": None if known is None else known.direction,
        "x": {"name": across, "labels": labels[across]},
        "y": None if down is None else {"name": down, "labels": labels[down]},
        "at": fixed,
        "values": [[values.get(each) for each in row] for row in rows],
        "ended": [[each in values for each in row] for row in rows],
    }
