"""What every part of the client stands on."""

from __future__ import annotations

from datetime import datetime, timedelta

from retoma.app import App
from retoma.define.pipeline import Pipeline
from retoma.engine import metrics
from retoma.engine.run_starter import RunStarter
from retoma.engine.run_waiter import RunWaiter
from retoma.engine.tenants import Tenants
from retoma.errors import NotFound
from retoma.outgoing import Guard
from retoma.settings import HEARTBEAT_TIMEOUT
from retoma.store import clock
from retoma.store.database import Database

NO_TENANT = 0
ALL_TENANTS = -1  # whose endpoints get the events of every tenant


class Base:
    """A worker that was silent for longer than `silence` counts as dead."""

    def __init__(
        self,
        app: App | None,
        database: Database,
        guard: Guard | None = None,
        *,
        heartbeat_timeout: timedelta = HEARTBEAT_TIMEOUT,
    ) -> None:
        self.app = app
        self.database = database
        self.guard = guard or Guard()
        self.heartbeat_timeout = heartbeat_timeout
        self._starter = RunStarter(database)
        self._waiter = RunWaiter(database)
        self._tenants = Tenants(database)
        self._metrics_reader = metrics.CachedReader(database, metrics.read_metrics, heartbeat_timeout)
        self._snapshot_reader = metrics.CachedReader(database, metrics.read_snapshot, heartbeat_timeout)
        self._versions: dict[str, int] = {}

    async def close(self) -> None:
        """Give up waiting, and let what is being started be answered."""
        await self._waiter.close()
        await self._starter.close()

    async def now(self) -> datetime:
        """The database's time."""
        return await clock.now(self.database)

    @property
    def _app_name(self) -> str:
        if self.app is None:
            raise NotFound("this client has no application: give one to `connect`")
        return self.app.name

    def _get_own_pipeline(self, pipeline: Pipeline | str) -> Pipeline:
        if self.app is None:
            raise NotFound("this client has no application, so it knows no pipelines: give one to `connect`")
        return self.app.pipeline(pipeline if isinstance(pipeline, str) else pipeline.name)

    async def _tenant_filter(self, tenant: str | None) -> int | None:
        """The tenant's id, or one that nobody has: looking makes no tenant."""
        return None if tenant is None else await self._tenants.find_id(tenant) or NO_TENANT
