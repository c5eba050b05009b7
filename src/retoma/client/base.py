"""What every part of the client stands on."""

from __future__ import annotations

from datetime import datetime, timedelta

from retoma.app import App
from retoma.define.pipeline import Pipeline
from retoma.engine import figures
from retoma.engine.start import Starter
from retoma.engine.tenants import Tenants
from retoma.engine.waiter import Waiter
from retoma.errors import NotFound
from retoma.outgoing import Guard
from retoma.settings import SILENCE
from retoma.store import clock
from retoma.store.database import Database

NOBODY = 0
ALL_TENANTS = -1  # whose endpoints get the events of every tenant


class Base:
    """A worker that was silent for longer than `silence` counts as dead."""

    def __init__(
        self, app: App | None, database: Database, guard: Guard | None = None, *, silence: timedelta = SILENCE
    ) -> None:
        self.app = app
        self.database = database
        self.guard = guard or Guard()
        self.silence = silence
        self._starter = Starter(database)
        self._waiter = Waiter(database)
        self._tenants = Tenants(database)
        self._figures = figures.Reader(database, figures.look, silence)
        self._standing = figures.Reader(database, figures.look_for_people, silence)
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

    def _own(self, pipeline: Pipeline | str) -> Pipeline:
        if self.app is None:
            raise NotFound("this client has no application, so it knows no pipelines: give one to `connect`")
        return self.app.pipeline(pipeline if isinstance(pipeline, str) else pipeline.name)

    async def _tenant_filter(self, tenant: str | None) -> int | None:
        """The tenant's id, or one that nobody has: looking makes no tenant."""
        return None if tenant is None else await self._tenants.known_id(tenant) or NOBODY
