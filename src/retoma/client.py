"""The one in-process door to runs: start, wait, look, cancel."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ValidationError

from retoma.app import App
from retoma.define.graph import Graph
from retoma.define.pipeline import Pipeline
from retoma.engine import versions, wait_reasons
from retoma.engine.start import Start, Started, Starter
from retoma.engine.tenants import DEFAULT, Tenants
from retoma.engine.waiter import Waiter
from retoma.errors import InvalidInput, NotFound, RunFailed
from retoma.identifiers import new_run_id
from retoma.records import Event, Job, Run, StepProgress, Wait, WorkerRecord
from retoma.settings import Settings
from retoma.states import RunState
from retoma.store import runs, workers
from retoma.store.database import Database

Input = BaseModel | Mapping[str, Any] | None
NOBODY = 0


class Client:
    """Acts on runs of an application. Make it with `connect`; use it from one event loop.

    Without an application it can do everything but start runs.
    """

    def __init__(self, app: App | None, database: Database) -> None:
        self.app = app
        self.database = database
        self._starter = Starter(database)
        self._waiter = Waiter(database)
        self._tenants = Tenants(database)
        self._versions: dict[str, int] = {}

    async def close(self) -> None:
        """Give up waiting, and let what is being started be answered."""
        await self._waiter.close()
        await self._starter.close()

    async def start(
        self,
        pipeline: Pipeline | str,
        given: Input = None,
        *,
        tenant: str = DEFAULT,
        key: str | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
    ) -> Started:
        """Start a run. When this returns, the run is committed and will reach its end.

        The same `key` with the same input gives back the same run, whatever its state; with another input it
        raises Conflict. `run_at` lets it begin later. A level of `priority` is worth ten minutes of waiting.
        """
        pipeline = self._own(pipeline)
        text = _validated(pipeline, given)
        return await self._starter.start(
            Start(
                id=new_run_id(),
                tenant=await self._tenants.id_of(tenant),
                version=await self._version_of(pipeline),
                input=text,
                key=key,
                digest=None if key is None else _digest(text),
                run_at=run_at,
                head_start=versions.head_start(priority),
            )
        )

    async def start_many(
        self, pipeline: Pipeline | str, given: Sequence[Input], *, tenant: str = DEFAULT, priority: int = 0
    ) -> list[Started]:
        """Start many runs of one pipeline, in their order."""
        pipeline = self._own(pipeline)
        texts = [_validated(pipeline, one) for one in given]
        owner, version = await self._tenants.id_of(tenant), await self._version_of(pipeline)
        ahead = versions.head_start(priority)
        return await self._starter.start_many(
            [Start(new_run_id(), owner, version, text, head_start=ahead) for text in texts]
        )

    async def wait(self, run: UUID, timeout: timedelta | None = None) -> Run:
        """The run once it is over. Raises TimeoutError if it is not over in time."""
        await self._waiter.until_over(run, timeout)
        return await self.show(run)

    async def run(self, /, pipeline: Pipeline | str, given: Input = None, **options: Any) -> dict[str, Any]:
        """Start a run, wait for its end, and give its results by step. Raises RunFailed if it did not complete."""
        started = await self.start(pipeline, given, **options)
        run = await self.wait(started.id)
        if run.state is not RunState.COMPLETED:
            raise RunFailed(await self._why(run))
        return await self.results(run.id)

    async def show(self, run: UUID, *, tenant: str | None = None) -> Run:
        found = await runs.show(self.database, run, await self._tenant_filter(tenant))
        if found is None:
            raise NotFound(f"there is no run {run}")
        return found

    async def runs(
        self,
        *,
        tenant: str | None = None,
        pipeline: str | None = None,
        states: Sequence[RunState] | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[Run]:
        """Runs, newest first. For the next page give the last id as `before`."""
        return await runs.listed(
            self.database,
            tenant=await self._tenant_filter(tenant),
            pipeline=pipeline,
            states=states,
            before=before,
            limit=limit,
        )

    async def results(self, run: UUID) -> dict[str, Any]:
        """The current results by step; of an `each` step, a dictionary by item."""
        return await runs.results(self.database, run)

    async def find(self, prefix: str, *, limit: int = 5) -> list[UUID]:
        """The newest runs whose ids begin like this; dashes and case do not matter."""
        digits = prefix.strip().lower().replace("-", "")
        if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
            return []
        return await runs.between(self.database, UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f")), limit)

    async def graph(self, run: Run) -> Graph:
        """The shape that this run keeps."""
        return await versions.shape(self.database, run.version)

    async def waits(self, run: UUID, *, silence: timedelta = timedelta(seconds=6)) -> list[Wait]:
        """Why what could run does not. A worker that was silent for longer than `silence` does not count."""
        return await wait_reasons.of_run(self.database, run, silence)

    async def jobs(self, run: UUID) -> list[Job]:
        return await runs.jobs(self.database, run)

    async def progress(self, run: UUID) -> list[StepProgress]:
        return await runs.progress(self.database, run)

    async def errors(self, run: UUID) -> dict[tuple[str, str], Any]:
        """What the newest failure or retry of each job said, by step and item."""
        return await runs.last_errors(self.database, run)

    async def events(self, run: UUID, *, after: int = 0, limit: int = 1_000) -> list[Event]:
        return await runs.events(self.database, run, after, limit)

    async def cancel(self, run: UUID, *, tenant: str | None = None, by: str = "client") -> RunState:
        """Let nothing new start in this run. Gives its state: `cancelling` while something still ends."""
        state = await runs.cancel(self.database, run, await self._tenant_filter(tenant), by)
        if state is None:
            raise NotFound(f"there is no run {run}")
        return state

    async def workers(self) -> list[WorkerRecord]:
        """The workers that live."""
        return await workers.listed(self.database)

    def _own(self, pipeline: Pipeline | str) -> Pipeline:
        if self.app is None:
            raise NotFound("this client has no application, so it knows no pipelines: give one to `connect`")
        return self.app.pipeline(pipeline if isinstance(pipeline, str) else pipeline.name)

    async def _version_of(self, pipeline: Pipeline) -> int:
        if pipeline.name not in self._versions:
            self._versions[pipeline.name] = await versions.register(self.database, pipeline)
        return self._versions[pipeline.name]

    async def _tenant_filter(self, tenant: str | None) -> int | None:
        """The tenant's id, or one that nobody has: looking makes no tenant."""
        return None if tenant is None else await self._tenants.known_id(tenant) or NOBODY

    async def _why(self, run: Run) -> str:
        errors = await self.errors(run.id)
        said = "; ".join(
            f"{step}{f' of {item}' if item else ''}: {error.get('message') or error.get('code')}"
            for (step, item), error in list(errors.items())[:3]
        )
        return f"run {run.id} of {run.pipeline!r} ended as {run.state}{f': {said}' if said else ''}"


