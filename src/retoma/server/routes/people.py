"""Accounts of people and their roles, for administrators."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.requests import Request

from retoma.records import LinkPurpose, NewAccountLink, Person, PersonSession, Role
from retoma.server.file_response import get_public_url
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.schemas import MAX_INT, Name, PersonName, RequestBody

router = APIRouter(prefix="/people", tags=["people"])
Administrator = Annotated[Principal, require_scope("people:write")]
Email = Annotated[
    str, Path(max_length=320, description="The person's e-mail address.", json_schema_extra={"format": "email"})
]
OnlyTenant = Annotated[Name | None, Query(description="The tenant of the role; without one, all tenants.")]
_PROBLEMS = document_problems(404, 409)


class InvitationRequest(RequestBody):
    name: PersonName
    email: str = Field(max_length=320, json_schema_extra={"format": "email"})
    role: Role
    tenant: Name | None = Field(None, description="The tenant of the role; without one, all tenants.")


class RoleRequest(RequestBody):
    role: Role
    tenant: Name | None = Field(None, description="The tenant of the role; without one, all tenants.")


class PersonList(BaseModel):
    people: list[Person]


class AccountLink(BaseModel):
    """`url` is the link, which works once. It is not stored, so it can only be returned now."""

    person: Person
    purpose: LinkPurpose
    expires_at: datetime
    url: str


class SessionList(BaseModel):
    sessions: list[PersonSession]


class EndedSessions(BaseModel):
    sessions: int


@router.get("", summary="List people by name")
async def list_people(
    by: Administrator,
    include_disabled: Annotated[bool, Query(description="Include disabled accounts.")] = False,
) -> PersonList:
    return PersonList(people=await by.client.people.list(include_disabled=include_disabled))


@router.post("", status_code=201, summary="Invite a person: create an account and a link", responses=_PROBLEMS)
async def invite_person(request: Request, body: InvitationRequest, by: Administrator) -> AccountLink:
    """The person sets a password with the link, once, within seven days."""
    link = await by.client.people.invite(body.name, body.email, role=body.role, tenant=body.tenant)
    return _describe_link(request, link)


@router.get("/{email}", summary="Get a person", responses=_PROBLEMS)
async def get_person(email: Email, by: Administrator) -> Person:
    return await by.client.people.get(email)


@router.put("/{email}/role", summary="Give a person a role in a tenant, or in all tenants", responses=_PROBLEMS)
async def set_role(email: Email, body: RoleRequest, by: Administrator) -> Person:
    return await by.client.people.set_role(email, body.role, tenant=body.tenant)


@router.delete("/{email}/role", summary="Take away a role in a tenant, or in all tenants", responses=_PROBLEMS)
async def remove_role(email: Email, by: Administrator, tenant: OnlyTenant = None) -> Person:
    return await by.client.people.remove_role(email, tenant=tenant)


@router.post("/{email}/link", summary="Create a link with which a person sets a new password", responses=_PROBLEMS)
async def create_link(request: Request, email: Email, by: Administrator) -> AccountLink:
    """It works once, within 24 hours. Earlier links of the person stop working."""
    return _describe_link(request, await by.client.people.create_link(email))


@router.post("/{email}/disable", summary="Disable an account and end its sessions", responses=_PROBLEMS)
async def disable_person(email: Email, by: Administrator) -> Person:
    return await by.client.people.disable(email)


@router.post("/{email}/enable", summary="Enable a disabled account", responses=_PROBLEMS)
async def enable_person(email: Email, by: Administrator) -> Person:
    return await by.client.people.enable(email)


@router.get("/{email}/sessions", summary="List the browsers in which a person is logged in", responses=_PROBLEMS)
async def list_sessions(email: Email, by: Administrator) -> SessionList:
    return SessionList(sessions=await by.client.people.list_sessions(email))


@router.delete("/{email}/sessions", summary="Log a person out of one browser, or of all", responses=_PROBLEMS)
async def end_sessions(
    email: Email,
    by: Administrator,
    session: Annotated[int | None, Query(ge=1, le=MAX_INT, description="Only this session.")] = None,
) -> EndedSessions:
    return EndedSessions(sessions=await by.client.people.end_sessions(email, session=session))


def _describe_link(request: Request, link: NewAccountLink) -> AccountLink:
    return AccountLink(
        person=link.person,
        purpose=link.purpose,
        expires_at=link.expires_at,
        url=f"{get_public_url(request)}/set-password/{link.token}",
    )
