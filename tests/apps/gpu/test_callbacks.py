"""Callbacks to `webhook_url`: bodies, signatures and retries."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from retoma import Settings
from retoma.define.webhook import SCHEDULES
from retoma_apps.gpu.settings import MAX_ATTEMPTS, GpuSettings, Rules
from retoma_apps.gpu.states import run_id
from tests.apps.gpu.conftest import OpenGpuApp
from tests.apps.gpu.gpu_app import BODIES, KEY, MINUTE, GpuApp, img2vid
from tests.receiver import ReceivedRequest, receiver, respond_with
from tests.server.pages.visitor import Visitor
from tests.webhooks.builders import send_until_done

SECRET = "um segredo"


async def run_to_end(gpu_app: GpuApp, url: str, body: dict[str, Any] | None = None, operation: str = "img2vid") -> str:
    job = await gpu_app.submit({**(body or BODIES[operation]), "webhook_url": url}, operation)
    await gpu_app.work()
    return job


async def test_a_completed_job_is_reported_with_its_videos(gpu_app: GpuApp) -> None:
    async with receiver() as listener:
        job = await gpu_app.submit(img2vid(2, webhook_url=listener.url))
        await gpu_app.api.sandbox.clock.advance(MINUTE)
        await gpu_app.work()
        (reported,) = await gpu_app.send_callbacks(listener)
        shown = await gpu_app.show(job)
    assert listener.requests[0].method == "POST"
    assert list(reported) == ["jobId", "id_roteiro", "status", "operation", "result", "execution", "timestamp"]
    assert (reported["jobId"], reported["id_roteiro"], reported["status"], reported["operation"]) == (
        job,
        34,
        "COMPLETED",
        "img2vid",
    )
    assert reported["result"] == shown["result"]
    assert reported["result"] == {
        "code": 200,
        "message": "Images converted to videos successfully",
        "videos": [
            {
                "id": number,
                "video_url": f"https://files.invalid/gpu/{run_id(job)}/1/video_{number}.mp4",
                "filename": f"video_{number}.mp4",
            }
            for number in ("1", "2")
        ],
    }
    assert reported["execution"] == {
        "startTime": "2030-01-01T12:01:00.000Z",
        "endTime": "2030-01-01T12:01:08.000Z",
        "durationMs": 8000,
        "durationSeconds": 8,
    }
    assert reported["timestamp"] == "2030-01-01T12:01:08.000Z"


@pytest.mark.parametrize("operation", ["caption", "addaudio"])
async def test_a_callback_of_the_other_operations_has_one_video(operation: str, gpu_app: GpuApp) -> None:
    async with receiver() as listener:
        job = await run_to_end(gpu_app, listener.url, operation=operation)
        (reported,) = await gpu_app.send_callbacks(listener)
        assert reported["result"] == (await gpu_app.show(job))["result"]
    assert (reported["operation"], reported["result"]["video_url"].endswith(f"{operation}.mp4")) == (operation, True)


async def test_a_failed_job_is_reported_with_its_error(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.fail = {"caption"}
    async with receiver() as listener:
        job = await run_to_end(gpu_app, listener.url, operation="caption")
        (reported,) = await gpu_app.send_callbacks(listener)
        assert reported["error"] == (await gpu_app.show(job))["error"]
    assert list(reported) == ["jobId", "id_roteiro", "status", "operation", "error", "execution", "timestamp"]
    assert (reported["status"], reported["error"]["code"]) == ("FAILED", "PROCESSING_ERROR")
    assert reported["error"]["message"] == "caption failed, as requested"
    assert reported["execution"]["durationMs"] > 0


async def test_a_job_without_any_rendered_image_names_the_faulty_image(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.bad_images = {"42"}
    body = img2vid(0)
    body["images"] = [{"id": "42", "image_url": "https://example.com/42.png", "duracao": 5.32}]
    async with receiver() as listener:
        await run_to_end(gpu_app, listener.url, body)
        (reported,) = await gpu_app.send_callbacks(listener)
    assert reported["error"] == {
        "code": "PROCESSING_ERROR",
        "message": "Image 42 is corrupted",
        "details": "Failed images: 42: Image 42 is corrupted",
    }
    assert "result" not in reported


async def test_a_callback_reports_its_own_end_though_the_job_was_rerun(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.bad_images, gpu_app.standin.faults.partial = {"2"}, True
    async with receiver() as listener:
        job = await run_to_end(gpu_app, listener.url, img2vid(3))
        before = await gpu_app.show(job)
        await gpu_app.client.runs.rerun_failed(run_id(job))
        (reported,) = await gpu_app.send_callbacks(listener)
    assert (reported["status"], reported["error"]["code"]) == ("FAILED", "PARTIAL_FAILURE")
    assert (reported["result"], reported["error"], reported["timestamp"]) == (
        before["result"],
        before["error"],
        before["completedAt"],
    )


async def test_a_cancelled_job_is_reported_too(gpu_app: GpuApp) -> None:
    async with receiver() as listener:
        job = await gpu_app.submit(img2vid(2, webhook_url=listener.url))
        await gpu_app.cancel(job)
        (reported,) = await gpu_app.send_callbacks(listener)
    assert list(reported) == ["jobId", "id_roteiro", "status", "operation", "execution", "timestamp"]
    assert (reported["jobId"], reported["status"], reported["execution"]["startTime"]) == (job, "CANCELLED", None)


async def test_each_job_is_reported_once_to_its_own_url(gpu_app: GpuApp) -> None:
    async with receiver() as here, receiver() as listener:
        first = await gpu_app.submit(img2vid(1, webhook_url=here.url))
        second = await gpu_app.submit(img2vid(1, webhook_url=listener.url))
        await gpu_app.work()
        await gpu_app.api.sandbox.send_webhooks()
        await gpu_app.pass_time(timedelta(days=1))
        await gpu_app.api.sandbox.send_webhooks()
    assert [got.json["jobId"] for got in here.requests] == [first]
    assert [got.json["jobId"] for got in listener.requests] == [second]


async def test_the_signature_covers_the_bytes_that_were_sent(gpu_app: GpuApp) -> None:
    async with receiver(respond_with(500)) as listener:
        await run_to_end(gpu_app, listener.url)
        await gpu_app.api.sandbox.send_webhooks(Settings(webhook_secret=SECRET))
        await gpu_app.api.sandbox.clock.advance(timedelta(seconds=5))
        await gpu_app.api.sandbox.send_webhooks(Settings(webhook_secret=SECRET))
    first, second = listener.requests
    assert [sign(first), sign(second)] == [got.headers["x-webhook-signature"] for got in listener.requests]
    assert first.headers["x-webhook-timestamp"] != second.headers["x-webhook-timestamp"]
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body


def sign(got: ReceivedRequest) -> str:
    """Compute the signature as a receiver would."""
    text = got.headers["x-webhook-timestamp"].encode() + b"." + got.body
    return hmac.new(SECRET.encode(), text, hashlib.sha256).hexdigest()


async def test_a_callback_without_attempts_left_is_a_dead_letter(
    open_gpu_app: OpenGpuApp,
) -> None:
    async with (
        open_gpu_app(settings={"webhook_retry_max": 5}) as gpu_app,
        receiver(*[respond_with(500)] * 9) as listener,
    ):
        job = await run_to_end(gpu_app, listener.url)
        run = (await gpu_app.client.runs.list())[0].id
        waits = await send_until_done(gpu_app.api.sandbox, run)
        (dead,) = await gpu_app.client.webhooks.list_deliveries(states=["dead"])
        letter = await gpu_app.client.webhooks.get_delivery(dead.id)
    assert len(listener.requests) == 5
    assert waits[0] == timedelta(0)
    for wait, reported in zip(waits[1:], (2, 4, 8, 16), strict=True):
        assert wait.total_seconds() == pytest.approx(reported, rel=0.2)
    assert (letter.url, json.loads(letter.body)["jobId"]) == (listener.url, job)
    assert isinstance(letter.ended_at, datetime)
    assert "500" in letter.error


async def test_a_callback_survives_a_restart_of_its_receiver(gpu_app: GpuApp) -> None:
    """After the specified five attempts it continues on the standard schedule."""
    async with receiver(*[respond_with(500)] * 13) as listener:
        await run_to_end(gpu_app, listener.url)
        waits = await send_until_done(gpu_app.api.sandbox, (await gpu_app.client.runs.list())[0].id)
        (delivery,) = await gpu_app.client.webhooks.list_deliveries()
    assert (len(listener.requests), delivery.state) == (14, "delivered")
    assert [wait.total_seconds() for wait in waits[1:5]] == [
        pytest.approx(reported, rel=0.2) for reported in (2, 4, 8, 16)
    ]
    assert sum(waits, timedelta()) > timedelta(days=3)


async def test_every_attempt_is_logged_with_its_job_its_url_and_the_next_attempt(
    open_gpu_app: OpenGpuApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "retoma.webhooks.sender")
    script = [respond_with(500), respond_with(200), respond_with(500), respond_with(500)]
    async with open_gpu_app(settings={"webhook_retry_max": 2}) as gpu_app, receiver(*script) as listener:
        jobs = []
        for _ in range(2):
            jobs.append(await run_to_end(gpu_app, f"{listener.url}?token=canary"))
            await send_until_done(gpu_app.api.sandbox, (await gpu_app.client.runs.list())[0].id)
    lines: list[Any] = [line for line in caplog.records if line.name == "retoma.webhooks.sender"]
    assert [(line.levelname, f"orc-{line.run}", line.attempt) for line in lines] == [
        ("WARNING", jobs[0], 1),
        ("INFO", jobs[0], 2),
        ("WARNING", jobs[1], 1),
        ("ERROR", jobs[1], 2),
    ]
    assert {line.url for line in lines} == {f"{listener.url}?token=***"}
    assert [line.retry_in_seconds for line in lines if line.levelname == "WARNING"] == [pytest.approx(2, rel=0.2)] * 2


async def test_a_dead_letter_can_be_redelivered(open_gpu_app: OpenGpuApp) -> None:
    async with (
        open_gpu_app(settings={"webhook_retry_max": 5}) as gpu_app,
        receiver(*[respond_with(503)] * 5) as listener,
    ):
        job = await run_to_end(gpu_app, listener.url)
        run = (await gpu_app.client.runs.list())[0].id
        await send_until_done(gpu_app.api.sandbox, run)
        (dead,) = await gpu_app.client.webhooks.list_deliveries(states=["dead"])
        answer = await gpu_app.api.post(f"/api/v1/deliveries/{dead.id}/redeliver")
        assert answer.status_code < 300
        await gpu_app.pass_time(timedelta(hours=1))
        await gpu_app.api.sandbox.send_webhooks()
        assert listener.requests[-1].json["jobId"] == job
        assert (await gpu_app.client.webhooks.get_delivery(dead.id)).state == "delivered"


async def test_a_dead_letter_survives_a_restart_and_can_be_redelivered(open_gpu_app: OpenGpuApp) -> None:
    async with receiver(respond_with(410)) as listener:
        async with open_gpu_app() as gpu_app:
            job = await run_to_end(gpu_app, listener.url)
            await gpu_app.api.sandbox.send_webhooks()
            (dead,) = await gpu_app.client.webhooks.list_deliveries(states=["dead"])
            letter, now = await gpu_app.client.webhooks.get_delivery(dead.id), await gpu_app.api.sandbox.clock.now()
        async with open_gpu_app() as gpu_app:  # a new process without any state in memory
            await gpu_app.api.sandbox.clock.set(now)
            assert await gpu_app.client.webhooks.get_delivery(dead.id) == letter
            await gpu_app.client.webhooks.enable_endpoint(letter.endpoint)
            assert (await gpu_app.api.post(f"/api/v1/deliveries/{dead.id}/redeliver")).status_code < 300
            await gpu_app.api.sandbox.send_webhooks()
    assert [got.json["jobId"] for got in listener.requests] == [job, job]
    assert listener.requests[0].headers["webhook-id"] == listener.requests[1].headers["webhook-id"]


async def test_dead_letters_contain_no_secret(open_gpu_app: OpenGpuApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", KEY)
    answer = f"Authorization: Bearer {KEY}".encode()
    async with open_gpu_app() as gpu_app, receiver(respond_with(410, answer)) as listener:
        await run_to_end(gpu_app, f"{listener.url}?token=CANARY")
        await gpu_app.api.sandbox.send_webhooks()
        (dead,) = await gpu_app.client.webhooks.list_deliveries(states=["dead"])
        places = ("/api/v1/deliveries?state=dead", f"/api/v1/deliveries/{dead.id}", "/api/v1/endpoints")
        shown = [await gpu_app.api.get(place) for place in places]
        visitor = Visitor(gpu_app.api)
        await visitor.log_in()
        shown += [await visitor.get("/deliveries?state=dead"), await visitor.get(f"/deliveries/{dead.id}")]
    assert listener.requests[0].path.endswith("?token=CANARY")
    assert [answer.status_code for answer in shown] == [200] * 5
    assert all("token=***" in answer.text for answer in shown)
    assert "Authorization: " in shown[1].text
    assert not any("CANARY" in answer.text for answer in shown)


@pytest.mark.parametrize("status", [404, 409])
async def test_a_callback_that_arrives_before_n8n_is_waiting_is_resent(status: int, gpu_app: GpuApp) -> None:
    async with receiver(respond_with(status)) as listener:
        await run_to_end(gpu_app, listener.url)
        run = (await gpu_app.client.runs.list())[0].id
        await send_until_done(gpu_app.api.sandbox, run)
    assert len(listener.requests) == 2
    assert (await gpu_app.client.webhooks.list_deliveries())[0].state == "delivered"


@pytest.mark.parametrize(("requested", "attempts"), [("1", 1), ("3", 3), ("7", 7)])
async def test_the_number_of_attempts_is_configurable(
    requested: str, attempts: int, open_gpu_app: OpenGpuApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBHOOK_RETRY_MAX", requested)
    async with open_gpu_app() as gpu_app, receiver(*[respond_with(500)] * 9) as listener:
        await run_to_end(gpu_app, listener.url)
        await send_until_done(gpu_app.api.sandbox, (await gpu_app.client.runs.list())[0].id)
        assert len(listener.requests) == attempts


def test_the_whole_schedule_is_the_default_and_five_attempts_can_be_configured() -> None:
    rules, five = (Rules(value, offline=False) for value in (GpuSettings(), GpuSettings(webhook_retry_max=5)))
    assert (rules.settings.webhook_retry_max, rules.webhook("https://a.example").schedule) == (14, "standard")
    assert (five.settings.webhook_retry_max, five.webhook("https://a.example").schedule) == (5, "short")


async def test_no_callback_is_enqueued_where_none_was_requested(gpu_app: GpuApp) -> None:
    await gpu_app.submit(img2vid(1))
    await gpu_app.work()
    assert await gpu_app.client.webhooks.list_deliveries() == []


async def test_the_duration_of_a_rerun_does_not_include_the_first_run(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.bad_images, gpu_app.standin.faults.partial = {"2"}, True
    async with receiver() as listener:
        job = await run_to_end(gpu_app, listener.url, img2vid(3))
        (first,) = await gpu_app.send_callbacks(listener)
        gpu_app.standin.faults.bad_images = set()
        await gpu_app.api.sandbox.clock.advance(timedelta(days=2))
        await gpu_app.client.runs.rerun_failed(run_id(job))
        assert [(await gpu_app.show(job))[name] for name in ("status", "startedAt")] == ["QUEUED", None]
        await gpu_app.pass_time(MINUTE)
        await gpu_app.work()
        _, second = await gpu_app.send_callbacks(listener)
        shown, (listed,) = await gpu_app.show(job), (await gpu_app.api.get("/jobs")).json()["jobs"]
    assert (first["execution"]["durationMs"], second["execution"]["durationMs"]) == (8000, 8000)
    assert second["status"] == "COMPLETED"
    assert second["execution"]["startTime"] == shown["startedAt"] == listed["startedAt"] > "2030-01-03T12:01:00"


def test_more_attempts_than_the_schedule_has_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(SCHEDULES["standard"]) == MAX_ATTEMPTS
    monkeypatch.setenv("WEBHOOK_RETRY_MAX", str(MAX_ATTEMPTS))
    assert Rules(GpuSettings(), offline=False).settings.webhook_retry_max == MAX_ATTEMPTS
    monkeypatch.setenv("WEBHOOK_RETRY_MAX", str(MAX_ATTEMPTS + 1))
    with pytest.raises(ValidationError, match="less than or equal to 14"):
        GpuSettings()


async def test_a_plain_run_sends_nothing_to_the_webhook_url_of_its_input(gpu_app: GpuApp) -> None:
    request_data = {**BODIES["caption"], "webhook_url": "https://169.254.169.254/latest/meta-data"}
    answer = await gpu_app.api.post("/api/v1/runs", json={"pipeline": "caption", "input": request_data})
    assert answer.status_code == 202
    await gpu_app.work()
    assert await gpu_app.client.webhooks.list_deliveries() == []
    body = {"pipeline": "caption", "input": request_data, "webhook": {"url": request_data["webhook_url"]}}
    assert (await gpu_app.api.post("/api/v1/runs", json=body)).json()["code"] == "UNSAFE_URL"
