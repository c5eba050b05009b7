"""A scrape of a real server on which every measured event has happened once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from prometheus_client.parser import text_string_to_metric_families

from retoma import App, Pipeline, Pool, Webhook, hours
from retoma.engine import background_loops
from retoma.engine.reviews import Decision
from retoma.records import Scope
from retoma.store.backups import record_backup
from retoma.store.database import Database
from retoma.testing import Sandbox, sandbox
from retoma_apps.gpu.metrics import collect_metrics
from tests.conftest import empty_database
from tests.engine.builders import run_claims
from tests.server.api import Api, an_api

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
gpu = Pool("gpu", capacity=3)
video = Pipeline("img2vid")


@video.step
def plan() -> list[int]:
    return [1]


@video.step(pool=gpu, slots=2)
def clip(plan: list[int]) -> str:
    return "clip.mp4"


story = Pipeline("story")


@story.step
def draft() -> str:
    return "once upon a time"


story.review("good_draft", of=draft, due=hours(1))


@asynccontextmanager
async def open_busy_server(database: Database, **options: Any) -> AsyncIterator[Api]:
    """One run has ended after 30 s of waiting and 4 min of work, its webhook was delivered and another's given up; one
    holds 2 of 3 slots, and one waits for them. Of another application two wait for people, one past its time."""
    await empty_database(database)
    background_loops._restarts.setdefault("maintenance", 0)  # a server that listens runs this loop
    application = App("gpu", pipelines=[video], metrics=collect_metrics)
    async with an_api(database, application=application, scopes=[Scope.METRICS_READ], **options) as api:
        await _open_two_reviews(api.sandbox.database)
        await _run_one_to_end(api)
        await api.client.start_many("img2vid", [None, None])
        await record_backup(api.sandbox.database, uuid4(), await api.client.now(), 1, 1)
        await api.client.budgets.set("default", "month", 50_000_000)
        async with api.sandbox.manual_worker() as worker:
            await run_claims(worker, await worker.claim(10))
            assert len(await worker.claim(10)) == 1
            yield api


async def fetch_metrics(api: Api) -> str:
    answer = await api.get("/metrics")
    assert answer.status_code == 200, answer.text
    return answer.text


def samples(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def names(text: str) -> set[str]:
    return {name for name, _ in samples(text)}


async def _run_one_to_end(api: Api) -> None:
    hooked = Webhook("https://hooks.example.com/one", events=("run.started", "run.ended"))
    await api.client.start("img2vid", webhook=hooked)
    clock = api.sandbox.clock
    async with api.sandbox.manual_worker() as worker:
        await run_claims(worker, await worker.claim(1))
        await clock.advance(timedelta(seconds=30))
        claims = await worker.claim(1)
        await clock.advance(timedelta(minutes=4))
        await run_claims(worker, claims)
    for outcome in ("delivered", "dead"):
        await _send(api, outcome)


async def _open_two_reviews(database: Database) -> None:
    async with sandbox(App("stories", pipelines=[story]), database) as other:
        await _decide_one_review(other)
        for _ in range(2):
            await other.client.start("story")
            await other.work(advance_clock=False)
            await other.clock.advance(timedelta(minutes=40))


async def _decide_one_review(other: Sandbox) -> None:
    run = (await other.client.start("story")).id
    await other.work(advance_clock=False)
    (review,) = await other.client.reviews.list(run=run)
    await other.client.reviews.decide(review.id, Decision("approve", by="Ana", seen=1))
    await other.work(advance_clock=False)


async def _send(api: Api, outcome: str) -> None:
    async with api.sandbox.database.connection() as connection:
        await connection.execute(
            "select retoma.record_delivery_attempt(id, attempt, $1, '0', null, 5, 200, null, null) "
            "from retoma.claim_deliveries('{img2vid}', 1, 1, '1 minute')",
            outcome,
        )
