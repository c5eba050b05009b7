"""`client.audit`: who did what to which object. Nothing here changes an entry."""

from __future__ import annotations

from datetime import datetime

from retoma.client.core import Namespace
from retoma.client.validation import check_time
from retoma.errors import InvalidInput
from retoma.records import AuditAction, AuditEntry
from retoma.store import audit_log
from retoma.store.audit_log import AuditFilter

MAX_ACTORS = 500


class AuditLog(Namespace):
    async def list_actors(self, *, tenant: str | None = None) -> list[str]:
        """Return the names of those who acted recently, for a filter."""
        return await audit_log.list_actors(self._database, await self._core.find_tenants(tenant), MAX_ACTORS)

    async def delete_before(self, at: datetime) -> int:
        """Delete the entries before a time, and return how many there were. The deletion is an entry itself.

        Raise InvalidInput for a time in the future.
        """
        self._core.require_all_tenants()
        check_time("at", at)
        if at > await self._core.now():
            raise InvalidInput("the time is in the future: only old entries can be deleted")
        recording = self._recording(
            "delete_audit_entries",
            AuditAction.AUDIT_DELETE,
            None,
            after=lambda rows: {"before": at, "entries": rows[0]["entries"]},
            applies=lambda _: True,
        )
        return await audit_log.delete_entries(recording, at)

    async def list(
        self,
        *,
        tenant: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        object_kind: str | None = None,
        object_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[AuditEntry]:
        """Return entries, newest first. For the next page pass the id of the last one as `before`.

        `actor` is a name, and `action` an action such as `review.decide`, or the kind of an object for all of its
        actions.
        """
        check_time("since", since)
        check_time("until", until)
        tenants = await self._core.find_tenants(tenant)
        wanted = AuditFilter(
            tenants=tenants,
            actor=actor,
            action=action,
            object_kind=object_kind,
            object_id=object_id,
            since=since,
            until=until,
            before_id=before,
            limit=limit,
        )
        return await audit_log.list_entries(self._database, wanted)
