"""Test pipelines with a fresh database, a clock that the test sets, and runs that finish in milliseconds.

    async with testing.sandbox(app) as sandbox:
        run = await sandbox.run(article, {"topic": "fixed income"})
        assert run.state == "completed"

Nothing sleeps: if no other work is left, the clock jumps to the next retry that is due.
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
from retoma.encryption import Keyring
from retoma.engine import watchdog
from retoma.engine.claim_protocol import Claim, ClaimRequest, WorkerLink
from retoma.engine.outcomes import Outcome
from retoma.engine.tenant_resources import TenantResources
from retoma.identifiers import ClaimKey
from retoma.notifications.sender import open_sender
from retoma.outgoing import LOOPBACK, Guard, HttpClient
from retoma.settings import Settings
from retoma.states import RunState
from retoma.store import clock, workers
from retoma.store.database import Database
from retoma.store.tenants import Tenants
from retoma.store.test_databases import fresh_database
from retoma.webhooks.sender import Sender
from retoma.worker.attempt_log import log_failed_attempts
from retoma.worker.child_runs import ChildRuns
from retoma.worker.context_backend import ContextBackends
from retoma.worker.executor import Executor
from retoma.worker.external_work_poller import ExternalWorkPoller
from retoma.worker.process_pool import ProcessPool
from retoma.worker.provider_breakers import ProviderBreakers
from retoma.worker.served_versions import ServedVersions
from retoma.worker.step_runner import StepRunner
from retoma.worker.successors import complete_claims
from retoma.worker.thread_pool import ThreadPool

__all__ = ["Clock", "FinishedRun", "ManualWorker", "Sandbox", "fresh_database", "sandbox"]

PUBLIC_URL = "https://retoma.test"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class FinishedRun:
    id: UUID
    state: RunState
    results: dict[str, Any]


class Clock:
    """The database's clock, which only moves when the test moves it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self) -> datetime:
        return await clock.now(self._database)

    async def set(self, at: datetime) -> None:
        await clock.set_to(self._database, at)

    async def advance(self, by: timedelta) -> None:
        await self.set(await self.now() + by)


class Sandbox:
    """An application on its own database. The test controls time and work."""

    def __init__(self, app: App, database: Database) -> None:
        self.app = app
        self.database = database
        self.clock = Clock(database)
        self.keyring = Keyring.generate()
        self.client = Client(app, database, Guard.from_hosts(LOOPBACK), keyring=self.keyring)

    async def run(self, pipeline: Pipeline | str, inputs: Input = None, **options: Any) -> FinishedRun:
        """Start a run and work until nothing is left to do."""
        started = await self.client.start(pipeline, inputs, **options)
        await self.work()
        run = await self.client.runs.get(started.id)
        return FinishedRun(run.id, run.state, await self.client.runs.get_results(run.id))

    async def work(self, *, advance_clock: bool = True) -> int:
        """Run all ready jobs, and with `advance_clock` also delayed ones; return the number of attempts."""
        async with self.manual_worker() as worker:
            return await self._work_until_idle(worker, advance_clock)

    async def send_webhooks(self, settings: Settings | None = None) -> int:
        """Send due webhooks as the sender does, to this machine too; return the number of attempts."""
        async with HttpClient(self.client.guard) as outgoing:
            return await Sender(self.client, settings or Settings(), outgoing).send_due()

    async def send_notifications(self, settings: Settings | None = None) -> int:
        """Send due notifications as the sender does, to this machine too; return the number of attempts."""
        settings = settings or Settings()
        async with (
            HttpClient(self.client.guard) as outgoing,
            open_sender(self.app, self.database, settings, outgoing, self.keyring) as sender,
        ):
            await sender.register()
            return await sender.send_due()

    async def run_watchdog(self) -> int:
        """Check stuck and overdue runs, as workers do every second; return the number of runs checked."""
        return await watchdog.check_due_runs(self.database, self.client.heartbeat_timeout)

    @asynccontextmanager
    async def manual_worker(self) -> AsyncIterator[ManualWorker]:
        """Yield a worker that claims jobs and reports outcomes only when the test says so."""
        child_runs = ChildRuns(self.app, self.database)
        served_versions = ServedVersions(self.app, child_runs, TenantResources(self.database, self.keyring))
        await served_versions.register_and_load(self.database)
        worker = await workers.register_worker(
            self.database, "sandbox", self.app.queues, 1, 1, pipelines=served_versions.pipelines
        )
        manual_worker = ManualWorker(self.app, self.database, served_versions, worker)
        async with served_versions.open_resources():
            try:
                yield manual_worker
            finally:
                await manual_worker.close()
                await child_runs.close()

    async def _work_until_idle(self, worker: ManualWorker, advance_clock: bool) -> int:
        attempts = 0
        while True:
            outcomes = await worker.attempt(await worker.claim(100))
            await worker.record_outcomes(outcomes)
            attempts += len(outcomes)
            if (
                not outcomes
                and not await worker.poll_external_work()
                and not await self._release_due_jobs(advance_clock)
            ):
                return attempts

    async def _release_due_jobs(self, advance_clock: bool) -> bool:
        """Release due jobs, moving the clock to the next one if necessary. Return False if there is none."""
        result = await workers.release_due_jobs(self.database, limit=1_000)
        if result.released:
            return True
        ahead = [one for one in (result.next_in, result.poll_in) if one is not None]
        if not ahead or not advance_clock:
            return False
        await self.clock.advance(max(min(ahead), timedelta(0)))
        return True


