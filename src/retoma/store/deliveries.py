"""Deliveries of webhooks, their attempts, and their endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from retoma.records import Delivery, DeliveryAttempt, DeliveryDetails, Endpoint
from retoma.states import DeliveryState
from retoma.store.database import Database
from retoma.store.rows import make_record, parse_json
from retoma.store.statements import statements
from retoma.store.tenants import as_filter

_SQL = statements("deliveries")


@dataclass(frozen=True)
class ClaimedDelivery:
    """A delivery leased to this sender. `attempt` counts this attempt; `now` is the database's time."""

    id: UUID
    attempt: int
    schedule_attempt: int
    run: UUID
    seq: int
    event: str
    schedule: str
    retries: int | None
    body: str | None
    created_at: datetime
    endpoint: int
    url: str
    now: datetime
    secret: str = field(repr=False)
    previous_secret: str | None = field(repr=False)


@dataclass(frozen=True)
class RecordedAttempt:
    """`disabled` means that this attempt disabled the endpoint. `retry_in` is set if another attempt follows."""

    state: DeliveryState
    disabled: bool
    retry_in: timedelta | None


async def claim_deliveries(
    database: Database, pipelines: Sequence[str], limit: int, per_host: int, lease: timedelta
) -> list[ClaimedDelivery]:
    return await database.fetch_records(
        ClaimedDelivery, _SQL["claim_deliveries"], pipelines=pipelines, limit=limit, per_host=per_host, lease=lease
    )


async def freeze_body(database: Database, claimed: ClaimedDelivery, body: str) -> str | None:
    """Store the body unless one is stored. Return the stored one, or None if another sender has taken the delivery."""
    stored: str | None = await database.find_value(
        _SQL["freeze_body"], id=claimed.id, attempt=claimed.attempt, body=body
    )
    return stored


async def record_attempt(
    database: Database,
    claimed: ClaimedDelivery,
    *,
    outcome: str,
    delay: timedelta,
    pause: timedelta | None,
    took: timedelta,
    status: int | None = None,
    error: str | None = None,
    answer: str | None = None,
) -> RecordedAttempt | None:
    """Return the updated delivery, or None if another sender has taken it: then nothing was written."""
    row = await database.fetchrow(
        _SQL["record_attempt"],
        id=claimed.id,
        attempt=claimed.attempt,
        outcome=outcome,
        delay=delay,
        pause=pause,
        ms=round(took.total_seconds() * 1000),
        status=status,
        error=error,
        answer=answer,
    )
    return RecordedAttempt(DeliveryState(row["state"]), row["disabled"], row["retry_in"]) if row else None


@dataclass(frozen=True)
class DeliveryFilter:
    """`before` is the last id of the previous page."""

    tenants: Sequence[int] | None = None
    states: Sequence[DeliveryState] | None = None
    run: UUID | None = None
    endpoint: int | None = None
    pipelines: Sequence[str] | None = None
    id: UUID | None = None
    before: UUID | None = None
    limit: int = 50


async def list_deliveries(database: Database, wanted: DeliveryFilter) -> list[Delivery]:
    """Return deliveries, newest first."""
    rows = await database.fetch(_SQL["list_deliveries"], **vars(wanted) | as_filter(wanted.tenants))
    return [make_record(Delivery, row, state=DeliveryState(row["state"])) for row in rows]


async def get_delivery(database: Database, delivery: UUID, tenants: Sequence[int] | None) -> DeliveryDetails | None:
    """Return a delivery with its body and its attempts."""
    found = await list_deliveries(database, DeliveryFilter(id=delivery, tenants=tenants))
    if not found:
        return None
    body = (await database.fetch_one(_SQL["get_delivery_content"], id=delivery))["body"]
    attempts = await database.fetch(_SQL["list_delivery_attempts"], id=delivery)
    return DeliveryDetails(**vars(found[0]), body=body, attempts=tuple(map(_make_attempt, attempts)))


@dataclass(frozen=True)
class DeadLetterFilter:
    tenant: int | None = None
    id: UUID | None = None
    endpoint: int | None = None
    url: str | None = None
    since: datetime | None = None
    until: datetime | None = None


async def redeliver(database: Database, wanted: DeadLetterFilter) -> int:
    """Return the number of dead deliveries that are due again."""
    return int(await database.fetch_value(_SQL["redeliver"], **vars(wanted)))


async def list_endpoints(
    database: Database,
    *,
    tenants: Sequence[int] | None = None,
    id: int | None = None,  # noqa: A002
    subscribed: bool = False,
    before: int | None = None,
    limit: int = 100,
) -> list[Endpoint]:
    """Return endpoints, newest first. `before` is the last id of the previous page."""
    rows = await database.fetch(
        _SQL["list_endpoints"], tenants=tenants, id=id, subscribed=subscribed, before=before, limit=limit
    )
    return [make_record(Endpoint, row, events=tuple(row["events"] or ())) for row in rows]


async def get_event_data(database: Database, delivery: UUID) -> dict[str, Any]:
    """Return the data of the delivery's event, without that of its run."""
    return parse_json((await database.fetch_one(_SQL["get_delivery_content"], id=delivery))["data"]) or {}


async def count_subscriptions(database: Database, tenant: int) -> int:
    return int(await database.fetch_value(_SQL["count_subscriptions"], tenant=tenant))


async def subscribe(
    database: Database, tenant: int, *, url: str, host: str, events: Sequence[str], secret: str
) -> tuple[int, str]:
    """Return the endpoint's id and the secret for its host: the existing secret, or else `secret`."""
    row = await database.fetch_one(
        _SQL["subscribe"], tenant=tenant, url=url, host=host, events=list(events), secret=secret
    )
    return row["id"], row["secret"]


async def unsubscribe(database: Database, endpoint: int, tenant: int | None) -> bool:
    return bool(await database.fetch(_SQL["unsubscribe"], id=endpoint, tenant=tenant))


async def get_or_create_signing_key(database: Database, purpose: str, secret: str) -> str:
    """Return the secret for this purpose: the existing one, or else `secret`."""
    rows = await database.fetch(_SQL["get_or_create_signing_key"], purpose=purpose, secret=secret)
    # No row: another process has just created it, which only a new statement sees.
    return str(rows[0]["secret"]) if rows else await get_or_create_signing_key(database, purpose, secret)


async def enable_endpoint(database: Database, endpoint: int, tenant: int | None) -> bool:
    return bool(await database.fetch(_SQL["enable_endpoint"], id=endpoint, tenant=tenant))


async def rotate_secret(
    database: Database, endpoint: int, tenant: int | None, secret: str, overlap: timedelta
) -> str | None:
    """Return the host for which this tenant's webhooks are now signed with `secret`; None without such an endpoint."""
    host: str | None = await database.find_value(
        _SQL["rotate_secret"], id=endpoint, tenant=tenant, secret=secret, overlap=overlap
    )
    return host


def _make_attempt(row: asyncpg.Record) -> DeliveryAttempt:
    values: dict[str, Any] = {**row}
    ms = values.pop("ms")
    return DeliveryAttempt(**values, seconds=None if ms is None else ms / 1000)
