"""The audit log: who did what to which object."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from retoma.server.principal import Principal, require_scope
from retoma.server.schemas import AuditPage, Limit, Name

router = APIRouter(prefix="/audit", tags=["audit"])
Reader = Annotated[Principal, require_scope("audit:read")]
MAX_ENTRY = 2**63 - 1


@router.get("", summary="List entries of the audit log, newest first")
async def list_entries(
    by: Reader,
    actor: Annotated[Name | None, Query(description="Only what this person, key or user did, by name.")] = None,
    action: Annotated[
        Name | None,
        Query(description="Only this action, such as `review.decide`; or all on a kind of object: `review`."),
    ] = None,
    object_kind: Annotated[Name | None, Query(description="Only objects of this kind.")] = None,
    object_id: Annotated[Name | None, Query(description="Only this object; give its kind too.")] = None,
    tenant: Annotated[Name | None, Query(description="Only this tenant.")] = None,
    since: Annotated[AwareDatetime | None, Query(description="Only entries at or after this time.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="Only entries before this time.")] = None,
    before: Annotated[int | None, Query(ge=1, le=MAX_ENTRY, description="`next` of the previous page.")] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> AuditPage:
    found = await by.client.audit.list(
        tenant=tenant,
        actor=actor,
        action=action,
        object_kind=object_kind,
        object_id=object_id,
        since=since,
        until=until,
        before=before,
        limit=limit + 1,
    )
    page = found[:limit]
    return AuditPage(entries=page, next=page[-1].id if len(found) > limit else None)
