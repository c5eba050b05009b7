"""The budget of a channel: what each of its videos may cost before a person is asked."""

from __future__ import annotations

from retoma import Client
from retoma.errors import NotFound
from retoma.records import BudgetPeriod
from retoma_apps.media.models import Channel
from retoma_apps.videos.pipeline import longform

MICROS_PER_DOLLAR = 1_000_000


async def apply_budget(client: Client, name: str, channel: Channel) -> None:
    """Limit each video of the channel to the channel's number of US dollars. Zero removes the limit."""
    if channel.budget > 0:
        micros = round(channel.budget * MICROS_PER_DOLLAR)
        await client.budgets.set(name, BudgetPeriod.RUN, micros, pipeline=longform.name)
    elif await _has_budget(client, name):
        await client.budgets.remove(name, BudgetPeriod.RUN, pipeline=longform.name)


async def ensure_budget(client: Client, name: str, channel: Channel) -> None:
    """Apply the channel's number if it has not been applied. A limit that somebody has changed since is kept."""
    if channel.budget > 0 and not await _has_budget(client, name):
        await apply_budget(client, name, channel)


async def _has_budget(client: Client, name: str) -> bool:
    try:
        await client.budgets.get(name, BudgetPeriod.RUN, pipeline=longform.name)
    except NotFound:
        return False
    return True
