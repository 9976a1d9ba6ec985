"""The work of studies asked about before, compiled, so that a new design on it costs its judgement alone."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from explorer.document import StudyDocument, read_document
from explorer.inputs import Inputs, inputs_of, with_named_workload
from explorer.objectives import COMBINED, REGRET, Objective
from explorer.problem import Problem, prepare
from models.evaluate import compile_scenario
from models.hardware.design import DesignBatch
from models.hardware.memory import second_tier_capacity_bytes
from models.operators.factor_tables import FactorTables
from models.serving.steady import CompiledServing

T = TypeVar("T")

N_KEPT = 32
"""Problems that are kept: some MB each."""

ASKED_ELSEWHERE = {"name", "search"}
"""Parts of a study that no judgement reads."""


class _Latest(Generic[T]):
    """What was asked for last, by key; several threads may share it."""

    def __init__(self, n_kept: int) -> None:
        self._n_kept = n_kept
        self._kept: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, build: Callable[[], T]) -> T:
        """Return what is kept under a key, built where it is not there."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        built = build()
        with self._lock:
            self._kept[key] = built
            while len(self._kept) > self._n_kept:
                self._kept.popitem(last=False)
        return built


class KnownWork:
    """
    Keeps the studies and problems asked for last, by the content of the studies and of what these name.

    It only saves work: what is kept reads and judges like what is new. Several threads may share it.
    """

    def __init__(self, n_kept: int = N_KEPT) -> None:
        self._studies: _Latest[StudyDocument] = _Latest(n_kept)
        self._problems: _Latest[Problem] = _Latest(n_kept)

    def study_of(self, raw: Any, inputs: Inputs) -> StudyDocument:
        """
        Return the checked study of a document, its named workload written out.

        Raises
        ------
        StudyError
            With a pointer to every field that breaks its rule.
        """
        written = with_named_workload(raw, inputs)
        try:
            text = json.dumps(written)
        except (TypeError, ValueError):  # it is no JSON, and the reader says what is wrong with it
            text = repr(written)
        return self._studies.get(text, lambda: read_document(written))

    def problem_for(self, document: StudyDocument, inputs: Inputs, designs: DesignBatch) -> Problem:
        """
        Return the problem of a study fitted to designs that need not lie in its space.

        Raises
        ------
        StudyError
            With a pointer to every field that is at fault.
        """
        content = document.model_dump(mode="json", by_alias=True, exclude=ASKED_ELSEWHERE)
        try:
            named = inputs_of(content, inputs)
        except (LookupError, ValueError):
            prepare(document, inputs)  # says which field names what is not there
            raise
        study = json.dumps([content, named], sort_keys=True)
        memory_bytes = float((designs.memory_capacity_bytes + second_tier_capacity_bytes(designs)).max())
        plain = self._problems.get(study, lambda: prepare(document, inputs))
        fitted = self._problems.get((study, memory_bytes), lambda: fitted_to(plain, designs))
        return dataclasses.replace(
            fitted, document=document, inputs=inputs, tables=FactorTables(keeps_runs=True), proofs=[], replays={}
        )


def fitted_to(problem: Problem, designs: DesignBatch) -> Problem:
    """
    The problem for designs that need not lie in the study's space: plans follow their memory.

    A regret is left out: it compares with the best of the space, and would be searched for half a minute.
    """
    main, tier = designs.memory_capacity_bytes, second_tier_capacity_bytes(designs)
    scenarios = tuple(
        compile_scenario(
            dataclasses.replace(
                each.scenario, largest_memory_bytes=float((main + tier if each.scenario.offload else main).max())
            )
        )
        if isinstance(each, CompiledServing)
        else each
        for each in problem.scenarios
    )
    kept = tuple(each for each in problem.objectives if each.metric != REGRET) or (Objective(COMBINED, True),)
    return dataclasses.replace(problem, scenarios=scenarios, objectives=kept)
