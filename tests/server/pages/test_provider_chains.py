"""The pages, the API and the terminal show which provider of a chain an attempt used, and which one followed."""

from __future__ import annotations

import re

import pytest

from retoma import App, Pipeline, ProviderChain, Retry
from retoma.cli.run_details import load_details, print_details
from retoma.errors import ProviderRejected
from tests.server.pages.visitor import OpenPages, Visitor, visible_text

FAILURE = ValueError("not JSON")


class Model:
    def __init__(self, name: str, error: Exception | None) -> None:
        self.name = name
        self.error = error

    def write(self) -> str:
        if self.error is not None:
            raise self.error
        return "written"


def articles(second: Exception | None = None) -> App:
    pipeline = Pipeline("articles", retry=Retry(0))

    @pipeline.step
    def body(*, llm: Model) -> str:
        return llm.write()

    models = Model("alpha", ProviderRejected("no credit")), Model("beta", second)
    return App("articles", pipelines=[pipeline], resources={"llm": ProviderChain(models)})


async def work(visitor: Visitor) -> str:
    """A run that was rejected by the first provider and ended with the second."""
    run = await visitor.client.start("articles")
    await visitor.api.sandbox.work(advance_clock=False)
    return str(run.id)


async def test_the_page_of_a_run_names_the_providers_of_its_attempts(open_pages: OpenPages) -> None:
    async with open_pages(application=articles(FAILURE)) as visitor:
        page = visible_text(await visitor.get(f"/runs/{await work(visitor)}?step=body"))
        assert "alpha → beta" in page
        assert re.search(r"Attempt 1\s+beta", page)


async def test_the_api_names_the_provider_of_an_error(open_pages: OpenPages) -> None:
    async with open_pages(application=articles(FAILURE)) as visitor:
        run = (await visitor.api.get(f"/api/v1/runs/{await work(visitor)}")).json()
        assert [error["provider"] for error in run["errors"]] == ["beta"]


async def test_the_terminal_names_the_providers(open_pages: OpenPages, capsys: pytest.CaptureFixture[str]) -> None:
    async with open_pages(application=articles(FAILURE)) as visitor:
        run = await visitor.client.start("articles")
        async with visitor.api.sandbox.manual_worker() as worker:
            await worker.record_outcomes(await worker.attempt(await worker.claim()))
        print_details(await load_details(visitor.client, await visitor.client.runs.get(run.id)))
        assert "body: PROVIDER_REJECTED: no credit (attempt 1, alpha, next beta)" in capsys.readouterr().out


async def test_the_page_of_a_run_names_the_provider_of_a_successful_attempt(open_pages: OpenPages) -> None:
    async with open_pages(application=articles()) as visitor:
        page = visible_text(await visitor.get(f"/runs/{await work(visitor)}?step=body"))
        assert re.search(r"1\s+result\s+beta", page)


async def test_the_api_names_the_provider_of_a_successful_attempt(open_pages: OpenPages) -> None:
    async with open_pages(application=articles()) as visitor:
        events = (await visitor.api.get(f"/api/v1/runs/{await work(visitor)}/events")).json()["events"]
        assert [event["data"] for event in events if event["kind"] == "result"] == [{"provider": "beta"}]


async def test_the_page_of_pools_shows_an_open_breaker(open_pages: OpenPages) -> None:
    async with open_pages(application=articles()) as visitor:
        await work(visitor)
        assert "PROVIDER_REJECTED" in visible_text(await visitor.get("/pools"))
