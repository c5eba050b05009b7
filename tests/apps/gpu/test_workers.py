"""Three workers at RunPod, shared by all jobs."""

from __future__ import annotations

import asyncio
from asyncio import Event
from datetime import timedelta
from typing import Any

import pytest

from retoma import Settings
from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.worker import wakeup
from retoma_apps.gpu.states import job_id
from tests.apps.gpu.conftest import OpenGpuApp
from tests.apps.gpu.gpu_app import BODIES, MINUTE, GpuApp, img2vid
from tests.engine.builders import HEARTBEAT_TIMEOUT, pass_heartbeat_timeout, run_claims, value
from tests.engine.test_leases import killed_worker
from tests.receiver import receiver
from tests.worker.test_worker import run_worker, wait_until


async def test_four_jobs_finish_one_after_the_other_instead_of_all_late(open_gpu_app: OpenGpuApp) -> None:
    """Each job is four minutes of work for all three workers."""
    async with open_gpu_app(seconds_per_image=7.2) as gpu_app, receiver() as listener:
        jobs = [await gpu_app.submit(img2vid(100, webhook_url=listener.url)) for _ in range(4)]
        assert [(await gpu_app.show(job))["status"] for job in jobs] == ["QUEUED"] * 4
        began = await gpu_app.api.sandbox.clock.now()
        ends: list[float] = []
        for job in jobs:
            await gpu_app.work([job])
            ends.append(((await gpu_app.api.sandbox.clock.now()) - began) / MINUTE)
        reported = await gpu_app.send_callbacks(listener)
    assert [body["jobId"] for body in sorted(reported, key=lambda body: body["timestamp"])] == jobs
    assert [len(body["result"]["videos"]) for body in reported] == [100] * 4
    assert ends == pytest.approx([4, 8, 12, 16], rel=0.25, abs=0.5)
    assert gpu_app.most_used == 3
    assert gpu_app.standin.duplicates == 0


async def test_a_job_uses_all_three_workers_at_once(gpu_app: GpuApp) -> None:
    first = await gpu_app.submit(img2vid(100))
    second = await gpu_app.submit(img2vid(100))
    await gpu_app.work_now()
    assert (len(gpu_app.list_running()), await gpu_app.count_used_slots()) == (3, 3)
    shown = await gpu_app.show(first)
    assert (shown["workersReserved"], shown["status"]) == (3, "IN_PROGRESS")
    assert (await gpu_app.show(second))["status"] == "QUEUED"


async def test_a_worker_is_available_to_the_next_job_as_soon_as_its_part_ends(gpu_app: GpuApp) -> None:
    gpu_app.standin.fleet.seconds = lambda job: 8.0 if job.input["images"][0]["id"] == "1" else 600.0
    await gpu_app.submit(img2vid(36))
    second = await gpu_app.submit(img2vid(12))
    await gpu_app.work_now()
    assert (await gpu_app.show(second))["status"] == "QUEUED"
    await gpu_app.pass_time()
    assert (await gpu_app.show(second))["status"] == "IN_PROGRESS"
    assert len(gpu_app.list_running()) == 3


