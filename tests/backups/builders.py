"""Shared by the tests of backups: a provider that outlives machines, and an application with work of every kind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel, SecretStr

from retoma import App, Context, File, Pipeline, PollResult, Webhook, seconds
from retoma.backups import CopyFiles, RestoredBackup, create_backup, restore_backup
from retoma.errors import DatabaseUnavailable, SubmissionUnknown
from retoma.files import FileSettings, FileStore, create_file_store
from retoma.records import Actor, ActorKind
from retoma.reviews import Decision
from retoma.settings import Settings
from retoma.store import clock
from retoma.store.database import Database
from retoma.store.restores import Outbox
from retoma.testing import ManualWorker, Sandbox, fresh_database, sandbox
from tests.wait_timeout import WAIT_TIMEOUT

ANA = Actor(ActorKind.COMMAND_LINE, "ana", "ana")
HEARTBEAT_TIMEOUT = timedelta(seconds=6)
POSTER = b"a poster"
EVENTS = ("run.started", "run.completed")


class Film(BaseModel):
    topic: str
    poster: File | None = None


class Studio:
    """A provider that both machines call. It accepts a key twice, so a repeated call shows."""

    def __init__(self) -> None:
        self.bills: list[str] = []
        self.renders: list[str] = []
        self.is_done = True
        self.loses_response = False

    async def bill(self, key: str) -> str:
        self.bills.append(key)
        if self.loses_response:
            raise SubmissionUnknown("the connection was lost", 60)
        return key

    async def render(self, key: str) -> str:
        self.renders.append(key)
        return key

    async def find_bill(self, key: str) -> str | None:
        return key if key in self.bills else None

    async def find_render(self, key: str) -> str | None:
        return key if key in self.renders else None

    async def poll(self, external_id: str) -> PollResult:
        return PollResult("succeeded", result=f"film {external_id}") if self.is_done else PollResult("running")


def build_app(studio: Studio, files: FileStore | None = None) -> App:
    film = Pipeline("film", Film, title="{topic}")

    @film.step
    async def bill(topic: str, *, studio: Studio, ctx: Context) -> str:
        return str(await ctx.once("bill", lambda: studio.bill(ctx.effect_key), find=studio.find_bill))

    @film.step
    async def clip(bill: str, *, studio: Studio, ctx: Context) -> str:
        key = ctx.effect_key
        submitted = await ctx.external(
            lambda: studio.render(key), find=studio.find_render, poll=studio.poll, poll_interval=seconds(5)
        )
        return str(submitted)

    film.review("approved_clip", of=clip)

    @film.step
    async def published(approved_clip: str, *, studio: Studio, ctx: Context) -> str:
        return str(await ctx.once("publish", lambda: studio.bill(ctx.effect_key), find=studio.find_bill))

    return App("films", pipelines=[film], resources={"studio": studio}, files=files)


def open_files(home: Path) -> FileStore:
    return create_file_store(FileSettings(_env_file=None, home=home))


@asynccontextmanager
async def old_machine(studio: Studio, home: Path) -> AsyncIterator[Sandbox]:
    async with fresh_database() as database, sandbox(build_app(studio, open_files(home)), database) as opened:
        yield opened


@asynccontextmanager
async def new_machine(studio: Studio, database: Database, files: FileStore | None = None) -> AsyncIterator[Sandbox]:
    """Continue on a restored database, at the time of its clock."""
    at = await clock.now(database)
    async with sandbox(build_app(studio, files), database) as opened:
        await opened.clock.set(at)
        yield opened


@asynccontextmanager
async def open_work(machine: Sandbox, studio: Studio, url: str) -> AsyncIterator[ManualWorker]:
    """Leave a run in review, one with external work in progress, one whose bill has an unknown outcome, one that a
    worker has claimed, and one that nobody has touched. The first webhook is sent, the others are due."""
    poster = await machine.client.files.save(POSTER, tenant="default", name="poster.png")
    await _start(machine, url, "in review", poster)
    await machine.work()
    await machine.send_webhooks()
    studio.is_done = False
    await _start(machine, url, "parked", poster)
    await machine.work(advance_clock=False)
    studio.loses_response = True
    await _start(machine, url, "unknown", poster)
    await machine.work(advance_clock=False)
    studio.is_done, studio.loses_response = True, False
    async with machine.manual_worker() as worker:
        await _start(machine, url, "claimed", poster)
        await worker.claim()
        await _start(machine, url, "new", poster)
        yield worker


async def _start(machine: Sandbox, url: str, topic: str, poster: File) -> None:
    await machine.client.start("film", Film(topic=topic, poster=poster), key=topic, webhook=Webhook(url, events=EVENTS))


async def finish_work(machine: Sandbox) -> None:
    """Work and approve everything until nothing is left to do."""
    for _ in range(2):
        await machine.work()
        for review in await machine.client.reviews.list():
            await machine.client.reviews.decide(review.id, Decision("approve", by="ana"))
    await machine.work()


async def get_states(machine: Sandbox) -> dict[str | None, str]:
    return {run.title: str(run.state) for run in await machine.client.runs.list()}


async def back_up(machine: Sandbox, to: Path) -> Path:
    assert machine.app.files is not None
    await create_backup(machine.database, machine.app.files, to, actor=ANA, copy=CopyFiles.COPY)
    return to


async def restore(
    database: Database, files: FileStore, path: Path, outbox: Outbox = "hold", *, replace: bool = False
) -> RestoredBackup:
    return await restore_backup(
        database, files, path, actor=ANA, outbox=outbox, replace=replace, heartbeat_timeout=HEARTBEAT_TIMEOUT
    )


@asynccontextmanager
async def empty_database() -> AsyncIterator[Database]:
    async with fresh_database() as database:
        async with database.connection() as connection:
            await connection.execute("drop schema retoma cascade")
        yield database


async def open_when_started(url: str) -> Database:
    """Open a server that has just been started, once it accepts connections."""
    settings = Settings(_env_file=None, database_url=SecretStr(url))
    deadline = time.monotonic() + WAIT_TIMEOUT
    while True:
        try:
            return await Database.open(settings)
        except DatabaseUnavailable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
