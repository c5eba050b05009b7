"""Notifications of people: preferences, messages, and what they say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from typing import Any
from uuid import UUID

from retoma.metrics import NotificationMetrics
from retoma.records import (
    Channel,
    ChannelDefault,
    ChannelPreference,
    Digest,
    MessageState,
    Notification,
    NotificationKind,
    NotificationMessage,
    NotificationSettings,
)
from retoma.store.database import Database
from retoma.store.rows import make_record
from retoma.store.statements import statements

_SQL = statements("notifications")


@dataclass(frozen=True)
class ClaimedMessage:
    """A message leased to this sender. `now` is the database's time. `address` is None if the person removed it."""

    id: UUID
    attempt: int
    schedule_attempt: int
    person: int
    channel: Channel
    created_at: datetime
    now: datetime
    name: str
    language: str | None
    time_zone: str | None
    address: str | None = field(repr=False)
    # As of the deliveries of webhooks, whose retry schedule it follows.
    schedule: str = "standard"
    retries: int | None = None


async def add_channel(database: Database, channel: Channel, kinds: Sequence[NotificationKind]) -> None:
    await database.fetch(_SQL["add_channel"], channel=channel, kinds=list(kinds))


async def list_channel_defaults(database: Database) -> list[ChannelDefault]:
    rows = await database.fetch(_SQL["list_channel_defaults"])
    return [
        ChannelDefault(Channel(row["channel"]), _parse_kinds(row["kinds"]) or (), Digest(row["digest"])) for row in rows
    ]


async def set_channel_default(
    database: Database, channel: Channel, kinds: Sequence[NotificationKind], digest: Digest
) -> bool:
    """Return whether a worker has registered the channel."""
    rows = await database.fetch(_SQL["set_channel_default"], channel=channel, kinds=list(kinds), digest=digest)
    return bool(rows)


async def get_settings(database: Database, person: int) -> NotificationSettings | None:
    """Return a person's preferences, or None if there is no such person."""
    quiet = await database.fetchrow(_SQL["get_quiet_hours"], person=person)
    if quiet is None:
        return None
    rows = await database.fetch(_SQL["list_preferences"], person=person)
    channels = tuple(
        make_record(
            ChannelPreference,
            row,
            channel=Channel(row["channel"]),
            kinds=_parse_kinds(row["kinds"]),
            digest=None if row["digest"] is None else Digest(row["digest"]),
        )
        for row in rows
    )
    return NotificationSettings(channels, quiet["quiet_from"], quiet["quiet_until"])


async def set_preference(database: Database, person: int, wanted: ChannelPreference) -> None:
    await database.fetch(
        _SQL["set_preference"],
        person=person,
        channel=wanted.channel,
        address=wanted.address,
        kinds=None if wanted.kinds is None else list(wanted.kinds),
        digest=wanted.digest,
    )


async def set_quiet_hours(database: Database, person: int, quiet_from: time | None, quiet_until: time | None) -> None:
    await database.fetch(_SQL["set_quiet_hours"], person=person, quiet_from=quiet_from, quiet_until=quiet_until)


async def notify_test(database: Database, person: int, channel: Channel) -> bool:
    """Return False if the channel has no address, or an earlier test is still on its way."""
    return bool(await database.fetch_value(_SQL["notify_test"], person=person, channel=channel))


async def notify_of_budget(database: Database, tenant: int | None, key: str, data: dict[str, Any]) -> None:
    """Notify the operators once for each `key`. `data` has `name`, and `used` and `limit` in millionths of a dollar."""
    await database.fetch(_SQL["notify_of_budget"], tenant=tenant, key=key, data=json.dumps(data))


async def claim_messages(
    database: Database, channels: Sequence[Channel], limit: int, per_channel: int, lease: timedelta
) -> list[ClaimedMessage]:
    rows = await database.fetch(
        _SQL["claim_messages"], channels=list(channels), limit=limit, per_channel=per_channel, lease=lease
    )
    return [make_record(ClaimedMessage, row, channel=Channel(row["channel"])) for row in rows]


async def prepare_message(database: Database, claimed: ClaimedMessage) -> list[Notification]:
    """Leave out what no longer matters, and return the rest: nothing if the message was cancelled or taken over."""
    rows = await database.fetch(_SQL["prepare_message"], id=claimed.id, attempt=claimed.attempt)
    return [make_record(Notification, row, "data", kind=NotificationKind(row["kind"])) for row in rows]


async def record_attempt(
    database: Database,
    claimed: ClaimedMessage,
    *,
    outcome: str,
    delay: timedelta,
    pause: timedelta | None,
    error: str | None,
) -> MessageState | None:
    """Return the message's state, or None if another sender has taken it: then nothing was written."""
    state = await database.fetch_value(
        _SQL["record_attempt"],
        id=claimed.id,
        attempt=claimed.attempt,
        outcome=outcome,
        delay=delay,
        pause=pause,
        error=error,
    )
    return None if state is None else MessageState(state)


async def list_messages(
    database: Database,
    *,
    person: int | None = None,
    states: Sequence[MessageState] | None = None,
    limit: int = 50,
) -> list[NotificationMessage]:
    """Return messages, newest first."""
    rows = await database.fetch(
        _SQL["list_messages"], person=person, states=None if states is None else list(states), limit=limit
    )
    return [
        make_record(
            NotificationMessage,
            row,
            channel=Channel(row["channel"]),
            state=MessageState(row["state"]),
            kinds=tuple(row["kinds"]),
        )
        for row in rows
    ]


async def resend_messages(database: Database, message: UUID | None) -> int:
    """Return the number of dead messages that are due again."""
    return int(await database.fetch_value(_SQL["resend_messages"], id=message))


async def delete_old(database: Database, limit: int) -> None:
    await database.fetch(_SQL["delete_old"], limit=limit)


async def get_metrics(database: Database) -> NotificationMetrics:
    return NotificationMetrics(**await database.fetch_one(_SQL["get_notification_metrics"]))


def _parse_kinds(kinds: Sequence[str] | None) -> tuple[NotificationKind, ...] | None:
    known = set(NotificationKind)
    return None if kinds is None else tuple(NotificationKind(each) for each in kinds if each in known)
