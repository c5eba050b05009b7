"""Runs of several applications on one worker and one sender: each gets what its own application provides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from retoma import App, Client, Context, File, PerWorker, Pipeline, PollResult, Webhook
from retoma.engine.reviews import Decision
from retoma.errors import FeedbackNotSupported, NotFound
from retoma.files import FileSettings, create_file_store
from retoma.records import Fact, Run
from retoma.store.database import Database
from retoma.testing import Sandbox, sandbox
from retoma.worker.compatibility import find_incompatibilities
from tests.conftest import empty_database
from tests.receiver import receiver


class Host:
    """Knows only the work that was submitted to it."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def status(self, external_id: str) -> PollResult:
        assert external_id == f"work of {self.name}"
        return PollResult("succeeded", result=f"rendered by {self.name}")


@asynccontextmanager
async def open_line(name: str) -> AsyncIterator[str]:
    yield f"line of {name}"


def an_app(name: str, **options: Any) -> App:
    pipeline = Pipeline(name)

    @pipeline.step
    async def rendered(*, host: Host, ctx: Context) -> Any:
        return await ctx.external(lambda: f"work of {host.name}", poll=host.status)

    @pipeline.step
    async def known(rendered: str, *, line: str, ctx: Context) -> list[Any]:
        await ctx.remember([Fact(f"tea of {line}", "a book")], language="en", about="tea")
        return [line, await ctx.profile(), [fact.text for fact in await ctx.recall("tea", language="en")]]

    resources = {"host": Host(name), "line": PerWorker(lambda: open_line(name))}
    return App(name, pipelines=[pipeline], resources=resources, **options)


@pytest.fixture
async def two_apps(database: Database) -> AsyncIterator[Sandbox]:
    await empty_database(database)
    async with sandbox(App("both", includes=[an_app("films"), an_app("books")]), database) as opened:
        yield opened


def owner_client(sandbox: Sandbox, pipeline: str) -> Client:
    owner = sandbox.app.find_owner(pipeline)
    assert owner is not None
    return sandbox.client.scope_to(owner)


async def test_steps_and_polls_get_the_resources_profiles_and_facts_of_their_own_application(two_apps: Sandbox) -> None:
    for name in ("films", "books"):
        await owner_client(two_apps, name).tenants.set_profile("blog", {"of": name})
    for name in ("films", "books"):
        run = await two_apps.run(name, tenant="blog")
        assert run.results["rendered"] == f"rendered by {name}"
        assert run.results["known"] == [f"line of {name}", {"of": name}, [f"tea of line of {name}"]]


async def test_the_client_of_an_application_sees_its_own_pipelines_only(two_apps: Sandbox) -> None:
    films = owner_client(two_apps, "films")
    assert (films.app and films.app.name, films.scope_to(films.app or two_apps.app)) == ("films", films)
    with pytest.raises(NotFound, match="the application 'films' has no pipeline 'books'"):
        await films.start("books")
    with pytest.raises(NotFound, match=r"'both' only includes others: use `client.scope_to\(application\)`"):
        await two_apps.client.tenants.list_profiles()


async def test_the_webhook_body_is_that_of_the_application_of_the_run(database: Database) -> None:
    await empty_database(database)

    def build_body(client: Client, run: Run, event: str) -> dict[str, Any]:
        return {"from": client.app and client.app.name, "pipeline": run.pipeline}

    apps = [an_app("films", webhook_body=build_body), an_app("books")]
    async with sandbox(App("both", includes=apps), database) as opened, receiver() as there:
        for name in ("films", "books"):
            await opened.run(name, webhook=Webhook(there.url))
            await opened.send_webhooks()
    own, standard = (request.json for request in there.requests)
    assert own == {"from": "films", "pipeline": "films"}
    assert (standard["type"], standard["data"]["pipeline"]) == ("run.completed", "books")


async def test_files_are_in_the_store_of_the_application_of_the_run(database: Database, tmp_path: Path) -> None:
    await empty_database(database)
    stores = {name: create_file_store(FileSettings(home=tmp_path / name)) for name in ("films", "books")}
    apps = []
    for name, store in stores.items():
        pipeline = Pipeline(name)

        @pipeline.step
        async def page(*, ctx: Context) -> File:
            return await ctx.save_file(ctx.pipeline.encode(), name="page.txt")

        apps.append(App(name, pipelines=[pipeline], files=store))
    async with sandbox(App("both", includes=apps), database) as opened:
        for name in stores:
            run = await opened.run(name)
            (file,) = await opened.client.files.list(await opened.client.runs.get(run.id))
            assert [await store.has(file) for store in stores.values()] == [each == name for each in stores]


async def test_a_feedback_check_uses_the_resources_of_its_application(database: Database) -> None:
    await empty_database(database)

    def app_with_review(name: str) -> App:
        pipeline = Pipeline(name)

        def refuse(feedback: Any, *, rules: str) -> None:
            raise FeedbackNotSupported(f"not with the rules of {rules}")

        @pipeline.step(feedback=refuse)
        def draft() -> str:
            return name

        pipeline.review("approved", of=draft)
        return App(name, pipelines=[pipeline], resources={"rules": name})

    both = App("both", includes=[app_with_review("films"), app_with_review("books")])
    async with sandbox(both, database) as opened:
        for name in ("films", "books"):
            await opened.run(name)
            (review,) = await opened.client.reviews.list(pipeline=name)
            with pytest.raises(FeedbackNotSupported, match=f"not with the rules of {name}"):
                await opened.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="no"))


async def test_lists_take_several_pipelines(two_apps: Sandbox) -> None:
    for name in ("films", "books"):
        await two_apps.client.start(name)
    client = two_apps.client
    assert [run.pipeline for run in await client.runs.list(pipeline=["films", "books"])] == ["books", "films"]
    assert [run.pipeline for run in await client.runs.list(pipeline=["films"])] == ["films"]
    assert await client.runs.list(pipeline=[]) == []


async def test_open_runs_of_every_application_are_compatible(two_apps: Sandbox) -> None:
    await two_apps.client.start("films")
    await two_apps.client.start("books")
    assert await find_incompatibilities(two_apps.app, two_apps.database) == []
