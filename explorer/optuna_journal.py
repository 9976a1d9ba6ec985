"""A study as the journal of an Optuna study, which Optuna's `JournalStorage` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from explorer.document import StudyDocument
from explorer.records import TrialRecord
from explorer.space import read_space


@dataclass
class _Lines(BaseJournalBackend):
    """Collects the entries of a journal; those handed out and replayed are dropped."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    n_dropped: int = 0

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        return self.entries[log_number_from - self.n_dropped :]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self.entries += logs

    def drain(self) -> str:
        """Return the entries so far as lines of JSON."""
        text = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in self.entries)
        self.n_dropped += len(self.entries)
        self.entries = []
        return text


def optuna_journal(document: StudyDocument, pages: Iterable[Sequence[TrialRecord]]) -> Iterator[str]:
    """
    Yield the journal of a study, some lines for each page of its records.

    Every trial is complete, with its objectives as values and its limits as named constraints. A parameter is a
    category of the values that the space allows; a value that is no number or text stands as its JSON.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    lines = _Lines()
    study = optuna.create_study(
        study_name=document.name,
        storage=optuna.storages.JournalStorage(lines),
        directions=[each.direction for each in document.objectives],
    )
    study.set_user_attr("metrics", [each.metric for each in document.objectives])
    yield lines.drain()
    parameters = read_space(document.space).parameters
    space: dict[str, BaseDistribution] = {
        each.name: CategoricalDistribution([_choice(value) for value in each.values]) for each in parameters
    }
    for page in pages:
        study.add_trials([_trial(record, space) for record in page])
        yield lines.drain()


def _trial(record: TrialRecord, space: dict[str, BaseDistribution]) -> FrozenTrial:
    told = {"feasible": record.feasible, "violated": record.violated, "design": record.design}
    return create_trial(
        state=TrialState.COMPLETE,
        values=record.objectives,
        params={name: _choice(value) for name, value in record.params.items()},
        distributions={name: space[name] for name in record.params},
        constraints=record.excess,
        user_attrs={**told, "operating_point": record.operating_point, "metrics": record.metrics},
    )


def _choice(value: Any) -> str | float | int:
    return value if isinstance(value, str | int | float) else json.dumps(value)
