"""The RunPod client against the stand-in: every state, every rejection, every lost answer."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from retoma import GiveUp
from retoma.errors import ProviderRejected, RateLimited, SubmissionUnknown
from retoma.outgoing import HttpClient, Response
from retoma_apps.providers.gpu.port import HostUnavailable
from retoma_apps.providers.gpu.runpod import RunPodHost, RunPodSettings, _check, _to_poll_result
from standins.gpu import StandIn
from tests.apps.providers.gpu.conftest import KEY, img2vid, settings_for, submit


def answers(monkeypatch: pytest.MonkeyPatch, runpod: RunPodHost, answer: Response) -> None:
    async def request(*_: object, **__: object) -> Response:
        return answer

    monkeypatch.setattr(runpod._outgoing, "request", request)


async def test_a_job_goes_from_the_queue_through_progress_to_its_result(standin: StandIn, runpod: RunPodHost) -> None:
    standin.fleet.queue_seconds = 5
    handle = await submit(runpod, "1", "2")
    assert (await runpod.status(handle)).state == "queued"
    await standin.advance(6)
    running = await runpod.status(handle)
    assert (running.state, running.progress) == ("running", 0.5)
    await standin.advance(1)
    ended = await runpod.status(handle)
    assert ended.state == "succeeded"
    assert ended.result == {
        "videos": [
            {"id": "1", "video_url": "https://files.invalid/gpu/job/1/video_1.mp4", "filename": "video_1.mp4"},
            {"id": "2", "video_url": "https://files.invalid/gpu/job/1/video_2.mp4", "filename": "video_2.mp4"},
        ],
        "failed": [],
        "gpu_seconds": 2.0,
    }


@pytest.mark.parametrize("took", [None, -1, True, "900", float("nan"), float("inf"), 10**400])
def test_an_impossible_execution_time_is_ignored(took: object) -> None:
    output = {"video_url": "https://files.example/1.mp4", "gpu_seconds": 7}
    report = _to_poll_result({"status": "COMPLETED", "output": output, "executionTime": took})
    assert (report.state, report.result["gpu_seconds"]) == ("succeeded", None)


async def test_external_ids_name_the_endpoint_and_a_job_with_runpods_suffix(runpod: RunPodHost) -> None:
    endpoint, _, job = (await submit(runpod)).partition("/")
    assert endpoint == "pod"
    assert job.endswith("-u1")


async def test_no_more_jobs_run_than_there_are_workers(standin: StandIn, runpod: RunPodHost) -> None:
    handles = [await submit(runpod, key=f"key-{number}") for number in range(3)]
    states = [(await runpod.status(handle)).state for handle in handles]
    assert states == ["running", "running", "queued"]


async def test_a_failed_job_returns_its_error(standin: StandIn, runpod: RunPodHost) -> None:
    standin.faults.bad_images = {"42"}
    handle = await submit(runpod, "41", "42")
    await standin.advance(10)
    report = await runpod.status(handle)
    assert (report.state, report.code, report.message) == ("failed", "PROCESSING_ERROR", "Image 42 is corrupted")


async def test_a_handler_that_reports_bad_images_individually_succeeds_with_both_lists(
    standin: StandIn, runpod: RunPodHost
) -> None:
    standin.faults.bad_images, standin.faults.partial = {"42"}, True
    handle = await submit(runpod, "41", "42")
    await standin.advance(10)
    report = await runpod.status(handle)
    assert [video["id"] for video in report.result["videos"]] == ["41"]
    assert report.result["failed"] == [{"id": "42", "code": "CORRUPT_IMAGE", "message": "Image 42 is corrupted"}]


async def test_a_job_beyond_its_timeout_fails_with_the_code_timeout(standin: StandIn, runpod: RunPodHost) -> None:
    handle = await submit(runpod, *(str(number) for number in range(20)), timeout=timedelta(seconds=10))
    await standin.advance(10)
    report = await runpod.status(handle)
    assert (report.state, report.code) == ("failed", "TIMEOUT")


async def test_a_job_is_cancelled_only_once_the_provider_confirms_it(standin: StandIn, runpod: RunPodHost) -> None:
    standin.fleet.cancel_seconds = 3
    handle = await submit(runpod, *(str(number) for number in range(20)))
    await runpod.cancel(handle)
    assert (await runpod.status(handle)).state == "running"
    await standin.advance(3)
    assert (await runpod.status(handle)).state == "cancelled"


async def test_cancelling_ended_or_missing_work_changes_nothing(standin: StandIn, runpod: RunPodHost) -> None:
    handle = await submit(runpod)
    await standin.advance(10)
    await runpod.cancel(handle)
    assert (await runpod.status(handle)).state == "succeeded"
    await runpod.cancel("pod/never-there-u1")


async def test_a_result_past_its_retention_is_lost(standin: StandIn, runpod: RunPodHost) -> None:
    handle = await submit(runpod)
    await standin.advance(10)
    await standin.advance(1790)
    assert (await runpod.status(handle)).state == "succeeded"
    await standin.advance(10)
    assert (await runpod.status(handle)).state == "lost"


async def test_a_job_whose_ttl_expired_in_the_queue_is_lost(standin: StandIn, runpod: RunPodHost) -> None:
    standin.fleet.queue_seconds = 1e9
    handle = await submit(runpod, timeout=timedelta(hours=1))
    await standin.advance(timedelta(hours=24.9).total_seconds())
    assert (await runpod.status(handle)).state == "queued"
    await standin.advance(timedelta(hours=0.2).total_seconds())
    assert (await runpod.status(handle)).state == "lost"


@pytest.mark.parametrize(
    ("status", "state", "code"),
    [
        ("IN_QUEUE", "queued", None),
        ("IN_PROGRESS", "running", None),
        ("RUNNING", "running", None),
        ("COMPLETED", "succeeded", None),
        ("FAILED", "failed", "PROCESSING_ERROR"),
        ("TIMED_OUT", "failed", "TIMEOUT"),
        ("CANCELLED", "cancelled", "CANCELLED"),
    ],
)
def test_every_runpod_state_is_mapped(status: str, state: str, code: str | None) -> None:
    report = _to_poll_result({"id": "x", "status": status, "output": {"video_url": "https://files.example/1.mp4"}})
    assert (report.state, report.code) == (state, code)
    assert "unknown state" not in (report.message or "")


@pytest.mark.parametrize(
    "output",
    [
        None,
        "done",
        [],
        {},
        {"videos": []},
        {"videos": [{"id": "1"}]},
        {"videos": 3},
        {"video_url": "s3://bucket/1.mp4"},
    ],
)
def test_completed_work_without_a_video_has_failed(output: object) -> None:
    report = _to_poll_result({"status": "COMPLETED", "output": output})
    assert (report.state, report.code) == ("failed", "NO_VIDEO")


@pytest.mark.parametrize(
    ("failed", "code", "message"),
    [
        ([{"id": "1", "code": "DOWNLOAD_FAILED", "message": "404"}, {"id": "2"}], "DOWNLOAD_FAILED", "404"),
        (["odd", {"code": 7, "message": "x" * 900}], "NO_VIDEO", "x" * 500),
        ({"code": "ODD"}, "NO_VIDEO", "RunPod reports success, but no video"),
    ],
)
def test_work_whose_images_all_failed_reports_the_first_error(failed: object, code: str, message: str) -> None:
    report = _to_poll_result({"status": "COMPLETED", "output": {"videos": [], "failed": failed}})
    assert (report.state, report.code, report.message) == ("failed", code, message)


@pytest.mark.parametrize(
    ("reported", "progress"),
    [
        ("0.4", 0.4),
        ("-1", 0),
        ("7", 1),
        ("NaN", 0),
        ("Infinity", 1),
        ("1" + "0" * 400, 1),
        ("true", None),
        ('"0.4"', None),
    ],
    ids=range(8),
)
def test_progress_stays_between_0_and_1_whatever_is_reported(reported: str, progress: float | None) -> None:
    answer = json.loads(f'{{"status": "IN_PROGRESS", "output": {{"progress": {reported}}}}}')
    assert _to_poll_result(answer).progress == progress


@pytest.mark.parametrize("status", ["PAUSED", "", None, 7, {"odd": True}])
def test_an_unknown_state_is_logged_and_counts_as_running(status: object) -> None:
    report = _to_poll_result({"status": status})
    assert report.state == "running"
    assert "unknown state" in (report.message or "")


def test_an_exception_wrapped_by_runpods_sdk_is_unwrapped_without_its_traceback() -> None:
    packed = json.dumps(
        {"error_type": "ValueError", "error_message": "no such codec", "error_traceback": "File secret.py"}
    )
    assert _to_poll_result({"status": "FAILED", "error": packed}).message == "no such codec"


async def test_rate_limiting_pauses_for_as_long_as_the_provider_says(standin: StandIn, runpod: RunPodHost) -> None:
    standin.faults.rate_limited, standin.faults.retry_after = 1, 7
    with pytest.raises(RateLimited) as raised:
        await submit(runpod)
    assert raised.value.delay == timedelta(seconds=7)
    assert await submit(runpod)
    assert standin.tally()["submits"] == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 10),
        ({"retry-after": "3"}, 3),
        ({"retry-after": "999999999"}, 3600),
        ({"retry-after": "-5"}, 10),
        ({"retry-after": "soon"}, 10),
        ({"retry-after": "Mon, 02 Jan 2030 10:00:30 GMT", "date": "Mon, 02 Jan 2030 10:00:00 GMT"}, 30),
        ({"retry-after": "Mon, 02 Jan 2030 09:00:00 GMT", "date": "Mon, 02 Jan 2030 10:00:00 GMT"}, 1),
        ({"retry-after": "Mon, 02 Jan 2030 10:00:30 GMT"}, 10),
        ({"retry-after": f"Mon, 02 Jan {'9' * 30} 10:00:30 GMT", "date": "Mon, 02 Jan 2030 10:00:00 GMT"}, 10),
    ],
)
def test_retry_after_is_parsed_in_both_forms_and_bounded(headers: dict[str, str], seconds: float) -> None:
    with pytest.raises(RateLimited) as raised:
        _check(Response(429, headers, b""))
    assert raised.value.delay == timedelta(seconds=seconds)


async def test_a_submission_whose_answer_is_lost_is_found_by_its_key(standin: StandIn, runpod: RunPodHost) -> None:
    standin.faults.lost_replies = 1
    with pytest.raises(SubmissionUnknown, match="may have taken"):
        await submit(runpod, key="run-1")
    handle = await runpod.find("run-1")
    assert handle == f"pod/{standin.jobs[0].id}"
    assert await runpod.find("run-2") is None


async def test_a_server_error_after_a_submission_leaves_it_unknown(standin: StandIn, runpod: RunPodHost) -> None:
    standin.faults.broken_after = 1
    with pytest.raises(SubmissionUnknown, match="502"):
        await submit(runpod, key="run-1")
    assert await runpod.find("run-1")


async def test_a_failed_submission_is_not_found_again_but_the_next_attempt_is(
    standin: StandIn, runpod: RunPodHost
) -> None:
    standin.faults.fail = {"img2vid"}
    await submit(runpod, key="run-1")
    await standin.advance(10)
    assert await runpod.find("run-1") is None
    second = await submit(runpod, key="run-1")
    assert await runpod.find("run-1") == second
    assert standin.duplicates == 0


async def test_a_key_is_searched_for_at_the_endpoint_of_every_operation(standin: StandIn, base_url: str) -> None:
    host = RunPodHost(settings_for(base_url, endpoint_id_caption="captions"))
    body = {"prefix": "gpu/job/1/", "video_url": "https://example.com/v.mp4", "text": "Olá"}
    handle = await host.submit("caption", body, key="run-1", timeout=timedelta(minutes=10))
    assert handle.startswith("captions/")
    assert await host.find("run-1") == handle
    await host.close()


async def test_an_unreachable_provider_has_certainly_accepted_nothing(runpod: RunPodHost) -> None:
    away = RunPodHost(settings_for("http://127.0.0.1:9/v2"))
    with pytest.raises(HostUnavailable):
        await submit(away)
    with pytest.raises(HostUnavailable):
        await away.status("pod/x-u1")
    await away.close()


async def test_a_server_error_on_a_status_request_is_neither_lost_nor_ended(
    standin: StandIn, runpod: RunPodHost
) -> None:
    handle = await submit(runpod)
    standin.faults.broken = 2
    with pytest.raises(HostUnavailable):
        await runpod.status(handle)
    with pytest.raises(HostUnavailable):
        await runpod.find("key")


async def test_every_request_sends_the_key_from_the_environment_as_a_bearer_token(
    base_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[str, str]] = []
    request = HttpClient.request

    async def noted(self: HttpClient, method: str, url: str, **more: Any) -> Response:
        requests.append((url.split("/pod/")[1].split("/")[0], more["headers"]["Authorization"]))
        return await request(self, method, url, **more)

    monkeypatch.setattr(HttpClient, "request", noted)
    monkeypatch.setenv("RUNPOD_API_KEY", KEY)
    host = RunPodHost(RunPodSettings(_env_file=None, base_url=base_url, endpoint_id="pod"))
    handle = await submit(host)
    await host.status(handle)
    await host.find("key")
    await host.cancel(handle)
    await host.close()
    assert requests == [(verb, f"Bearer {KEY}") for verb in ("run", "status", "requests", "cancel")]


async def test_a_wrong_key_is_reported_and_never_shown(standin: StandIn, base_url: str) -> None:
    host = RunPodHost(settings_for(base_url, api_key="rpa_WRONGCANARY"))
    with pytest.raises(ProviderRejected, match="RUNPOD_API_KEY") as raised:
        await submit(host)
    assert "CANARY" not in repr(raised.value) + repr(host._settings)
    await host.close()


@pytest.mark.parametrize(
    ("status", "requested", "reported"),
    [
        (401, ProviderRejected, "RUNPOD_API_KEY"),
        (402, ProviderRejected, "no credit"),
        (403, ProviderRejected, "grant it access"),
        (404, GiveUp, "RUNPOD_ENDPOINT_ID"),
        (400, GiveUp, "with 400"),
    ],
)
async def test_a_rejection_says_what_to_do_and_hides_the_echoed_key(
    runpod: RunPodHost, status: int, requested: type[Exception], reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, runpod, Response(status, {}, json.dumps({"error": f"key {KEY} is bad"}).encode()))
    with pytest.raises(requested, match=reported) as raised:
        await submit(runpod)
    assert "(key ... is bad)" in str(raised.value)


async def test_the_status_of_a_job_also_hides_the_key(runpod: RunPodHost, monkeypatch: pytest.MonkeyPatch) -> None:
    error_body = {"status": "FAILED", "error": f"key {KEY} is bad"}
    answers(monkeypatch, runpod, Response(200, {}, json.dumps(error_body).encode()))
    assert (await runpod.status("pod/x-u1")).message == "key ... is bad"


async def test_an_operation_without_an_endpoint_names_the_missing_setting(base_url: str) -> None:
    host = RunPodHost(settings_for(base_url, endpoint_id=""))
    with pytest.raises(GiveUp, match="RUNPOD_ENDPOINT_ID"):
        await submit(host)
    await host.close()


async def test_a_request_larger_than_runpods_limit_is_not_sent(standin: StandIn, runpod: RunPodHost) -> None:
    with pytest.raises(GiveUp, match="split"):
        await runpod.submit("img2vid", img2vid() | {"note": "x" * 11_000_000}, key="key", timeout=timedelta(minutes=1))
    assert standin.tally()["submits"] == 0


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"[" * 100_000, b"null", b'{"status": "COMPLETED"', b"\xff"])
async def test_an_answer_that_is_not_an_object_ends_nothing(
    runpod: RunPodHost, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, runpod, Response(200, {}, body))
    with pytest.raises(HostUnavailable):
        await runpod.status("pod/x-u1")
    with pytest.raises(SubmissionUnknown):
        await submit(runpod)


async def test_an_external_id_cannot_change_the_request_path(standin: StandIn, runpod: RunPodHost) -> None:
    handle = await submit(runpod)
    for odd in (f"{handle}?x=1", f"pod/../{handle}", "pod/../../standin/tally"):
        assert (await runpod.status(odd)).state == "lost"
