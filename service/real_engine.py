"""The engine that the product runs: the explorer's functions."""

from __future__ import annotations

import functools

from explorer import study
from explorer.batch_evaluation import evaluate_batch
from explorer.document import StudyDocument, StudyError
from explorer.drift import Outcome, drift_report
from explorer.explanation.asked import explain
from explorer.identity import model_version, workload_hash
from explorer.known_work import KnownWork
from explorer.records import record_from_json
from explorer.reevaluation import evaluate_designs, evaluation_identity
from explorer.report import final_document, result_document
from explorer.shards import run_shard, with_outcomes
from explorer.space import read_space
from explorer.team import join_team
from explorer.warm_start import similarity_fraction, warm_designs, with_history, with_warm_start
from explorer.what_if import what_if
from service.catalogues import chip_documents, network_documents
from service.engine import Extent, StudyEngine


def _extent(document: StudyDocument) -> Extent:
    search = document.search
    return Extent(search.trials, search.timeout * search.shards, float(read_space(document.space).n_designs))


def real_engine() -> StudyEngine:
    """The explorer as one value. Files named in a document are never opened: only shipped traces are known."""
    known = KnownWork()
    return StudyEngine(
        read_study=study.read_study,
        prepare=study.prepare,
        n_chunks=study.n_chunks,
        run_chunk=study.run_chunk,
        catch_up=study.catch_up,
        is_finished=study.is_finished,
        result_document=result_document,
        final_document=final_document,
        explain=explain,
        record_from_json=record_from_json,
        evaluate_document=functools.partial(what_if, known=known),
        evaluate_designs=functools.partial(evaluate_designs, known=known),
        evaluate_batch=functools.partial(evaluate_batch, known=known),
        evaluation_identity=functools.partial(evaluation_identity, known=known),
        workload_hash=lambda problem: workload_hash(problem.document, problem.inputs),
        judges_freely=study.judges_freely,
        n_shards=study.n_shards,
        run_shard=run_shard,
        join_team=join_team,
        with_outcomes=with_outcomes,
        with_history=with_history,
        similarity_fraction=similarity_fraction,
        warm_designs=warm_designs,
        with_warm_start=with_warm_start,
        drift_report=lambda old, was, new, now: drift_report(Outcome(old, was), Outcome(new, now)),
        chips=chip_documents,
        networks=network_documents,
        study_schema=lambda: StudyDocument.model_json_schema(ref_template="#/components/schemas/{model}"),
        timeout_s=study.timeout_s,
        extent=_extent,
        model_version=model_version(),
        study_error=StudyError,
    )
