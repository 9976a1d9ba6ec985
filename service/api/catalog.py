"""Chips and technology values that chipfit knows."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from models.checks import require_known
from service.dependencies import EngineOf
from service.errors import problem_responses
from service.schemas.catalog import ChipList, ChipRead, TechnologyList, TechnologyRead
from service.technologies import technology_documents

router = APIRouter(prefix="/v1", tags=["catalogue"])

ChipId = Annotated[str, Path(max_length=200, description="Id of the chip")]
TechnologyId = Annotated[str, Path(max_length=200, description="Name of the quantity or constant")]


@router.get("/chips", operation_id="list_chips", summary="List the chips of the catalogue")
def list_chips(engine: EngineOf) -> ChipList:
    """Return every chip with its design parameters."""
    return ChipList(items=[ChipRead(**each) for each in engine.chips().values()], next_page_token=None)


@router.get("/chips/{chip_id}", operation_id="get_chip", summary="Get one chip", responses=problem_responses(404))
def get_chip(chip_id: ChipId, engine: EngineOf) -> ChipRead:
    """Return one chip with its design parameters."""
    chips = engine.chips()
    return ChipRead(**chips[require_known("chip", chip_id, chips)])


@router.get("/technologies", operation_id="list_technologies", summary="List the technology values")
def list_technologies() -> TechnologyList:
    """Return every quantity and constant of area, energy, power and cost with its values and sources."""
    items = [TechnologyRead(**each) for each in technology_documents().values()]
    return TechnologyList(items=items, next_page_token=None)


@router.get(
    "/technologies/{technology_id}",
    operation_id="get_technology",
    summary="Get one technology quantity",
    responses=problem_responses(404),
)
def get_technology(technology_id: TechnologyId) -> TechnologyRead:
    """Return one quantity or constant with its values and sources."""
    known = technology_documents()
    return TechnologyRead(**known[require_known("technology", technology_id, known)])
