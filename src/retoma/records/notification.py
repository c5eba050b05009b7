"""Notifications that people receive: their kinds, their channels, and when they are sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, time
from enum import StrEnum
from typing import Any
from uuid import UUID

from retoma.translations import N_


class NotificationKind(StrEnum):
    REVIEW_OPENED = "review.opened"
    REVIEW_ASSIGNED = "review.assigned"
    REVIEW_DUE = "review.due"
    REVIEW_ESCALATED = "review.escalated"
    RUN_STUCK = "run.stuck"
    RUN_FAILED = "run.failed"
    DELIVERY_DEAD = "delivery.dead"
    BUDGET = "budget"
    TEST = "test"


KIND_NAMES = {
    NotificationKind.REVIEW_OPENED: N_("Review waiting"),
    NotificationKind.REVIEW_ASSIGNED: N_("Review assigned to you"),
    NotificationKind.REVIEW_DUE: N_("Review due"),
    NotificationKind.REVIEW_ESCALATED: N_("Review escalated"),
    NotificationKind.RUN_STUCK: N_("Run stuck"),
    NotificationKind.RUN_FAILED: N_("Run failed"),
    NotificationKind.DELIVERY_DEAD: N_("Webhook not delivered"),
    NotificationKind.BUDGET: N_("Budget nearly used up"),
    NotificationKind.TEST: N_("Test notification"),
}
# What people can choose. A test is sent on request only.
CHOSEN_KINDS = tuple(kind for kind in NotificationKind if kind is not NotificationKind.TEST)


class Channel(StrEnum):
    EMAIL = "email"
    SLACK = "slack"
    TELEGRAM = "telegram"


class Digest(StrEnum):
    """When to send: at once, at the next full hour, or at 8 in the morning in the person's time zone."""

    IMMEDIATELY = "immediately"
    HOURLY = "hourly"
    DAILY = "daily"


class MessageState(StrEnum):
    DUE = "due"
    SENDING = "sending"
    SENT = "sent"
    DEAD = "dead"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class ChannelDefault:
    """A channel that a worker can send through, with the preferences of people who have none of their own."""

    channel: Channel
    kinds: tuple[NotificationKind, ...]
    digest: Digest


@dataclass(frozen=True)
class ChannelPreference:
    """What a person receives through a channel. `kinds` and `digest` are None where the channel's default applies.

    `address` is the URL of a Slack webhook, which is a secret, or the chat of Telegram; e-mail goes to the person's
    address.
    """

    channel: Channel
    kinds: tuple[NotificationKind, ...] | None = None
    digest: Digest | None = None
    address: str | None = field(default=None, repr=False)
    disabled_at: datetime | None = None
    disabled_because: str | None = None


@dataclass(frozen=True)
class NotificationSettings:
    """The preferences of one person. Nothing is sent between `quiet_from` and `quiet_until`, in the person's time."""

    channels: tuple[ChannelPreference, ...]
    quiet_from: time | None = None
    quiet_until: time | None = None

    def get_channel(self, channel: Channel) -> ChannelPreference:
        return next((each for each in self.channels if each.channel == channel), ChannelPreference(channel))


@dataclass(frozen=True)
class NotificationMessage:
    """A message to one person, with everything that was due then. `next_at` is set while another attempt follows."""

    id: UUID
    person: int
    person_name: str
    channel: Channel
    state: MessageState
    attempt: int
    kinds: tuple[str, ...]
    created_at: datetime
    next_at: datetime | None
    ended_at: datetime | None
    error: str | None


@dataclass(frozen=True)
class Notification:
    """One event for one person, with what its text needs. `tenant` is None for an event of no tenant."""

    id: int
    kind: NotificationKind
    tenant: str | None
    run: UUID | None
    run_title: str | None
    pipeline: str | None
    review: UUID | None
    step: str | None
    item: str | None
    due_at: datetime | None
    delivery: UUID | None
    data: dict[str, Any] | None
    created_at: datetime
