"""One session of a worker: from registering under a new id until it has drained or was declared dead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

from retoma.engine.background_loops import run_with_restarts
from retoma.engine.bulk_actions import advance_actions_forever
from retoma.engine.claim_protocol import ClaimRequest, ClaimResponse, WorkerLink
from retoma.engine.outcomes import Outcome
from retoma.errors import DatabaseUnavailable, Unrecordable, WorkerGone
from retoma.logs import get_logger
from retoma.settings import Settings
from retoma.store import workers
from retoma.store.database import Database
from retoma.store.tenants import Tenants
from retoma.worker.attempt import build_failure_outcome
from retoma.worker.attempt_log import log_failed_attempts
from retoma.worker.context_backend import ContextBackends
from retoma.worker.executor import Executor
from retoma.worker.external_work_poller import ExternalWorkPoller
from retoma.worker.heartbeat import HeartbeatThread
from retoma.worker.maintenance import Maintenance
from retoma.worker.process_pool import ProcessPool
from retoma.worker.provider_breakers import ProviderBreakers
from retoma.worker.served_versions import ServedVersions
from retoma.worker.step_runner import StepRunner
from retoma.worker.successors import complete_claims, make_work_for_others
from retoma.worker.thread_pool import ThreadPool
from retoma.worker.wakeup import Wakeup

log = get_logger(__name__)

INTERRUPT_GRACE = 3.0
DEREGISTER_TIMEOUT = 10.0  # seconds to deregister the worker on shutdown
PAUSE_AFTER_REJECTION = 1.0
LINKS_PER_WORKER = 2  # jobs of one run while the other waits for the database


class WorkerSession:
    def __init__(
        self,
        database: Database,
        settings: Settings,
        served_versions: ServedVersions,
        wakeup: Wakeup,
        thread_pool: ThreadPool,
        process_pool: ProcessPool,
        *,
        queues: list[str],
        concurrency: int,
        on_blocked: Callable[[], None],
        on_drain_requested: Callable[[], None],
    ) -> None:
        self.id = 0
        self.rejected = 0
        self._database = database
        self._settings = settings
        self._heartbeat_timeout = settings.heartbeat_timeout
        self._served_versions = served_versions
        self._wakeup = wakeup
        self._context_backends = ContextBackends(database, settings.public_url, served_versions)
        self._tenants = Tenants(database)
        self._poller = ExternalWorkPoller(database, served_versions, self._on_external_work_end, self._holds_suspect)
        self._queues = queues
        self._on_blocked = on_blocked
        self._on_drain_requested = on_drain_requested
        self._breakers = ProviderBreakers(database, served_versions.provider_names)
        runner = StepRunner(
            served_versions, self._tenants, thread_pool, process_pool, self._context_backends, self._breakers
        )
        self._executor = Executor(runner, concurrency, changed=wakeup.event)
        self._links: list[WorkerLink] = []
        self._serving: list[asyncio.Task[None]] = []
        self._reserved = 0  # capacity that a call in progress may fill
        self._asking_for_suspect = False  # in a call in progress: two suspects must not run at once
        self._last_tenant = 0  # the tenant served last
        self._declared_dead = asyncio.Event()
        self._draining = asyncio.Event()

    async def run(self, name: str, concurrency: int) -> None:
        """Work until drained or declared dead."""
        self.id = await workers.register_worker(
            self._database,
            name,
            self._queues,
            concurrency,
            LINKS_PER_WORKER,
            self._heartbeat_timeout,
            self._served_versions.pipelines,
            self._settings.allow_hosts,
        )
        self._context_backends.worker = self._poller.worker = self.id
        log.info(
            "worker_ready",
            message="the worker claims jobs",
            worker=self.id,
            queues=self._queues,
            concurrency=concurrency,
        )
        loop = asyncio.get_running_loop()
        heartbeat = HeartbeatThread(
            self._database,
            self.id,
            self._heartbeat_timeout,
            on_declared_dead=lambda: loop.call_soon_threadsafe(self._stop_as_dead),
            on_drain_requested=lambda: loop.call_soon_threadsafe(self._on_drain_requested),
            list_overdue=lambda: [*self._executor.overdue_steps, *self._poller.overdue_steps],
            list_stacks=self._executor.list_stacks,
            on_blocked=self._on_blocked,
        )
        heartbeat.start()
        self._links = [WorkerLink(self._database, self.id, number) for number in range(1, LINKS_PER_WORKER + 1)]
        try:
            await self._run_loops()
        finally:
            self._executor.drop()
            heartbeat.stop()
            for link in self._links:
                await link.close()

    def drain(self, limit: float | None = None) -> None:
        """Claim nothing new. End when all jobs have ended, or were returned after `limit` seconds."""
        if not self._draining.is_set():
            self._draining.set()
            self._executor.close()
        if limit is not None:
            asyncio.get_running_loop().call_later(limit, self.interrupt)

    def interrupt(self) -> None:
        """Return running jobs. After a grace period, abandon jobs that ignore it and calls without an answer."""
        self._executor.interrupt()
        asyncio.get_running_loop().call_later(INTERRUPT_GRACE, self._abandon_jobs)

    async def _run_loops(self) -> None:
        async with asyncio.TaskGroup() as group:
            loops: dict[str, Callable[[], Awaitable[None]]] = {
                "maintenance": self._build_maintenance().run,
                "external_work": self._poller.run,
                "charges": self._context_backends.charge_buffer.run,
                "bulk_actions": partial(advance_actions_forever, self._database, self._wakeup.notify_work),
                "attempt_providers": self._context_backends.attempt_providers.run,
            }
            background = [group.create_task(run_with_restarts(name, loop)) for name, loop in loops.items()]
            self._serving = [group.create_task(self._serve_link(link)) for link in self._links]
            await asyncio.wait(self._serving)
            for task in background:
                task.cancel()
        await self._deregister()

    def _abandon_jobs(self) -> None:
        self._executor.drop()
        for task in self._serving:
            task.cancel()

    async def _deregister(self) -> None:
        """Release the remaining jobs now, or, if the database is unreachable, after the heartbeat timeout."""
        try:
            async with asyncio.timeout(DEREGISTER_TIMEOUT if self._draining.is_set() else None):
                await self._context_backends.flush()
                if not self._declared_dead.is_set():
                    await workers.deregister_worker(self._database, self.id)
        except (TimeoutError, DatabaseUnavailable) as error:
            log.warning(
                "deregister_failed",
                message="could not deregister the worker; its jobs are released after the heartbeat timeout",
                worker=self.id,
                error=error,
            )

    def _build_maintenance(self) -> Maintenance:
        return Maintenance(
            self._database,
            heartbeat_timeout=self._heartbeat_timeout,
            refresh=lambda: self._served_versions.refresh(self._database),
            worker=self.id,
            list_running=lambda: self._executor.running_jobs,
            on_unwanted=self._executor.cancel,
            on_work=self._wakeup.notify_work,
            on_poll_due=self._poller.wake,
        )

    def _on_external_work_end(self) -> None:
        """Claim and let others claim: its job continues, and its slots are free."""
        self._wakeup.notify_work()
        self._wakeup.notify_others()

    def _stop_as_dead(self) -> None:
        if not self._declared_dead.is_set():
            log.warning(
                "worker_session_lost",
                message="this worker was declared dead: other workers run its jobs; it continues under a new id",
                worker=self.id,
            )
            self._declared_dead.set()
            self._executor.drop()
            self._wakeup.notify_work()

    async def _serve_link(self, link: WorkerLink) -> None:
        while not self._is_over():
            await self._wakeup.wait(lambda: self._executor.has_outcomes or self._is_over(), lambda: self._room > 0)
            try:
                async with link.busy:
                    replayed = await self._report_and_claim(link)
                if replayed:
                    await self._recover_lost_claims(link)
            except WorkerGone:
                self._stop_as_dead()

    def _is_over(self) -> bool:
        drained = self._draining.is_set() and self._executor.is_idle
        return self._declared_dead.is_set() or drained

    @property
    def _room(self) -> int:
        return max(0, self._executor.free_capacity - self._reserved)

    async def _report_and_claim(self, link: WorkerLink) -> bool:
        """Make one call. Return True if its first response was lost, and with it perhaps jobs that it claimed."""
        outcomes = self._executor.collect()
        try:
            lost = await self._finish_and_claim(link, outcomes, self._room)
            await log_failed_attempts(outcomes, self._tenants)
            return lost
        except Unrecordable as error:
            log.error(
                "outcomes_rejected",
                message="the database rejected a call; reporting its outcomes one by one",
                worker=self.id,
                error=error,
            )
            if not outcomes:
                await asyncio.sleep(PAUSE_AFTER_REJECTION)
            return any([await self._report_alone(link, outcome) for outcome in outcomes])

    async def _report_alone(self, link: WorkerLink, outcome: Outcome) -> bool:
        """Report one of several outcomes that were rejected together, so only the bad one fails."""
        try:
            return await self._finish_and_claim(link, [outcome], limit=0)
        except Unrecordable as error:
            failure = build_failure_outcome(outcome.claim, "UNRECORDABLE", str(error))
            await log_failed_attempts([failure], self._tenants)
            return await self._finish_and_claim(link, [failure], limit=0)

    async def _finish_and_claim(self, link: WorkerLink, outcomes: list[Outcome], limit: int) -> bool:
        if not (outcomes or limit):
            return False
        suspect = not (self._holds_suspect() or self._poller.has_suspect)
        request = ClaimRequest(self._queues, self._served_versions.version_numbers, self._last_tenant, limit, suspect)
        self._reserved += limit
        self._asking_for_suspect |= suspect
        try:
            await self._context_backends.flush()
            if self._breakers.has_reports:
                await self._breakers.flush()
            response = await link.finish_and_claim(outcomes, request)
        except WorkerGone:
            self._count_rejected(len(outcomes))
            raise
        finally:
            self._reserved -= limit
            self._asking_for_suspect &= not suspect
        self._apply_response(response, outcomes, limit)
        return response.replayed

    def _holds_suspect(self) -> bool:
        return self._executor.has_suspect or self._asking_for_suspect

    def _apply_response(self, response: ClaimResponse, outcomes: list[Outcome], limit: int) -> None:
        self._count_rejected(response.rejected)
        self._executor.record_spans(outcomes)
        taken = complete_claims(response, outcomes, self._served_versions)
        self._executor.take(taken)
        if response.claimed:
            self._last_tenant = response.claimed[-1].tenant
        self._wakeup.record_claim(len(taken), limit, response.next_claim_in)
        if make_work_for_others(outcomes, self._served_versions):
            self._wakeup.notify_others()

    def _count_rejected(self, jobs: int) -> None:
        if jobs:
            self.rejected += jobs
            log.warning(
                "late_outcomes_rejected",
                message="outcomes were rejected because the leases of their jobs had expired",
                worker=self.id,
                jobs=jobs,
            )

    async def _recover_lost_claims(self, link: WorkerLink) -> None:
        """Start the jobs that this worker holds in the database, but never received."""
        async with AsyncExitStack() as quiet:
            # Wait for calls in progress, which may be claiming or finishing jobs.
            for other in self._links:
                await quiet.enter_async_context(other.busy)
            held = await link.list_held()
            self._executor.take([claim for claim in held if not self._executor.holds(claim)])
