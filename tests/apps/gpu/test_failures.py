"""Parts that fail, time out or are lost, and that nothing runs twice."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta
from math import inf
from typing import Any

import pytest

from retoma import PollResult
from retoma.errors import SubmissionUnknown
from retoma_apps.gpu.operations.results import SUCCESS_MESSAGES
from retoma_apps.gpu.settings import GpuSettings, Rules
from retoma_apps.gpu.states import run_id
from tests.apps.gpu.conftest import OpenGpuApp
from tests.apps.gpu.gpu_app import KEY, MINUTE, GpuApp, img2vid
from tests.receiver import receiver


async def test_a_bad_image_loses_only_its_own_video(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.bad_images = {"42"}
    async with receiver() as listener:
        job = await gpu_app.submit(img2vid(100, webhook_url=listener.url))
        await gpu_app.work()
        (reported,) = await gpu_app.send_callbacks(listener)
    shown = await gpu_app.show(job)
    assert (reported["status"], shown["status"]) == ("FAILED", "FAILED")
    assert reported["error"] == {
        "code": "PARTIAL_FAILURE",
        "message": "1 of 100 images failed",
        "details": "Failed images: 42: Image 42 is corrupted",
    }
    expected = [str(number) for number in range(1, 101) if number != 42]
    assert [video["id"] for video in reported["result"]["videos"]] == expected
    assert reported["result"]["failed"] == [
        {"id": "42", "code": "PROCESSING_ERROR", "message": "Image 42 is corrupted"}
    ]
    assert (shown["result"], shown["error"]) == (reported["result"], reported["error"])
    assert await gpu_app.count_used_slots() == 0
    assert gpu_app.standin.duplicates == 0


async def test_only_the_failed_part_is_retried(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.bad_images = {"42"}
    job = await gpu_app.submit(img2vid(100))
    await gpu_app.work()
    tries: dict[int, int] = {}
    for one in gpu_app.standin.jobs:
        tries[len(one.input["images"])] = tries.get(len(one.input["images"]), 0) + 1
    # Nine parts, one of them attempted four times; then its images one by one, the bad one twice.
    assert tries == {12: 8 + 3, 4: 1, 1: 12 + 1}
    attempts = (await gpu_app.show(job))["attempts"]
    assert attempts["clips:3"] == 4
    assert {part: count for part, count in attempts.items() if count > 1} == {"clips:3": 4, "lone_clip:42": 2}


async def test_a_part_that_succeeds_on_retry_is_not_a_failure(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.bad_images = {"1"}
    job = await gpu_app.submit(img2vid(30))
    await gpu_app.work_now()
    await gpu_app.pass_time(timedelta(seconds=16))
    gpu_app.standin.faults.bad_images = set()
    await gpu_app.work()
    shown = await gpu_app.show(job)
    assert (shown["status"], len(shown["result"]["videos"])) == ("COMPLETED", 30)
    assert shown["attempts"]["clips:0"] == 2


async def test_a_retried_job_keeps_its_first_start_time(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.fail = {"caption"}
    job = await gpu_app.submit(operation="caption")
    await gpu_app.work_now()
    began = (await gpu_app.show(job))["startedAt"]
    await gpu_app.pass_time()
    gpu_app.standin.faults.fail = set()
    await gpu_app.work()
    shown = await gpu_app.show(job)
    assert (shown["status"], shown["attempts"], shown["startedAt"]) == ("COMPLETED", {"captioned": 2}, began)


async def test_no_job_starts_before_its_creation_however_long_its_attempts_took(gpu_app: GpuApp) -> None:
    job = await gpu_app.submit(operation="caption")
    await gpu_app.work_now()
    async with gpu_app.api.sandbox.client.database.connection() as connection:
        await connection.execute("update retoma.jobs set spent_ms = 60000")
    shown = await gpu_app.show(job)
    assert shown["startedAt"] == shown["createdAt"]


async def test_an_image_that_the_host_reports_as_corrupt_is_not_retried(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.bad_images, gpu_app.standin.faults.partial = {"2"}, True
    job = await gpu_app.submit(img2vid(3))
    await gpu_app.work()
    shown = await gpu_app.show(job)
    assert [fault["id"] for fault in shown["result"]["failed"]] == ["2"]
    assert shown["result"]["failed"][0]["code"] == "CORRUPT_IMAGE"
    assert [video["id"] for video in shown["result"]["videos"]] == ["1", "3"]
    assert gpu_app.standin.submits.total() == 1


async def test_an_image_that_the_host_could_not_fetch_is_retried_once_alone(gpu_app: GpuApp) -> None:
    faults = gpu_app.standin.faults
    faults.bad_images, faults.partial, faults.code = {"2"}, True, "DOWNLOAD_FAILED"
    job = await gpu_app.submit(img2vid(3))
    await gpu_app.work()
    shown = await gpu_app.show(job)
    assert [(fault["id"], fault["code"]) for fault in shown["result"]["failed"]] == [("2", "DOWNLOAD_FAILED")]
    assert shown["attempts"] == {"clips:0": 1, "lone_clip:2": 2}
    assert Counter(len(one.input["images"]) for one in gpu_app.standin.jobs) == {3: 1, 1: 2}


async def test_a_part_without_videos_is_retried_and_then_split_into_single_images(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.mute_images = {"5"}
    job = await gpu_app.submit(img2vid(14))
    await gpu_app.work()
    shown = await gpu_app.show(job)
    assert [video["id"] for video in shown["result"]["videos"]] == [str(n) for n in range(1, 15) if n != 5]
    message = "RunPod reports success, but no video"
    assert shown["result"]["failed"] == [{"id": "5", "code": "NO_VIDEO", "message": message}]
    orders = Counter(len(one.input["images"]) for one in gpu_app.standin.jobs)
    assert orders == {12: 4, 2: 1, 1: 12 + 1}


async def test_a_fixed_image_is_rendered_when_the_job_is_rerun(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.bad_images, gpu_app.standin.faults.partial = {"2"}, True
    job = await gpu_app.submit(img2vid(3))
    await gpu_app.work()
    gpu_app.standin.faults.bad_images = set()
    assert (await gpu_app.api.post(f"/api/v1/runs/{run_id(job)}/rerun", json={})).is_success
    await gpu_app.work()
    shown = await gpu_app.show(job)
    assert (shown["status"], [video["id"] for video in shown["result"]["videos"]]) == ("COMPLETED", ["1", "2", "3"])


class CorruptImageHost:
    """A host that reports every image as corrupt, with ffmpeg's code."""

    code = "CORRUPT_IMAGE"
    name = "corrupt"
    poll_interval = timedelta(seconds=8)

    def __init__(self) -> None:
        self.submitted = 0

    async def submit(self, *_: Any, **__: Any) -> str:
        self.submitted += 1
        return f"order-{self.submitted}"

    async def status(self, _: str) -> PollResult:
        return PollResult("failed", code=self.code, message="Image 1 is corrupted")

    async def cancel(self, _: str) -> None: ...

    async def find(self, _: str) -> str | None:
        return None


