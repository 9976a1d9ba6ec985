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
    Return the ranking of chips: pairs of rows of equal work on different chips, ordered alike or not.

    Parameters
    ----------
    table, group : str
        Where the rows are from.
    work, chip_id : arrays of shape (n_rows,)
        Rows of equal work are compared where their chips differ.
    predicted, measured : arrays of shape (n_rows,)
        In any one unit, for each chip.

    Returns
    -------
    GroupReport
        Kendall's tau over those pairs (concordant less discordant over all), and the share that is concordant.
    """
    first, second = np.triu_indices(len(work), 1)
    compared = (work[first] == work[second]) & (chip_id[first] != chip_id[second])
    first, second = first[compared], second[compared]
    order = np.sign(measured[first] - measured[second]) * np.sign(predicted[first] - predicted[second])
    counted = order != 0
    n = int(counted.sum())
    return GroupReport(
        table=table, group=PER_CHIP, device="all", dtype=group, quantity=quantity, constants="global",
        rows=int(np.unique(np.concatenate([first, second])).size), pairs=n,
        concordance=float((order[counted] > 0).mean()) if n else None,
        kendall_tau=float(order[counted].mean()) if n else None,
        note="pairs of rows of equal network, lengths and version on different chips; formats and degrees may differ",
    )  # fmt: skip
