"""Tables of network layers (LLMServingSim): predicted times of each operator that a layer is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from models.fidelity.attention import attention_reports
from models.fidelity.elementwise import elementwise_row_reports
from models.fidelity.gemm import gemm_row_reports
from models.fidelity.grouped import with_skipped
from models.fidelity.layer_rows import cache_rows, layer_rows
from models.fidelity.report import GroupReport, TableReader


def layer_reports(path: Path) -> list[GroupReport]:
    """Reports of one table: linear layers of each chip, row-wise operators by name, prompts of one sequence."""
    rows = layer_rows(path)
    reports: list[GroupReport] = []
    if rows.linear is not None:
        for resident in (False, True):
            here = rows.linear.take(np.asarray(rows.resident == resident))
            group = "linear, weights kept" if resident else "linear"
            reports += gemm_row_reports(here, group) if len(here.m) else []
    if rows.vector is not None:
        reports += elementwise_row_reports(rows.vector)
    if rows.attention is not None:
        reports += [replace(each, group=f"prompt, {each.group}") for each in attention_reports(rows.attention)]
    return with_skipped(reports, rows.table, list(rows.skipped))


def cache_reports(path: Path) -> Iterator[GroupReport]:
    """Reports of attention over a cache: chunks of a prompt, and steps of a batch."""
    yield from attention_reports(cache_rows(path))


TABLES: dict[str, TableReader] = {
    "llmservingsim_layers_*.csv": layer_reports,
    "llmservingsim_attention_*.csv": cache_reports,
}
