"""The eight tests of the GPU document, with real processes: big jobs on RunPod's stand-in, small ones on ffmpeg."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from retoma.records import ExternalWork
from retoma_apps.gpu.states import run_id
from standins.server import serve_app
from tests.acceptance.gpu_deployment import (
    PARTS,
    SLOTS,
    GpuDeployment,
    images,
    running_gpu_deployment,
    wait_for_callbacks,
    wait_for_callbacks_of_jobs,
)
from tests.apps.providers.gpu.file_server import FileServer
from tests.apps.providers.gpu.media import plain_picture, read_video, tone
from tests.receiver import receiver, respond_with

LIMIT_MS = 5000
SMALL = {"width": 64, "height": 36, "fps": 10}


@pytest.fixture(scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GpuDeployment]:
    """Two workers, and a stand-in that renders fifty images a second."""
    async with running_gpu_deployment(tmp_path_factory.mktemp("plant"), seconds_per_image=0.02, workers=2) as made:
        yield made


@pytest.fixture(scope="module")
async def slow_deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GpuDeployment]:
    """A stand-in that needs ten minutes per image."""
    async with running_gpu_deployment(tmp_path_factory.mktemp("slow"), seconds_per_image=600) as made:
        yield made


def job_of(count: int, **more: Any) -> dict[str, Any]:
    return {"id_roteiro": 34, "path": "Project/videos/temp/", "images": images(count), **more}


def ids(result: dict[str, Any]) -> list[str]:
    return [video["id"] for video in result["videos"]]


def numbers(last: int, *without: int) -> list[str]:
    return [str(number) for number in range(1, last + 1) if number not in without]


async def test_one_job_of_10_images_is_rendered_by_ffmpeg(tmp_path: Path) -> None:
    async with (
        running_gpu_deployment(tmp_path, seconds_per_image=None, GPU_PART_SECONDS="1") as deployment,
        receiver() as listener,
    ):
        shelf = FileServer("")
        async with serve_app(shelf, "127.0.0.1", 0) as origin:
            for number in range(1, 11):
                shelf.put(f"{number}.png", plain_picture())
            shelf.put("tone.wav", tone(440, 0.2))
            body = job_of(10, picture=SMALL) | {"images": images(10, 0.2, origin)}
            await deployment.submit("img2vid", body, listener)
            (done,) = await wait_for_callbacks(listener)
            assert (done["status"], ids(done["result"])) == ("COMPLETED", numbers(10))
            films = [await fetch_film(deployment, video["video_url"], tmp_path) for video in done["result"]["videos"]]
            assert {(film.width, film.height, len(film.frames)) for film in films} == {(64, 36, 2)}

            spoken = {"video_url": done["result"]["videos"][0]["video_url"]}
            captioned = await deployment.wait_for_end(await deployment.submit("caption", {**spoken, "text": "Olá"}))
            await fetch_film(deployment, captioned["result"]["video_url"], tmp_path)
            sound = {**spoken, "audio_url": f"{origin}/tone.wav"}
            mixed = await deployment.wait_for_end(await deployment.submit("addaudio", sound))
            assert (await fetch_film(deployment, mixed["result"]["video_url"], tmp_path)).samples


async def fetch_film(deployment: GpuDeployment, url: str, folder: Path) -> Any:
    """Fetch the video as a browser does: without a key, and only a byte range if requested."""
    assert url.startswith(f"http://127.0.0.1:{deployment.port}/files/gpu/")
    answer = await deployment.http.get(url, headers={"X-API-Key": ""})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "video/mp4")
    assert answer.headers["x-content-type-options"] == "nosniff"
    part = await deployment.http.get(url, headers={"Range": "bytes=4-7"})
    assert (part.status_code, part.content) == (206, b"ftyp")
    path = folder / "fetched.mp4"
    path.write_bytes(answer.content)
    return read_video(path)


async def test_one_job_of_100_images_is_split_across_several_workers(deployment: GpuDeployment) -> None:
    async with receiver() as listener:
        job = await deployment.submit("img2vid", job_of(100), listener)
        (done,) = await wait_for_callbacks(listener)
    assert (done["status"], ids(done["result"])) == ("COMPLETED", numbers(100))
    shown = await deployment.show(job)
    assert (len(shown["runpodJobIds"]), shown["result"]) == (PARTS, done["result"])


async def test_four_concurrent_jobs_of_100_images_finish_one_after_the_other(deployment: GpuDeployment) -> None:
    async with receiver() as listener:
        jobs = await deployment.hold_jobs(*[job_of(100)] * 4, listener=listener)
        ends = await wait_for_callbacks(listener, 4)
    assert {end["status"] for end in ends} == {"COMPLETED"}
    assert {len(end["result"]["videos"]) for end in ends} == {100}
    ended = sorted(ends, key=lambda end: end["execution"]["endTime"])
    assert [end["jobId"] for end in ended] == jobs
    starts = [datetime.fromisoformat(end["execution"]["startTime"]) for end in ended]
    assert starts == sorted(starts)
    parts = [await deployment.client.external_work.list(run) for run in filter(None, map(run_id, jobs))]
    assert [len(some) for some in parts] == [PARTS] * 4
    for earlier, start in zip(parts, starts[1:], strict=False):
        assert sum(not is_over(part, start) for part in earlier) < SLOTS, "slots are given to the oldest that waits"
    every = [part for some in parts for part in some]
    for one in every:
        assert sum(other.parked_at <= one.parked_at and not is_over(other, one.parked_at) for other in every) <= SLOTS
    assert await deployment.count_free_workers() == SLOTS


def is_over(part: ExternalWork, at: datetime) -> bool:
    return part.ended_at is not None and part.ended_at <= at


async def test_a_failed_part_is_a_partial_failure(deployment: GpuDeployment) -> None:
    await deployment.set_faults(bad_images=["7"], partial=True)
    try:
        async with receiver() as listener:
            job = await deployment.submit("img2vid", job_of(40), listener)
            (end,) = await wait_for_callbacks(listener)
    finally:
        await deployment.set_faults(bad_images=[], partial=False)
    assert (end["jobId"], end["status"], end["error"]["code"]) == (job, "FAILED", "PARTIAL_FAILURE")
    assert ids(end["result"]) == numbers(40, 7)
    assert [fault["id"] for fault in end["result"]["failed"]] == ["7"]
    assert await deployment.count_free_workers() == 3


async def test_a_failed_webhook_is_resent(deployment: GpuDeployment) -> None:
    async with receiver(respond_with(503)) as listener:
        job = await deployment.submit("img2vid", job_of(1), listener)
        first, second = await wait_for_callbacks(listener, 2)
    assert first == second
    assert (first["jobId"], first["status"]) == (job, "COMPLETED")
    assert listener.requests[0].headers["webhook-id"] == listener.requests[1].headers["webhook-id"]


async def test_a_receiver_that_never_answers_delays_no_job(deployment: GpuDeployment) -> None:
    released = asyncio.Event()

    async def silence(_: asyncio.StreamWriter) -> None:
        await released.wait()

    async with receiver(*[silence] * 100) as deaf, receiver() as listener:
        await deployment.submit("img2vid", job_of(1), deaf)
        await wait_for_callbacks(deaf)
        job = await deployment.submit("img2vid", job_of(100), listener)
        (end,) = await wait_for_callbacks(listener)
        assert (end["jobId"], end["status"]) == (job, "COMPLETED")
        released.set()


async def test_a_running_job_can_be_cancelled(slow_deployment: GpuDeployment) -> None:
    deployment = slow_deployment
    async with receiver() as listener:
        job = await deployment.submit("img2vid", job_of(100), listener)
        busy = await deployment.wait_for(job, lambda shown: len(shown["runpodJobIds"]) == 3)
        assert (busy["workersReserved"], busy["status"]) == (3, "IN_PROGRESS")
        answers = [await deployment.http.post(f"/jobs/{job}/cancel") for _ in range(2)]
        (end,) = await wait_for_callbacks(listener)
    assert [answer.json() for answer in answers] == [{"message": "Job cancelled", "jobId": job}] * 2
    assert (end["jobId"], end["status"]) == (job, "CANCELLED")
    assert (await deployment.get_standin_counts())["jobs"] == {"CANCELLED": 3}
    assert await deployment.count_free_workers() == 3


async def test_a_job_that_runs_too_long_times_out(tmp_path: Path) -> None:
    async with (
        running_gpu_deployment(tmp_path, seconds_per_image=600, JOB_TIMEOUT_MS=str(LIMIT_MS)) as deployment,
        receiver() as listener,
    ):
        job = await deployment.submit("img2vid", job_of(2), listener)
        (end,) = await wait_for_callbacks(listener)
        assert (end["jobId"], end["status"], end["error"]["code"]) == (job, "FAILED", "TIMEOUT")
        assert end["execution"]["durationMs"] >= LIMIT_MS
        assert not (await deployment.get_standin_counts())["jobs"].keys() & {"IN_QUEUE", "IN_PROGRESS"}
        assert await deployment.count_free_workers() == 3


async def test_killing_a_worker_mid_job_loses_and_duplicates_nothing(deployment: GpuDeployment) -> None:
    async with receiver() as listener:
        jobs = [await deployment.submit("img2vid", job_of(200), listener) for _ in range(2)]
        await deployment.wait_for(jobs[0], lambda shown: (shown["progress"] or {"completed": 0})["completed"] > 0)
        victim = deployment.workers.pop()
        victim.child.kill()
        victim.wait_for_exit()
        ends = await wait_for_callbacks_of_jobs(listener, 2)
    assert {end["jobId"]: ids(end["result"]) for end in ends} == dict.fromkeys(jobs, numbers(200))
    tally = await deployment.get_standin_counts()
    assert (tally["duplicates"], tally["submits"]) == (0, tally["keys"])


async def test_restarting_everything_loses_nothing(deployment: GpuDeployment) -> None:
    async with receiver() as listener:
        jobs = await deployment.hold_jobs(*[job_of(100)] * 3, listener=listener)
        await deployment.wait_for(jobs[0], lambda shown: (shown["progress"] or {"completed": 0})["completed"] > 0)
        before = await deployment.show(jobs[0])
        killed_at = datetime.now(UTC)
        await asyncio.to_thread(deployment.kill)
        await asyncio.to_thread(deployment.start, 2)
        after = await deployment.show(jobs[0])
        assert (after["data"], after["createdAt"]) == (before["data"], before["createdAt"])
        # A part that is claimed again moves the start by the moment between its claim and its submission.
        started_at = datetime.fromisoformat(after["startedAt"])
        assert datetime.fromisoformat(before["startedAt"]) <= started_at < killed_at
        assert set(before["runpodJobIds"]) <= set(after["runpodJobIds"])
        ends = await wait_for_callbacks_of_jobs(listener, 3)
    assert {end["jobId"]: ids(end["result"]) for end in ends} == dict.fromkeys(jobs, numbers(100))
    assert [end["jobId"] for end in sorted(ends, key=lambda end: end["execution"]["startTime"])] == jobs
    tally = await deployment.get_standin_counts()
    assert (tally["duplicates"], tally["submits"]) == (0, tally["keys"])
    assert await deployment.count_free_workers() == 3
