"""Channels: tenants, each with what its videos have in common."""

from __future__ import annotations

from retoma import Client
from retoma.errors import NotFound
from retoma_apps.videos.models import Brief, Channel, Order


async def channel_of(client: Client, name: str) -> Channel:
    """As it was set, or with the usual defaults: a channel need not be set up before its first video."""
    try:
        return Channel.model_validate((await client.profile(name)).value)
    except NotFound:
        return Channel()


async def brief_of(client: Client, order: Order) -> Brief:
    """What is to be made: the order, with what it leaves open taken from its channel as it is today."""
    channel = await channel_of(client, order.channel)
    given = channel.model_dump() | order.model_dump(exclude_none=True, exclude={"webhook_url"})
    return Brief.model_validate(given | {"topic": order.topic.strip()})
