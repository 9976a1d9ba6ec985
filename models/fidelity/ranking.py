"""Whether predictions order chips as measurements do where the work is the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from models.checks import FloatArray
from models.fidelity.report import PER_CHIP, GroupReport


def ranking_report(
    table: str,
    group: str,
    work: NDArray[np.str_],
    chip_id: NDArray[np.str_],
    predicted: FloatArray,
    measured: FloatArray,
    *,
    quantity: str = "chip_seconds_per_request",
) -> GroupReport:
    """
    Return the ranking of chips: pairs of chips at equal work, each at the best of its plans, ordered alike or not.

    Parameters
    ----------
    table, group : str
        Where the rows are from.
    work, chip_id : arrays of shape (n_rows,)
        Rows of equal work are compared where their chips differ.
    predicted, measured : arrays of shape (n_rows,)
        In any one unit, for each chip; the smaller the better.

    Returns
    -------
    GroupReport
        Kendall's tau over those pairs (concordant less discordant over all), and the share that is concordant.
    """
    keys = np.char.add(np.char.add(work, "|"), chip_id)
    _, first_row, inverse = np.unique(keys, return_index=True, return_inverse=True)
    best = [np.full(len(first_row), np.inf), np.full(len(first_row), np.inf)]
    for values, least in zip((predicted, measured), best, strict=True):
        np.minimum.at(least, inverse.reshape(-1), values)
    of_work, of_chip = work[first_row], chip_id[first_row]
    first, second = np.triu_indices(len(first_row), 1)
    compared = (of_work[first] == of_work[second]) & (of_chip[first] != of_chip[second])
    first, second = first[compared], second[compared]
    order = np.sign(best[0][first] - best[0][second]) * np.sign(best[1][first] - best[1][second])
    order = order[order != 0]
    return GroupReport(
        table=table, group=PER_CHIP, device="all", dtype=group, quantity=quantity, constants="global",
        rows=int(np.unique(np.concatenate([first, second])).size), pairs=len(order),
        concordance=float((order > 0).mean()) if len(order) else None,
        kendall_tau=float(order.mean()) if len(order) else None,
        note="pairs of chips at equal network, lengths and version, each at the best of the plans that the table holds",
    )  # fmt: skip
