"""For tests of pipelines: a fresh database, a clock that the test sets, and runs that end in milliseconds.

    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(article, {"topic": "fixed income"})
        assert run.state == "completed"

Nothing sleeps: a retry that is due in ten minutes is due as soon as nothing else is left to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from retoma.app import App
from retoma.client import Client, Input
from retoma.define.pipeline import Pipeline
from retoma.engine import watchdog
from retoma.engine.exchange import Claim, Lane, Result, SetBack, Wish
from retoma.engine.tenants import Tenants
from retoma.identifiers import Handle
from retoma.outgoing import LOOPBACK, Guard, Outgoing
from retoma.settings import Settings
from retoma.states import RunState
from retoma.store import clock, workers
from retoma.store.database import Database
from retoma.store.scratch import fresh_database
from retoma.webhooks.sender import Sender
from retoma.worker.catalog import Catalog
from retoma.worker.children import Children
from retoma.worker.desk import Desks
from retoma.worker.poller import Poller
from retoma.worker.runner import Runner
from retoma.worker.threads import Threads
from retoma.worker.workload import Workload

__all__ = ["Clock", "EndedRun", "Hands", "Sandbox", "fresh_database", "sandbox"]

PUBLIC_URL = "https://retoma.test"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class EndedRun:
    id: UUID
    state: RunState
    results: dict[str, Any]


class Clock:
    """The database's clock, which stands still until the test moves it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self) -> datetime:
        return await clock.now(self._database)

    async def set(self, at: datetime) -> None:
        await clock.set_to(self._database, at)

    async def advance(self, by: timedelta) -> None:
        await self.set(await self.now() + by)


class Sandbox:
    """An application on a database of its own, with time and work in the hands of the test."""

    def __init__(self, app: App, database: Database) -> None:
        self.app = app
        self.database = database
        self.clock = Clock(database)
        self.client = Client(app, database, Guard.allow(LOOPBACK))

    async def run(self, pipeline: Pipeline | str, given: Input = None, **options: Any) -> EndedRun:
        """Start a run and work until nothing is left to do."""
        started = await self.client.start(pipeline, given, **options)
        await self.work()
        run = await self.client.show(started.id)
        return EndedRun(run.id, run.state, await self.client.results(run.id))

    async def work(self, *, until_later: bool = True) -> int:
        """Run all that is ready, and with `until_later` also what is due later; gives the number of attempts."""
        async with self.hands() as hands:
            return await self._work(hands, until_later)

    async def send_webhooks(self, settings: Settings | None = None) -> int:
        """Send the webhooks that are due, as the sender does; receivers may be on this machine. Gives the attempts."""
        async with Outgoing(self.client.guard) as outgoing:
            return await Sender(self.client, settings or Settings(), outgoing).send_due()

    async def watch(self) -> int:
        """Look after runs that stand still or are late, as workers do every second; gives how many were looked at."""
        return await watchdog.look(self.database, self.client.silence)

    @asynccontextmanager
    async def hands(self) -> AsyncIterator[Hands]:
        """A worker whose every claim and every outcome is an act of the test."""
        catalog = Catalog(self.app)
        await catalog.open(self.database)
        worker = await workers.register(self.database, "sandbox", self.app.queues, 1, 1, pipelines=catalog.pipelines)
        hands = Hands(self.app, self.database, catalog, worker)
        async with catalog.opened_resources():
            try:
                yield hands
            finally:
                await hands.close()

    async def _work(self, hands: Hands, until_later: bool) -> int:
        attempts = 0
        while True:
            outcomes = await hands.attempt(await hands.claim(100))
            await hands.give_back(outcomes)
            attempts += len(outcomes)
            if not outcomes and not await hands.look() and not await self._next_due(until_later):
                return attempts

    async def _next_due(self, until_later: bool) -> bool:
        """Make due work ready, moving the clock to the next if need be. False if there is none."""
        found = await workers.promote(self.database, limit=1_000)
        if found.promoted:
            return True
        ahead = [one for one in (found.next_in, found.look_in) if one is not None]
        if not ahead or not until_later:
            return False
        await self.clock.advance(max(min(ahead), timedelta(0)))
        return True


class Hands:
    """A worker moved by the test, step by step."""

    def __init__(self, app: App, database: Database, catalog: Catalog, worker: int) -> None:
        self.worker = worker
        self.refused = 0
        self._app = app
        self._database = database
        self._catalog = catalog
        self._threads = Threads(8)
        self._children = Children()
        desks = Desks(database, PUBLIC_URL, app.name, app.files)
        desks.worker = worker
        self._ledger = desks.ledger
        self._runner = Runner(catalog, Tenants(database), self._threads, self._children, desks)
        self._poller = Poller(database, catalog, on_end=lambda: None)
        self._poller.worker = worker
        self._lane = Lane(database, worker, 1)
        self._held: set[Handle] = set()

    @property
    def versions(self) -> list[int]:
        """The versions of pipelines that this worker serves."""
        return list(self._catalog.served)

    async def claim(self, room: int = 1, *, queues: list[str] | None = None) -> list[Claim]:
        return await self._exchange([], [], room, queues)

    async def attempt(self, claims: list[Claim]) -> list[Result | SetBack]:
        """Run these jobs as a worker does, to their ends or timeouts."""
        ended = asyncio.Event()
        workload = Workload(self._runner, max(1, len(claims)), ended.set)
        workload.take(claims)
        outcomes: dict[Handle, Result | SetBack] = {}
        while len(outcomes) < len(claims):
            await ended.wait()
            ended.clear()
            for some in workload.collect():
                outcomes |= {outcome.claim.handle: outcome for outcome in some}
        await self._runner.tell([*outcomes.values()])
        return [outcomes[claim.handle] for claim in claims]

    async def look(self) -> int:
        """Look at the outside work that is due now; gives how much there was."""
        return await self._poller.look()

    async def give_back(self, outcomes: list[Result | SetBack], room: int = 0) -> list[Claim]:
        """Give back outcomes, and claim up to `room` jobs in the same call."""
        results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
        setbacks = [outcome for outcome in outcomes if isinstance(outcome, SetBack)]
        return await self._exchange(results, setbacks, room)

    async def close(self) -> None:
        """Stop as a worker does that is asked to: what is still held goes back."""
        await workers.end(self._database, self.worker)
        await self.abandon()

    async def abandon(self) -> None:
        """Vanish, as a killed process does; the database is told nothing."""
        self._threads.close()
        await self._children.close()
        await self._lane.close()

    async def _exchange(
        self, results: list[Result], setbacks: list[SetBack], room: int, queues: list[str] | None = None
    ) -> list[Claim]:
        wish = Wish(queues or self._app.queues, self._catalog.served, after=0, room=room, suspect=True)
        await self._ledger.flush()
        answer = await self._lane.exchange(results, setbacks, wish)
        self.refused += answer.refused
        self._held -= {result.claim.handle for result in results} | {setback.claim.handle for setback in setbacks}
        if answer.replayed:
            answer.claimed = [claim for claim in await self._lane.held() if claim.handle not in self._held]
        taken = self._runner.taken(answer, results)
        self._held |= {claim.handle for claim in taken}
        return taken


@asynccontextmanager
async def sandbox(app: App, database: Database | None = None) -> AsyncIterator[Sandbox]:
    """A sandbox whose clock stands at noon of 1 January 2030, on a fresh database unless one is given."""
    if database is None:
        async with fresh_database() as database, sandbox(app, database) as made:
            yield made
        return
    await clock.make_settable(database)
    made = Sandbox(app, database)
    await made.clock.set(NOON)
    try:
        yield made
    finally:
        await made.client.close()
