"""What all namespaces of the client share: the database, the application, and how runs are started and awaited."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from datetime import datetime, timedelta

from retoma.app import App
from retoma.define.pipeline import Pipeline
from retoma.engine import metrics, versions
from retoma.engine.run_starter import RunStarter
from retoma.engine.run_waiter import RunWaiter
from retoma.errors import NotFound
from retoma.outgoing import Guard
from retoma.store import clock
from retoma.store.database import Database
from retoma.store.tenants import Tenants

NO_TENANT = 0
ALL_TENANTS = -1  # its endpoints receive the events of every tenant


class Core:
    """`heartbeat_timeout` is how long a worker may go without a heartbeat before it counts as dead."""

    def __init__(self, app: App | None, database: Database, guard: Guard, heartbeat_timeout: timedelta) -> None:
        self.app = app
        self.database = database
        self.guard = guard
        self.heartbeat_timeout = heartbeat_timeout
        self.starter = RunStarter(database)
        self.waiter = RunWaiter(database)
        self.tenants = Tenants(database)
        self._versions: dict[str, int] = {}
        self.metrics_reader = metrics.CachedReader(database, metrics.read_metrics, heartbeat_timeout)
        self.job_type_reader = metrics.CachedReader(database, metrics.read_job_types, heartbeat_timeout)
        self.snapshot_reader = metrics.CachedReader(database, metrics.read_snapshot, heartbeat_timeout)

    async def close(self) -> None:
        """Stop waiting for runs, and finish pending starts."""
        await self.waiter.close()
        await self.starter.close()

    def expire_metrics(self) -> None:
        """Read the metrics again, because something was changed that they show."""
        self.metrics_reader.expire()
        self.snapshot_reader.expire()

    async def now(self) -> datetime:
        """Return the time of the database."""
        return await clock.now(self.database)

    @property
    def app_name(self) -> str:
        if self.app is None:
            raise NotFound("this client has no application: pass one to `connect`")
        if self.app not in self.app.applications:
            raise NotFound(
                f"{self.app.name!r} only includes others: use `client.scope_to(application)` for one of them"
            )
        return self.app.name

    def scope_to(self, app: App) -> Core:
        """Return the same core for one application."""
        scoped = copy(self)
        scoped.app = app
        return scoped

    def get_pipeline(self, pipeline: Pipeline | str) -> Pipeline:
        if self.app is None:
            raise NotFound("this client has no application and therefore no pipelines: pass one to `connect`")
        return self.app.pipeline(pipeline if isinstance(pipeline, str) else pipeline.name)

    async def get_version(self, pipeline: Pipeline) -> int:
        """Return the number of the pipeline's current version, which is stored when it is first used."""
        if pipeline.name not in self._versions:
            self._versions[pipeline.name] = await versions.register(self.database, pipeline)
        return self._versions[pipeline.name]

    async def find_tenant_id(self, tenant: str | None) -> int | None:
        """Return the id of the tenant, or an unused id if it does not exist: a query creates no tenant."""
        return None if tenant is None else await self.tenants.find_id(tenant) or NO_TENANT


def as_list(names: str | Sequence[str] | None) -> Sequence[str] | None:
    return [names] if isinstance(names, str) else names


class Namespace:
    """One group of the client's methods, such as `client.reviews`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._database = core.database
