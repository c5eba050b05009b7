"""What stories have cost, and an estimate of what a number of them would cost in a day.

Both are the prices of providers only: computing is not part of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

from retoma import Client
from retoma_apps.stories.models import DEFAULT_SCENES
from retoma_apps.stories.pipeline import story
from retoma_apps.stories.steps.prices import PRICES

STORIES_A_DAY = (10, 50, 100)
DAYS = 14
_MOST_TOTALS = 10_000


@dataclass(frozen=True)
class Estimate:
    """A day without retries. `jobs` and `dollars` are by job type."""

    stories: int
    jobs: Mapping[str, int]
    dollars: Mapping[str, Decimal]

    @property
    def total(self) -> Decimal:
        return sum(self.dollars.values(), Decimal(0))


def estimate_day(stories: int, *, scenes: int = DEFAULT_SCENES, prices: Mapping[str, Decimal] = PRICES) -> Estimate:
    """Return what so many stories cost in a day: one job of each priced type for each scene."""
    jobs = dict.fromkeys(prices, stories * scenes)
    return Estimate(stories, jobs, {kind: jobs[kind] * price for kind, price in prices.items()})


@dataclass(frozen=True)
class Costs:
    """Recorded charges in millionths of a US dollar, those of retries included. `unpriced` charges are left out."""

    by_day: Mapping[date, int]
    by_story: Mapping[UUID, int]
    by_type: Mapping[str, int]
    total: int
    unpriced: int


async def get_costs(client: Client, *, tenant: str | None = None, days: int = DAYS) -> Costs:
    """Return the costs of the last days, today included, in days of UTC."""
    now = await client.now()
    since = datetime.combine(now.date() - timedelta(days=days - 1), time(), now.tzinfo)
    totals = await client.costs.get_totals(
        by=("day", "run", "step"), tenant=tenant, pipeline=story.name, since=since, limit=_MOST_TOTALS
    )
    by_day = {(now - timedelta(days=ago)).date(): 0 for ago in range(days)}
    by_story: dict[UUID, int] = {}
    by_type: dict[str, int] = {}
    for each in totals:
        if each.day is not None and each.run is not None and each.step is not None:
            by_day[each.day] = by_day.get(each.day, 0) + each.micros
            by_story[each.run] = by_story.get(each.run, 0) + each.micros
            by_type[each.step] = by_type.get(each.step, 0) + each.micros
    return Costs(by_day, by_story, by_type, sum(by_day.values()), sum(each.unpriced for each in totals))


async def get_story_cost(client: Client, run: UUID) -> int:
    """Return what a story has cost so far, retries included, in millionths of a US dollar."""
    return sum(each.micros for each in await client.costs.get_totals(by=(), run=run))
