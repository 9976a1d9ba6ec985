"""The history: every design that any study has looked at."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.api.paging import PageSize, PageToken, page_token, read_page_token
from service.db import history
from service.db.filters import FilterError, compile_filter
from service.dependencies import ReadSession
from service.errors import InvalidRequestError, problem_responses
from service.schemas.designs import DesignList, DesignRead

router = APIRouter(prefix="/v1/designs", tags=["designs"])


@router.get("", operation_id="list_designs", summary="Search the history", responses=problem_responses(422, 503))
def list_designs(
    session: ReadSession,
    filter_: Annotated[
        str | None,
        Query(alias="filter", max_length=1000, description="Such as `area_mm2 < 600 AND feasible = true`"),
    ] = None,
    order_by: Annotated[
        str | None, Query(max_length=80, description="A numeric field, `desc` behind it for the largest first")
    ] = None,
    page_size: PageSize = 100,
    page_token_: PageToken = None,
) -> DesignList:
    """Return one page of designs, by study and trial unless `order_by` names a field."""
    try:
        condition = compile_filter(filter_) if filter_ else None
        order = history.read_order(order_by)
    except FilterError as error:
        raise InvalidRequestError("query.filter", str(error)) from error
    except history.OrderError as error:
        raise InvalidRequestError("query.order_by", str(error)) from error
    kinds = (str, int) if order.column is None else (float, str, int)
    behind = read_page_token(page_token_, *kinds) if page_token_ else None
    rows = history.list_designs(session, condition, order, behind, page_size + 1)
    page = rows[:page_size]
    token = page_token(*page[-1].key) if len(rows) > page_size else None
    items = [DesignRead(study_id=row.study_id, **row.record) for row in page]
    return DesignList(items=items, next_page_token=token)
