"""Resources that a worker opens when it starts and closes when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from retoma import App, Client, PerWorker, Pipeline, testing
from retoma.define.review import Feedback
from retoma.errors import DefinitionError
from retoma.settings import Settings
from retoma.store.database import Database
from retoma.worker.worker import Worker
from tests.wait_timeout import WAIT_TIMEOUT


class Line:
    def __init__(self) -> None:
        self.story: list[str] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[list[str]]:
        self.story.append("opened")
        loop = asyncio.get_running_loop()
        yield self.story
        assert asyncio.get_running_loop() is loop
        self.story.append("closed")


def calls(line: Line) -> App:
    pipeline = Pipeline("calls")

    @pipeline.step
    async def first(*, http: list[str]) -> int:
        http.append("used")
        return 1

    @pipeline.step
    async def second(first: int, *, http: list[str]) -> int:
        http.append("used")
        return first + 1

    return App("calls", pipelines=[pipeline], resources={"http": PerWorker(line.open)})


async def test_a_worker_opens_its_resource_once_and_closes_it_at_the_end(database: Database) -> None:
    line = Line()
    app = calls(line)
    client = Client(app, database)
    run = await client.start("calls")
    worker = Worker(app, database, Settings())
    working = asyncio.create_task(worker.run())
    await client.wait(run.id, timedelta(seconds=WAIT_TIMEOUT))
    worker.stop()
    await working
    await client.close()
    assert line.story == ["opened", "used", "used", "closed"]


async def test_the_sandbox_opens_resources_while_it_works() -> None:
    line = Line()
    async with testing.sandbox(calls(line)) as sandbox:
        assert (await sandbox.run("calls")).results["second"] == 2
    assert line.story == ["opened", "used", "used", "closed"]


def test_a_feedback_check_cannot_use_resources_that_only_workers_open() -> None:
    pipeline = Pipeline("letters")

    def can_follow(feedback: Feedback, *, http: list[str]) -> None: ...

    @pipeline.step(feedback=can_follow)
    def letter() -> str:
        return ""

    with pytest.raises(DefinitionError, match="which only workers open"):
        App("letters", pipelines=[pipeline], resources={"http": PerWorker(Line().open)})


async def test_a_worker_logs_that_it_has_drained_before_it_closes_resources(database: Database) -> None:
    line = Line()
    worker = Worker(calls(line), database, Settings(), on_drained=lambda: line.story.append("drained"))
    worker.stop()
    await worker.run()
    assert line.story == ["opened", "drained", "closed"]
