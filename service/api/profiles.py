"""Calibration profiles: shipped with the model, or sent and then named in studies and evaluations."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from models.fidelity.profiles import profile_document, shipped_profiles
from service.api.documents import RequestDocument
from service.api.location import set_stored
from service.api.paging import PageSize, PageToken, newest_page
from service.db import profiles as queries
from service.dependencies import IdempotencyKey, ReadSession, WriteSession
from service.errors import problem_responses
from service.profiles import checked_profile
from service.schemas.profiles import ProfileList, ProfileRead, shipped_fields, stored_fields

router = APIRouter(prefix="/v1/profiles", tags=["profiles"])

ProfileId = Annotated[str, Path(max_length=200, description="Id of a stored profile, or name of a shipped one")]


@router.post(
    "",
    status_code=201,
    operation_id="create_profile",
    summary="Store a calibration profile",
    responses={
        200: {"description": "The same content was sent before", "model": ProfileRead},
        **problem_responses(409, 413, 422, 503),
    },
)
def create_profile(
    document: RequestDocument,
    request: Request,
    response: Response,
    session: WriteSession,
    _key: IdempotencyKey = None,
) -> ProfileRead:
    """Take {name, device, constants: {family: {name: ratio}}}, as `chipfit calibrate` writes it; return its id."""
    profile_id, content = checked_profile(document)
    row, is_new = queries.add_profile(session, profile_id, content)
    set_stored(request, response, is_new, "get_profile", profile_id=row.id)
    return ProfileRead(**stored_fields(row))


@router.get(
    "", operation_id="list_profiles", summary="List calibration profiles", responses=problem_responses(422, 503)
)
def list_profiles(session: ReadSession, page_size: PageSize = 50, page_token_: PageToken = None) -> ProfileList:
    """Return stored profiles, newest first, and on the last page the shipped ones."""
    page, token = newest_page(partial(queries.list_profiles, session), page_size, page_token_)
    items = [ProfileRead(**stored_fields(row)) for row in page]
    if token is None:
        items += [ProfileRead(**shipped_fields(profile_document(each))) for each in shipped_profiles().values()]
    return ProfileList(items=items, next_page_token=token)


@router.get(
    "/{profile_id}",
    operation_id="get_profile",
    summary="Get a calibration profile",
    responses=problem_responses(404, 503),
)
def get_profile(profile_id: ProfileId, session: ReadSession) -> ProfileRead:
    """Return a stored or shipped profile."""
    shipped = shipped_profiles().get(profile_id)
    if shipped is not None:
        return ProfileRead(**shipped_fields(profile_document(shipped)))
    return ProfileRead(**stored_fields(queries.get_profile(session, profile_id)))


@router.delete(
    "/{profile_id}",
    status_code=204,
    operation_id="delete_profile",
    summary="Delete a calibration profile",
    responses=problem_responses(404, 503),
)
def delete_profile(profile_id: ProfileId, session: WriteSession) -> None:
    """Remove a stored profile; studies that named it keep what they were given."""
    queries.delete_profile(session, profile_id)