async def test_a_process_is_notified_at_once_of_a_free_worker_and_polls_every_five_seconds(
    gpu_app: GpuApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wakeup.MAX_POLL_SECONDS <= 5
    for name in ("MIN_POLL_SECONDS", "MAX_POLL_SECONDS"):  # so polling finds nothing
        monkeypatch.setattr(wakeup, name, 1e6)
    gpu_app.standin.fleet.seconds = lambda job: 8.0 if job.input["images"][0]["id"] == "1" else 600.0
    async with run_worker(gpu_app.api.sandbox, heartbeat_timeout=3600):
        await gpu_app.submit(img2vid(36))
        await wait_until(lambda: has_parked(gpu_app, 3))
        second = await gpu_app.submit(img2vid(12))
        await gpu_app.standin.advance(8)
        await gpu_app.api.sandbox.clock.advance(timedelta(seconds=8))
        await wait_until(lambda: has_submitted(gpu_app, 4))
        assert (await gpu_app.show(second))["status"] == "IN_PROGRESS"


async def test_a_process_stops_work_beyond_its_limit_within_a_minute(open_gpu_app: OpenGpuApp) -> None:
    """Work at the host, and a job that waits for it."""
    async with open_gpu_app(seconds=lambda _: 1e9) as gpu_app, run_worker(gpu_app.api.sandbox, heartbeat_timeout=3600):
        clock, job = gpu_app.api.sandbox.clock, await gpu_app.submit(operation="addaudio")
        await wait_until(lambda: has_parked(gpu_app, 1))
        gpu_app.standin.jobs[0].longest = 1e9
        await clock.advance(timedelta(seconds=8))
        await wait_until(lambda: is_rendering(gpu_app))
        await clock.advance(5 * MINUTE)
        assert (await wait_until(lambda: error_of(gpu_app, job)))["code"] == "TIMEOUT"
        await gpu_app.client.pools.update("gpu", capacity=0)
        waiting = await gpu_app.client.start("addaudio", BODIES["addaudio"], deadline=5 * MINUTE)
        await clock.advance(5 * MINUTE)
        assert (await wait_until(lambda: error_of(gpu_app, job_id(waiting.id))))["code"] == "TIMEOUT"


async def test_workers_of_a_dead_process_are_released_without_an_operator(gpu_app: GpuApp) -> None:
    sandbox = gpu_app.api.sandbox
    async with killed_worker(sandbox) as dying:
        await gpu_app.submit(img2vid(36))
        await run_claims(dying, await dying.claim(1), "parts")
        assert (len(await dying.claim(100)), await gpu_app.count_used_slots()) == (3, 3)
        async with run_worker(sandbox, heartbeat_timeout=HEARTBEAT_TIMEOUT.total_seconds()):
            await sandbox.clock.advance(HEARTBEAT_TIMEOUT + timedelta(seconds=1))
            await wait_until(lambda: has_submitted(gpu_app, 3))
        assert await gpu_app.count_used_slots() == 3


@pytest.mark.parametrize("has_stored_its_id", [False, True])
async def test_work_submitted_by_a_dead_process_is_not_resubmitted(
    has_stored_its_id: bool, gpu_app: GpuApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, sandbox, taken, released = gpu_app.client.app.resources["host"], gpu_app.api.sandbox, Event(), Event()
    submit, search = host.submit, host.find

    async def held(*given: Any, **more: Any) -> Any:
        handle, is_first = await submit(*given, **more), not taken.is_set()
        taken.set()
        if is_first and not has_stored_its_id:
            await released.wait()
        return handle

    async def find(_: Any, key: str) -> Any:
        assert not has_stored_its_id, "it is known"
        return await search(key)

    monkeypatch.setattr(host, "submit", held)
    monkeypatch.setattr(type(host), "find", find)
    job = await gpu_app.submit(operation="caption")
    async with killed_worker(sandbox) as dying:
        attempt = asyncio.create_task(dying.attempt(await dying.claim(1)))
        await (attempt if has_stored_its_id else taken.wait())
        assert len(gpu_app.list_running()) == 1
        await pass_heartbeat_timeout(sandbox)
        await gpu_app.standin.advance(60)
        await sandbox.work()
        assert (await gpu_app.show(job))["status"] == "COMPLETED"
        assert gpu_app.standin.submits.total() == 1
        released.set()
        await attempt


async def has_submitted(gpu_app: GpuApp, count: int) -> bool:
    """Return whether the host has received so many parts."""
    return len(gpu_app.standin.jobs) == count


async def has_parked(gpu_app: GpuApp, count: int) -> bool:
    """Return whether so many parts of the only job wait for the host."""
    (run,) = await gpu_app.client.runs.list()
    return len(await gpu_app.client.external_work.list(run.id)) == count


async def is_rendering(gpu_app: GpuApp) -> bool:
    """Return whether a poll has been recorded. `polls` counts claimed polls, which may still be in progress."""
    (run,) = await gpu_app.client.runs.list()
    return any(work.state == "running" for work in await gpu_app.client.external_work.list(run.id))


async def error_of(gpu_app: GpuApp, job: str) -> dict[str, str] | None:
    return (await gpu_app.show(job)).get("error")


async def test_a_job_starts_with_the_only_free_worker(gpu_app: GpuApp) -> None:
    gpu_app.standin.fleet.seconds = lambda _: 600.0
    for operation in ("caption", "addaudio"):
        await gpu_app.submit(operation=operation)
    job = await gpu_app.submit(img2vid(100))
    await gpu_app.work_now()
    shown = await gpu_app.show(job)
    assert (shown["status"], shown["workersReserved"]) == ("IN_PROGRESS", 1)


async def test_jobs_of_all_operations_share_the_three_workers(gpu_app: GpuApp) -> None:
    jobs = [await gpu_app.submit(BODIES[name], name) for name in [*BODIES, *BODIES]]
    await gpu_app.work_now()
    statuses = sorted([(await gpu_app.show(job))["status"] for job in jobs])
    assert statuses == ["IN_PROGRESS"] * 3 + ["QUEUED"] * 3
    await gpu_app.work()
    assert {(await gpu_app.show(job))["status"] for job in jobs} == {"COMPLETED"}
    assert gpu_app.most_used == 3


async def test_nothing_is_submitted_while_no_worker_is_free(gpu_app: GpuApp) -> None:
    gpu_app.standin.fleet.seconds = lambda _: 3000.0
    await gpu_app.submit(img2vid(36))
    await gpu_app.work_now()
    waiting = await gpu_app.submit(operation="caption")
    await gpu_app.pass_time(10 * MINUTE)
    assert gpu_app.standin.submits.total() == 3
    assert (await gpu_app.show(waiting))["status"] == "QUEUED"


async def test_the_number_of_free_workers_can_be_read(gpu_app: GpuApp) -> None:
    await gpu_app.submit(operation="caption")
    await gpu_app.work_now()
    pool = (await gpu_app.api.get("/api/v1/pools/gpu")).json()
    assert (pool["capacity"], pool["used"]) == (3, 1)


async def test_the_host_is_polled_every_eight_seconds(gpu_app: GpuApp) -> None:
    gpu_app.standin.fleet.seconds = lambda _: 600.0
    job = await gpu_app.submit(img2vid(36))
    await gpu_app.work_now()
    (run,) = await gpu_app.client.runs.list()
    reads = []
    for _ in range(6):
        await gpu_app.pass_time(timedelta(seconds=4))
        for _ in range(3):
            await gpu_app.show(job)  # answered from stored data
        reads.append([work.polls for work in await gpu_app.client.external_work.list(run.id)])
    assert reads == [[number] * 3 for number in (0, 1, 1, 2, 2, 3)]
    assert gpu_app.standin.asked.total() == 9


async def test_a_job_starts_on_all_three_workers_as_soon_as_it_is_submitted(
    gpu_app: GpuApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MIN_POLL_SECONDS", "MAX_POLL_SECONDS"):  # so polling finds nothing
        monkeypatch.setattr(wakeup, name, 1e6)
    async with run_worker(gpu_app.api.sandbox, heartbeat_timeout=3600):
        first = await gpu_app.submit(img2vid(100))
        await wait_until(lambda: has_submitted(gpu_app, 3))
        others = await asyncio.gather(*(gpu_app.submit(img2vid(100)) for _ in range(3)))
        shown = [await gpu_app.show(job) for job in (first, *others)]
    assert [one["workersReserved"] for one in shown] == [3, 0, 0, 0]


async def test_cancelling_a_job_cancels_its_work_and_frees_workers_once_confirmed(gpu_app: GpuApp) -> None:
    gpu_app.standin.fleet.cancel_seconds = 5
    async with receiver() as listener:
        job = await gpu_app.submit(img2vid(100, webhook_url=listener.url))
        await gpu_app.work_now()
        answer = await gpu_app.cancel(job)
        assert (answer.status_code, answer.json()) == (200, {"message": "Job cancelled", "jobId": job})
        assert (await gpu_app.show(job))["status"] == "CANCELLED"
        await gpu_app.work_now()
        assert await gpu_app.count_used_slots() == 3, "RunPod has not confirmed the stop"
        await gpu_app.pass_time(timedelta(seconds=5))
        await gpu_app.pass_time(timedelta(seconds=1))
        assert ([one.status for one in gpu_app.standin.jobs], await gpu_app.count_used_slots()) == (
            ["CANCELLED"] * 3,
            0,
        )
        (reported,) = await gpu_app.send_callbacks(listener)
    assert (reported["status"], reported["jobId"]) == ("CANCELLED", job)
    assert gpu_app.standin.submits.total() == 3


async def test_a_cancelled_queued_job_never_starts(gpu_app: GpuApp) -> None:
    job = await gpu_app.submit(img2vid(2))
    assert (await gpu_app.cancel(job)).status_code == 200
    await gpu_app.pass_time(10 * MINUTE)
    assert (gpu_app.standin.submits, (await gpu_app.show(job))["status"]) == ({}, "CANCELLED")


async def test_cancelling_twice_succeeds_and_frees_nothing_twice(gpu_app: GpuApp) -> None:
    job = await gpu_app.submit(img2vid(100))
    other = await gpu_app.submit(img2vid(100))
    await gpu_app.work_now()
    answers = await asyncio.gather(*(gpu_app.cancel(job) for _ in range(4)))
    await gpu_app.work_now()
    await gpu_app.pass_time()
    assert {answer.status_code for answer in [*answers, await gpu_app.cancel(job)]} == {200}
    assert (await gpu_app.count_used_slots(), len(gpu_app.list_running())) == (3, 3)
    assert (await gpu_app.show(other))["workersReserved"] == 3


async def test_an_ended_job_cannot_be_cancelled(gpu_app: GpuApp) -> None:
    done = await gpu_app.submit(img2vid(1))
    await gpu_app.work()
    gpu_app.standin.faults.fail = {"caption"}
    failed = await gpu_app.submit(operation="caption")
    await gpu_app.work()
    for job in (done, failed):
        answer = await gpu_app.cancel(job)
        assert (answer.status_code, answer.json()["error"]) == (400, "Job already finished")


async def test_results_of_a_job_do_not_overwrite_those_of_another(gpu_app: GpuApp) -> None:
    jobs = [await gpu_app.submit(img2vid(2, path="the/same/")) for _ in range(2)]
    await gpu_app.work()
    urls = {video["video_url"] for job in jobs for video in (await gpu_app.show(job))["result"]["videos"]}
    assert len(urls) == 4


async def test_duration_grows_with_the_images_without_a_cliff_at_fifty(gpu_app: GpuApp) -> None:
    took = []
    for count in (50, 51):
        began = await gpu_app.api.sandbox.clock.now()
        await gpu_app.submit(img2vid(count))
        await gpu_app.work()
        took.append(await gpu_app.api.sandbox.clock.now() - began)
    assert took[0] == took[1]


async def test_runpods_execution_seconds_are_charged_by_operation(gpu_app: GpuApp) -> None:
    await gpu_app.client.costs.set_price("runpod", "img2vid", unit=310)
    for operation in ("img2vid", "caption"):
        job = await gpu_app.submit(operation=operation)
        await gpu_app.work([job])
    totals = await gpu_app.client.costs.get_totals(by=["provider", "resource"])
    assert [(each.provider, each.resource, each.units, each.micros, each.unpriced) for each in totals] == [
        ("runpod", "img2vid", 2.0, 620, 0),
        ("runpod", "caption", 1.0, 0, 1),
    ]


async def test_another_host_is_charged_by_its_name_and_polled_at_its_interval(gpu_app: GpuApp) -> None:
    host = gpu_app.client.app.resources["host"]
    host.name, host.poll_interval = "second", timedelta(seconds=40)
    job = await gpu_app.submit(operation="caption")
    await gpu_app.work_now()
    interval = await value(gpu_app.api.sandbox, "select poll_interval from retoma.external_work")
    assert interval == timedelta(seconds=40)
    await gpu_app.work([job])
    totals = await gpu_app.client.costs.get_totals(by=["provider", "resource"])
    assert [(each.provider, each.resource) for each in totals] == [("second", "caption")]


async def test_the_first_runpod_callback_ends_the_wait(gpu_app: GpuApp) -> None:
    settings = Settings(port=0)
    listening = bind_socket(settings, "127.0.0.1")
    async with run_server(gpu_app.api.server, listening, settings):
        gpu_app.client.app.resources["host"].origin = get_address(listening)
        job = await gpu_app.submit(operation="caption")
        await gpu_app.work_now()
        await gpu_app.standin.advance(60)
        assert gpu_app.standin.webhooks == {"taken": 1}
        await gpu_app.work_now()
        assert (await gpu_app.show(job))["status"] == "COMPLETED"
