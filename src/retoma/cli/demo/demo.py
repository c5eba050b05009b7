"""The built-in demo: start a run, kill its worker, and show how the next worker continues."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from uuid import UUID

from retoma import demo
from retoma.cli.demo.board import Board
from retoma.cli.demo.proof import JobName, Proof, count_calls, get_job_name
from retoma.cli.messages import format_decimal, get_language, gettext
from retoma.cli.worker_process import SupervisedWorker
from retoma.client import Client
from retoma.records import Job, Worker
from retoma.states import JobState

POLL_SECONDS = 0.15
TIMEOUT_SECONDS = 180.0
DEMO_PRIORITY = 10_000  # an unfinished run of an earlier demo must not delay this one
MIN_FINISHED_JOBS = 9  # finished items before the kill


class Demo:
    """One run of the demo. Call `on_worker_exit` each time the worker exits, before it is restarted."""

    def __init__(self, client: Client, board: Board, heartbeat_timeout: float) -> None:
        self._client = client
        self._heartbeat_timeout = heartbeat_timeout
        self._board = board
        self._started_at = time.monotonic()
        self._killed_at: float | None = None
        self._killed_pid = 0
        self._first_worker_reported = False
        self._next_worker_reported = False
        self._retried: set[JobName] = set()
        self._proof = Proof()
        self._jobs_recorded = asyncio.Event()
        self.run_id: UUID | None = None

    async def run(self, worker: SupervisedWorker) -> bool:
        """Run the demo to its end. Return False if a guarantee was violated."""
        started = await self._client.start(demo.demo, {"language": get_language()}, priority=DEMO_PRIORITY)
        self.run_id = started.id
        self._board.print_timed(gettext("run %(run)s is started and stored", run=started.id))
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._watch(started.id, worker)
        except TimeoutError:
            self._board.print_timed(
                gettext("the run has not finished after %(seconds)s s", seconds=f"{TIMEOUT_SECONDS:g}"), style="red"
            )
            return False
        self._proof.record_late_results(await self._client.runs.list_jobs(started.id))
        self._board.clear()
        self._board.print_timed(
            gettext("the film is ready, %(after)s s after the start", after=self._format_elapsed(self._started_at)),
            style="bold green",
        )
        return await self._proof.show(self._client, started.id, self._board)

    async def on_worker_exit(self) -> None:
        """Record the jobs before the next worker starts, while nothing changes."""
        if self.run_id is not None:
            calls = count_calls(demo.effects_path(self.run_id))
            self._proof.record_jobs(await self._client.runs.list_jobs(self.run_id), calls)
            self._jobs_recorded.set()

    async def _watch(self, run: UUID, worker: SupervisedWorker) -> None:
        while not (await self._client.runs.get(run)).is_over:
            jobs = await self._client.runs.list_jobs(run)
            await self._report_progress(jobs, worker)
            await self._show_progress(run, await self._format_note())
            if self._killed_at is None and _should_kill(jobs, count_calls(demo.effects_path(run))):
                await self._kill(worker)
            await asyncio.sleep(POLL_SECONDS)
        await self._show_progress(run)

    async def _show_progress(self, run: UUID, note: str = "") -> None:
        self._board.show(demo.demo.name, await self._client.runs.get_progress(run), note)

    async def _kill(self, worker: SupervisedWorker) -> None:
        self._killed_at = time.monotonic()
        pid = self._killed_pid = worker.kill()
        await self._jobs_recorded.wait()
        self._board.print_timed(
            gettext(
                "kill -9 %(pid)s: worker 1 died while it was running %(jobs)s jobs",
                pid=pid,
                jobs=len(self._proof.interrupted),
            ),
            style="bold red",
        )
        self._board.print_timed(
            gettext("%(jobs)s jobs had finished; their results stay in the database", jobs=len(self._proof.finished))
        )

    async def _report_progress(self, jobs: list[Job], worker: SupervisedWorker) -> None:
        """Print what has changed since the last poll."""
        if not self._first_worker_reported and any(job.state is JobState.RUNNING for job in jobs):
            self._first_worker_reported = True
            self._board.print_timed(gettext("worker 1 (process %(pid)s) is running jobs", pid=worker.pid))
        if self._killed_at is None:
            return
        if not self._next_worker_reported and await self._find_worker(worker.pid):
            self._next_worker_reported = True
            after = self._format_elapsed(self._killed_at)
            self._board.print_timed(
                gettext(
                    "worker 2 (process %(pid)s) started %(after)s s later and runs the jobs that are ready",
                    pid=worker.pid,
                    after=after,
                ),
                style="green",
            )
        retried = {get_job_name(job) for job in jobs if job.attempt > 1} & self._proof.interrupted
        if retried and not self._retried:
            self._board.print_timed(
                gettext(
                    "recovered %(after)s s after the kill: the jobs of worker 1 rerun, one by one",
                    after=self._format_elapsed(self._killed_at),
                ),
                style="bold green",
            )
        self._retried |= retried

    async def _format_note(self) -> str:
        """Return the age of the killed worker's heartbeat, until its jobs are released."""
        dead = await self._find_worker(self._killed_pid)
        if dead is None or self._killed_at is None:
            return ""
        return gettext(
            "last heartbeat of worker 1: %(seconds)s s ago; after %(limit)s s its jobs are released",
            seconds=format_decimal(dead.heartbeat_age.total_seconds()),
            limit=f"{self._heartbeat_timeout:g}",
        )

    async def _find_worker(self, pid: int) -> Worker | None:
        return next((known for known in await self._client.workers.list() if known.name.endswith(f":{pid}")), None)

    def _format_elapsed(self, moment: float) -> str:
        return format_decimal(time.monotonic() - moment)


def _should_kill(jobs: list[Job], calls: Counter[JobName]) -> bool:
    done = sum(job.state is JobState.SUCCEEDED and bool(job.item) for job in jobs)
    begun = sum(job.state is JobState.RUNNING and calls[get_job_name(job)] > 0 for job in jobs)
    return done >= MIN_FINISHED_JOBS and begun >= 2
