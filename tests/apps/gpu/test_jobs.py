"""A job from the queue to its end, as its caller sees it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from retoma.engine.retention import remove_due
from retoma.settings import RetentionTimes
from retoma.states import RunState
from retoma_apps.gpu import routes
from retoma_apps.gpu.states import STATUS_BY_RUN_STATE, STATUSES, run_id, status_of
from tests.apps.gpu.conftest import OpenGpuApp
from tests.apps.gpu.gpu_app import ADDAUDIO, BODIES, CAPTION, MINUTE, WEBHOOK_URL, GpuApp, images, img2vid
from tests.receiver import receiver, respond_with


def test_every_run_state_maps_to_one_of_the_five_job_states() -> None:
    assert set(STATUS_BY_RUN_STATE) == {str(state) for state in RunState}
    assert {status_of(state, started=begun) for state in STATUS_BY_RUN_STATE for begun in (True, False)} == set(
        STATUSES
    )


async def test_a_job_ends_with_one_video_per_image_in_order(gpu_app: GpuApp) -> None:
    job = await gpu_app.submit(img2vid(100))
    await gpu_app.work()
    shown = await gpu_app.show(job)
    result, run = shown["result"], job.removeprefix("orc-")
    assert (shown["status"], result["code"]) == ("COMPLETED", 200)
    assert result["message"] == "Images converted to videos successfully"
    assert result["videos"] == [
        {
            "id": str(number),
            "video_url": f"https://files.invalid/gpu/{run}/1/video_{number}.mp4",
            "filename": f"video_{number}.mp4",
        }
        for number in range(1, 101)
    ]
    assert gpu_app.standin.duplicates == 0


@pytest.mark.parametrize("operation", ["caption", "addaudio"])
async def test_the_other_operations_end_with_one_video(operation: str, gpu_app: GpuApp) -> None:
    job = await gpu_app.submit(operation=operation)
    await gpu_app.work_now()
    assert await gpu_app.count_used_slots() == 1
    await gpu_app.work()
    shown = await gpu_app.show(job)
    run = job.removeprefix("orc-")
    assert shown["result"]["code"] == 200
    assert shown["result"]["video_url"] == f"https://files.invalid/gpu/{run}/1/{operation}.mp4"
    assert "successfully" in shown["result"]["message"]
    assert gpu_app.standin.submits.total() == 1


async def test_the_callers_parameters_reach_the_host(gpu_app: GpuApp) -> None:
    async def sent(operation: str, body: dict[str, Any]) -> dict[str, Any]:
        await gpu_app.submit(body, operation)
        await gpu_app.work()
        return gpu_app.standin.jobs[-1].input

    request_data = images(4, duracao=5.5)
    request_data[1]["zoom"] = "zoompanup"
    rendered = await sent("img2vid", {"images": request_data, "zoom_types": ["zoomout", "zoompanleft"]})
    zooms = ["zoomout", "zoompanup", "zoomout", "zoompanleft"]
    assert rendered["images"] == [{**image, "zoom": zoom} for image, zoom in zip(request_data, zooms, strict=True)]

    captioned = await sent("caption", {**CAPTION, "style": {"bold": True}})
    assert captioned["style"]["bold"] is True
    assert captioned == captioned | {"video_url": CAPTION["video_url"], "text": CAPTION["text"], "subtitles": None}
    spoken = {"video_url": CAPTION["video_url"], "subtitles": [{"start": 0.5, "end": 2.5, "text": "Olá"}]}
    captioned = await sent("caption", spoken)
    assert captioned == captioned | spoken | {"text": None}

    sound = {"video_url": ADDAUDIO["video_url"], "audio_url": ADDAUDIO["audio_url"], "volume": 0.25}
    mixed = await sent("addaudio", sound)
    assert mixed == mixed | sound


async def test_a_job_is_shown_with_all_its_fields(gpu_app: GpuApp) -> None:
    job = await gpu_app.submit(img2vid(2, webhook_url=WEBHOOK_URL))
    queued = await gpu_app.show(job)
    assert queued | {"data": None, "waiting": None} == {
        "jobId": job,
        "status": "QUEUED",
        "operation": "img2vid",
        "id_roteiro": 34,
        "progress": None,
        "createdAt": "2030-01-01T12:00:00.000Z",
        "startedAt": None,
        "completedAt": None,
        "estimatedCompletion": None,
        "webhookUrl": WEBHOOK_URL,
        "data": None,
        "runpodJobIds": [],
        "workersReserved": 0,
        "attempts": {},
        "waiting": None,
    }
    await gpu_app.api.sandbox.clock.advance(MINUTE)
    await gpu_app.work_now()
    under_way = await gpu_app.show(job)
    assert (under_way["status"], under_way["startedAt"]) == ("IN_PROGRESS", "2030-01-01T12:01:00.000Z")
    assert under_way["runpodJobIds"] == [one.id for one in gpu_app.standin.jobs]
    assert (under_way["workersReserved"], under_way["attempts"]) == (1, {"clips:0": 1})
    assert under_way["estimatedCompletion"] > under_way["startedAt"]
    await gpu_app.work()
    ended = await gpu_app.show(job)
    assert (ended["status"], ended["completedAt"]) == ("COMPLETED", "2030-01-01T12:01:08.000Z")
    assert (ended["progress"], ended["estimatedCompletion"], ended["workersReserved"]) == (None, None, 0)


@pytest.mark.parametrize("operation", BODIES)
async def test_a_job_shows_the_original_request(operation: str, gpu_app: GpuApp) -> None:
    """Including unknown fields and the original spelling, without defaults."""
    body = {**BODIES[operation], "id_roteiro": "34", "canal": {"nome": "Chá"}, "webhook_url": WEBHOOK_URL}
    if operation == "img2vid":
        body["images"] = [{"id": 1, "image_url": "https://example.com/1.png", "duracao": "5.5", "nota": "capa"}]
    job = await gpu_app.submit(body, operation)
    assert (await gpu_app.show(job))["data"] == body
    await gpu_app.work()
    assert (await gpu_app.show(job))["data"] == body


async def test_the_same_key_with_a_different_unknown_field_is_the_same_job(gpu_app: GpuApp) -> None:
    key = {"Idempotency-Key": "k"}
    first = await gpu_app.submit(img2vid(1, nota="a"), headers=key)
    assert await gpu_app.submit(img2vid(1, nota="b"), headers=key) == first


async def test_a_token_in_a_callback_url_is_never_shown(gpu_app: GpuApp) -> None:
    async with receiver() as listener:
        job = await gpu_app.submit(img2vid(1, webhook_url=f"{listener.url}?token=CANARY"))
        await gpu_app.work()
        await gpu_app.send_callbacks(listener)
        run = job.removeprefix("orc-")
        places = (f"/jobs/{job}", f"/api/v1/runs/{run}", "/api/v1/deliveries", f"/api/v1/runs/{run}/events")
        shown = [(await gpu_app.api.get(place)).text for place in places]
    assert listener.requests[0].path.endswith("?token=CANARY")
    assert [text for text in shown if "CANARY" in text] == []
    assert "token=***" in shown[0]


async def test_the_start_time_of_a_job_does_not_change_with_its_state(gpu_app: GpuApp) -> None:
    job = await gpu_app.submit(operation="caption")
    claims = await gpu_app.worker.claim()
    await gpu_app.api.sandbox.clock.advance(timedelta(milliseconds=158))  # before the submission
    await gpu_app.worker.record_outcomes(await gpu_app.worker.attempt(claims))
    under_way = await gpu_app.show(job)
    await gpu_app.work()
    ended = await gpu_app.show(job)
    assert (under_way["status"], ended["status"]) == ("IN_PROGRESS", "COMPLETED")
    assert under_way["startedAt"] == ended["startedAt"] == "2030-01-01T12:00:00.000Z"


@pytest.mark.parametrize("operation", BODIES)
async def test_the_callers_project_is_returned_in_every_representation_of_the_job(
    operation: str, gpu_app: GpuApp
) -> None:
    async with receiver() as listener:
        body = {**BODIES[operation], "id_roteiro": 4321, "webhook_url": listener.url}
        accepted = (await gpu_app.post(operation, body)).json()
        shown = [accepted, await gpu_app.show(accepted["jobId"])]
        await gpu_app.work()
        shown += [await gpu_app.show(accepted["jobId"]), *(await gpu_app.send_callbacks(listener))]
        shown += (await gpu_app.api.get("/jobs")).json()["jobs"]
    assert [(each["jobId"], each["id_roteiro"]) for each in shown] == [(accepted["jobId"], 4321)] * 5


async def test_every_field_of_a_job_survives_a_restart(open_gpu_app: OpenGpuApp) -> None:
    async with open_gpu_app() as gpu_app:
        gpu_app.standin.faults.bad_images = {"1"}
        job = await gpu_app.submit(img2vid(30, webhook_url=WEBHOOK_URL))
        await gpu_app.work_now()
        for _ in range(3):
            await gpu_app.pass_time()
        now, before = await gpu_app.api.sandbox.clock.now(), await gpu_app.show(job)
    assert (before["status"], before["attempts"]["clips:0"], len(before["runpodJobIds"])) == ("IN_PROGRESS", 2, 3)
    async with open_gpu_app() as gpu_app:
        await gpu_app.api.sandbox.clock.set(now)
        after = await gpu_app.show(job)
        assert "no running worker" in after.pop("waiting")[0]
        assert after.pop("estimatedCompletion") is None
        assert after == {name: value for name, value in before.items() if name in after}
        assert before["estimatedCompletion"] is not None


async def test_an_overdue_job_is_never_shown_as_ended(open_gpu_app: OpenGpuApp) -> None:
    async with open_gpu_app(seconds=lambda _: 3600.0) as gpu_app:
        job = await gpu_app.submit(img2vid(2))
        await gpu_app.work_now()
        assert (await gpu_app.show(job))["estimatedCompletion"] == "2030-01-01T12:01:00.000Z"
        await gpu_app.pass_time(30 * MINUTE)
        assert (await gpu_app.show(job))["estimatedCompletion"] == "2030-01-01T12:30:00.000Z"


async def test_the_end_of_a_stuck_job_is_not_estimated(gpu_app: GpuApp) -> None:
    job = await gpu_app.submit(img2vid(2))
    await gpu_app.work_now()
    assert (await gpu_app.show(job))["estimatedCompletion"] is not None
    async with gpu_app.client.database.connection() as connection:
        await connection.execute("update retoma.runs set state = 'stuck' where id = $1", run_id(job))
    shown = await gpu_app.show(job)
    assert (shown["status"], shown["estimatedCompletion"]) == ("IN_PROGRESS", None)


async def test_an_estimate_uses_the_current_number_of_workers(gpu_app: GpuApp) -> None:
    job = await gpu_app.submit({"images": images(100, duracao=6.0)})
    await gpu_app.work_now()
    assert (await gpu_app.show(job))["estimatedCompletion"] == "2030-01-01T12:03:20.000Z"
    await gpu_app.client.pools.update("gpu", capacity=1)
    assert (await gpu_app.show(job))["estimatedCompletion"] == "2030-01-01T12:10:00.000Z"


async def test_progress_counts_finished_images(gpu_app: GpuApp) -> None:
    job = await gpu_app.submit(img2vid(100))
    await gpu_app.work_now()
    assert (await gpu_app.show(job))["progress"] == {"completed": 0, "total": 100, "percentage": 0.0}
    await gpu_app.pass_time()
    seen = (await gpu_app.show(job))["progress"]
    assert seen == {"completed": 24, "total": 100, "percentage": 24.0}
    await gpu_app.pass_time()
    shown = await gpu_app.show(job)
    assert shown["progress"]["completed"] == 36
    assert shown["estimatedCompletion"] > "2030-01-01T12:00:16"


async def test_the_progress_of_one_video_is_zero_or_complete(gpu_app: GpuApp) -> None:
    job = await gpu_app.submit(operation="caption")
    await gpu_app.work_now()
    assert (await gpu_app.show(job))["progress"] == {"completed": 0, "total": 1, "percentage": 0.0}


async def test_reading_a_job_never_calls_the_host(gpu_app: GpuApp) -> None:
    job = await gpu_app.submit(img2vid(5))
    await gpu_app.work_now()
    gpu_app.standin.faults.broken = 1
    await gpu_app.show(job)
    assert gpu_app.standin.faults.broken == 1


async def test_polling_returns_the_same_data_as_the_callback(gpu_app: GpuApp) -> None:
    """Its callback URL is never called here; the callback tests check the same body."""
    job = await gpu_app.submit(img2vid(2, webhook_url="https://offline.example.com/webhook"))
    await gpu_app.work()
    shown = await gpu_app.show(job)
    assert (shown["status"], [video["id"] for video in shown["result"]["videos"]]) == ("COMPLETED", ["1", "2"])


@pytest.mark.parametrize("job", ["orc-123", "nothing", "orc-00000000-0000-7000-8000-000000000000", "ORC-x"])
async def test_an_unknown_job_is_not_found(job: str, gpu_app: GpuApp) -> None:
    for answer in (await gpu_app.api.get(f"/jobs/{job}"), await gpu_app.cancel(job)):
        assert (answer.status_code, answer.json()["error"]) == (404, "Job not found")


async def test_jobs_are_listed_by_status_newest_first(gpu_app: GpuApp) -> None:
    done = await gpu_app.submit(img2vid(1))
    await gpu_app.work()
    dropped = await gpu_app.submit(img2vid(1))
    await gpu_app.cancel(dropped)
    busy = [await gpu_app.submit(BODIES[name], name) for name in BODIES]
    await gpu_app.work_now()
    queued = [await gpu_app.submit(img2vid(1)) for _ in range(3)]

    async def list_found(**query: str) -> list[str]:
        return [job["jobId"] for job in (await gpu_app.api.get("/jobs", params=query)).json()["jobs"]]

    assert await list_found() == [*reversed(queued), *reversed(busy), dropped, done]
    assert await list_found(status="QUEUED") == list(reversed(queued))
    assert await list_found(status="IN_PROGRESS") == list(reversed(busy))
    assert await list_found(status="COMPLETED") == [done]
    assert await list_found(status="CANCELLED") == [dropped]
    assert await list_found(status="FAILED") == []


async def test_jobs_are_listed_by_project_however_many_newer_jobs_there_are(
    gpu_app: GpuApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "PAGE_SIZE", 2)
    monkeypatch.setattr(routes, "MAX_PAGES", 1)
    own = [await gpu_app.submit(img2vid(1, id_roteiro=99)) for _ in range(2)]
    for _ in range(3):
        await gpu_app.submit(img2vid(1))
    pages: list[list[str]] = []
    query: dict[str, Any] = {"id_roteiro": 99}
    while query.get("before", "") is not None:
        page = (await gpu_app.api.get("/jobs", params=query)).json()
        pages.append([job["jobId"] for job in page["jobs"]])
        query["before"] = page["next"]
    assert pages == [[], [own[1]], [own[0]]]


async def test_an_unknown_filter_value_is_rejected(gpu_app: GpuApp) -> None:
    answer = await gpu_app.api.get("/jobs", params={"idRoteiro": "99"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "idRoteiro")


async def test_the_openapi_document_describes_exactly_the_returned_fields(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.bad_images, gpu_app.standin.faults.partial = {"2"}, True
    accepted = await gpu_app.post("img2vid", img2vid(3))
    job = accepted.json()["jobId"]
    await gpu_app.work()
    shown, listed = await gpu_app.api.get(f"/jobs/{job}"), await gpu_app.api.get("/jobs")
    assert listed.json()["jobs"][0].items() <= shown.json().items()
    cancelled = await gpu_app.cancel(await gpu_app.submit())
    document = (await gpu_app.api.get("/api/v1/openapi.json")).json()

    def named(path: str, method: str, status: str) -> dict[str, Any]:
        error_body = document["paths"][path][method]["responses"][status]["content"]["application/json"]["schema"]
        return dict(document["components"]["schemas"][error_body["$ref"].rpartition("/")[2]]["properties"])

    assert list(named("/video/img2vid/async", "post", "202")) == list(accepted.json())
    assert list(named("/jobs/{job}", "get", "200")) == list(shown.json())
    assert list(named("/jobs", "get", "200")) == list(listed.json())
    assert list(named("/jobs/{job}/cancel", "post", "200")) == list(cancelled.json())


async def test_a_page_continues_where_the_previous_page_ended(gpu_app: GpuApp) -> None:
    jobs = [await gpu_app.submit(img2vid(1)) for _ in range(5)]
    pages, before = [], None
    while True:
        query = {"limit": "2"} | ({"before": before} if before else {})
        page = (await gpu_app.api.get("/jobs", params=query)).json()
        pages += [job["jobId"] for job in page["jobs"]]
        before = page["next"]
        if before is None:
            break
    assert pages == list(reversed(jobs))
    refused = await gpu_app.api.get("/jobs", params={"before": "yesterday"})
    assert (refused.status_code, "error" in refused.json()) == (422, True)


async def test_a_key_reaches_only_the_jobs_of_its_tenant(gpu_app: GpuApp) -> None:
    ours, theirs = [
        await gpu_app.api.make_key("runs:read", "runs:write", tenant=tenant) for tenant in ("ours", "theirs")
    ]
    job = await gpu_app.submit(img2vid(1), key=ours)
    assert (await gpu_app.api.get(f"/jobs/{job}", key=ours)).status_code == 200
    assert (await gpu_app.api.get(f"/jobs/{job}", key=theirs)).json()["error"] == "Job not found"
    assert (await gpu_app.api.post(f"/jobs/{job}/cancel", key=theirs)).json()["error"] == "Job not found"
    assert (await gpu_app.api.get("/jobs", key=theirs)).json()["jobs"] == []
    assert [each["jobId"] for each in (await gpu_app.api.get("/jobs", key=ours)).json()["jobs"]] == [job]
    assert (await gpu_app.show(job))["status"] == "QUEUED"


async def test_a_missing_key_returns_the_documented_error(gpu_app: GpuApp) -> None:
    answer = await gpu_app.api.get("/jobs", key=None)
    assert (answer.status_code, "error" in answer.json()) == (401, True)


async def test_a_waiting_job_reports_why(gpu_app: GpuApp) -> None:
    await gpu_app.submit(img2vid(100))
    last = await gpu_app.submit(img2vid(1))
    await gpu_app.work_now()
    (why,) = (await gpu_app.show(last))["waiting"]
    assert "pool 'gpu'" in why


async def test_a_job_that_waits_for_more_than_a_day_is_kept(gpu_app: GpuApp) -> None:
    await gpu_app.client.close()
    job = await gpu_app.submit(img2vid(1))
    await gpu_app.api.sandbox.clock.advance(timedelta(hours=30))
    assert (await gpu_app.show(job))["status"] == "QUEUED"
    await gpu_app.work()
    assert (await gpu_app.show(job))["status"] == "COMPLETED"
    await gpu_app.api.sandbox.clock.advance(timedelta(hours=30))
    assert (await gpu_app.show(job))["status"] == "COMPLETED"


async def test_an_ended_job_is_kept_for_a_day_after_its_callback(gpu_app: GpuApp) -> None:
    clock, times = gpu_app.api.sandbox.clock, RetentionTimes()
    async with receiver(*[respond_with(500)] * 10) as listener:
        job = await gpu_app.submit(img2vid(1, webhook_url=listener.url))
        await gpu_app.work()
        shown = await gpu_app.show(job)
        while len(listener.requests) < 10:
            await clock.advance(timedelta(hours=25))
            assert await remove_due(gpu_app.client.database, times, at_once=True) == 0
            assert await gpu_app.show(job) == shown
            await gpu_app.send_callbacks(listener)
        assert [each.state for each in await gpu_app.client.webhooks.list_deliveries()] == ["dead"]
    await clock.advance(timedelta(hours=23, minutes=59))
    assert await remove_due(gpu_app.client.database, times, at_once=True) == 0
    assert await gpu_app.show(job) == shown
    await clock.advance(timedelta(minutes=1))
    assert await remove_due(gpu_app.client.database, times, at_once=True) == 1
    assert (await gpu_app.api.get(f"/jobs/{job}")).json()["error"] == "Job not found"


async def test_images_are_divided_by_their_duration_and_not_by_their_number(gpu_app: GpuApp) -> None:
    await gpu_app.submit({"images": [*images(4, 30.0), *images(1, 200.0, first=5), *images(40, 0.5, first=6)]})
    await gpu_app.work()
    sizes = sorted(([int(image["id"]) for image in job.input["images"]] for job in gpu_app.standin.jobs), key=min)
    assert [len(each) for each in sizes] == [2, 2, 1, 20, 20]
    assert [image for each in sizes for image in each] == list(range(1, 46))


async def test_a_job_that_starts_while_it_is_read_is_shown_consistently(
    gpu_app: GpuApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await gpu_app.submit(img2vid(24))
    read = type(gpu_app.client.runs).list_jobs

    async def begin_first(runs: Any, *arguments: Any, **options: Any) -> Any:
        await gpu_app.work_now()
        return await read(runs, *arguments, **options)

    monkeypatch.setattr(type(gpu_app.client.runs), "list_jobs", begin_first)
    shown = await gpu_app.show(job)
    assert (shown["workersReserved"], shown["status"]) == (2, "IN_PROGRESS")
    assert shown["startedAt"] is not None


async def test_jobs_in_progress_are_listed_however_many_wait_behind_them(
    gpu_app: GpuApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "PAGE_SIZE", 2)
    busy = [await gpu_app.submit(img2vid(1)) for _ in range(3)]
    await gpu_app.work_now()
    for _ in range(6):
        await gpu_app.submit(img2vid(1))

    async def page(**query: Any) -> tuple[list[str], str | None]:
        body = (await gpu_app.api.get("/jobs", params={"status": "IN_PROGRESS", **query})).json()
        return [job["jobId"] for job in body["jobs"]], body["next"]

    assert await page() == (busy[::-1], None)
    first, after = await page(limit=1)
    assert first == busy[2:]
    assert await page(limit=3, before=after) == (busy[1::-1], None)
    monkeypatch.setattr(routes, "MAX_PAGES", 3)
    none, after = await page()
    assert (none, await page(before=after)) == ([], (busy[::-1], None))


async def test_a_part_that_would_exceed_a_budget_is_not_submitted_and_holds_no_worker(gpu_app: GpuApp) -> None:
    await gpu_app.client.budgets.set("default", "month", 0)
    jobs = [await gpu_app.submit(operation=operation) for operation in BODIES]
    await gpu_app.work_now()
    for shown in [await gpu_app.show(job) for job in jobs]:
        assert (shown["status"], shown["workersReserved"]) == ("IN_PROGRESS", 0)
        assert (shown["estimatedCompletion"], shown["runpodJobIds"]) == (None, [])
        assert "a person's decision" in shown["waiting"][0]
    await gpu_app.client.budgets.set("default", "month", 1_000_000)
    await gpu_app.work(jobs)
    assert [(await gpu_app.show(job))["status"] for job in jobs] == ["COMPLETED"] * 3
