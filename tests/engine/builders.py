"""What the engine's tests share: looks at what the database has, and short ways to move a worker."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from retoma.engine.exchange import Claim, Lane, Result, SetBack, Wish
from retoma.store import workers
from retoma.testing import Hands, Sandbox
from retoma.worker.catalog import Catalog

SILENCE = timedelta(seconds=6)


async def rows(sandbox: Sandbox, sql: str, *values: Any) -> list[asyncpg.Record]:
    async with sandbox.database.connection() as connection, connection.transaction():
        return list(await connection.fetch(sql, *values))


async def value(sandbox: Sandbox, sql: str, *values: Any) -> Any:
    ((found,),) = await rows(sandbox, sql, *values)
    return found


async def states(sandbox: Sandbox, run: UUID) -> dict[str, str]:
    """The state of every job, by `step` or `step:item`."""
    return {name(job): str(job.state) for job in await sandbox.client.jobs(run)}


async def codes(sandbox: Sandbox, run: UUID) -> dict[str, str | None]:
    return {name(job): job.code for job in await sandbox.client.jobs(run)}


async def state(sandbox: Sandbox, run: UUID) -> str:
    return str((await sandbox.client.show(run)).state)


async def kinds(sandbox: Sandbox, run: UUID) -> list[str]:
    """The run's events, as `kind` or `kind step` or `kind step:item`."""
    return [f"{event.kind} {name(event)}".strip() for event in await sandbox.client.events(run)]


def name(thing: Any) -> str:
    """Of a claim, a job or an event."""
    return f"{thing.step}:{thing.item}" if thing.item else thing.step or ""


def names(claims: Iterable[Claim]) -> list[str]:
    return sorted(map(name, claims))


def one(claims: Iterable[Claim], wanted: str) -> Claim:
    (found,) = (claim for claim in claims if name(claim) == wanted)
    return found


async def do(hands: Hands, claims: Iterable[Claim], *wanted: str) -> list[str]:
    """Run these claims, or those of them that are named, and give them back in one call."""
    chosen = [claim for claim in claims if not wanted or name(claim) in wanted]
    assert len(chosen) == len(wanted) or not wanted, f"{wanted} are not all among {names(chosen)}"
    await hands.give_back(await hands.attempt(chosen))
    return names(chosen)


async def do_next(hands: Hands, *wanted: str) -> list[str]:
    """Claim all that is ready and do it; with names, the claim must have given exactly these."""
    claims = await hands.claim(100)
    if wanted:
        assert names(claims) == sorted(wanted)
    return await do(hands, claims)


class Reins:
    """A lane held by the test, with nothing between it and the database."""

    def __init__(self, sandbox: Sandbox, worker: int, lane: Lane, served: list[int]) -> None:
        self.worker = worker
        self.lane = lane
        self.served = served
        self.queues = sandbox.app.queues

    async def call(
        self,
        outcomes: Iterable[Result | SetBack] = (),
        *,
        room: int = 0,
        after: int = 0,
        suspect: bool = True,
        queues: list[str] | None = None,
    ) -> list[Claim]:
        """One exchange; gives all jobs of its answer."""
        results, setbacks = split(outcomes)
        answer = await self.lane.exchange(
            results, setbacks, Wish(queues or self.queues, self.served, after, room, suspect)
        )
        return [*answer.kept, *answer.claimed]

    def next_call(self, outcomes: Iterable[Result | SetBack] = (), *, room: int = 0) -> list[Any]:
        """What the lane's next exchange would be given, for a test that makes the call itself."""
        self.lane._call += 1
        results, setbacks = split(outcomes)
        return self.lane._arguments(results, setbacks, Wish(self.queues, self.served, 0, room, suspect=True))


def split(outcomes: Iterable[Result | SetBack]) -> tuple[list[Result], list[SetBack]]:
    given = list(outcomes)
    return [one for one in given if isinstance(one, Result)], [one for one in given if isinstance(one, SetBack)]


open_lanes: list[Lane] = []


async def a_lane(sandbox: Sandbox) -> Reins:
    """A new worker's lane, which is closed when the test has ended."""
    catalog = Catalog(sandbox.app)
    await catalog.open(sandbox.database)
    worker = await workers.register(sandbox.database, "reins", sandbox.app.queues, 1, 1)
    open_lanes.append(Lane(sandbox.database, worker, 1))
    return Reins(sandbox, worker, open_lanes[-1], catalog.served)


async def fall_silent(sandbox: Sandbox) -> list[tuple[int, int]]:
    """Let time pass in which no worker beats, and sweep."""
    await sandbox.clock.advance(SILENCE + timedelta(seconds=1))
    return await workers.sweep(sandbox.database, SILENCE)
