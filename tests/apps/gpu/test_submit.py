"""Submitting jobs: accepted and rejected requests, and the answers."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from retoma_apps.gpu.routes import OFFLINE
from tests.apps.gpu.conftest import OpenGpuApp
from tests.apps.gpu.gpu_app import ADDAUDIO, BODIES, CAPTION, WEBHOOK_URL, GpuApp, images, img2vid
from tests.engine.builders import rows
from tests.receiver import receiver

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


async def test_a_submit_returns_the_documented_fields(gpu_app: GpuApp) -> None:
    answer = await gpu_app.post("img2vid", img2vid(2, webhook_url=WEBHOOK_URL))
    body = answer.json()
    assert (answer.status_code, list(body)) == (
        202,
        ["jobId", "status", "id_roteiro", "message", "estimatedTime", "statusUrl", "createdAt"],
    )
    assert re.fullmatch(f"orc-{UUID}", body["jobId"])
    assert body | {"jobId": ""} == {
        "jobId": "",
        "status": "QUEUED",
        "id_roteiro": 34,
        "message": "Job enfileirado com sucesso",
        "estimatedTime": "2-10 minutos",
        "statusUrl": f"/jobs/{body['jobId']}",
        "createdAt": "2030-01-01T12:00:00.000Z",
    }
    assert (await gpu_app.api.get(body["statusUrl"])).json()["jobId"] == body["jobId"]


@pytest.mark.parametrize(
    ("path", "operation"),
    [("img2vid", "img2vid"), ("caption", "caption"), ("caption_style", "caption"), ("addaudio", "addaudio")],
)
async def test_each_route_creates_a_job_of_its_operation(path: str, operation: str, gpu_app: GpuApp) -> None:
    job = (await gpu_app.post(path, BODIES[operation])).json()["jobId"]
    shown = await gpu_app.show(job)
    assert (shown["operation"], shown["status"]) == (operation, "QUEUED")


@pytest.mark.parametrize("operation", BODIES)
async def test_a_submit_returns_before_any_work_is_done(operation: str, gpu_app: GpuApp) -> None:
    await gpu_app.submit(operation=operation)
    assert gpu_app.standin.submits == {}


async def test_the_job_exists_when_its_submit_returns(gpu_app: GpuApp) -> None:
    job = await gpu_app.submit(img2vid(3, webhook_url=WEBHOOK_URL))
    shown = await gpu_app.show(job)
    assert (shown["webhookUrl"], len(shown["data"]["images"])) == (WEBHOOK_URL, 3)


async def test_the_project_is_optional(gpu_app: GpuApp) -> None:
    answer = await gpu_app.post("img2vid", {"images": images(1)})
    assert (answer.status_code, answer.json()["id_roteiro"]) == (202, None)


@pytest.mark.parametrize(
    ("operation", "body", "field"),
    [
        ("img2vid", {}, "images"),
        ("img2vid", {"images": []}, "images"),
        ("img2vid", {"images": [{"id": "1", "image_url": "https://x.com/1.png"}]}, "images.0.duracao"),
        ("img2vid", {"images": [{"id": "1", "image_url": "file:///etc/passwd", "duracao": 1}]}, "images.0.image_url"),
        ("img2vid", {"images": [{"id": "1", "image_url": "https://x.com/1.png", "duracao": 0}]}, "images.0.duracao"),
        ("img2vid", {"images": [*images(1), *images(1)]}, "images"),
        ("img2vid", {"images": images(1), "id_roteiro": "thirty-four"}, "id_roteiro"),
        ("img2vid", {"images": images(1), "zoom_types": ["zoomsideways"]}, "zoom_types.0"),
        ("img2vid", {"images": [{**images(1)[0], "id": "a\u0000b"}]}, "images"),
        ("img2vid", {"images": images(1), "path": "a\u0000b"}, "path"),
        ("caption", {"video_url": "https://x.com/v.mp4"}, "body"),
        ("caption", {**CAPTION, "subtitles": "1\n00:00:00,000 --> 00:00:01,000\nhi"}, "body"),
        ("caption", {**CAPTION, "text": None, "subtitles": "not an SRT"}, "body"),
        ("caption", {**CAPTION, "text": None, "subtitles": "https://x.com/a.srt\n"}, "body"),
        ("caption", {**CAPTION, "text": None, "subtitles": []}, "body"),
        ("caption", {**CAPTION, "text": None, "subtitles": [{"start": 0, "end": 1, "text": " "}]}, "body"),
        ("caption", {**CAPTION, "text": None, "subtitles": "1\n00:00:00,000 --> 00:00:01,000\n<i></i>"}, "body"),
        ("caption", {**CAPTION, "text": "   "}, "body"),
        ("caption", {**CAPTION, "text": None, "subtitles": [{"start": 2}]}, "subtitles.segments.0.end"),
        ("caption", {**CAPTION, "text": None, "subtitles": 7}, "subtitles.segments"),
        ("caption", {**CAPTION, "style": {"size": 3}}, "style.size"),
        ("addaudio", {"video_url": "https://x.com/v.mp4"}, "audio_url"),
        ("addaudio", {**ADDAUDIO, "volume": 11}, "volume"),
    ],
)
async def test_an_invalid_body_is_rejected_and_the_error_names_the_field(
    operation: str, body: dict[str, Any], field: str, gpu_app: GpuApp
) -> None:
    answer = await gpu_app.post(operation, body)
    response_body = answer.json()
    assert (answer.status_code, response_body["code"], response_body["errors"][0]["field"]) == (
        422,
        "INVALID_REQUEST",
        field,
    )
    assert response_body["error"] == response_body["detail"]
    assert response_body["type"].startswith("urn:retoma:problem:")
    assert await gpu_app.client.runs.list() == []


async def test_an_empty_subtitle_or_text_counts_as_missing(gpu_app: GpuApp) -> None:
    assert (await gpu_app.post("caption", {**CAPTION, "subtitles": ""})).status_code == 202
    assert (await gpu_app.post("caption", {**CAPTION, "text": ""})).status_code == 422


async def test_an_unknown_zoom_type_is_rejected_and_the_error_lists_the_valid_ones(gpu_app: GpuApp) -> None:
    answer = await gpu_app.post("img2vid", img2vid(1, zoom_types=["zoomsideways"]))
    for known in ("zoomin", "zoomout", "zoompanright", "zoompanleft", "zoompanup", "zoompandown"):
        assert known in answer.json()["error"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"null", b'{"images": "\xff"}'])
async def test_a_body_that_is_not_a_job_is_rejected(body: bytes, gpu_app: GpuApp) -> None:
    answer = await gpu_app.api.post("/video/img2vid/async", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert "detail" in answer.json()


@pytest.mark.parametrize(
    ("kind", "body", "error"),
    [
        ("", b"{}", "the body was not parsed as JSON: send Content-Type: application/json"),
        ("application/json", b"{x", "invalid request: body: not valid JSON: Expecting property name"),
        (
            "application/json",
            b'{"video_url": "https://x.com/v"}',
            "invalid request: body: send either `subtitles`",
        ),
    ],
)
async def test_an_invalid_request_is_explained_in_a_sentence(
    kind: str, body: bytes, error: str, gpu_app: GpuApp
) -> None:
    answer = await gpu_app.api.post("/video/caption/async", content=body, headers={"content-type": kind})
    assert (answer.status_code, answer.json()["error"][: len(error)]) == (422, error)


@pytest.mark.parametrize(
    "url",
    [
        "http://n8n.example.com/hook",
        "https://127.0.0.2.nip.internal/hook",
        "https://10.0.0.8/hook",
        "https://[::ffff:169.254.169.254]/latest",
        "https://n8n.example.com:8443/hook",
    ],
)
async def test_a_callback_url_in_a_private_network_is_rejected(url: str, gpu_app: GpuApp) -> None:
    answer = await gpu_app.post("img2vid", img2vid(1, webhook_url=url))
    assert (answer.status_code, answer.json()["code"]) == (422, "UNSAFE_URL")
    assert "RETOMA_ALLOW_HOSTS" in answer.json()["error"]
    assert await gpu_app.client.runs.list() == []


@pytest.mark.parametrize(
    ("operation", "change", "field"),
    [
        ("img2vid", {"webhook_url": "https://10.0.0.8/hook"}, "webhook_url"),
        (
            "img2vid",
            {"images": [*images(3), {**images(1)[0], "id": "4", "image_url": "https://..."}]},
            "images.3.image_url",
        ),
        ("caption", {"video_url": "https://10.0.0.8/film.mp4"}, "video_url"),
        ("caption", {"text": None, "subtitles": "https://10.0.0.8/a.srt"}, "subtitles"),
        ("addaudio", {"audio_url": "https://10.0.0.8/a.mp3"}, "audio_url"),
    ],
)
async def test_the_error_for_an_unsafe_url_names_its_field(
    operation: str, change: dict[str, Any], field: str, gpu_app: GpuApp
) -> None:
    answer = await gpu_app.post(operation, {**BODIES[operation], **change})
    body = answer.json()
    assert (answer.status_code, body["code"], [each["field"] for each in body["errors"]]) == (
        422,
        "UNSAFE_URL",
        [field],
    )
    assert body["error"].startswith(f"{field}: ")


async def test_the_token_of_a_callback_is_available_only_to_its_sender(gpu_app: GpuApp) -> None:
    async with receiver() as listener:
        url = f"{listener.url}?signature=CANARY-4711"
        job = await gpu_app.submit(img2vid(1, webhook_url=url))
        plain = {"pipeline": "caption", "input": {**CAPTION, "webhook_url": url}}
        run = (await gpu_app.api.post("/api/v1/runs", json=plain)).json()["id"]
        await gpu_app.work()
        await gpu_app.send_callbacks(listener)
        shown = [
            (await gpu_app.api.get(path)).text
            for path in (
                f"/jobs/{job}",
                "/jobs",
                f"/api/v1/runs/{job[4:]}",
                f"/api/v1/runs/{run}",
                "/api/v1/deliveries",
            )
        ]
        stored = await rows(gpu_app.api.sandbox, "select r::text as text from retoma.runs r")
    assert [got.path for got in listener.requests] == [f"{urlsplit(listener.url).path}?signature=CANARY-4711"]
    assert (await gpu_app.show(job))["webhookUrl"] == f"{listener.url}?signature=***"
    assert "CANARY" not in "".join([*shown, *(row["text"] for row in stored)])


async def test_a_different_token_under_the_same_key_is_a_different_body(gpu_app: GpuApp) -> None:
    answers = [
        await gpu_app.post(
            "img2vid", img2vid(1, webhook_url=f"{WEBHOOK_URL}?signature={token}"), headers={"Idempotency-Key": "once"}
        )
        for token in ("one", "one", "two")
    ]
    assert [answer.status_code for answer in answers] == [202, 202, 422]


async def test_offline_estimates_have_no_cold_start(open_gpu_app: OpenGpuApp) -> None:
    async with open_gpu_app(offline=True) as gpu_app:
        body = (await gpu_app.post("img2vid", img2vid(2))).json()
    assert body["estimatedTime"] == "1-2 minutos"


async def test_offline_this_machine_fetches_urls_so_its_own_network_is_rejected(open_gpu_app: OpenGpuApp) -> None:
    async with open_gpu_app(offline=True) as gpu_app:
        answer = await gpu_app.post("addaudio", {**ADDAUDIO, "audio_url": "https://169.254.169.254/latest/meta-data"})
        assert (answer.status_code, answer.json()["code"]) == (422, "UNSAFE_URL")


async def test_responses_say_when_the_work_is_done_offline(open_gpu_app: OpenGpuApp) -> None:
    async with open_gpu_app(offline=True) as gpu_app:
        answer = await gpu_app.post("img2vid", img2vid())
        assert OFFLINE in answer.headers
        assert OFFLINE in (await gpu_app.api.get(answer.json()["statusUrl"])).headers
    async with open_gpu_app() as gpu_app:
        assert OFFLINE not in (await gpu_app.post("img2vid", img2vid())).headers


async def test_the_same_key_and_body_return_the_same_job(gpu_app: GpuApp) -> None:
    key = {"Idempotency-Key": "execution-1"}
    first = await gpu_app.post("img2vid", img2vid(), headers=key)
    await gpu_app.work_now()
    again = await gpu_app.post("img2vid", img2vid(), headers=key)
    assert again.status_code == 202
    assert again.json() == first.json() | {"status": "IN_PROGRESS"}
    assert len(await gpu_app.client.runs.list()) == 1


async def test_the_same_key_with_a_different_body_is_rejected(gpu_app: GpuApp) -> None:
    key = {"Idempotency-Key": "execution-1"}
    await gpu_app.submit(img2vid(), headers=key)
    answer = await gpu_app.post("img2vid", img2vid(3), headers=key)
    assert (answer.status_code, answer.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert answer.json()["error"].startswith("the Idempotency-Key 'execution-1' belongs to a job with another body")


async def test_the_former_blocking_route_does_not_exist(gpu_app: GpuApp) -> None:
    assert (await gpu_app.api.post("/video/img2vid", json=img2vid())).status_code == 404
    page = Path(__file__).parents[3] / "docs" / "applications" / "gpu.md"
    assert "`POST /video/img2vid` does not exist" in page.read_text(encoding="utf-8")


async def test_any_number_of_jobs_is_accepted_and_queued(gpu_app: GpuApp) -> None:
    answers = await asyncio.gather(*(gpu_app.post("img2vid", img2vid(100)) for _ in range(4)))
    assert [(answer.status_code, answer.json()["status"]) for answer in answers] == [(202, "QUEUED")] * 4
    assert gpu_app.standin.submits.total() == 0, "nobody waits for the host"
    shown = [await gpu_app.show(answer.json()["jobId"]) for answer in answers]
    assert [one["status"] for one in shown] == ["QUEUED"] * 4


async def test_the_path_is_only_a_label_and_opens_no_file(gpu_app: GpuApp) -> None:
    for path in ("../../etc/", "/etc/passwd", "C:\\windows\\"):
        job = await gpu_app.submit(img2vid(1, path=path))
        await gpu_app.work([job])
        shown = await gpu_app.show(job)
        run = job.removeprefix("orc-")
        assert shown["data"]["path"] == path
        assert [video["video_url"] for video in shown["result"]["videos"]] == [
            f"https://files.invalid/gpu/{run}/1/video_1.mp4"
        ]
