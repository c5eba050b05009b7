"""The sample data of `make run`: every state that an operator should see, made by real pipelines."""

from __future__ import annotations

from datetime import timedelta

import pytest

from retoma import logs
from retoma.engine.watchdog import check_due_runs
from retoma_apps.samples import pipelines
from retoma_apps.samples.application import make_app
from retoma_apps.samples.demo import WEBHOOK_URL, run_demo
from retoma_apps.samples.quiet_logs import hide_sample_lines
from tests.server.pages.visitor import OpenPages, Visitor, visible_text


@pytest.fixture(autouse=True)
def _quick_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "SECONDS_PER_PAGE", 0)


async def start_samples(visitor: Visitor, language: str) -> str:
    """Start the demo and work until one run is stuck and one has failed; one page of the slow one is ready."""
    introduction = await anext(aiter(run_demo(visitor.client, "http://here", language)))
    sandbox = visitor.api.sandbox
    async with sandbox.manual_worker() as worker:
        await worker.record_outcomes(await worker.attempt(await worker.claim(3)))
        await worker.record_outcomes(await worker.attempt(await worker.claim(1)))
        await sandbox.clock.advance(timedelta(seconds=5))
        await check_due_runs(sandbox.database, timedelta(days=1))
    return introduction


async def test_there_is_a_running_a_stuck_and_a_failed_run(open_pages: OpenPages) -> None:
    async with open_pages(application=make_app()) as visitor:
        await start_samples(visitor, "en")
        runs = await visitor.client.runs.list()
        assert {run.pipeline: str(run.state) for run in runs} == {
            "sample_slow": "running",
            "sample_stuck": "stuck",
            "sample_failed": "failed",
        }
        (stuck,) = await visitor.client.runs.list_stuck()
        assert (stuck.pipeline, stuck.cause) == ("sample_stuck", "provider_rejected")
        (delivery,) = await visitor.client.webhooks.list_deliveries()
        assert delivery.url == WEBHOOK_URL


@pytest.mark.parametrize(
    ("language", "titles"),
    [
        ("en", ("Sample: a run in progress", "Sample: a stuck run", "Sample: a failed run")),
        (
            "pt",
            ("Exemplo: uma execução em andamento", "Exemplo: uma execução travada", "Exemplo: uma execução com falha"),
        ),
    ],
)
async def test_the_pages_name_every_sample_as_one(
    open_pages: OpenPages, language: str, titles: tuple[str, ...]
) -> None:
    async with open_pages(application=make_app()) as visitor:
        introduction = await start_samples(visitor, language)
        _, _, found = introduction.splitlines()[0].partition("http://here")
        page = visible_text(await visitor.get(found, accept_language=language))
        for title in titles:
            assert title in page
        stuck = visible_text(await visitor.get("/stuck", accept_language=language))
        assert titles[1] in stuck


async def test_a_second_start_adds_no_samples(open_pages: OpenPages) -> None:
    async with open_pages(application=make_app()) as visitor:
        await start_samples(visitor, "en")
        [_ async for _ in run_demo(visitor.client, "http://here", "en")]
        assert len(await visitor.client.runs.list()) == 3


async def test_another_run_is_in_progress_once_the_last_has_ended(
    open_pages: OpenPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "PAGES", 2)
    async with open_pages(application=make_app()) as visitor:
        await start_samples(visitor, "en")
        await visitor.api.sandbox.work(advance_clock=False)
        [_ async for _ in run_demo(visitor.client, "http://here", "en")]
        states = [str(run.state) for run in await visitor.client.runs.list(pipeline="sample_slow")]
        assert states == ["running", "completed"]


@pytest.mark.parametrize(
    ("fields", "is_shown"),
    [
        ({"step": "sample_input"}, False),
        ({"step": "sample_provider", "run": "0199"}, False),
        ({"url": WEBHOOK_URL}, False),
        ({"step": "script"}, True),
        ({"url": "https://hooks.example.com"}, True),
        ({}, True),
    ],
)
def test_the_log_leaves_out_only_the_errors_of_samples(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, fields: dict[str, str], is_shown: bool
) -> None:
    monkeypatch.setattr(logs, "_HIDDEN", [])
    hide_sample_lines()
    logs.get_logger("retoma.engine.watchdog").error("run_stuck", message="a run makes no progress", **fields)
    assert bool(caplog.records) is is_shown
