"""The worker: claims jobs of its queues, runs their steps, and reports the outcomes."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence

from retoma.app import App
from retoma.encryption import Keyring
from retoma.engine.tenant_resources import TenantResources
from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.settings import Settings
from retoma.store.database import Database
from retoma.worker.child_runs import ChildRuns
from retoma.worker.process_pool import ProcessPool
from retoma.worker.served_versions import ServedVersions
from retoma.worker.thread_pool import ThreadPool
from retoma.worker.wakeup import Wakeup
from retoma.worker.worker_session import WorkerSession

log = get_logger(__name__)


def make_default_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


class Worker:
    """Works until `stop`. Then it claims nothing new, lets its jobs finish within the drain time, and returns the rest.
    If a person asks it to drain, it does the same without a limit of time.

    Calls `on_blocked`, from another thread, if a step blocks the event loop long beyond its timeout, and `on_drained`
    when every job is recorded or returned to its queue, before the application's resources are closed.

    A worker that was declared dead, for example because its machine was suspended, drops its jobs and continues under a
    new id.
    """

    def __init__(
        self,
        app: App,
        database: Database,
        settings: Settings,
        *,
        queues: Sequence[str] = (),
        concurrency: int = 20,
        name: str | None = None,
        on_blocked: Callable[[], None] = lambda: None,
        on_drained: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name or make_default_name()
        self.queues = list(queues) or app.queues
        self.concurrency = concurrency
        self._on_blocked = on_blocked
        self._on_drained = on_drained
        self._database = database
        self._settings = settings
        self._child_runs = ChildRuns(app, database)
        tenant_resources = TenantResources(database, Keyring.from_settings(settings))
        self._served_versions = ServedVersions(app, self._child_runs, tenant_resources)
        self._wakeup = Wakeup(database)
        self._thread_pool = ThreadPool(concurrency)
        self._process_pool = ProcessPool()
        self._session: WorkerSession | None = None
        self._stopping = False

    def stop(self) -> None:
        """Start to drain, then end. Call it on the event loop, for example from a signal handler."""
        self._drain(self._settings.drain_seconds)

    def stop_at_once(self) -> None:
        """Stop, and return running jobs now instead of letting them finish."""
        self.stop()
        if self._session is not None:
            self._session.interrupt()

    async def run(self) -> None:
        """Work until stopped."""
        async with self._served_versions.open_resources():
            await self._run_sessions()
            self._on_drained()

    def _drain(self, limit: float | None) -> None:
        self._stopping = True
        if self._session is not None:
            self._session.drain(limit)

    def _drain_on_request(self) -> None:
        if not self._stopping:
            log.info("worker_draining", message="asked to drain: the worker ends with its jobs", worker=self.name)
            self._drain(limit=None)

    async def _run_sessions(self) -> None:
        self._wakeup.start()
        try:
            while not self._stopping:
                try:
                    await self._served_versions.register_and_load(self._database)
                    await self._run_session()
                except DatabaseUnavailable as error:
                    log.warning("database_unreachable", message="the worker waits for the database", error=error)
        finally:
            self._thread_pool.close()
            await self._process_pool.close()
            await self._wakeup.close()
            await self._child_runs.close()

    async def _run_session(self) -> None:
        if self._stopping:
            return
        self._session = WorkerSession(
            self._database,
            self._settings,
            self._served_versions,
            self._wakeup,
            self._thread_pool,
            self._process_pool,
            queues=self.queues,
            concurrency=self.concurrency,
            on_blocked=self._on_blocked,
            on_drain_requested=self._drain_on_request,
        )
        await self._session.run(self.name, self.concurrency)
