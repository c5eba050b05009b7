"""Figures about all runs, jobs and queues at once: what metrics show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from retoma.figures import DeliveryFigures, OpenReviews, PoolFigures, QueueFigures, Tally
from retoma.records import PipelineFigures
from retoma.states import RunState
from retoma.store import clock, reviews
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("gauges")
MOST_RUNS = 20_000  # no index holds what runs, so that a look goes through open runs one by one
MOST_TENANTS = 20  # of each queue, whose first job in line is looked at
MOST_ENDS = 10_000  # counted at a time; what is left is counted by the next look


Ages = dict[str, timedelta]


async def ages(database: Database) -> tuple[Ages, Ages]:
    """How long the job that comes next has been ready, by queue, and where it waits for a pool, by pool."""
    of_queues: Ages = {}
    of_pools: Ages = {}
    for row in await database.fetch(_SQL["oldest_ready"], most_tenants=MOST_TENANTS):
        found, name = (of_queues, row["queue"]) if row["pool"] is None else (of_pools, row["pool"])
        found[name] = max(row["age"], found.get(name, row["age"]))
    return of_queues, of_pools


async def queues(database: Database, ages: Ages, silence: timedelta, most_runs: int = MOST_RUNS) -> list[QueueFigures]:
    """A worker that was silent for longer than `silence` does not count. What runs is looked for in `most_runs`."""
    jobs: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in await database.fetch(_SQL["queue_figures"], most_runs=most_runs):
        jobs[row["queue"]][row["state"]] = row["jobs"]
    return [
        QueueFigures(row["queue"], jobs[row["queue"]], ages.get(row["queue"]), row["workers"], row["room"])
        for row in await database.fetch(_SQL["all_queues"], silence=silence)
    ]


async def queues_of_tenant(
    database: Database, tenant: int, silence: timedelta, most_runs: int = MOST_RUNS
) -> list[QueueFigures]:
    """Return every queue with the jobs of one tenant alone. Its workers serve all tenants."""
    jobs: defaultdict[str, dict[str, int]] = defaultdict(dict)
    ages: Ages = {}
    for row in await database.fetch(_SQL["queue_figures_of_tenant"], tenant=tenant, most_runs=most_runs):
        jobs[row["queue"]][row["state"]] = row["jobs"]
        if row["age"] is not None:
            ages[row["queue"]] = row["age"]
    return [
        QueueFigures(row["queue"], jobs[row["queue"]], ages.get(row["queue"]), row["workers"], row["room"])
        for row in await database.fetch(_SQL["all_queues"], silence=silence)
    ]


async def open_runs(database: Database) -> dict[tuple[str, RunState], int]:
    """By pipeline and state."""
    rows = await database.fetch(_SQL["open_runs"])
    return {(row["pipeline"], RunState(row["state"])): row["runs"] for row in rows}


async def open_and_stuck(database: Database) -> tuple[int, int]:
    """How many runs are not over, and how many of them are stuck."""
    row = await database.fetch_one(_SQL["count_open_runs"])
    return row["open"], row["stuck"]


async def runs_not_begun(database: Database) -> dict[str, int]:
    """By pipeline; those whose time has not come are left out."""
    rows = await database.fetch(_SQL["runs_not_begun"], most_runs=MOST_RUNS)
    return {row["pipeline"]: row["runs"] for row in rows}


async def open_reviews(database: Database) -> list[OpenReviews]:
    """By pipeline and step; where none is open there is no row."""
    found = await reviews.counts(database, tenant=None)
    now = await clock.now(database)
    return [OpenReviews(each.pipeline, each.step, each.open, each.overdue, now - each.oldest_at) for each in found]


async def tally(database: Database) -> None:
    """Count what has ended since the last time."""
    await database.fetch(_SQL["tally"], limit=MOST_ENDS)


async def tallies(database: Database) -> list[Tally]:
    """Brought up to date first."""
    await tally(database)
    return [Tally(**row) for row in await database.fetch(_SQL["tallies"])]


async def pools(database: Database, ages: Ages) -> list[PoolFigures]:
    rows = await database.fetch(_SQL["pool_figures"])
    return [PoolFigures(**row, oldest_for=ages.get(row["name"])) for row in rows]


async def deliveries(database: Database) -> DeliveryFigures:
    return DeliveryFigures(**await database.fetch_one(_SQL["delivery_figures"]))


async def of_pipeline(database: Database, pipeline: str, since: datetime, without: Sequence[str]) -> PipelineFigures:
    row = await database.fetch_one(_SQL["pipeline_figures"], pipeline=pipeline, since=since, without=list(without))
    return PipelineFigures(**dict(row))
