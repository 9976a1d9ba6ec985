"""Fields of the history: what a filter, an order or a facet may name, from the registries of metrics and parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from explorer.objectives import COMBINED, REGRET
from explorer.quantities import parse_quantity
from explorer.records import CODES
from models.checks import require_known
from models.hardware.design import DESIGN_FIELDS
from models.metrics import METRICS
from service.db.tables import NUMBER_COLUMNS, TEXT_COLUMNS, Study, design_records, designs

Column = sa.ColumnElement[Any]

STUDY_FIELDS = ("study_name", "model_version", "workload_hash")
"""Texts of the study that looked at a design."""

_PLAIN_UNITS = ("", "1", "code", "flag", "nm", "B/cycle")
_EXAMPLES = {"s": "50 ms", "mm2": "600 mm2", "W": "500 W", "B": "192 MiB", "B/s": "3.35 TB/s", "Hz": "1.6 GHz",
             "USD": "4000 USD", "J": "2 J", "1/s": "20 / s"}  # fmt: skip


class FieldError(ValueError):
    """A value that the field does not hold."""


@dataclass(frozen=True)
class Field:
    """One field: what it holds (`number`, `text` or `truth`), its unit, and the better direction of a metric."""

    name: str
    kind: str
    unit: str
    direction: str | None

    @property
    def column(self) -> Column:
        """SQL of the value; a registered name without a column is read from the record."""
        if self.name in designs.c:
            return designs.c[self.name]
        if self.name in STUDY_FIELDS:
            name = "name" if self.name == "study_name" else self.name
            query = sa.select(getattr(Study, name)).where(Study.id == designs.c.study_id)
            return query.correlate(designs).scalar_subquery()
        return self._of_record("metrics" if self.name in METRICS else "design")

    def _of_record(self, part: str) -> Column:
        value = design_records.c.rest[(part, self.name)]
        read: Column = value.as_float() if self.kind == "number" else value.as_string()
        query = sa.select(read).where(
            design_records.c.study_id == designs.c.study_id, design_records.c.number == designs.c.number
        )
        return query.correlate(designs).scalar_subquery()

    def value(self, written: Any) -> Any:
        """
        Return a written value as the field holds it, quantities in its unit.

        Raises
        ------
        FieldError
            If it is of another kind or dimension.
        """
        if self.kind == "number" and isinstance(written, str):
            return self._quantity(written)
        kind = {"number": float, "text": str, "truth": bool}[self.kind]
        if type(written) is not kind:
            raise FieldError(f"{self.name} is compared with {written!r} but holds {_KINDS[self.kind]}")
        return written

    def _quantity(self, written: str) -> float:
        if self.unit in _PLAIN_UNITS:
            raise FieldError(f"{self.name} is compared with {written!r} but holds a number without a unit")
        try:
            example = _EXAMPLES.get(self.unit, f"2 {self.unit}")
            return parse_quantity(written, re.sub(r"mm2", "mm**2", self.unit), example)
        except ValueError as error:
            raise FieldError(f"{self.name} {error}") from error


_KINDS = {"number": "a number", "text": "text in double quotes", "truth": "true or false"}


def _fields() -> dict[str, Field]:
    fields = {
        "study_id": Field("study_id", "text", "", None),
        "number": Field("number", "number", "", None),
        "feasible": Field("feasible", "truth", "", None),
    }
    for name in STUDY_FIELDS:
        fields[name] = Field(name, "text", "", None)
    for name, declared in DESIGN_FIELDS.items():
        kind = "text" if name in CODES else "number"
        fields[name] = Field(name, kind, str(declared.metadata.get("unit", "")), None)
    for name, metric in METRICS.items():
        fields[name] = Field(name, "number", metric.unit, metric.direction)
    fields[COMBINED] = Field(COMBINED, "number", "1", "maximize")
    fields[REGRET] = Field(REGRET, "number", "1", "minimize")
    for name in (*NUMBER_COLUMNS, *TEXT_COLUMNS):
        fields.setdefault(name, Field(name, "text" if name in TEXT_COLUMNS else "number", "1", None))
    return fields


FIELDS = _fields()
"""Name -> field."""


def field(name: str) -> Field:
    """Return the field of a name, or raise UnknownNameError with a suggestion."""
    return FIELDS[require_known("field", name, FIELDS)]


def number_field(name: str) -> Field:
    """Return a field that holds numbers."""
    found = field(name)
    if found.kind != "number":
        raise FieldError(f"{name} holds {_KINDS[found.kind]}, not a number")
    return found


def metric_field(name: str) -> Field:
    """Return a field with a better direction."""
    metrics = [name for name, known in FIELDS.items() if known.direction is not None]
    return FIELDS[require_known("metric", name, metrics)]