class WordyHost(CorruptImageHost):
    """A host with its own messages, which may omit file names and URLs."""

    result: dict[str, Any]

    async def status(self, _: str) -> PollResult:
        return PollResult("succeeded", result=self.result)


async def test_an_unreadable_entry_costs_only_its_own_image(open_gpu_app: OpenGpuApp) -> None:
    host, url = WordyHost(), "https://files.example/a.mp4"
    host.result = {
        "videos": [
            {"id": 1, "video_url": url, "owner": "me"},
            {"id": "2", "video_url": "javascript:alert(1)", "filename": "video_2.mp4"},
            {"id": "3", "video_url": url, "filename": None},
            "four",
        ],
        "failed": None,
    }
    async with open_gpu_app(host=host) as gpu_app:
        job = await gpu_app.submit(img2vid(3))
        await gpu_app.work()
        result = (await gpu_app.show(job))["result"]
    named = [{"id": each, "video_url": url, "filename": f"video_{each}.mp4"} for each in ("1", "3")]
    assert (result["videos"], [fault["id"] for fault in result["failed"]]) == (named, ["2"])


@pytest.mark.parametrize("operation", ["caption", "addaudio"])
async def test_only_the_video_url_of_a_hosts_result_is_returned(operation: str, open_gpu_app: OpenGpuApp) -> None:
    host, url = WordyHost(), "https://files.example/a.mp4"
    host.result = {"video_url": url, "code": 500, "message": "all is lost"}
    async with open_gpu_app(host=host) as gpu_app:
        job = await gpu_app.submit(operation=operation)
        await gpu_app.work()
        result = (await gpu_app.show(job))["result"]
    assert result == {"code": 200, "message": SUCCESS_MESSAGES[operation], "video_url": url}


