"""One life of a worker: from registering under a new id until it has drained or was declared dead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from retoma.engine.exchange import Answer, Lane, Result, SetBack, Wish
from retoma.engine.loops import kept_going
from retoma.engine.tenants import Tenants
from retoma.errors import DatabaseUnavailable, Unrecordable, WorkerGone
from retoma.logs import get_logger
from retoma.settings import Settings
from retoma.store import workers
from retoma.store.database import Database
from retoma.worker.attempt import told
from retoma.worker.catalog import Catalog
from retoma.worker.children import Children
from retoma.worker.desk import Desks
from retoma.worker.heart import Heart
from retoma.worker.poller import Poller
from retoma.worker.runner import Runner
from retoma.worker.threads import Threads
from retoma.worker.upkeep import Upkeep
from retoma.worker.wakeup import Wakeup
from retoma.worker.workload import Workload

log = get_logger("retoma.worker")

INTERRUPT_GRACE = 3.0
LONGEST_FAREWELL = 10.0  # seconds for the database to hear that this worker ends
PAUSE_AFTER_REFUSAL = 1.0
LANES = 2  # while one waits for the database, the jobs of the other run


class Life:
    def __init__(
        self,
        database: Database,
        settings: Settings,
        catalog: Catalog,
        wakeup: Wakeup,
        threads: Threads,
        children: Children,
        *,
        queues: list[str],
        concurrency: int,
        on_blocked: Callable[[], None],
    ) -> None:
        self.id = 0
        self.refused = 0
        self._database = database
        self._settings = settings
        self._silence = settings.silence
        self._catalog = catalog
        self._wakeup = wakeup
        self._desks = Desks(database, settings.public_url, catalog.app_name, catalog.files)
        self._runner = Runner(catalog, Tenants(database), threads, children, self._desks)
        self._poller = Poller(database, catalog, self._on_outside_end, self._holds_suspect)
        self._queues = queues
        self._on_blocked = on_blocked
        self._workload = Workload(self._runner, concurrency, wakeup.outcome)
        self._lanes: list[Lane] = []
        self._serving: list[asyncio.Task[None]] = []
        self._reserved = 0  # room that a call under way may fill
        self._asking_for_suspect = False  # in a call under way: two may not run at once
        self._after = 0  # the tenant served last
        self._gone = asyncio.Event()
        self._draining = asyncio.Event()

    async def live(self, name: str, concurrency: int) -> None:
        """Work until drained or declared dead."""
        self.id = await workers.register(
            self._database,
            name,
            self._queues,
            concurrency,
            LANES,
            self._silence,
            self._catalog.pipelines,
            self._settings.allow_hosts,
        )
        self._desks.worker = self._poller.worker = self.id
        log.info("worker ready", worker=self.id, queues=self._queues, concurrency=concurrency)
        loop = asyncio.get_running_loop()
        heart = Heart(
            self._database,
            self.id,
            self._silence,
            on_death=lambda: _from_thread(loop, self._die),
            overdue=lambda: [*self._workload.overdue, *self._poller.overdue],
            on_blocked=self._on_blocked,
        )
        heart.start()
        self._lanes = [Lane(self._database, self.id, number) for number in range(1, LANES + 1)]
        try:
            await self._work()
        finally:
            self._workload.drop()
            heart.stop()
            for lane in self._lanes:
                await lane.close()

    def drain(self) -> None:
        """Take nothing new; end when all that runs has ended, or has been given back after the drain time."""
        if not self._draining.is_set():
            self._draining.set()
            self._workload.close()
            asyncio.get_running_loop().call_later(self._settings.drain_seconds, self.interrupt)

    def interrupt(self) -> None:
        """Give back what still runs. What ignores that is left behind, and a database that does not answer too."""
        self._workload.interrupt()
        asyncio.get_running_loop().call_later(INTERRUPT_GRACE, self._leave)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            loops = {"upkeep": self._upkeep().run, "outside": self._poller.run, "charges": self._desks.ledger.run}
            beside = [group.create_task(kept_going(name, loop)) for name, loop in loops.items()]
            self._serving = [group.create_task(self._serve(lane)) for lane in self._lanes]
            await asyncio.wait(self._serving)
            for task in beside:
                task.cancel()
        await self._say_goodbye()

    def _leave(self) -> None:
        self._workload.drop()
        for task in self._serving:
            task.cancel()

    async def _say_goodbye(self) -> None:
        """What is still held goes back now, or if the database does not answer, when this worker has been silent."""
        try:
            async with asyncio.timeout(LONGEST_FAREWELL if self._draining.is_set() else None):
                await self._desks.ledger.flush()
                if not self._gone.is_set():
                    await workers.end(self._database, self.id)
        except (TimeoutError, DatabaseUnavailable) as error:
            log.warning("the database does not know that this worker ends", worker=self.id, error=error)

    def _upkeep(self) -> Upkeep:
        return Upkeep(
            self._database,
            silence=self._silence,
            refresh=lambda: self._catalog.refresh(self._database),
            worker=self.id,
            at_work=lambda: self._workload.at_work,
            on_unwanted=self._workload.cancel,
            on_work=self._wakeup.set,
            on_look=self._poller.wake,
        )

    def _on_outside_end(self) -> None:
        """Its job goes on, and its slots are free."""
        self._wakeup.set()
        self._wakeup.tell_others()

    def _die(self) -> None:
        if not self._gone.is_set():
            log.warning("declared dead; what was held runs elsewhere", worker=self.id)
            self._gone.set()
            self._workload.drop()
            self._wakeup.set()

    async def _serve(self, lane: Lane) -> None:
        while not self._is_over():
            await self._wakeup.wait(self._must_call, lambda: self._room > 0)
            try:
                async with lane.busy:
                    replayed = await self._give_and_take(lane)
                if replayed:
                    await self._recover(lane)
            except WorkerGone:
                self._die()

    def _is_over(self) -> bool:
        drained = self._draining.is_set() and self._workload.is_idle
        return self._gone.is_set() or drained

    def _must_call(self) -> bool:
        return self._workload.has_outcomes or self._is_over()

    @property
    def _room(self) -> int:
        return max(0, self._workload.room - self._reserved)

    async def _give_and_take(self, lane: Lane) -> bool:
        """One call. True if its first answer was lost, and with it perhaps jobs that it claimed."""
        results, setbacks = self._workload.collect()
        try:
            lost = await self._exchange(lane, results, setbacks, self._room)
            await self._runner.tell(setbacks)
            return lost
        except Unrecordable as error:
            log.error("the database refused a call", worker=self.id, error=error)
            outcomes: list[Result | SetBack] = [*results, *setbacks]
            if not outcomes:
                await asyncio.sleep(PAUSE_AFTER_REFUSAL)
            return any([await self._give_alone(lane, outcome) for outcome in outcomes])

    async def _give_alone(self, lane: Lane, outcome: Result | SetBack) -> bool:
        """Give back one of several outcomes that could not be given back together: only the bad one fails."""
        try:
            if isinstance(outcome, Result):
                return await self._exchange(lane, [outcome], [], room=0)
            return await self._exchange(lane, [], [outcome], room=0)
        except Unrecordable as error:
            failure = SetBack(outcome.claim, "failed", code="UNRECORDABLE", error=told("UNRECORDABLE", str(error)))
            await self._runner.tell([failure])
            return await self._exchange(lane, [], [failure], room=0)

    async def _exchange(self, lane: Lane, results: list[Result], setbacks: list[SetBack], room: int) -> bool:
        if not (results or setbacks or room):
            return False
        suspect = not (self._holds_suspect() or self._poller.has_suspect)
        wish = Wish(self._queues, self._catalog.served, self._after, room, suspect)
        self._reserved += room
        self._asking_for_suspect |= suspect
        try:
            await self._desks.ledger.flush()
            answer = await lane.exchange(results, setbacks, wish)
        except WorkerGone:
            self._count_refused(len(results) + len(setbacks))
            raise
        finally:
            self._reserved -= room
            self._asking_for_suspect &= not suspect
        self._accept(answer, results, setbacks, room)
        return answer.replayed

    def _holds_suspect(self) -> bool:
        return self._workload.has_suspect or self._asking_for_suspect

    def _accept(self, answer: Answer, results: list[Result], setbacks: list[SetBack], room: int) -> None:
        self._count_refused(answer.refused)
        taken = self._runner.taken(answer, results)
        self._workload.take(taken)
        if answer.claimed:
            self._after = answer.claimed[-1].tenant
        self._wakeup.learn(len(taken), room, answer.look_in)
        if self._runner.makes_work_for_others([*results, *setbacks]):
            self._wakeup.tell_others()

    def _count_refused(self, jobs: int) -> None:
        if jobs:
            self.refused += jobs
            log.warning("refused: these leases had ended", worker=self.id, jobs=jobs)

    async def _recover(self, lane: Lane) -> None:
        """Take up the jobs that are ours and that we never heard of."""
        async with AsyncExitStack() as quiet:
            # A call under way may be claiming or ending some just now.
            for other in self._lanes:
                await quiet.enter_async_context(other.busy)
            held = await lane.held()
            self._workload.take([claim for claim in held if not self._workload.holds(claim)])


def _from_thread(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(act)
