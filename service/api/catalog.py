"""Chips that chipfit knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path

from models.checks import require_known
from service.dependencies import EngineOf
from service.errors import problem_responses
from service.schemas.catalog import CatalogList

router = APIRouter(prefix="/v1", tags=["catalogue"])

Name = Annotated[str, Path(max_length=200, description="Id in the catalogue")]


@router.get("/chips", operation_id="list_chips", summary="List the chips of the catalogue")
def list_chips(engine: EngineOf) -> CatalogList:
    """Return every chip with its design parameters."""
    return _listed(engine.chips())


@router.get("/chips/{chip_id}", operation_id="get_chip", summary="Get one chip", responses=problem_responses(404))
def get_chip(chip_id: Name, engine: EngineOf) -> dict[str, Any]:
    """Return one chip with its design parameters."""
    return _entry("chip", engine.chips(), chip_id)


def _listed(catalog: Mapping[str, dict[str, Any]]) -> CatalogList:
    return CatalogList(items=[{"id": name, **entry} for name, entry in catalog.items()], next_page_token=None)


def _entry(kind: str, catalog: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    return {"id": name, **catalog[require_known(kind, name, catalog)]}
