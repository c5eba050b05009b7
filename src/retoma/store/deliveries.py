"""Webhooks that are owed, their attempts, and the endpoints they go to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from retoma.records import Delivery, DeliveryAttempt, Endpoint
from retoma.states import DeliveryState
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("deliveries")


@dataclass(frozen=True)
class ClaimedDelivery:
    """A delivery that is ours to send until the lease ends. `tries` counts this one; `now` is the database's."""

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
    """`disabled` says that this attempt disabled the endpoint. `retry_in` is set if another attempt follows."""

    state: DeliveryState
    disabled: bool
    retry_in: timedelta | None


async def claim_deliveries(
    database: Database, pipelines: Sequence[str], limit: int, per_host: int, lease: timedelta
) -> list[ClaimedDelivery]:
    rows = await database.fetch(
        _SQL["claim_deliveries"], pipelines=list(pipelines), limit=limit, per_host=per_host, lease=lease
    )
    return [ClaimedDelivery(**row) for row in rows]


async def freeze_body(database: Database, claimed: ClaimedDelivery, body: str) -> str | None:
    """What is to be sent from now on: the body that was kept first. None if another has taken the delivery up."""
    row = await database.fetchrow(_SQL["freeze_body"], id=claimed.id, attempt=claimed.attempt, body=body)
    return row["body"] if row else None


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
    """How the delivery stands now. None if another has taken it up: then nothing was written."""
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


async def list_deliveries(
    database: Database,
    *,
    tenant: int | None = None,
    states: Sequence[DeliveryState] | None = None,
    run: UUID | None = None,
    endpoint: int | None = None,
    id: UUID | None = None,  # noqa: A002
    before: UUID | None = None,
    limit: int = 50,
) -> list[Delivery]:
    """Newest first. `before` is the last id of the page before."""
    rows = await database.fetch(
        _SQL["list_deliveries"],
        tenant=tenant,
        states=list(states) if states else None,
        run=run,
        endpoint=endpoint,
        id=id,
        before=before,
        limit=limit,
    )
    return [Delivery(**{**row, "state": DeliveryState(row["state"])}) for row in rows]


async def get_delivery(database: Database, delivery: UUID, tenant: int | None) -> Delivery | None:
    """One with its body and its attempts."""
    found = await list_deliveries(database, id=delivery, tenant=tenant, limit=1)
    if not found:
        return None
    body = await database.fetch_one(_SQL["get_delivery_body"], id=delivery)
    attempts = await database.fetch(_SQL["list_delivery_attempts"], id=delivery)
    return replace(found[0], body=body["body"], attempts=tuple(map(_attempt, attempts)))


async def find_by_id_range(database: Database, first: UUID, last: UUID, limit: int) -> list[UUID]:
    """The newest ids of deliveries in this range."""
    rows = await database.fetch(_SQL["find_deliveries_by_id_range"], first=first, last=last, limit=limit)
    return [row["id"] for row in rows]


async def redrive_deliveries(
    database: Database,
    *,
    tenant: int | None = None,
    id: UUID | None = None,  # noqa: A002
    endpoint: int | None = None,
    url: str | None = None,
    from_at: datetime | None = None,
    to_at: datetime | None = None,
) -> int:
    """How many dead deliveries are due again."""
    row = await database.fetch_one(
        _SQL["redrive_deliveries"], tenant=tenant, id=id, endpoint=endpoint, url=url, from_at=from_at, to_at=to_at
    )
    return int(row["deliveries"])


async def list_endpoints(
    database: Database,
    *,
    tenant: int | None = None,
    id: int | None = None,  # noqa: A002
    subscribed: bool = False,
    before: int | None = None,
    limit: int = 100,
) -> list[Endpoint]:
    """Newest first. `before` is the last id of the page before."""
    rows = await database.fetch(
        _SQL["list_endpoints"], tenant=tenant, id=id, subscribed=subscribed, before=before, limit=limit
    )
    return [Endpoint(**{**row, "events": tuple(row["events"] or ())}) for row in rows]


async def get_event_data(database: Database, delivery: UUID) -> dict[str, Any]:
    """Return what the event of this delivery says beside its run."""
    row = await database.fetch_one(_SQL["get_event_data"], id=delivery)
    return json.loads(row["data"]) if row["data"] else {}


async def count_subscriptions(database: Database, tenant: int) -> int:
    row = await database.fetch_one(_SQL["count_subscriptions"], tenant=tenant)
    return int(row["subscriptions"])


async def subscribe(
    database: Database, tenant: int, *, url: str, host: str, events: Sequence[str], secret: str
) -> tuple[int, str]:
    """Return the endpoint's id and the secret that signs what is sent to its host: `secret`, unless there was one."""
    row = await database.fetch_one(
        _SQL["subscribe"], tenant=tenant, url=url, host=host, events=list(events), secret=secret
    )
    return row["id"], row["secret"]


async def unsubscribe(database: Database, endpoint: int, tenant: int | None) -> bool:
    return bool(await database.fetch(_SQL["unsubscribe"], id=endpoint, tenant=tenant))


async def get_or_create_signing_key(database: Database, purpose: str, secret: str) -> str:
    """Return the secret of this purpose: `secret`, if there was none yet."""
    rows = await database.fetch(_SQL["get_or_create_signing_key"], purpose=purpose, secret=secret)
    # No row: somebody else has made it just now, which only a new statement sees.
    return str(rows[0]["secret"]) if rows else await get_or_create_signing_key(database, purpose, secret)


async def enable_endpoint(database: Database, endpoint: int, tenant: int | None) -> bool:
    return bool(await database.fetch(_SQL["enable_endpoint"], id=endpoint, tenant=tenant))


async def rotate_secret(
    database: Database, endpoint: int, tenant: int | None, secret: str, overlap: timedelta
) -> str | None:
    """The host whose webhooks of this tenant are now signed with `secret`; None if there is no such endpoint."""
    row = await database.fetchrow(_SQL["rotate_secret"], id=endpoint, tenant=tenant, secret=secret, overlap=overlap)
    return row["host"] if row else None


def _attempt(row: asyncpg.Record) -> DeliveryAttempt:
    values: dict[str, Any] = {**row}
    ms = values.pop("ms")
    return DeliveryAttempt(**values, took=None if ms is None else timedelta(milliseconds=ms))
