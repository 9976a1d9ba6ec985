"""The functions of the explorer that the service calls, as one value, so that tests can pass their own."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from explorer.explanation.asked import Asked
from explorer.inputs import Uploads

Document = dict[str, Any]


Others = Callable[[], Sequence[ProcessPoolExecutor]]
"""Processes that may help with a study, started when first asked for."""

Lookup = Callable[[Sequence[Mapping[str, Any]]], Mapping[int, Mapping[str, Any]]]
"""Free parameters of designs -> position of those judged before, with their records."""


class Record(Protocol):
    """What the service reads of one trial."""

    @property
    def number(self) -> int:
        """Number of the trial within its study."""

    @property
    def feasible(self) -> bool:
        """Whether every constraint holds."""

    def as_json(self) -> Document:
        """Plain data that `record_from_json` turns back into an equal record."""


@dataclass(frozen=True)
class Extent:
    """How much a study asks for: trials, search time and designs of its space."""

    trials: int
    search_time_s: float
    space_designs: float


@dataclass(frozen=True)
class StudyEngine:
    """
    Search and evaluation as pure functions, so that a study resumes exactly; what a document names comes with it.

    `run_chunk(problem, past, chunk)` returns the same records for the same past and chunk; `catch_up(problem, chunk)`
    does again what it rests on where another process did that, which is not counted twice; `timeout_s(problem)` is
    the search time after which a study ends with what it has; `evaluation_identity` is the same for evaluations that
    give the same answer, and None for requests at fault; a study that `judges_freely` leaves records that serve equal
    ones; `run_shard` does the heavy part of one chunk of a study that has `n_shards`, of which the chunk is made once
    the problem comes `with_outcomes` of the shards up to it; `study_error` carries `errors`, a list of
    {pointer, detail}.
    """

    read_study: Callable[[Document], Any]
    prepare: Callable[[Any, Uploads], Any]
    n_chunks: Callable[[Any], int]
    run_chunk: Callable[[Any, list[Any], int], list[Any]]
    catch_up: Callable[[Any, int], None]
    is_finished: Callable[[Any, list[Any]], bool]
    result_document: Callable[[Any, list[Any]], Document]
    final_document: Callable[[Any, list[Any]], Document]
    explain: Callable[[Any, list[Any], Asked], Document]
    record_from_json: Callable[[Document], Any]
    evaluate_document: Callable[[Document, Uploads], Document]
    evaluate_designs: Callable[[Document, list[Document], Uploads], list[Document]]
    evaluate_batch: Callable[[Document, Uploads], Document]
    evaluation_identity: Callable[[Document, Uploads], str | None]
    workload_hash: Callable[[Any], str]
    judges_freely: Callable[[Any], bool]
    n_shards: Callable[[Any], int]
    run_shard: Callable[[Any, int, Callable[[], bool]], Mapping[str, Any] | None]
    join_team: Callable[[Any, Others], None]
    with_outcomes: Callable[[Any, Sequence[Mapping[str, Any]]], Any]
    with_history: Callable[[Any, Lookup], Any]
    similarity_fraction: Callable[[Any, Any], float]
    warm_designs: Callable[[Any, list[Document]], tuple[list[Document], dict[int, str]]]
    with_warm_start: Callable[[Any, list[Document]], Any]
    drift_report: Callable[[Any, Document, Any, Document], Document]
    chips: Callable[[], Mapping[str, Document]]
    networks: Callable[[], Mapping[str, Document]]
    study_schema: Callable[[], Document]
    timeout_s: Callable[[Any], float]
    extent: Callable[[Any], Extent]
    model_version: str
    study_error: type[Exception]


def package_version() -> str:
    """Version of the installed package."""
    return importlib.metadata.version("chipfit")