class ManualWorker:
    """A worker that the test drives step by step."""

    def __init__(self, app: App, database: Database, served_versions: ServedVersions, worker: int) -> None:
        self.worker = worker
        self.rejected_outcomes = 0
        self._app = app
        self._database = database
        self._served_versions = served_versions
        self._threads = ThreadPool(8)
        self._children = ProcessPool()
        backends = ContextBackends(database, PUBLIC_URL, served_versions)
        backends.worker = worker
        self._backends = backends
        self._tenants = Tenants(database)
        # The test sets the clock, so the states of breakers that were read a moment ago may be of another day.
        self._breakers = ProviderBreakers(database, served_versions.provider_names, max_age=0)
        self._runner = StepRunner(
            served_versions, self._tenants, self._threads, self._children, backends, self._breakers
        )
        self._poller = ExternalWorkPoller(database, served_versions, on_end=lambda: None)
        self._poller.worker = worker
        self._link = WorkerLink(database, worker, 1)
        self._has_disappeared = False
        self._held_jobs: set[ClaimKey] = set()

    @property
    def versions(self) -> list[int]:
        """Return the pipeline versions that this worker serves."""
        return list(self._served_versions.version_numbers)

    async def claim(self, limit: int = 1, *, queues: list[str] | None = None) -> list[Claim]:
        return await self._finish_and_claim([], limit, queues)

    async def attempt(self, claims: list[Claim]) -> list[Outcome]:
        """Run these jobs to their ends or timeouts, as a worker does."""
        ended = asyncio.Event()
        executor = Executor(self._runner, max(1, len(claims)), ended)
        executor.take(claims)
        outcomes: dict[ClaimKey, Outcome] = {}
        while len(outcomes) < len(claims):
            await ended.wait()
            ended.clear()
            outcomes |= {outcome.claim.key: outcome for outcome in executor.collect()}
        executor.record_spans([*outcomes.values()])
        await log_failed_attempts([*outcomes.values()], self._tenants)
        return [outcomes[claim.key] for claim in claims]

    async def poll_external_work(self) -> int:
        """Poll the external work that is due now; return how many polls were due."""
        return await self._poller.poll_due()

    async def record_outcomes(self, outcomes: list[Outcome], limit: int = 0) -> list[Claim]:
        """Report outcomes, and claim up to `limit` jobs in the same call."""
        return await self._finish_and_claim(outcomes, limit)

    async def close(self) -> None:
        """Shut down as a worker does: release the jobs that are still held, unless it has disappeared before."""
        if not self._has_disappeared:
            await workers.deregister_worker(self._database, self.worker)
            await self.abandon()

    async def abandon(self) -> None:
        """Disappear as a killed process does, without deregistering."""
        self._has_disappeared = True
        self._threads.close()
        await self._children.close()
        await self._link.close()

    async def _finish_and_claim(
        self, outcomes: list[Outcome], limit: int, queues: list[str] | None = None
    ) -> list[Claim]:
        request = ClaimRequest(
            queues or self._app.queues,
            self._served_versions.version_numbers,
            after_tenant=0,
            limit=limit,
            allow_suspect=True,
        )
        await self._backends.flush()
        await self._breakers.flush()
        response = await self._link.finish_and_claim(outcomes, request)
        self.rejected_outcomes += response.rejected
        self._held_jobs -= {outcome.claim.key for outcome in outcomes}
        claimed = complete_claims(response, outcomes, self._served_versions)
        if response.replayed:
            claimed = [claim for claim in await self._link.list_held() if claim.key not in self._held_jobs]
        self._held_jobs |= {claim.key for claim in claimed}
        return claimed


@asynccontextmanager
async def sandbox(app: App, database: Database | None = None) -> AsyncIterator[Sandbox]:
    """Yield a sandbox that starts at noon on 1 January 2030, on a fresh database unless one is passed."""
    if database is None:
        async with fresh_database() as database, sandbox(app, database) as new_sandbox:
            yield new_sandbox
        return
    await clock.make_settable(database)
    new_sandbox = Sandbox(app, database)
    await new_sandbox.clock.set(NOON)
    try:
        yield new_sandbox
    finally:
        await new_sandbox.client.close()
