"""Many channels at the same time: a failure in one does not affect the others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from retoma import GiveUp
from retoma.store.database import Database
from retoma_apps.videos.models import Fact
from retoma_apps.videos.steps.writing.port import WritingRequest
from tests.apps.videos.small_services import AnyTopicWriter, make_small_services
from tests.apps.videos.video_app import TOPIC, VideoApp, running_video_app
from tests.conftest import empty_database
from tests.receiver import receiver, respond_with
from tests.wait_timeout import WAIT_TIMEOUT

CHANNELS = ("ciencia", "historia", "jogos", "musica", "viagens")


class PickyWriter(AnyTopicWriter):
    """Refuses one topic, fails once on another, and hangs on a third until all others are written."""

    def __init__(self) -> None:
        self.researched = 0
        self.others_are_done = asyncio.Event()

    async def research(self, request: WritingRequest, **options: Any) -> list[Fact]:
        if request.brief.topic == "proibido":
            raise GiveUp("there is nothing to be said about this", "NOTHING_FOUND")
        if request.brief.topic == "tropeço":
            raise RuntimeError("a bug in the writer")
        if request.brief.topic == "parado":
            await self.others_are_done.wait()
        found = await super().research(request, **options)
        self.researched += 1
        if self.researched == len(CHANNELS) - 1:
            self.others_are_done.set()
        return found


@pytest.fixture
async def video_app(database: Database, tmp_path: Path) -> AsyncIterator[VideoApp]:
    await empty_database(database)
    async with running_video_app(
        database, tmp_path, replace(make_small_services(tmp_path), writer=PickyWriter())
    ) as made:
        yield made


@pytest.mark.parametrize("topic", ["proibido", "tropeço"])
async def test_a_failure_in_one_channel_does_not_affect_another(topic: str, video_app: VideoApp) -> None:
    alone = await video_app.order_until_script_review(channel="sozinho")
    videos = {name: await video_app.order(topic if name == "historia" else TOPIC, name) for name in CHANNELS}
    await video_app.api.sandbox.work()
    shown = {name: await video_app.show(video) for name, video in videos.items()}
    assert {name: one["stage"] for name, one in shown.items()} == {
        name: "failed" if name == "historia" else "scripted" for name in CHANNELS
    }
    for name in set(CHANNELS) - {"historia"}:
        checkpoint = await video_app.checkpoint(shown[name]["checkpoint"]["id"])
        assert checkpoint["data"] == alone["data"]
        assert (checkpoint["channel"], checkpoint["status"]) == (name, "pending")


async def test_a_hanging_step_in_one_channel_delays_no_other(video_app: VideoApp) -> None:
    videos = [await video_app.order("parado" if name == "ciencia" else TOPIC, name) for name in CHANNELS]
    async with asyncio.timeout(WAIT_TIMEOUT):
        await video_app.work()
    assert {(await video_app.show(video))["stage"] for video in videos} == {"scripted"}


async def test_the_backlog_of_one_channel_leaves_room_for_the_others(video_app: VideoApp) -> None:
    for channel in (*["ciencia"] * 6, "historia"):
        await video_app.order(TOPIC, channel)
    await video_app.work_once()
    async with video_app.api.sandbox.manual_worker() as worker:
        begun = Counter([(await video_app.client.runs.get(claim.run)).tenant for claim in await worker.claim(100)])
    assert begun == {"ciencia": 4, "historia": 1}


async def test_a_failed_video_reports_which_step_failed_and_why(video_app: VideoApp) -> None:
    video = await video_app.order("proibido", "historia")
    await video_app.work()
    shown = await video_app.show(video)
    assert (shown["stage"], shown["status"], shown["current_step"]) == ("failed", "failed", None)
    assert shown["error_message"] == "research: there is nothing to be said about this"
    assert await video_app.list_started_steps(video) == {"knowledge_query", "research"}


@pytest.mark.parametrize(
    ("topic", "code", "error"),
    [
        ("proibido", "NOTHING_FOUND", "there is nothing to be said about this"),
        ("tropeço", "ERROR", "RuntimeError: a bug in the writer"),
    ],
)
async def test_a_failed_video_is_logged_with_its_channel_and_its_error(
    topic: str, code: str, error: str, video_app: VideoApp, caplog: pytest.LogCaptureFixture
) -> None:
    video = await video_app.order(topic, "historia")
    await video_app.api.sandbox.work()
    (records,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert {name: vars(records)[name] for name in ("tenant", "run", "code", "error")} == {
        "tenant": "historia",
        "run": video,
        "code": code,
        "error": error,
    }


async def test_a_failed_video_continues_when_it_is_resumed(
    video_app: VideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    video = await video_app.order("proibido", "historia")
    await video_app.work()
    monkeypatch.setattr(PickyWriter, "research", AnyTopicWriter.research)
    (run,) = await video_app.client.runs.list()
    await video_app.client.runs.resume(run.id)
    assert (await video_app.work_until_review(video))["checkpoint_type"] == "script_review"
    shown = await video_app.show(video)
    assert (shown["stage"], shown["error_message"]) == ("scripted", None)


async def test_a_failure_is_reported_to_the_webhook_with_channel_and_error(video_app: VideoApp) -> None:
    async with receiver() as listener:
        await video_app.order("proibido", "historia", webhook_url=listener.url)
        await video_app.work()
        await video_app.api.sandbox.send_webhooks()
    payload = listener.requests[0].json["data"]
    assert (payload["tenant"], payload["error"]["code"]) == ("historia", "NOTHING_FOUND")
    assert payload["error"]["message"] == "there is nothing to be said about this"


async def test_a_notification_that_cannot_be_sent_is_retried_and_does_not_block_the_work(
    video_app: VideoApp,
) -> None:
    async with receiver(respond_with(500)) as listener:
        await video_app.order("proibido", "historia", webhook_url=listener.url)
        await video_app.work()
        await video_app.api.sandbox.send_webhooks()
        assert (await video_app.order_until_script_review(TOPIC, "jogos"))["status"] == "pending"
        (deliveries,) = await video_app.client.webhooks.list_deliveries(tenant="historia")
        await video_app.api.sandbox.clock.advance(timedelta(hours=1))
        await video_app.api.sandbox.send_webhooks()
        (sent,) = await video_app.client.webhooks.list_deliveries(tenant="historia")
    assert (deliveries.state, sent.state) == ("due", "delivered")
    first, again = listener.requests
    assert (again.body, again.headers["webhook-id"]) == (first.body, first.headers["webhook-id"])


async def test_a_video_over_the_budget_of_its_channel_waits_for_a_person(video_app: VideoApp) -> None:
    await video_app.api.call("PUT", "/api/v1/channels/historia", json={"budget": 0.01})
    video = UUID(await video_app.order(channel="historia"))
    await video_app.api.sandbox.work()
    (review,) = await video_app.client.reviews.list()
    assert (review.step, review.reason["code"]) == ("research", "BUDGET")
    await video_app.api.call("PUT", "/api/v1/channels/historia", json={"budget": 5})
    await video_app.api.sandbox.work()
    (review,) = await video_app.client.reviews.list(run=video)
    assert review.step == "script_review"


async def test_a_channel_without_a_budget_has_no_limit(video_app: VideoApp) -> None:
    await video_app.api.call("PUT", "/api/v1/channels/historia", json={"budget": 5})
    await video_app.api.call("PUT", "/api/v1/channels/historia", json={"budget": 0})
    await video_app.order(channel="historia")
    assert await video_app.client.budgets.list() == []


async def test_an_order_keeps_a_limit_that_somebody_has_changed(video_app: VideoApp) -> None:
    await video_app.order(channel="historia")
    await video_app.client.budgets.set("historia", "run", 8_000_000, pipeline="longform")
    await video_app.order(channel="historia")
    assert (await video_app.client.budgets.get("historia", "run", pipeline="longform")).micros == 8_000_000
