"""The demo: start a run, kill the worker in the middle of it, watch it be picked up again."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

from retoma import demo
from retoma.cli.demo.board import Board, Snapshot
from retoma.cli.demo.proof import Name, Proof, name_of
from retoma.cli.process import KeptWorker
from retoma.client import Client
from retoma.define.graph import Graph
from retoma.records import Job, WorkerRecord
from retoma.states import JobState
from retoma.texts import decimal, language, text

SECONDS_BETWEEN_LOOKS = 0.15
PATIENCE = 180.0
BEFORE_ALL = 10_000  # a run that an earlier demo left behind must not hold up this one
ENOUGH_TO_KILL = 9  # jobs of items that are done, so that there is something to keep


class Demo:
    """One run of the demo. Give it each death of the worker, before the next worker is started."""

    def __init__(self, client: Client, board: Board, silence: float) -> None:
        self._client = client
        self._silence = silence
        self._board = board
        self._began = time.monotonic()
        self._killed_at: float | None = None
        self._dead = 0
        self._at_work = False
        self._next_at_work = False
        self._taken_up: set[Name] = set()
        self._proof = Proof()
        self._stock_taken = asyncio.Event()
        self.run_id: UUID | None = None

    async def run(self, worker: KeptWorker) -> bool:
        """To its end. False if what it shows did not come true."""
        started = await self._client.start(demo.demo, {"language": language()}, priority=BEFORE_ALL)
        self.run_id = started.id
        graph = await self._client.graph(await self._client.show(started.id))
        self._board.tell(text("started", run=started.id))
        try:
            async with asyncio.timeout(PATIENCE):
                await self._watch(started.id, graph, worker)
        except TimeoutError:
            self._board.tell(text("too slow", seconds=f"{PATIENCE:g}"), style="red")
            return False
        self._board.clear()
        self._board.tell(text("over", after=self._since(self._began)), style="bold green")
        return await self._proof.show(self._client, started.id, self._board)

    async def worker_died(self) -> None:
        """Take stock before the next worker starts, while nothing can change."""
        if self.run_id is not None:
            self._proof.take_stock(await self._client.jobs(self.run_id))
            self._stock_taken.set()

    async def _watch(self, run: UUID, graph: Graph, worker: KeptWorker) -> None:
        while not (await self._client.show(run)).is_over:
            jobs = await self._client.jobs(run)
            await self._notice(jobs, worker)
            lost = self._proof.interrupted - self._taken_up
            self._board.show(Snapshot(graph, jobs, lost, await self._note()))
            if self._killed_at is None and _is_the_moment(jobs):
                await self._kill(worker)
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
        self._board.show(Snapshot(graph, await self._client.jobs(run)))

    async def _kill(self, worker: KeptWorker) -> None:
        self._killed_at = time.monotonic()
        pid = self._dead = worker.kill()
        await self._stock_taken.wait()
        self._board.tell(text("killed", pid=pid, jobs=len(self._proof.interrupted)), style="bold red")
        self._board.tell(text("kept", jobs=len(self._proof.finished)))

    async def _notice(self, jobs: list[Job], worker: KeptWorker) -> None:
        """Say what has become true since the last look."""
        if not self._at_work and any(job.state is JobState.RUNNING for job in jobs):
            self._at_work = True
            self._board.tell(text("first worker", pid=worker.pid))
        if self._killed_at is None:
            return
        if not self._next_at_work and await self._worker(worker.pid):
            self._next_at_work = True
            after = self._since(self._killed_at)
            self._board.tell(text("next worker", pid=worker.pid, after=after), style="green")
        again = {name_of(job) for job in jobs if job.attempt > 1} & self._proof.interrupted
        if again and not self._taken_up:
            self._board.tell(text("picked up", after=self._since(self._killed_at)), style="bold green")
        self._taken_up |= again

    async def _note(self) -> str:
        """How long nobody has heard from the dead worker, until its jobs are taken from it."""
        dead = await self._worker(self._dead)
        if dead is None or self._killed_at is None:
            return ""
        return text("silence", seconds=decimal(dead.silent_for.total_seconds()), limit=f"{self._silence:g}")

    async def _worker(self, pid: int) -> WorkerRecord | None:
        return next((known for known in await self._client.workers() if known.name.endswith(f":{pid}")), None)

    def _since(self, moment: float) -> str:
        return decimal(time.monotonic() - moment)


def _is_the_moment(jobs: list[Job]) -> bool:
    done = sum(job.state is JobState.SUCCEEDED and bool(job.item) for job in jobs)
    at_work = sum(job.state is JobState.RUNNING for job in jobs)
    return done >= ENOUGH_TO_KILL and at_work >= 2