@pytest.mark.parametrize(("count", "orders"), [(1, 1), (3, 1 + 3)])
async def test_a_part_that_the_host_reports_as_corrupt_is_split_without_retries(
    count: int, orders: int, open_gpu_app: OpenGpuApp
) -> None:
    host = CorruptImageHost()
    async with open_gpu_app(host=host) as gpu_app:
        job = await gpu_app.submit(img2vid(count))
        await gpu_app.work()
        assert (await gpu_app.show(job))["error"]["message"] == "Image 1 is corrupted"
        assert host.submitted == orders


@pytest.mark.parametrize("operation", ["caption", "addaudio"])
async def test_a_permanent_error_is_not_retried(operation: str, open_gpu_app: OpenGpuApp) -> None:
    host, codes = CorruptImageHost(), ["CORRUPT_VIDEO", "CORRUPT_AUDIO", "UNSAFE_URL", "INVALID_INPUT"]
    async with open_gpu_app(host=host) as gpu_app:
        for host.code in codes:
            job = await gpu_app.submit(operation=operation)
            await gpu_app.work()
            assert (await gpu_app.show(job))["error"]["details"] == host.code
    assert host.submitted == len(codes)


async def test_a_failed_job_is_in_the_metrics_and_in_the_logs(
    gpu_app: GpuApp, caplog: pytest.LogCaptureFixture
) -> None:
    gpu_app.standin.faults.fail = {"caption"}
    job = await gpu_app.submit(operation="caption")
    await gpu_app.work()
    await gpu_app.api.sandbox.clock.advance(timedelta(hours=1))
    metrics = (await gpu_app.api.get("/metrics")).text
    assert 'retoma_runs_ended_total{pipeline="caption",state="failed"} 1' in metrics
    logged = [vars(record) for record in caplog.records if vars(record).get("run") == str(run_id(job))]
    assert ("ERROR", 4) in [(line["levelname"], line.get("attempt")) for line in logged]


async def test_retries_and_ends_are_logged_with_the_job(gpu_app: GpuApp, caplog: pytest.LogCaptureFixture) -> None:
    gpu_app.standin.faults.bad_images = {"1"}
    with caplog.at_level(logging.WARNING, "retoma_apps.gpu.pipeline"):
        job = await gpu_app.submit(img2vid(1))
        await gpu_app.work()
    log_messages = [(vars(record).get("event"), record.getMessage()) for record in caplog.records]
    assert ("gpu_render_retried", f"{job}: retrying part 0, attempt 2") in log_messages
    assert ("gpu_part_failed", f"{job}: part 0 failed 4 times: Image 1 is corrupted") in log_messages


@pytest.mark.parametrize("operation", ["img2vid", "caption", "addaudio"])
async def test_a_permanent_failure_is_logged_with_the_job_and_its_number_of_attempts(
    operation: str, gpu_app: GpuApp, caplog: pytest.LogCaptureFixture
) -> None:
    gpu_app.standin.faults.fail = {operation}
    job = await gpu_app.submit({**BODIES[operation], "images": img2vid(1)["images"]}, operation)
    await gpu_app.work()
    records, *_ = [record for record in caplog.records if record.levelname == "ERROR"]
    if operation == "img2vid":
        assert records.getMessage() == f"{job}: part 0 failed 4 times: img2vid failed, as requested"
    else:
        assert (vars(records)["run"], vars(records)["attempt"]) == (str(run_id(job)), 4)


@pytest.mark.parametrize(
    ("operation", "minutes"), [("img2vid", 60), ("caption", 10), ("addaudio", 5), ("something else", 30)]
)
def test_each_operation_has_its_own_time_limit(operation: str, minutes: int) -> None:
    rules = Rules(GpuSettings(), offline=False)
    assert rules.limit(operation) == timedelta(minutes=minutes)


def test_a_configured_time_limit_applies_to_every_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOB_TIMEOUT_MS", raising=False)
    assert Rules(GpuSettings(), offline=False).limit("img2vid") == timedelta(milliseconds=3_600_000)
    monkeypatch.setenv("JOB_TIMEOUT_MS", "90000")
    rules = Rules(GpuSettings(), offline=False)
    assert {rules.limit(name) for name in ("img2vid", "caption", "addaudio")} == {timedelta(seconds=90)}


