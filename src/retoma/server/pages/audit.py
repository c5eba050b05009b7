"""The audit log, for administrators: filter it by the address, and export what the filter shows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID

import msgspec
from starlette.responses import Response, StreamingResponse

from retoma.client import Client
from retoma.csv_cells import format_csv
from retoma.errors import NotFound
from retoma.records import ActorKind, AuditAction, AuditEntry
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import HEADERS, PageContext, parse_number
from retoma.states import ReviewState
from retoma.translations import N_, NP_, Message

SCOPE = "audit:read"
PAGE_SIZE = 50
EXPORT_PAGE_SIZE = 1_000
_COLUMNS = tuple(field.name for field in fields(AuditEntry))
ACTOR_KINDS = {
    ActorKind.PERSON: N_("Person"),
    ActorKind.KEY: N_("API key"),
    ActorKind.COMMAND_LINE: N_("Command line"),
    ActorKind.DEVELOPER: N_("Developer"),
    ActorKind.PROGRAM: N_("Program"),
    ActorKind.ENGINE: N_("Retoma"),
}
OBJECT_KINDS = {
    "run": N_("Run"),
    "review": N_("Review"),
    "bulk_action": N_("Bulk action"),
    "schedule": N_("Schedule"),
    "pool": N_("Pool"),
    "queue": N_("Queue"),
    "worker": N_("Worker"),
    "delivery": N_("Delivery"),
    "endpoint": N_("Endpoint"),
    "price": N_("Price"),
    "budget": N_("Budget"),
    "connection": N_("Connection"),
    "tenant": N_("Tenant"),
    "api_key": N_("API key"),
    "person": N_("Person"),
    "notification": N_("Notifications"),
    "audit": N_("Audit log"),
    "backup": N_("Backup"),
    "database": N_("Database"),
    "retention": N_("Retention"),
}
ACTIONS: dict[AuditAction, str | Message] = {
    AuditAction.RUN_START: N_("Started"),
    AuditAction.RUN_CANCEL: N_("Cancelled"),
    AuditAction.RUN_RESUME: N_("Resumed"),
    AuditAction.RUN_RERUN: N_("Steps rerun"),
    AuditAction.RUN_RERUN_FAILED: N_("Failed jobs rerun"),
    AuditAction.RUN_RETRY_NOW: N_("Job retried at once"),
    AuditAction.RUN_EDIT: N_("Result edited"),
    AuditAction.RUN_SKIP: N_("Items skipped"),
    AuditAction.RUN_FORK: N_("Forked"),
    AuditAction.RUN_RESOLVE_ORPHAN: N_("Orphan resolved"),
    AuditAction.RUN_HOLD: N_("Held"),
    AuditAction.RUN_RELEASE: N_("Released"),
    AuditAction.RUN_ERASE: N_("Erased"),
    AuditAction.REVIEW_DECIDE: NP_("audit", "Decided"),
    AuditAction.REVIEW_UNDO: N_("Decision undone"),
    AuditAction.REVIEW_CLAIM: N_("Claimed"),
    AuditAction.REVIEW_ASSIGN: N_("Assigned"),
    AuditAction.REVIEW_RESOLVE_COMMENT: N_("Comment resolved or reopened"),
    AuditAction.BULK_ACTION_START: N_("Started"),
    AuditAction.BULK_ACTION_ABORT: N_("Aborted"),
    AuditAction.SCHEDULE_CREATE: N_("Created"),
    AuditAction.SCHEDULE_UPDATE: N_("Changed"),
    AuditAction.SCHEDULE_PAUSE: N_("Paused"),
    AuditAction.SCHEDULE_RESUME: N_("Resumed"),
    AuditAction.SCHEDULE_DELETE: N_("Deleted"),
    AuditAction.SCHEDULE_TRIGGER: N_("Run started"),
    AuditAction.POOL_UPDATE: N_("Limits changed"),
    AuditAction.QUEUE_UPDATE: N_("Limit changed"),
    AuditAction.QUEUE_PAUSE: N_("Paused"),
    AuditAction.QUEUE_RESUME: N_("Resumed"),
    AuditAction.WORKER_DRAIN: N_("Drained"),
    AuditAction.WORKER_STACKS: N_("Stacks requested"),
    AuditAction.DELIVERY_REDELIVER: N_("Sent again"),
    AuditAction.ENDPOINT_REDELIVER_ALL: N_("Dead letters sent again"),
    AuditAction.ENDPOINT_ENABLE: N_("Enabled"),
    AuditAction.ENDPOINT_SUBSCRIBE: N_("Subscribed"),
    AuditAction.ENDPOINT_UNSUBSCRIBE: N_("Unsubscribed"),
    AuditAction.ENDPOINT_ROTATE_SECRET: N_("Secret rotated"),
    AuditAction.PRICE_SET: N_("Price set"),
    AuditAction.BUDGET_SET: NP_("audit", "Set"),
    AuditAction.BUDGET_REMOVE: N_("Removed"),
    AuditAction.CONNECTION_SET: N_("Set"),
    AuditAction.CONNECTION_DELETE: N_("Deleted"),
    AuditAction.CONNECTION_TEST: N_("Tested"),
    AuditAction.CONNECTION_ROTATE: N_("Encrypted with another key"),
    AuditAction.TENANT_SET_MONEY: N_("Currency or time zone changed"),
    AuditAction.TENANT_SET_PROFILE: N_("Profile changed"),
    AuditAction.TENANT_DELETE_PROFILE: N_("Profile deleted"),
    AuditAction.TENANT_ERASE: N_("Erased"),
    AuditAction.API_KEY_CREATE: N_("Created"),
    AuditAction.API_KEY_ROTATE: N_("Rotated"),
    AuditAction.API_KEY_REVOKE: N_("Revoked"),
    AuditAction.PERSON_CREATE: N_("Created"),
    AuditAction.PERSON_UPDATE: N_("Profile changed"),
    AuditAction.PERSON_INVITE: N_("Invited"),
    AuditAction.PERSON_RESET_PASSWORD: N_("Password reset requested"),
    AuditAction.PERSON_SET_PASSWORD: N_("Password changed"),
    AuditAction.PERSON_SET_ROLE: N_("Role given"),
    AuditAction.PERSON_REMOVE_ROLE: N_("Role taken away"),
    AuditAction.PERSON_DISABLE: NP_("audit", "Disabled"),
    AuditAction.PERSON_ENABLE: N_("Enabled"),
    AuditAction.PERSON_LINK: N_("Single sign-on linked"),
    AuditAction.PERSON_UNLINK: N_("Single sign-on unlinked"),
    AuditAction.PERSON_END_SESSIONS: N_("Sessions ended"),
    AuditAction.PERSON_LOG_IN: N_("Logged in"),
    AuditAction.PERSON_LOG_IN_FAILED: N_("Login failed"),
    AuditAction.PERSON_LOG_OUT: N_("Logged out"),
    AuditAction.PERSON_SET_SECOND_FACTOR: N_("Second factor turned on"),
    AuditAction.PERSON_REMOVE_SECOND_FACTOR: N_("Second factor turned off"),
    AuditAction.PERSON_RENEW_RECOVERY_CODES: N_("Recovery codes renewed"),
    AuditAction.PERSON_SET_NOTIFICATIONS: N_("Notifications changed"),
    AuditAction.PERSON_SET_KEYS: N_("Keys changed"),
    AuditAction.NOTIFICATION_SET_DEFAULT: N_("Defaults changed"),
    AuditAction.NOTIFICATION_RESEND: N_("Sent again"),
    AuditAction.AUDIT_DELETE: N_("Old entries deleted"),
    AuditAction.BACKUP_CREATE: N_("Backup taken"),
    AuditAction.BACKUP_RESTORE: N_("Restored from a backup"),
    AuditAction.BACKUP_RELEASE_HELD: N_("Held messages sent"),
    AuditAction.BACKUP_DROP_HELD: N_("Held messages dropped"),
    AuditAction.DATABASE_MOVE: N_("Database moved"),
    AuditAction.RETENTION_SET_RULE: N_("Rule set"),
    AuditAction.RETENTION_REMOVE_RULE: N_("Rule removed"),
    AuditAction.RETENTION_RUN: N_("Due runs removed"),
}
_OUTCOMES = {"approve": ReviewState.APPROVED, "send_back": ReviewState.SENT_BACK, "reject": ReviewState.REJECTED}
# The page of an object, if it has one.
_OBJECT_PATHS = {
    "run": "/runs/{}",
    "review": "/reviews/{}",
    "bulk_action": "/bulk-actions/{}",
    "schedule": "/schedules/{}",
    "delivery": "/deliveries/{}",
}


async def show_audit_log(context: PageContext) -> Response:
    query, wanted = context.query, _read_filter(context)
    before = parse_number(query.get("before", ""), 0) or None
    found = await context.client.audit.list(**wanted, before=before, limit=PAGE_SIZE + 1)
    page = found[:PAGE_SIZE]
    return context.render(
        "audit.html",
        entries=page,
        next=page[-1].id if len(found) > PAGE_SIZE else None,
        tenants=await context.client.tenants.list_names(),
        actors=await context.client.audit.list_actors(),
        object_kinds={kind: context.translate(name) for kind, name in OBJECT_KINDS.items()},
        actions=[(action, _name_action(context, action)) for action in AuditAction],
        describe_actor_kind=lambda kind: context.translate(ACTOR_KINDS[kind]),
        describe_action=lambda entry: _name_action(context, entry.action),
        link_to_object=link_to_object,
        review_titles=await _find_review_titles(context, page),
        find_outcome=lambda entry: _OUTCOMES.get((entry.after or {}).get("decision", "")),
        query=query,
        filtered=any(value is not None for value in wanted.values()) or before is not None,
        now=await context.client.now(),
    )


async def _find_review_titles(context: PageContext, entries: Sequence[AuditEntry]) -> dict[str, str]:
    """Return the titles of the reviews that are named, by id; those that were removed since have none."""
    titles: dict[str, str] = {}
    for review in {each.object_id for each in entries if each.object_kind == "review" and each.object_id}:
        with suppress(NotFound, ValueError):
            found = await context.client.reviews.get(UUID(review))
            titles[review] = found.run_title or (await context.client.runs.get(found.run)).about
    return titles


async def export_csv(context: PageContext) -> Response:
    return _export(context, "csv", "text/csv; charset=utf-8", _format_csv_part)


async def export_json(context: PageContext) -> Response:
    """Export one JSON object per line."""
    return _export(context, "jsonl", "application/jsonl; charset=utf-8", _format_json_part)


def link_to_object(entry: AuditEntry) -> str | None:
    path = _OBJECT_PATHS.get(entry.object_kind)
    return None if path is None or entry.object_id is None else path.format(quote(entry.object_id, safe=""))


def _read_filter(context: PageContext) -> dict[str, Any]:
    query = context.query
    names = ("actor", "action", "object_kind", "object_id", "tenant")
    wanted: dict[str, Any] = {name: query.get(name) or None for name in names}
    until = _read_day(context, "until")
    return wanted | {"since": _read_day(context, "since"), "until": until and until + timedelta(days=1)}


def _read_day(context: PageContext, name: str) -> datetime | None:
    """Return the start of the day in the viewer's time zone, or None for none or what is not a day."""
    try:
        return datetime.strptime(context.query.get(name, ""), "%Y-%m-%d").replace(tzinfo=context.time_zone)
    except (ValueError, OverflowError):
        return None


