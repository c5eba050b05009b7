"""One order for the videos of many channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from retoma import GiveUp
from retoma.records import Scope
from retoma.store.database import Database
from retoma_apps.providers.llm.port import Usage
from retoma_apps.videos.models import Script
from retoma_apps.videos.steps.writing.bundled import BundledWriter
from retoma_apps.videos.steps.writing.port import WritingRequest
from tests.apps.videos.fast_video_app import FastVideoApp, running_fast_video_app
from tests.apps.videos.small_services import AnyTopicWriter
from tests.apps.videos.video_app import TOPIC
from tests.conftest import empty_database
from tests.receiver import receiver

CHANNELS = ("ciencia", "historia", "jogos")
ORDER = {"videos": [{"channel": channel, "topic": TOPIC} for channel in CHANNELS]}


@pytest.fixture
async def video_app(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FastVideoApp]:
    await empty_database(database)
    async with running_fast_video_app(database, tmp_path, monkeypatch) as made:
        yield made


class PricedWriter(AnyTopicWriter):
    COST = 1_500

    async def script(self, request: WritingRequest, **options: Any) -> Script:
        options["on_usage"](Usage(cost=self.COST))
        return await super().script(request, **options)


async def order_batch(video_app: FastVideoApp, body: dict[str, Any] = ORDER, **options: Any) -> dict[str, Any]:
    answer = await video_app.api.post("/api/v1/videos/batches", json=body, **options)
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


async def show(video_app: FastVideoApp, batch: dict[str, Any]) -> dict[str, Any]:
    answer = await video_app.api.get(f"/api/v1/videos/batches/{batch['id']}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def finish(video_app: FastVideoApp, video: str) -> None:
    """Approve and finish everything that is left of a video."""
    review = (await video_app.show(video))["checkpoint"]["id"]
    await video_app.finish(await video_app.checkpoint(review))


async def test_an_order_for_many_channels_is_one_batch_of_their_videos(video_app: FastVideoApp) -> None:
    await video_app.client.tenants.set_profile("jogos", {"language": "en", "seconds": 25})
    videos = [*ORDER["videos"], {"channel": "jogos", "topic": "How chess works"}]
    batch = await order_batch(video_app, {"videos": videos})
    assert (batch["status"], batch["total"], {one["status"] for one in batch["videos"]}) == ("running", 4, {"pending"})
    await video_app.work()
    batch = await show(video_app, batch)
    assert [(one["number"], one["channel"], one["language"], one["status"]) for one in batch["videos"]] == [
        (1, "ciencia", "pt-BR", "paused"),
        (2, "historia", "pt-BR", "paused"),
        (3, "jogos", "en", "paused"),
        (4, "jogos", "en", "paused"),
    ]
    for one in batch["videos"]:
        video = await video_app.show(one["video_id"])
        assert (video["channel"], video["topic"], video["batch_id"]) == (one["channel"], one["topic"], batch["id"])
    for one in batch["videos"]:
        await finish(video_app, one["video_id"])
    await video_app.work()
    batch = await show(video_app, batch)
    assert (batch["status"], batch["published"], batch["failed"]) == ("completed", 4, 0)
    listed = (await video_app.api.get("/api/v1/videos/batches")).json()["batches"]
    assert listed == [{name: value for name, value in batch.items() if name != "videos"}]


async def test_a_failed_video_does_not_stop_the_others_and_can_be_rerun(video_app: FastVideoApp) -> None:
    video_app.failures["research"] = [GiveUp("there is nothing to say", "NOTHING_FOUND")]
    batch = await order_batch(video_app)
    await video_app.work()
    shown = await show(video_app, batch)
    assert Counter(one["status"] for one in shown["videos"]) == {"failed": 1, "paused": 2}
    (failed,) = [one for one in shown["videos"] if one["status"] == "failed"]
    assert "there is nothing to say" in failed["error_message"]
    for one in shown["videos"]:
        if one is not failed:
            await finish(video_app, one["video_id"])
    await video_app.work()
    shown = await show(video_app, batch)
    assert (shown["status"], shown["published"], shown["failed"]) == ("completed_with_errors", 2, 1)
    await video_app.client.runs.rerun_failed(UUID(batch["id"]))
    await video_app.work()
    await finish(video_app, failed["video_id"])
    await video_app.work()
    shown = await show(video_app, batch)
    assert (shown["status"], shown["published"], shown["failed"]) == ("completed", 3, 0)
    assert {one["error_message"] for one in shown["videos"]} == {None}


async def test_a_cancelled_batch_cancels_its_videos(video_app: FastVideoApp) -> None:
    batch = await order_batch(video_app)
    await video_app.work()
    done = (await show(video_app, batch))["videos"][0]["video_id"]
    await finish(video_app, done)
    answer = await video_app.api.post(f"/api/v1/runs/{batch['id']}/cancel")
    assert answer.status_code == 200, answer.text
    async with video_app.api.sandbox.manual_worker() as worker:
        await worker.poll_external_work()  # a worker does so within a second
    await video_app.work()
    shown = await show(video_app, batch)
    assert shown["status"] == "cancelled"
    assert [one["status"] for one in shown["videos"]] == ["completed", "cancelled", "cancelled"]


async def test_a_batch_cancelled_before_its_start_has_cancelled_videos(video_app: FastVideoApp) -> None:
    batch = await order_batch(video_app, {**ORDER, "start_at": "2031-02-04T12:00:00Z"})
    assert (batch["status"], batch["start_at"]) == ("pending", "2031-02-04T12:00:00+00:00")
    await video_app.client.runs.cancel(UUID(batch["id"]))
    shown = await show(video_app, batch)
    assert [(one["status"], one["video_id"]) for one in shown["videos"]] == [("cancelled", None)] * 3


async def test_a_repeated_order_is_the_same_batch_and_another_body_is_rejected(video_app: FastVideoApp) -> None:
    key = {"headers": {"Idempotency-Key": "pauta-31"}}
    first = await order_batch(video_app, **key)
    await video_app.client.tenants.set_profile("jogos", {"language": "en"})
    assert (await order_batch(video_app, **key))["id"] == first["id"]
    other = {"videos": ORDER["videos"][:1]}
    assert (await video_app.api.post("/api/v1/videos/batches", json=other, **key)).status_code == 422
    await video_app.work()
    assert len(await video_app.client.runs.list(pipeline="longform")) == len(CHANNELS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"videos": []}, "videos"),
        (
            {"videos": [*ORDER["videos"], {"channel": "jogos", "topic": f" {TOPIC}"}]},
            "number 4 is the same video as number 3",
        ),
        ({"videos": [{"channel": "a/b", "topic": TOPIC}]}, "slash"),
        (
            {"videos": [*ORDER["videos"], {"topic": TOPIC, "scheduled_for": "2020-01-01T00:00:00Z"}]},
            "videos.3.scheduled_for: this time is in the past",
        ),
        ({"start_at": "2020-01-01T00:00:00Z"}, "start_at: this time is in the past"),
        ({"videos": [{"topic": TOPIC, "channel": str(number)} for number in range(201)]}, "200"),
    ],
)
async def test_an_invalid_batch_is_rejected_and_starts_nothing(
    change: dict[str, Any], message: str, video_app: FastVideoApp
) -> None:
    answer = await video_app.api.post("/api/v1/videos/batches", json=ORDER | change)
    assert answer.status_code == 422
    assert message in answer.text
    assert await video_app.client.runs.list() == []


async def test_a_batch_with_a_topic_that_needs_a_language_model_starts_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await empty_database(database)
    async with running_fast_video_app(database, tmp_path, monkeypatch, writer=BundledWriter()) as video_app:
        videos = [
            {"channel": "ciencia", "topic": "How coffee is made"},
            {"channel": "jogos", "topic": "Chess openings"},
        ]
        answer = await video_app.api.post("/api/v1/videos/batches", json={"videos": videos})
        assert (answer.status_code, answer.json()["code"]) == (422, "NEEDS_LANGUAGE_MODEL")
        assert "Chess openings” needs a language model" in answer.json()["detail"]
        assert await video_app.client.runs.list() == []


async def test_a_channels_key_orders_and_sees_only_its_own_batches(video_app: FastVideoApp) -> None:
    everyones = await order_batch(video_app)
    key = await video_app.client.api_keys.create("jogos", [Scope.RUNS_READ, Scope.RUNS_WRITE], tenant="jogos")
    headers = {"headers": {"X-API-Key": key.secret}}
    refused = await video_app.api.post("/api/v1/videos/batches", json=ORDER, **headers)
    assert (refused.status_code, refused.json()["code"]) == (404, "NOT_FOUND")
    own = await order_batch(video_app, {"videos": ORDER["videos"][2:]}, **headers)
    listed = (await video_app.api.get("/api/v1/videos/batches", **headers)).json()["batches"]
    assert [each["id"] for each in listed] == [own["id"]]
    assert (await video_app.api.get(f"/api/v1/videos/batches/{everyones['id']}", **headers)).status_code == 404


async def test_a_run_that_is_not_a_batch_is_not_found(video_app: FastVideoApp) -> None:
    video = await video_app.order()
    assert (await video_app.api.get(f"/api/v1/videos/batches/{video}")).status_code == 404


async def test_the_cost_of_a_batch_is_that_of_its_videos(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await empty_database(database)
    async with running_fast_video_app(database, tmp_path, monkeypatch, writer=PricedWriter()) as video_app:
        batch = await order_batch(video_app)
        await video_app.order()  # is no part of it
        await video_app.work()
        assert (await show(video_app, batch))["cost_micros"] == len(CHANNELS) * PricedWriter.COST


async def test_the_end_of_a_batch_is_reported_to_its_webhook(video_app: FastVideoApp) -> None:
    video_app.failures["research"] = [GiveUp("there is nothing to say", "NOTHING_FOUND")] * 3
    async with receiver() as listener:
        batch = await order_batch(video_app, {**ORDER, "webhook_url": listener.url})
        await video_app.work()
        await video_app.api.sandbox.send_webhooks()
    (request,) = listener.requests
    assert request.json["data"]["run"] == batch["id"]