@pytest.mark.parametrize(
    ("queue", "work", "status"), [(80.0, 80.0, "COMPLETED"), (80.0, 120.0, "FAILED"), (120.0, 1.0, "FAILED")]
)
async def test_a_job_may_queue_for_the_configured_limit_and_then_run_for_it(
    queue: float, work: float, status: str, open_gpu_app: OpenGpuApp
) -> None:
    """The total is up to twice the limit."""
    settings = {"job_timeout_ms": 90_000}
    async with open_gpu_app(queue_seconds=queue, seconds=lambda _: work, settings=settings) as gpu_app:
        job = await gpu_app.submit(operation="caption")
        await gpu_app.work_now()
        gpu_app.standin.jobs[0].longest = 1e9  # the host's own limit would end it first
        await gpu_app.work()
        shown = await gpu_app.show(job)
    assert (shown["status"], shown.get("error", {}).get("code")) == (
        status,
        None if status == "COMPLETED" else "TIMEOUT",
    )


@pytest.mark.parametrize(("operation", "limit"), [("img2vid", 60), ("caption", 10), ("addaudio", 5)])
async def test_a_job_beyond_its_time_limit_fails_and_its_work_is_cancelled(
    operation: str, limit: int, open_gpu_app: OpenGpuApp, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_gpu_app(seconds=lambda _: 1e9) as gpu_app, receiver() as listener:
        gpu_app.standin.fleet.cancel_seconds = 3
        # The host's own limit would end it first.
        job = await gpu_app.submit({**BODIES[operation], "webhook_url": listener.url}, operation)
        await gpu_app.work_now()
        for one in gpu_app.standin.jobs:
            one.longest = 1e9
        await gpu_app.pass_time(timedelta(seconds=8))
        await gpu_app.pass_time(limit * MINUTE - timedelta(seconds=1))
        assert (await gpu_app.show(job))["status"] == "IN_PROGRESS"
        await gpu_app.pass_time(timedelta(seconds=1))
        assert await gpu_app.count_used_slots() == 1, "RunPod has not confirmed the end"
        await gpu_app.pass_time(timedelta(seconds=4))
        await gpu_app.pass_time(timedelta(seconds=4))
        shown = await gpu_app.show(job)
        (reported,) = await gpu_app.send_callbacks(listener)
    elapsed = reported["execution"]["durationMs"]
    assert shown["status"] == reported["status"] == "FAILED"
    assert elapsed >= limit * 60_000
    assert (reported["error"]["code"], reported["error"]["message"]) == ("TIMEOUT", f"Job timed out after {elapsed}ms")
    assert set(reported) == {"jobId", "id_roteiro", "status", "operation", "error", "execution", "timestamp"}
    assert [one.status for one in gpu_app.standin.jobs] == ["CANCELLED"]
    assert await gpu_app.count_used_slots() == 0
    logged = [record.getMessage() for record in caplog.records if record.name == "retoma_apps.gpu.pipeline"]
    assert logged == [f"{job} timed out after {limit * 60_000}ms"]


@pytest.mark.parametrize(
    ("queue", "work", "ended"),
    [(1e9, 1.0, "12:05"), (4 * 60.0, 1e9, "12:09"), (0.0, 4 * 60.0, "12:10")],
    ids=["waiting", "running", "all tries together"],
)
async def test_queueing_running_and_the_total_have_separate_limits(
    queue: float, work: float, ended: str, open_gpu_app: OpenGpuApp
) -> None:
    async with open_gpu_app(queue_seconds=queue, seconds=lambda _: work) as gpu_app:
        gpu_app.standin.faults.fail = {"addaudio"}
        job = await gpu_app.submit(operation="addaudio")
        await gpu_app.work_now()
        gpu_app.standin.jobs[0].longest = 1e9  # the host's own limit would end it first
        await gpu_app.work()
        shown = await gpu_app.show(job)
        assert (shown["error"]["code"], shown["completedAt"][11:16]) == ("TIMEOUT", ended)
        assert (gpu_app.standin.jobs[-1].status, await gpu_app.count_used_slots()) == ("CANCELLED", 0)


async def test_a_part_beyond_its_time_limit_stops_the_other_parts_with_the_job(open_gpu_app: OpenGpuApp) -> None:
    def seconds(job: Any) -> float:
        return 1e9 if job.input["images"][0]["id"] == "1" else 50.0

    async with open_gpu_app(seconds=seconds, settings={"job_timeout_ms": 120_000}) as gpu_app:
        job = await gpu_app.submit(img2vid(100))
        await gpu_app.work()
        ends = {one.status for one in gpu_app.standin.jobs}
        assert (await gpu_app.show(job))["error"]["code"] == "TIMEOUT"
        assert "COMPLETED" in ends
        assert not gpu_app.list_running()
        assert await gpu_app.count_used_slots() == 0


@pytest.mark.parametrize(("work", "status"), [(308, "COMPLETED"), (310, "COMPLETED"), (312, "FAILED")])
async def test_completing_at_the_time_limit_is_one_end_and_one_callback(
    work: int, status: str, open_gpu_app: OpenGpuApp
) -> None:
    """It times out 308 s after its submission, and the host takes 3 s to cancel it."""
    async with open_gpu_app(seconds=lambda _: float(work), cancel_seconds=3.0) as gpu_app, receiver() as listener:
        job = await gpu_app.submit({**BODIES["addaudio"], "webhook_url": listener.url}, "addaudio")
        await gpu_app.work_now()
        (one,) = gpu_app.standin.jobs
        one.longest = 1e9
        for span in (8, 299):
            await gpu_app.pass_time(timedelta(seconds=span))
        assert (one.status, one.cancel_at) == ("IN_PROGRESS", inf)
        await gpu_app.pass_time(timedelta(seconds=1))
        await gpu_app.work()
        await gpu_app.pass_time(timedelta(days=1))
        assert [body["status"] for body in await gpu_app.send_callbacks(listener)] == [status]
        assert ((await gpu_app.show(job))["status"], await gpu_app.count_used_slots()) == (status, 0)


async def test_a_submission_with_a_lost_answer_is_found_and_not_repeated(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.lost_replies = 2
    job = await gpu_app.submit(img2vid(40))
    await gpu_app.work()
    assert len((await gpu_app.show(job))["result"]["videos"]) == 40
    assert (gpu_app.standin.duplicates, set(gpu_app.standin.submits.values())) == (0, {1})


async def test_a_failed_submission_delays_only_its_own_part(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.broken = 1
    job = await gpu_app.submit(img2vid(36))
    await gpu_app.work_now()
    assert len(gpu_app.list_running()) == 2
    await gpu_app.work()
    shown = await gpu_app.show(job)
    assert (shown["status"], gpu_app.standin.duplicates) == ("COMPLETED", 0)
    assert set(shown["attempts"].values()) == {1}


class FailingHost(CorruptImageHost):
    """A host that rejects all submissions with an error until it is fixed."""

    is_fixed = False

    async def submit(self, *values: Any, **more: Any) -> str:
        handle = await super().submit(*values, **more)
        if not self.is_fixed:
            raise SubmissionUnknown("it answered 502")
        return handle

    async def status(self, _: str) -> PollResult:
        return PollResult("succeeded", result={"video_url": "https://files.example/a.mp4"})


async def test_a_host_that_fails_every_submission_delays_all_jobs_and_fails_none(open_gpu_app: OpenGpuApp) -> None:
    host = FailingHost()
    async with open_gpu_app(host=host) as gpu_app:
        jobs = [await gpu_app.submit(operation="caption") for _ in range(8)]
        await gpu_app.work_now()
        for _ in range(6):
            await gpu_app.pass_time(2 * MINUTE)
        assert host.submitted < 12
        host.is_fixed = True
        await gpu_app.work()
        shown = [await gpu_app.show(job) for job in jobs]
    assert {(job["status"], job["attempts"]["captioned"]) for job in shown} == {("COMPLETED", 1)}


async def test_rate_limiting_delays_jobs_and_never_fails_them(gpu_app: GpuApp) -> None:
    gpu_app.standin.faults.rate_limited = 7
    job = await gpu_app.submit(img2vid(40))
    await gpu_app.work()
    shown = await gpu_app.show(job)
    assert (shown["status"], set(shown["attempts"].values())) == ("COMPLETED", {1})


async def test_work_that_the_host_has_lost_is_resubmitted(open_gpu_app: OpenGpuApp) -> None:
    async with open_gpu_app(retention=1.0) as gpu_app:
        job = await gpu_app.submit(img2vid(1))
        await gpu_app.work_now()
        await gpu_app.standin.advance(60)
        await gpu_app.pass_time(timedelta(seconds=8))
        gpu_app.standin.fleet.retention = 1800
        await gpu_app.work()
        assert (await gpu_app.show(job))["status"] == "COMPLETED"
        assert gpu_app.standin.submits.total() == 2


async def test_an_unknown_state_is_logged_and_the_job_continues(
    gpu_app: GpuApp, caplog: pytest.LogCaptureFixture
) -> None:
    job = await gpu_app.submit(img2vid(1))
    await gpu_app.work_now()
    (one,) = gpu_app.standin.jobs
    one.status = "HIBERNATING"  # type: ignore[assignment]
    await gpu_app.pass_time()
    assert (await gpu_app.show(job))["status"] == "IN_PROGRESS"
    assert "'HIBERNATING'" in caplog.text
    one.status = "IN_PROGRESS"
    await gpu_app.work()
    assert (await gpu_app.show(job))["status"] == "COMPLETED"


@pytest.mark.parametrize(
    ("state", "tries", "status", "code", "details"),
    [
        ("COMPLETED", 1, "COMPLETED", None, None),
        ("FAILED", 4, "FAILED", "PROCESSING_ERROR", "PROCESSING_ERROR"),
        ("CANCELLED", 4, "FAILED", "PROCESSING_ERROR", "CANCELLED"),
        ("TIMED_OUT", 1, "FAILED", "TIMEOUT", "caption timed out after 600000ms: RunPod timed it out"),
        ("HIBERNATING", 1, "IN_PROGRESS", None, None),
    ],
)
async def test_every_runpod_state_has_an_outcome_and_only_unknown_states_are_logged_as_warnings(
    state: Any,
    tries: int,
    status: str,
    code: str | None,
    details: str | None,
    gpu_app: GpuApp,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpu_app.standin.fleet.outcome = lambda _: (state, {"video_url": "https://files.example/a.mp4"}, None)
    job = await gpu_app.submit(operation="caption")
    await gpu_app.work_now()
    for _ in range(20):
        await gpu_app.pass_time()
    shown = await gpu_app.show(job)
    error = shown.get("error") or {}
    assert (shown["status"], error.get("code"), error.get("details")) == (status, code, details)
    assert gpu_app.standin.submits.total() == tries
    warned = [record.levelname for record in caplog.records if f"unknown state: {state!r}" in record.getMessage()]
    assert set(warned) == ({"WARNING"} if status == "IN_PROGRESS" else set())


async def test_a_rejected_key_delays_all_jobs_and_fails_none(gpu_app: GpuApp) -> None:
    """This includes jobs whose limit passes before it is fixed: the host never had them."""
    gpu_app.standin._key = "another"
    jobs = [await gpu_app.submit(operation="addaudio") for _ in range(5)]
    await gpu_app.work_now()
    await gpu_app.pass_time(11 * MINUTE)
    await gpu_app.api.sandbox.run_watchdog()
    shown = str([await gpu_app.show(job) for job in jobs])
    assert "FAILED" not in shown
    assert "CANARY" not in shown
    gpu_app.standin._key = KEY
    await gpu_app.work()
    assert [(await gpu_app.show(job))["status"] for job in jobs] == ["COMPLETED"] * 5


BODIES: dict[str, Any] = {
    "img2vid": img2vid(),
    "caption": {"video_url": "https://example.com/v.mp4", "text": "Olá"},
    "addaudio": {"video_url": "https://example.com/v.mp4", "audio_url": "https://example.com/a.mp3"},
}


async def test_the_time_limit_of_a_job_covers_all_its_parts(open_gpu_app: OpenGpuApp) -> None:
    """Each part alone would finish in time; in sequence they do not."""
    async with open_gpu_app(workers=1, seconds=lambda _: 40 * 60.0) as gpu_app:
        await gpu_app.api.sandbox.client.pools.update("gpu", capacity=1)
        job = await gpu_app.submit(img2vid(40))
        for _ in range(23):
            await gpu_app.pass_time(5 * MINUTE)
        assert (await gpu_app.show(job))["status"] == "IN_PROGRESS"
        await gpu_app.pass_time(5 * MINUTE)
        await gpu_app.work()
        shown = await gpu_app.show(job)
        assert (shown["status"], shown["error"]["code"]) == ("FAILED", "TIMEOUT")
        assert await gpu_app.count_used_slots() == 0


async def test_a_job_that_never_gets_a_worker_also_ends(gpu_app: GpuApp) -> None:
    await gpu_app.api.sandbox.client.pools.update("gpu", capacity=0)
    job = await gpu_app.submit(operation="addaudio")
    await gpu_app.pass_time(timedelta(days=7, minutes=10))
    error = (await gpu_app.show(job))["error"]
    assert (error["code"], error["message"]) == ("TIMEOUT", "Job timed out before a worker was free")


async def test_time_in_the_hosts_queue_does_not_count_as_running_time(open_gpu_app: OpenGpuApp) -> None:
    async with open_gpu_app(queue_seconds=4 * 60.0, seconds=lambda _: 2 * 60.0) as gpu_app:
        job = await gpu_app.submit(operation="addaudio")
        await gpu_app.work()
        shown = await gpu_app.show(job)
    assert (shown["status"], shown["completedAt"] > "2030-01-01T12:06") == ("COMPLETED", True)


async def test_a_retry_is_logged_once(gpu_app: GpuApp, caplog: pytest.LogCaptureFixture) -> None:
    gpu_app.standin.faults.fail = {"caption"}
    job = await gpu_app.submit(operation="caption")
    await gpu_app.work()
    log_messages = [record.getMessage() for record in caplog.records if record.name == "retoma_apps.gpu.pipeline"]
    assert log_messages == [f"{job}: retrying the job, attempt {number}" for number in (2, 3, 4)]


UNSAFE = "https://169.254.169.254/latest/meta-data"


@pytest.mark.parametrize(
    ("operation", "values"),
    [
        ("caption", {"video_url": UNSAFE, "text": "Olá"}),
        ("caption", {"video_url": "https://example.com/v.mp4", "subtitles": f"{UNSAFE}/a.srt"}),
        ("addaudio", {"video_url": "https://example.com/v.mp4", "audio_url": UNSAFE}),
        ("img2vid", {"images": [{"id": "1", "image_url": UNSAFE, "duracao": 5}]}),
    ],
)
async def test_a_url_in_a_private_network_is_never_sent_to_a_host(
    operation: str, values: dict[str, Any], gpu_app: GpuApp
) -> None:
    run = (await gpu_app.client.start(operation, values)).id
    await gpu_app.work()
    error = (await gpu_app.show(f"orc-{run}"))["error"]
    assert gpu_app.standin.submits == {}
    assert "RETOMA_ALLOW_HOSTS" in error["message"]
    if operation != "img2vid":
        assert error["details"] == "UNSAFE_URL"


async def test_an_image_in_a_private_network_loses_only_its_own_video(gpu_app: GpuApp) -> None:
    request_data = img2vid(3)
    request_data["images"][1]["image_url"] = UNSAFE
    run = (await gpu_app.client.start("img2vid", request_data)).id
    await gpu_app.work()
    result = (await gpu_app.show(f"orc-{run}"))["result"]
    assert [video["id"] for video in result["videos"]] == ["1", "3"]
    assert [(fault["id"], fault["code"]) for fault in result["failed"]] == [("2", "UNSAFE_URL")]
    assert UNSAFE not in str([job.input for job in gpu_app.standin.jobs])


async def test_videos_finished_in_time_are_reported_with_the_timeout(open_gpu_app: OpenGpuApp) -> None:
    def seconds(job: Any) -> float:
        return 1e9 if job.input["images"][0]["id"] == "1" else 50.0

    settings = {"job_timeout_ms": 120_000}
    async with open_gpu_app(seconds=seconds, settings=settings) as gpu_app, receiver() as listener:
        job = await gpu_app.submit(img2vid(30, webhook_url=listener.url))
        await gpu_app.work()
        (reported,) = await gpu_app.send_callbacks(listener)
        shown = await gpu_app.show(job)
    result = reported["result"]
    assert (reported["status"], reported["error"]["code"], shown["result"]) == ("FAILED", "TIMEOUT", result)
    assert [video["id"] for video in result["videos"]] == [str(number) for number in range(13, 31)]
    assert (result["code"], result["message"]) == (207, "12 of 30 images have no video")
    assert {fault["code"] for fault in result["failed"]} == {"TIMEOUT"}
    assert [fault["id"] for fault in result["failed"]] == [str(number) for number in range(1, 13)]
