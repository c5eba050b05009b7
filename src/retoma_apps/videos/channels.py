"""Channels: tenants, each with what its videos have in common."""

from __future__ import annotations

from uuid import UUID

from retoma import Client, Webhook
from retoma.errors import InvalidInput, NotFound
from retoma_apps.videos.models import Brief, Channel, Order
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.voices import speaks


class TooLate(InvalidInput):
    """A video is ordered for a time that has passed, or begins after it should be public."""

    def __init__(self, field: str, message_key: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.message_key = message_key


async def get_channel(client: Client, name: str) -> Channel:
    """As it was set, or with the usual defaults: a channel need not be set up before its first video."""
    return (await get_channel_and_revision(client, name))[0]


async def get_channel_and_revision(client: Client, name: str) -> tuple[Channel, int]:
    """The same, with the revision that `set_profile` takes from whoever changes it."""
    try:
        profile = await client.tenants.get_profile(name)
    except NotFound:
        return Channel(), 0
    return Channel.model_validate(profile.value), profile.revision


async def start_video(client: Client, order: Order, *, key: str | None) -> UUID:
    """The run of a new video, or under a key that the same order came with before, the run of then.

    Raises Conflict if the key is another order's, and TooLate.
    """
    late = await _find_lateness(client, order)
    if late and not (key and await client.runs.find_by_key(key, longform, tenant=order.channel)):
        raise late
    told = Webhook(order.webhook_url) if order.webhook_url else None
    brief = await _create_brief(client, order)
    started = await client.start(
        longform, brief, tenant=order.channel, key=key, webhook=told, request=order, run_at=order.start_at
    )
    return started.id


async def _find_lateness(client: Client, order: Order) -> TooLate | None:
    """Return what is wrong with the times of an order, or None."""
    start, public, now = order.start_at, order.scheduled_for, await client.now()
    if public is not None and public <= now:
        why = "this time has passed; name one to come, or none to publish when it is approved"
        return TooLate("scheduled_for", "too late", why)
    if start is not None and start <= now:
        return TooLate("start_at", "too late", "this time has passed; name one to come, or none to start now")
    if start is not None and public is not None and start >= public:
        return TooLate("start_at", "starts after", "work must begin before scheduled_for, when the video is published")
    return None


async def _create_brief(client: Client, order: Order) -> Brief:
    """What is to be made: the order, with what it leaves open taken from its channel as it is today."""
    channel = await get_channel(client, order.channel)
    given = channel.model_dump(exclude={"account"}) | order.model_dump(
        exclude_none=True, exclude={"webhook_url", "channel", "start_at"}
    )
    if not speaks(channel.voice, given["language"]):
        given["voice"] = ""
    return Brief.model_validate(given | {"topic": order.topic.strip()})
