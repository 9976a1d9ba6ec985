"""Which class of operators a group of measured rows shows, and the 90 % interval that it states."""

from __future__ import annotations

import fnmatch
import functools
import math

from models.checks import FloatArray
from models.hardware.catalog import die_of_chip
from models.operators.intervals import operator_spread
from models.tables import DATA, read_rows


@functools.cache
def _rules() -> list[dict[str, str]]:
    return read_rows(DATA / "interval_classes.csv")


def interval_class(table: str, group: str, device: str, dtype: str) -> tuple[str, bool] | None:
    """Return the class of a group of rows, and whether its spread is learned from them; None where none is stated."""
    stated = {"table": table, "group": group, "device": device, "dtype": dtype}
    for row in _rules():
        if all(fnmatch.fnmatch(text, row[name]) for name, text in stated.items()):
            return row["class"], row["uses"] == "1"
    return None


def stated_interval(
    table: str, group: str, dtype: str, chip_id: str, left_out: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """
    Return the 90 % interval of each row of a group, learned from the residuals of other dies.

    Parameters
    ----------
    table, group, dtype, chip_id : str
        As a report names them.
    left_out : array of shape (n_rows,)
        Prediction by constants that never saw the chip, in any unit.

    Returns
    -------
    pair of arrays of shape (n_rows,), or None where no class is stated
        Lower and upper end, in that unit.
    """
    found = interval_class(table, group, chip_id, dtype)
    if found is None:
        return None
    factor = math.exp(operator_spread(found[0], die_of_chip(chip_id)).half_width)
    return left_out / factor, left_out * factor
