"""The history: every design that any study has looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Query

from models.checks import UnknownNameError
from service.api.paging import PageSize, PageToken, page_token, query_digest, read_query_page_token
from service.db import history
from service.db.fields import FieldError, field
from service.db.filters import Filter, FilterError, compile_filter
from service.db.history import HistoryRow, SelectionError
from service.db.session import reading
from service.dependencies import HEAVY_WORK, DatabaseOf, EngineOf, ReadSession
from service.errors import InvalidRequestError, problem_responses
from service.evaluation import reevaluate_designs
from service.schemas.designs import (
    DesignList,
    DesignRead,
    FacetList,
    FacetRead,
    NearDesignList,
    NearDesignRead,
    NearestRequest,
    ReevaluationRead,
    ReevaluationRequest,
)

router = APIRouter(prefix="/v1/designs", tags=["designs"])

FilterText = Annotated[
    str | None,
    Query(
        alias="filter", max_length=1000, description='Such as `area_mm2 < 400 and tpot_p95_s <= "50 ms"`',
        examples=['area_mm2 < 400 and tpot_p95_s <= "50 ms"', 'memory_kind in ("hbm3", "hbm3e") and not n_cores > 64'],
    ),
]  # fmt: skip


@router.get("", operation_id="list_designs", summary="Search the history", responses=problem_responses(422, 503))
def list_designs(
    session: ReadSession,
    filter_: FilterText = None,
    order_by: Annotated[
        str | None, Query(max_length=80, description="A numeric field, `desc` behind it for the largest first")
    ] = None,
    pareto: Annotated[
        str | None,
        Query(max_length=300, description="Metrics with commas between: only feasible designs that no other one beats"),
    ] = None,
    page_size: PageSize = 100,
    page_token_: PageToken = None,
) -> DesignList:
    """Return one page of designs, by study and trial unless `order_by` or `pareto` says otherwise."""
    chosen = read_filter(filter_, "query.filter")
    if pareto is not None:
        if order_by is not None:
            raise InvalidRequestError("query.order_by", "a front comes in the order of its first metric")
        return _front_page(session, chosen, filter_, pareto, page_size, page_token_)
    order = read_order(order_by)
    digest = query_digest(filter_, order.text)
    kinds = (str, int) if order.field is None else (float, str, int)
    behind = read_query_page_token(page_token_, digest, *kinds) if page_token_ else None
    rows = history.list_designs(session, chosen, order, behind, page_size + 1)
    page = rows[:page_size]
    token = page_token(digest, *page[-1].key) if len(rows) > page_size else None
    return DesignList(items=[_read(row) for row in page], next_page_token=token)


def _front_page(
    session: ReadSession, chosen: Filter | None, filter_: str | None, pareto: str, page_size: int, token: str | None
) -> DesignList:
    digest = query_digest(filter_, "pareto", pareto)
    behind = read_query_page_token(token, digest, float, str, int) if token else None
    with _pointing_at("query.pareto"):
        keys = history.front_keys(session, chosen, _names(pareto))
    first = keys.index(tuple(behind)) + 1 if behind and tuple(behind) in keys else 0
    page = keys[first : first + page_size]
    rows = history.rows_at(session, page)
    following = page_token(digest, *page[-1]) if first + page_size < len(keys) else None
    return DesignList(items=[_read(row) for row in rows], next_page_token=following)


@router.get(
    ":facets",
    operation_id="get_facets",
    summary="How the selected designs spread over the values of fields",
    responses=problem_responses(422, 503),
)
def get_facets(
    session: ReadSession,
    fields: Annotated[str, Query(max_length=300, description="Fields with commas between")],
    filter_: FilterText = None,
) -> FacetList:
    """Return the most frequent values of each field, or a histogram where there are many."""
    chosen = read_filter(filter_, "query.filter")
    with _pointing_at("query.fields"):
        found = history.facets(session, chosen, _names(fields))
    return FacetList(count=history.count_designs(session, chosen), items=[FacetRead(**each) for each in found])


@router.post(
    ":nearest",
    operation_id="find_nearest_designs",
    summary="Find the designs nearest to a point",
    responses=problem_responses(413, 422, 503),
)
def find_nearest_designs(request: NearestRequest, session: ReadSession) -> NearDesignList:
    """Return designs by their mean relative distance in the fields of the point."""
    chosen = read_filter(request.filter, "/filter")
    for name, value in request.point.items():
        with _pointing_at(f"/point/{name.replace('~', '~0').replace('/', '~1')}"):
            field(name).value(float(value) if type(value) is int else value)
    found = history.nearest_designs(session, chosen, request.point, request.limit)
    items = [NearDesignRead(study_id=row.study_id, distance=distance, **row.record) for distance, row in found]
    return NearDesignList(items=items)


@router.post(
    ":reevaluate",
    operation_id="reevaluate_designs",
    summary="Judge designs of the history under another workload",
    dependencies=[HEAVY_WORK],
    responses=problem_responses(413, 422, 503),
)
def reevaluate(request: ReevaluationRequest, engine: EngineOf, database: DatabaseOf) -> ReevaluationRead:
    """Return the selected designs with what they do on the workload of `study`."""
    chosen = read_filter(request.filter, "/filter")
    with _pointing_at("/order_by"):
        order = history.read_order(request.order_by)
    with reading(database) as session:
        rows = history.list_designs(session, chosen, order, None, request.limit)
    return ReevaluationRead(**reevaluate_designs(database, engine, request.study, rows))


def read_filter(text: str | None, pointer: str) -> Filter | None:
    """Return the compiled filter of a query, None where there is none."""
    with _pointing_at(pointer):
        return compile_filter(text) if text else None


def read_order(text: str | None) -> history.Order:
    """Return the order that a query asks for."""
    with _pointing_at("query.order_by"):
        return history.read_order(text)


@contextmanager
def _pointing_at(pointer: str) -> Iterator[None]:
    """Answer a fault of a query with the place where it was written."""
    try:
        yield
    except (FilterError, FieldError, SelectionError, UnknownNameError) as error:
        raise InvalidRequestError(pointer, str(error)) from error


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if len(set(names)) != len(names) or len(names) > 5:
        raise FieldError(f"must name at most 5 different fields, got {text!r}")
    return names


def _read(row: HistoryRow) -> DesignRead:
    return DesignRead(study_id=row.study_id, **row.record)
