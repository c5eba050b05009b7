"""What all namespaces of the client share: the database, the application, and how runs are started and awaited."""

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
ALL_TENANTS = -1  # its endpoints receive the events of every tenant


class Core:
    """`heartbeat_timeout` is how long a worker may go without a heartbeat before it counts as dead."""

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
        self.starter = RunStarter(database)
        self.waiter = RunWaiter(database)
        self.tenants = Tenants(database)
        self.metrics_reader = metrics.CachedReader(database, metrics.read_metrics, heartbeat_timeout)
        self.snapshot_reader = metrics.CachedReader(database, metrics.read_snapshot, heartbeat_timeout)

    async def close(self) -> None:
        """Stop waiting for runs, and finish pending starts."""
        await self.waiter.close()
        await self.starter.close()

    async def now(self) -> datetime:
        """Return the time of the database."""
        return await clock.now(self.database)

    @property
    def app_name(self) -> str:
        if self.app is None:
            raise NotFound("this client has no application: pass one to `connect`")
        return self.app.name

    def get_pipeline(self, pipeline: Pipeline | str) -> Pipeline:
        if self.app is None:
            raise NotFound("this client has no application and therefore no pipelines: pass one to `connect`")
        return self.app.pipeline(pipeline if isinstance(pipeline, str) else pipeline.name)

    async def find_tenant_id(self, tenant: str | None) -> int | None:
        """Return the id of the tenant, or an unused id if it does not exist: a query creates no tenant."""
        return None if tenant is None else await self.tenants.find_id(tenant) or NO_TENANT


class Namespace:
    """One group of the client's methods, such as `client.reviews`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._database = core.database
