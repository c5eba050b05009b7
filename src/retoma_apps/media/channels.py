"""Channels: tenants with common settings for their films, whichever application produces them."""

from __future__ import annotations

from retoma import Client
from retoma.errors import NotFound
from retoma.server import Principal, Problem
from retoma_apps.media.models import Channel


async def get_channel(client: Client, name: str) -> Channel:
    """Return the channel, or defaults: a channel need not be set up before its first video."""
    return (await get_channel_and_revision(client, name))[0]


async def get_channel_and_revision(client: Client, name: str) -> tuple[Channel, int]:
    """Return the channel and the revision to pass to `set_profile`."""
    try:
        profile = await client.tenants.get_profile(name)
    except NotFound:
        return Channel(), 0
    return Channel.model_validate(profile.value), profile.revision


def check_own_channel(by: Principal, channel: str) -> None:
    """Raise a Problem (404) for a channel that the principal does not see."""
    if not by.sees(channel):
        raise Problem(404, "NOT_FOUND", f"there is no channel {channel!r}")