@asynccontextmanager
async def connect(app: App | None, settings: Settings | None = None) -> AsyncIterator[Client]:
    """A client on the database that the settings name, with its schema brought to this release."""
    async with await Database.open(settings or Settings()) as database:
        await database.upgrade()
        client = Client(app, database)
        try:
            yield client
        finally:
            await client.close()


def _validated(pipeline: Pipeline, given: Input) -> str:
    """The input as JSON, after its model accepted it."""
    if pipeline.inputs is None:
        if given:
            raise InvalidInput(f"pipeline {pipeline.name!r} takes no input")
        return "{}"
    try:
        if isinstance(given, pipeline.inputs):
            return given.model_dump_json()
        plain = given.model_dump() if isinstance(given, BaseModel) else dict(given or {})
        return pipeline.inputs.model_validate(plain).model_dump_json()
    except ValidationError as error:
        raise InvalidInput(f"pipeline {pipeline.name!r} refuses this input: {_said(error)}") from error


def _said(error: ValidationError) -> str:
    """Field by field, on one line."""
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}".lstrip(": ") for each in error.errors())


def _digest(text: str) -> bytes:
    """Of the canonical form, so that the order of keys does not matter."""
    return hashlib.sha256(json.dumps(json.loads(text), sort_keys=True).encode()).digest()
