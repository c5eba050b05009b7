"""Channels: tenants with common settings for their videos."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from retoma import Client, Webhook
from retoma.errors import AccessDenied, InvalidInput
from retoma_apps.media.channels import get_channel
from retoma_apps.media.models import Channel
from retoma_apps.media.voices import speaks
from retoma_apps.providers.topics import find_topic
from retoma_apps.videos.models import Brief, Order, VideoOrder
from retoma_apps.videos.operations.budgets import ensure_budget
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.steps.writing.bundled import NeedsLanguageModel
from retoma_apps.videos.steps.writing.port import Writer


class TooLate(InvalidInput):
    """A video is ordered for a time in the past, or would start after its publication."""

    def __init__(self, field: str, message_key: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.message_key = message_key
        self.reason = reason


async def start_video(client: Client, order: Order, writer: Writer, *, key: str | None) -> UUID:
    """Start a video and return its run; the same order under the same key returns the first run.

    Raise Conflict if the key belongs to another order, TooLate, or NeedsLanguageModel if this writer does not know the
    topic.
    """
    channel = await get_channel(client, order.channel)
    brief = create_brief(order, channel, writer)
    problem = find_lateness(order, order.start_at, await client.now()) or find_topic_problem(brief, writer)
    if problem and not (key and await client.runs.find_by_key(key, longform, tenant=order.channel)):
        raise problem
    await ensure_budget(client, order.channel, channel)
    webhook = Webhook(order.webhook_url) if order.webhook_url else None
    started = await client.start(
        longform, brief, tenant=order.channel, key=key, webhook=webhook, request=order, run_at=order.start_at
    )
    return started.id


def find_lateness(order: VideoOrder, start: datetime | None, now: datetime) -> TooLate | None:
    """Return the problem with the times of an order, or None."""
    public = order.scheduled_for
    if public is not None and public <= now:
        reason = "this time is in the past; choose a later one, or leave it out to publish after approval"
        return TooLate("scheduled_for", "too late", reason)
    if start is not None and start <= now:
        return TooLate(
            "start_at", "too late", "this time is in the past; choose a later one, or leave it out to start now"
        )
    if start is not None and public is not None and start >= public:
        return TooLate("start_at", "starts after", "work must start before scheduled_for, when the video is published")
    return None


def find_topic_problem(brief: Brief, writer: Writer) -> NeedsLanguageModel | None:
    """Return the problem with the topic of an order, or None."""
    is_known = writer.topics is None or find_topic(brief.topic, brief.language) in writer.topics
    return None if is_known else NeedsLanguageModel(brief.topic, brief.language)


def create_brief(order: VideoOrder, channel: Channel, writer: Writer) -> Brief:
    """Return the order, completed with its channel's current settings. A bundled topic that exists only in another
    language than the channel's keeps that language."""
    values = channel.model_dump(exclude={"account"}) | order.model_dump(
        exclude_none=True, include={"language", "scheduled_for"}
    )
    if writer.topics and order.language is None and not find_topic(order.topic, channel.language):
        bundled = find_topic(order.topic)
        values["language"] = bundled.language if bundled else channel.language
    if not speaks(channel.voice, values["language"]):
        values["voice"] = ""
    return Brief.model_validate(values | {"topic": order.topic.strip()})


def check_account(client: Client, channel: Channel, stored: Channel) -> None:
    """Raise AccessDenied if the account changes and the caller may not act on all channels: it may be another's."""
    if client.allowed_tenants is not None and channel.account != stored.account:
        raise AccessDenied("the `account` of a channel can only be changed with access to all tenants: leave it out")
