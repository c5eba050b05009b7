"""`client.bulk_actions`: cancel, rerun, redeliver or retry everything that matches a filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

from retoma.client.core import Namespace, as_list
from retoma.client.validation import check_name, check_time
from retoma.errors import Conflict, InvalidInput, KeyReused, NotFound
from retoma.identifiers import first_run_id
from retoma.logs import get_logger
from retoma.records import AuditAction, BulkAction, BulkKind, BulkPreview
from retoma.states import RunState
from retoma.store import bulk_actions

log = get_logger(__name__)
SAMPLE_SIZE = 10
MAX_OPEN_ACTIONS = 20  # of one tenant, or of all tenants together
MAX_INT = 2**31 - 1  # as the columns hold it
RUN_FIELDS = frozenset({"pipeline", "states", "since", "title"})
FIELDS_BY_KIND = {
    BulkKind.CANCEL_RUNS: RUN_FIELDS,
    BulkKind.RERUN_FAILED: RUN_FIELDS,
    BulkKind.REDELIVER: frozenset({"pipeline", "since", "endpoint"}),
    BulkKind.RETRY_JOBS: frozenset({"pipeline", "queue", "step", "code"}),
}


@dataclass(frozen=True)
class BulkFilter:
    """What to act on. `pipeline`, `states`, `since` (of the start) and `title` (a part of it) choose runs; `pipeline`,
    `since` and `endpoint` deliveries; `pipeline`, `queue`, `step` and `code` jobs that wait for an attempt."""

    pipeline: str | Sequence[str] | None = None
    states: Sequence[RunState] | None = None
    since: datetime | None = None
    title: str | None = None
    endpoint: int | None = None
    queue: str | None = None
    step: str | None = None
    code: str | None = None


class BulkActions(Namespace):
    async def preview(self, kind: BulkKind, wanted: BulkFilter, *, tenant: str | None = None) -> BulkPreview:
        """Return how many targets match now, of at most 100,000, and the first of them. Nothing changes."""
        owner, encoded = await self._limit_filter(tenant, _encode_filter(kind, wanted))
        return BulkPreview(
            await bulk_actions.count_targets(self._database, kind, owner, encoded),
            await bulk_actions.list_targets(self._database, kind, owner, encoded, SAMPLE_SIZE),
        )

    async def start(
        self,
        kind: BulkKind,
        wanted: BulkFilter,
        *,
        tenant: str | None = None,
        by: str | None = None,
        expected: int | None = None,
        key: str | None = None,
    ) -> BulkAction:
        """Act on everything that matches now. Workers and servers carry it out, also after a restart of all of them.

        With the number of a preview as `expected`, raise Conflict if more match by now; also raise it if too many
        actions are in progress. The same `key` returns the same action; with another kind or filter, raise KeyReused.
        """
        author, asked = self._get_author(by), _encode_filter(kind, wanted)
        check_name("name", author)
        check_name("key", key)
        if expected is not None and not 0 <= expected <= MAX_INT:
            raise InvalidInput(f"`expected` is a whole number from 0 to {MAX_INT}, not {expected!r:.40}")
        owner, encoded = await self._limit_filter(tenant, asked)
        action = uuid4() if key is None else uuid5(NAMESPACE_OID, f"{encoded.get('tenants', owner)} {key}")
        if encoded.get("tenants") == []:
            raise NotFound("there is no such tenant, so there is nothing to act on")
        await self._check_open_actions(owner, action)
        recording = self._recording(
            "create_bulk_action",
            AuditAction.BULK_ACTION_START,
            action,
            after=lambda rows: {"kind": kind, "filter": asked, "targets": rows[0]["total"]},
            id=uuid5(action, "start"),
        )
        total = await bulk_actions.create_action(recording, action, kind, owner, encoded, by=author, expected=expected)
        if total is None:
            raise Conflict("more match now than the preview has shown: look at them again")
        found = await self.get(action)
        if (found.kind, found.filter) != (kind, asked):
            raise KeyReused(f"the key {key!r} was already used for another bulk action: use another key")
        log.info("bulk_action_started", message="acting on many targets", action=str(action), kind=kind, by=author)
        self._core.starter.notify_workers()
        return found

    async def _check_open_actions(self, owner: int | None, action: UUID) -> None:
        """Raise Conflict if too many actions are in progress, unless this is one of them. Each may be large."""
        if await bulk_actions.count_open_actions(self._database, owner) < MAX_OPEN_ACTIONS:
            return
        if not await bulk_actions.list_actions(self._database, id=action, tenants=None if owner is None else [owner]):
            raise Conflict(f"{MAX_OPEN_ACTIONS} bulk actions are in progress: wait until one has ended, or abort one")

    async def get(self, action: UUID, *, tenant: str | None = None) -> BulkAction:
        found = await bulk_actions.list_actions(
            self._database, id=action, tenants=await self._core.find_tenants(tenant)
        )
        if not found:
            raise NotFound(f"there is no bulk action {action}")
        return found[0]

    async def abort(self, action: UUID, *, tenant: str | None = None, by: str | None = None) -> BulkAction:
        """Leave out the targets that are left. Those that it has acted on stay as they are."""
        author = self._get_author(by)
        check_name("name", author)
        found = await self.get(action, tenant=tenant)
        recording = self._recording(
            "abort_bulk_action", AuditAction.BULK_ACTION_ABORT, action, after={"kind": found.kind, "left": found.left}
        )
        await bulk_actions.abort_action(recording, action, author)
        return await self.get(action)

    async def advance(self, action: UUID) -> bool:
        """Act on the next target now, without waiting for a worker or server. Return False if none is left."""
        await self.get(action)
        if not await bulk_actions.advance_action(self._database, action):
            return False
        self._core.starter.notify_workers()
        return True

    async def list(self, *, tenant: str | None = None, limit: int = 50) -> list[BulkAction]:
        """Return actions, newest first."""
        return await bulk_actions.list_actions(
            self._database, tenants=await self._core.find_tenants(tenant), limit=limit
        )

    async def _limit_filter(self, tenant: str | None, encoded: dict[str, Any]) -> tuple[int | None, dict[str, Any]]:
        """Return the only tenant that the action is about, if there is one, and the filter with all of several."""
        tenants = await self._core.find_tenants(tenant)
        if tenants is None:
            return None, encoded
        return (tenants[0], encoded) if len(tenants) == 1 else (None, encoded | {"tenants": tenants})


def _encode_filter(kind: BulkKind, wanted: BulkFilter) -> dict[str, Any]:
    """Return the filter as JSON. Raise InvalidInput for a field that does not apply to this kind."""
    given = {name: value for name, value in vars(wanted).items() if value not in (None, "", [], ())}
    if other := sorted(given.keys() - FIELDS_BY_KIND[kind]):
        raise InvalidInput(f"`{other[0]}` does not apply to {kind}: use {', '.join(sorted(FIELDS_BY_KIND[kind]))}")
    for name in given.keys() & {"title", "queue", "step", "code"}:
        check_name(name, given[name])
    check_time("since", wanted.since)
    if wanted.endpoint is not None and not 0 < wanted.endpoint <= MAX_INT:
        raise InvalidInput(f"an endpoint is a whole number from 1 to {MAX_INT}, not {wanted.endpoint!r:.40}")
    encoded: dict[str, Any] = {name: given[name] for name in given.keys() - {"pipeline", "states", "since"}}
    if wanted.pipeline:
        encoded["pipelines"] = [*(as_list(wanted.pipeline) or ())]
        for name in encoded["pipelines"]:
            check_name("pipeline", name)
    if wanted.states:
        encoded["states"] = [str(state) for state in wanted.states]
    if wanted.since:
        encoded["since"] = wanted.since.isoformat()
        encoded |= {} if kind is BulkKind.REDELIVER else {"first": str(first_run_id(wanted.since))}
    return encoded
