"""The client for programs without async."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import cast
from uuid import uuid4

import pytest
from pydantic import BaseModel

from retoma import App, Client, Pipeline, Retry, Settings, blocking
from retoma.client.core import Namespace
from retoma.errors import NotFound, RunFailed
from retoma.store.database import Database
from retoma.testing import fresh_database
from retoma.worker.worker import Worker
from tests.wait_timeout import WAIT_TIMEOUT


class Brief(BaseModel):
    topic: str = "tea"


article = Pipeline("article", inputs=Brief, retry=Retry(0))


@article.step
def outline(topic: str) -> list[str]:
    if topic == "nothing":
        raise ValueError("there is nothing to say")
    return [topic, "history"]


app = App("test", pipelines=[article])


@pytest.fixture(scope="module")
async def settings() -> AsyncIterator[Settings]:
    async with fresh_database() as database:
        yield Settings(database_url=database.url)


@pytest.fixture
async def worker(settings: Settings) -> AsyncIterator[None]:
    async with await Database.open(settings) as database:
        worker = Worker(app, database, settings)
        working = asyncio.create_task(worker.run())
        yield
        worker.stop()
        await working


async def test_runs_are_started_awaited_and_inspected(settings: Settings, worker: None) -> None:
    def script() -> None:
        with blocking.connect(app, settings) as client:
            run = client.start("article", {"topic": "coffee"}, tenant="blog")
            assert client.wait(run.id, timedelta(seconds=WAIT_TIMEOUT)).state == "completed"
            assert client.runs.get_results(run.id) == {"outline": ["coffee", "history"]}
            assert client.run(article) == {"outline": ["tea", "history"]}
            assert [found.id for found in client.runs.list(tenant="blog")] == [run.id]
            assert client.runs.find(str(run.id)) == [run.id]
            assert [job.state for job in client.runs.list_jobs(run.id)] == ["succeeded"]
            assert [step.total for step in client.runs.get_progress(run.id)] == [1]
            assert client.runs.list_events(run.id)[-1].kind == "end"
            assert client.runs.cancel(run.id) == "completed"
            assert len(client.workers.list()) == 1

    await asyncio.to_thread(script)


async def test_errors_are_raised_to_the_caller(settings: Settings, worker: None) -> None:
    def script() -> None:
        with blocking.connect(app, settings) as client:
            with pytest.raises(RunFailed, match="there is nothing to say"):
                client.run(article, {"topic": "nothing"})
            with pytest.raises(NotFound):
                client.runs.get(uuid4())

    await asyncio.to_thread(script)


def test_a_wait_that_is_over_leaves_the_client_usable(settings: Settings) -> None:
    with blocking.connect(app, settings) as client:
        run = client.start(article)
        with pytest.raises(TimeoutError):
            client.wait(run.id, timedelta(seconds=0.01))
        assert client.runs.cancel(run.id) == "cancelled"


def test_several_threads_may_share_a_client(settings: Settings) -> None:
    with blocking.connect(app, settings) as client, ThreadPoolExecutor(8) as threads:
        started = list(threads.map(lambda _: client.start(article), range(40)))
        many = client.start_many(article, [None] * 10)
        assert len({run.id for run in [*started, *many]}) == 50


def test_the_client_of_one_of_several_applications_has_its_profiles(settings: Settings) -> None:
    with blocking.connect(App("all", includes=[app]), settings) as client:
        scoped = client.scope_to(app)
        assert scoped.tenants.set_profile("blog", 1).value == 1
        assert [each.tenant for each in scoped.tenants.list_profiles()] == ["blog"]


def test_a_limited_client_shows_only_runs_of_its_tenants(settings: Settings) -> None:
    with blocking.connect(app, settings) as client:
        run = client.start(article, tenant="shop").id
        assert client.limit_to(["shop"]).runs.get(run).id == run
        with pytest.raises(NotFound):
            client.limit_to(["blog"]).runs.get(run)


def test_a_closed_client_raises_a_clear_error(settings: Settings) -> None:
    with blocking.connect(app, settings) as client:
        pass
    with pytest.raises(RuntimeError, match="this client is closed"):
        client.workers.list()


def list_calls(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.iscoroutinefunction) if name[0] != "_"}


def test_the_blocking_client_has_every_method_with_the_same_signature() -> None:
    client = Client(app, Database("never asked", None))
    twin = blocking.BlockingClient(client, cast(blocking.LoopThread, None))
    namespaces = [name for name, value in vars(client).items() if isinstance(value, Namespace)]
    assert {"runs", "api_keys"} <= set(namespaces)
    assert "resolve_orphan" in list_calls(type(client.runs))
    pairs = [(type(client), type(twin)), *((type(getattr(client, n)), type(getattr(twin, n))) for n in namespaces)]
    for kind, blocking_kind in pairs:
        for name in list_calls(kind) - {"close"}:  # `blocking.connect` closes it
            ours, theirs = getattr(blocking_kind, name), getattr(kind, name)
            assert inspect.signature(ours) == inspect.signature(theirs)
            assert ours.__doc__ == theirs.__doc__
