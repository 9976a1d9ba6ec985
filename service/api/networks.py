"""Networks: the catalogue, and configurations that callers upload."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from models.checks import require_known
from service.api.documents import RequestDocument
from service.api.location import set_stored
from service.db import uploads
from service.dependencies import DatabaseOf, EngineOf, IdempotencyKey, ReadSession, WriteSession
from service.errors import problem_responses
from service.schemas.networks import NetworkConfigRead, NetworkList, NetworkRead, catalogue_fields, network_fields
from service.workloads import take_network

router = APIRouter(prefix="/v1/networks", tags=["networks"])

Name = Annotated[str, Path(max_length=200, description="Name or id of the network")]


@router.post(
    "",
    status_code=201,
    operation_id="upload_network",
    summary="Upload a network",
    responses={
        200: {"description": "The same was sent before", "model": NetworkConfigRead},
        **problem_responses(409, 413, 422, 503),
    },
)
def upload_network(
    config: RequestDocument,
    request: Request,
    response: Response,
    database: DatabaseOf,
    name: Annotated[
        str | None,
        Query(
            min_length=1, max_length=100, pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$",
            description="Name under which studies and results have it; one is made of its content where it is left out",
        ),
    ] = None,
    _key: IdempotencyKey = None,
) -> NetworkConfigRead:  # fmt: skip
    """Take a Hugging Face `config.json` as it is, and return parameter counts and cache size."""
    taken = take_network(database, config, name)
    set_stored(request, response, taken.is_new, "get_network", network=taken.row.id)
    return NetworkConfigRead(**network_fields(taken.row), config=taken.row.config)


@router.get("", operation_id="list_networks", summary="List networks", responses=problem_responses(503))
def list_networks(engine: EngineOf, session: ReadSession) -> NetworkList:
    """Return every network of the catalogue and every uploaded one with its main figures."""
    known = [catalogue_fields(name, figures) for name, figures in engine.networks().items()]
    uploaded = [network_fields(row) for row in uploads.list_networks(session)]
    return NetworkList(items=[NetworkRead(**each) for each in known + uploaded], next_page_token=None)


@router.get("/{network}", operation_id="get_network", summary="Get one network", responses=problem_responses(404, 503))
def get_network(network: Name, engine: EngineOf, session: ReadSession) -> NetworkConfigRead:
    """Return one network, by name or id, with its main figures."""
    for row in uploads.networks_named(session, [network]):
        return NetworkConfigRead(**network_fields(row), config=row.config)
    known = engine.networks()
    return NetworkConfigRead(**catalogue_fields(network, known[require_known("network", network, known)]), config=None)


@router.delete(
    "/{network}",
    status_code=204,
    operation_id="delete_network",
    summary="Delete an uploaded network",
    responses=problem_responses(404, 409, 503),
)
def delete_network(network: Name, session: WriteSession) -> None:
    """Remove an uploaded network, by name or id, that no study reads."""
    uploads.delete_network(session, network)