def _name_action(context: PageContext, action: str) -> str:
    """Return the name of an action, or the action itself if it is one of a later release."""
    known = ACTIONS.get(AuditAction(action)) if action in list(AuditAction) else None
    if known is None:
        return action
    return f"{context.translate(OBJECT_KINDS[action.partition('.')[0]])}: {context.translate(known)}"


Format = Callable[[Sequence[AuditEntry], bool], str]


def _export(context: PageContext, ending: str, media_type: str, format_part: Format) -> Response:
    name = f"audit-{datetime.now(UTC):%Y-%m-%d}.{ending}"
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    parts = _stream(context.client, _read_filter(context), format_part)
    return StreamingResponse(parts, 200, headers, media_type)


async def _stream(client: Client, wanted: Mapping[str, Any], format_part: Format) -> AsyncIterator[str]:
    """Yield all entries that match, newest first, without holding them all. New ones meanwhile are left out."""
    before: int | None = None
    while True:
        page = await client.audit.list(**wanted, before=before, limit=EXPORT_PAGE_SIZE)
        yield format_part(page, before is None)
        if len(page) < EXPORT_PAGE_SIZE:
            return
        before = page[-1].id


def _format_csv_part(entries: Sequence[AuditEntry], is_first: bool) -> str:
    rows = [[_to_cell(getattr(entry, name)) for name in _COLUMNS] for entry in entries]
    return format_csv([_COLUMNS, *rows] if is_first else rows)


def _format_json_part(entries: Sequence[AuditEntry], _: bool) -> str:
    return "".join(f"{msgspec.json.encode(entry).decode()}\n" for entry in entries)


def _to_cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value


PAGES = (
    Page("/audit", show_audit_log, scope=SCOPE),
    Page("/audit.csv", export_csv, scope=SCOPE),
    Page("/audit.jsonl", export_json, scope=SCOPE),
)
