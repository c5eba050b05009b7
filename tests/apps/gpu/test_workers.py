"""Three workers at RunPod, shared by all jobs."""

from __future__ import annotations

import asyncio
from asyncio import Event
from datetime import timedelta
from typing import Any

import pytest

from retoma import Settings
from retoma.cli.listening import address, bound, serving
from retoma.worker import wakeup
from retoma_apps.gpu.states import job_id
from tests.apps.gpu.conftest import OpenStudio
from tests.apps.gpu.studio import BODIES, MINUTE, Studio, img2vid
from tests.engine.builders import SILENCE, do, fall_silent
from tests.engine.test_leases import dying_hands
from tests.receiver import receiver
from tests.worker.test_worker import until, working


async def test_four_jobs_end_one_after_the_other_and_not_all_late(open_studio: OpenStudio) -> None:
    """Four minutes of work each, if all three workers are at it."""
    async with open_studio(seconds_per_image=7.2) as studio, receiver() as there:
        jobs = [await studio.submit(img2vid(100, webhook_url=there.url)) for _ in range(4)]
        assert [(await studio.show(job))["status"] for job in jobs] == ["QUEUED"] * 4
        began = await studio.api.sandbox.clock.now()
        ends: list[float] = []
        for job in jobs:
            await studio.work([job])
            ends.append(((await studio.api.sandbox.clock.now()) - began) / MINUTE)
        told = await studio.callbacks(there)
    assert [body["jobId"] for body in sorted(told, key=lambda body: body["timestamp"])] == jobs
    assert [len(body["result"]["videos"]) for body in told] == [100] * 4
    assert ends == pytest.approx([4, 8, 12, 16], rel=0.25, abs=0.5)
    assert studio.most_used == 3
    assert studio.standin.duplicates == 0


async def test_a_job_uses_all_three_workers_at_once(studio: Studio) -> None:
    first = await studio.submit(img2vid(100))
    second = await studio.submit(img2vid(100))
    await studio.do()
    assert (len(studio.running()), await studio.used()) == (3, 3)
    shown = await studio.show(first)
    assert (shown["workersReserved"], shown["status"]) == (3, "IN_PROGRESS")
    assert (await studio.show(second))["status"] == "QUEUED"


async def test_a_worker_is_free_for_the_next_job_as_soon_as_its_part_ends(studio: Studio) -> None:
    studio.standin.fleet.seconds = lambda job: 8.0 if job.input["images"][0]["id"] == "1" else 600.0
    await studio.submit(img2vid(36))
    second = await studio.submit(img2vid(12))
    await studio.do()
    assert (await studio.show(second))["status"] == "QUEUED"
    await studio.pass_time()
    assert (await studio.show(second))["status"] == "IN_PROGRESS"
    assert len(studio.running()) == 3


async def test_a_process_hears_at_once_that_a_worker_is_free_and_would_look_within_five_seconds(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wakeup.LONGEST_LOOK <= 5
    for name in ("SHORTEST_LOOK", "LONGEST_LOOK"):  # so that nothing is found by looking
        monkeypatch.setattr(wakeup, name, 1e6)
    studio.standin.fleet.seconds = lambda job: 8.0 if job.input["images"][0]["id"] == "1" else 600.0
    async with working(studio.api.sandbox, silence=3600):
        await studio.submit(img2vid(36))
        await until(lambda: parked(studio, 3))
        second = await studio.submit(img2vid(12))
        await studio.standin.advance(8)
        await studio.api.sandbox.clock.advance(timedelta(seconds=8))
        await until(lambda: seen(studio, 4))
        assert (await studio.show(second))["status"] == "IN_PROGRESS"


async def test_a_process_ends_what_is_beyond_its_limit_within_a_minute(open_studio: OpenStudio) -> None:
    """Work at the host, and a job that waits for it."""
    async with open_studio(seconds=lambda _: 1e9) as studio, working(studio.api.sandbox, silence=3600):
        clock, job = studio.api.sandbox.clock, await studio.submit(operation="addaudio")
        await until(lambda: parked(studio, 1))
        studio.standin.jobs[0].longest = 1e9
        await clock.advance(timedelta(seconds=8))
        await until(lambda: looked_at(studio))
        await clock.advance(5 * MINUTE)
        assert (await until(lambda: error_of(studio, job)))["code"] == "TIMEOUT"
        await studio.client.set_pool("gpu", capacity=0)
        waiting = await studio.client.start("addaudio", BODIES["addaudio"], deadline=5 * MINUTE)
        await clock.advance(5 * MINUTE)
        assert (await until(lambda: error_of(studio, job_id(waiting.id))))["code"] == "TIMEOUT"


async def test_workers_of_a_process_that_died_are_free_again_without_an_operator(studio: Studio) -> None:
    sandbox = studio.api.sandbox
    async with dying_hands(sandbox) as dying:
        await studio.submit(img2vid(36))
        await do(dying, await dying.claim(1), "parts")
        assert (len(await dying.claim(100)), await studio.used()) == (3, 3)
        async with working(sandbox, silence=SILENCE.total_seconds()):
            await sandbox.clock.advance(SILENCE + timedelta(seconds=1))
            await until(lambda: seen(studio, 3))
        assert await studio.used() == 3


@pytest.mark.parametrize("has_stored_its_id", [False, True])
async def test_what_was_submitted_by_a_process_that_died_is_not_submitted_again(
    has_stored_its_id: bool, studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, sandbox, taken, released = studio.client.app.resources["host"], studio.api.sandbox, Event(), Event()
    submit, find = host.submit, host.find

    async def held(*given: Any, **more: Any) -> Any:
        handle, is_first = await submit(*given, **more), not taken.is_set()
        taken.set()
        if is_first and not has_stored_its_id:
            await released.wait()
        return handle

    async def found(key: str) -> Any:
        assert not has_stored_its_id, "it is known"
        return await find(key)

    monkeypatch.setattr(host, "submit", held)
    monkeypatch.setattr(host, "find", found)
    job = await studio.submit(operation="caption")
    async with dying_hands(sandbox) as dying:
        attempt = asyncio.create_task(dying.attempt(await dying.claim(1)))
        await (attempt if has_stored_its_id else taken.wait())
        assert len(studio.running()) == 1
        await fall_silent(sandbox)
        await studio.standin.advance(60)
        await sandbox.work()
        assert (await studio.show(job))["status"] == "COMPLETED"
        assert studio.standin.submits.total() == 1
        released.set()
        await attempt


async def seen(studio: Studio, count: int) -> bool:
    """Whether the host was given so many parts."""
    return len(studio.standin.jobs) == count


async def parked(studio: Studio, count: int) -> bool:
    """Whether so many parts of the only job wait for the host."""
    (run,) = await studio.client.runs()
    return len(await studio.client.outside(run.id)) == count


async def looked_at(studio: Studio) -> bool:
    (run,) = await studio.client.runs()
    return any(work.looks for work in await studio.client.outside(run.id))


async def error_of(studio: Studio, job: str) -> dict[str, str] | None:
    return (await studio.show(job)).get("error")


async def test_a_job_begins_with_the_one_worker_that_is_free(studio: Studio) -> None:
    studio.standin.fleet.seconds = lambda _: 600.0
    for operation in ("caption", "addaudio"):
        await studio.submit(operation=operation)
    job = await studio.submit(img2vid(100))
    await studio.do()
    shown = await studio.show(job)
    assert (shown["status"], shown["workersReserved"]) == ("IN_PROGRESS", 1)


async def test_jobs_of_all_operations_share_the_three_workers(studio: Studio) -> None:
    jobs = [await studio.submit(BODIES[name], name) for name in [*BODIES, *BODIES]]
    await studio.do()
    statuses = sorted([(await studio.show(job))["status"] for job in jobs])
    assert statuses == ["IN_PROGRESS"] * 3 + ["QUEUED"] * 3
    await studio.work()
    assert {(await studio.show(job))["status"] for job in jobs} == {"COMPLETED"}
    assert studio.most_used == 3


async def test_nothing_is_submitted_while_no_worker_is_free(studio: Studio) -> None:
    studio.standin.fleet.seconds = lambda _: 3000.0
    await studio.submit(img2vid(36))
    await studio.do()
    waiting = await studio.submit(operation="caption")
    await studio.pass_time(10 * MINUTE)
    assert studio.standin.submits.total() == 3
    assert (await studio.show(waiting))["status"] == "QUEUED"


async def test_the_number_of_free_workers_can_be_read(studio: Studio) -> None:
    await studio.submit(operation="caption")
    await studio.do()
    pool = (await studio.api.get("/api/v1/pools/gpu")).json()
    assert (pool["capacity"], pool["used"]) == (3, 1)


async def test_the_host_is_asked_every_eight_seconds(studio: Studio) -> None:
    studio.standin.fleet.seconds = lambda _: 600.0
    job = await studio.submit(img2vid(36))
    await studio.do()
    (run,) = await studio.client.runs()
    looks = []
    for _ in range(6):
        await studio.pass_time(timedelta(seconds=4))
        for _ in range(3):
            await studio.show(job)  # callers are answered from what is stored
        looks.append([work.looks for work in await studio.client.outside(run.id)])
    assert looks == [[number] * 3 for number in (0, 1, 1, 2, 2, 3)]
    assert studio.standin.asked.total() == 9


async def test_a_job_starts_on_all_three_workers_as_soon_as_it_is_submitted(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SHORTEST_LOOK", "LONGEST_LOOK"):  # so that nothing is found by looking
        monkeypatch.setattr(wakeup, name, 1e6)
    async with working(studio.api.sandbox, silence=3600):
        first = await studio.submit(img2vid(100))
        await until(lambda: seen(studio, 3))
        others = await asyncio.gather(*(studio.submit(img2vid(100)) for _ in range(3)))
        shown = [await studio.show(job) for job in (first, *others)]
    assert [one["workersReserved"] for one in shown] == [3, 0, 0, 0]


async def test_cancelling_a_job_cancels_its_work_and_frees_its_workers_when_that_is_confirmed(studio: Studio) -> None:
    studio.standin.fleet.cancel_seconds = 5
    async with receiver() as there:
        job = await studio.submit(img2vid(100, webhook_url=there.url))
        await studio.do()
        answer = await studio.cancel(job)
        assert (answer.status_code, answer.json()) == (200, {"message": "Job cancelled", "jobId": job})
        assert (await studio.show(job))["status"] == "CANCELLED"
        await studio.do()
        assert await studio.used() == 3, "RunPod has not confirmed the stop"
        await studio.pass_time(timedelta(seconds=5))
        await studio.pass_time(timedelta(seconds=1))
        assert ([one.status for one in studio.standin.jobs], await studio.used()) == (["CANCELLED"] * 3, 0)
        (told,) = await studio.callbacks(there)
    assert (told["status"], told["jobId"]) == ("CANCELLED", job)
    assert studio.standin.submits.total() == 3


async def test_a_cancelled_job_that_waited_never_starts(studio: Studio) -> None:
    job = await studio.submit(img2vid(2))
    assert (await studio.cancel(job)).status_code == 200
    await studio.pass_time(10 * MINUTE)
    assert (studio.standin.submits, (await studio.show(job))["status"]) == ({}, "CANCELLED")


async def test_cancelling_again_is_fine_and_frees_nothing_twice(studio: Studio) -> None:
    job = await studio.submit(img2vid(100))
    other = await studio.submit(img2vid(100))
    await studio.do()
    answers = await asyncio.gather(*(studio.cancel(job) for _ in range(4)))
    await studio.do()
    await studio.pass_time()
    assert {answer.status_code for answer in [*answers, await studio.cancel(job)]} == {200}
    assert (await studio.used(), len(studio.running())) == (3, 3)
    assert (await studio.show(other))["workersReserved"] == 3


async def test_an_ended_job_cannot_be_cancelled(studio: Studio) -> None:
    done = await studio.submit(img2vid(1))
    await studio.work()
    studio.standin.faults.fail = {"caption"}
    failed = await studio.submit(operation="caption")
    await studio.work()
    for job in (done, failed):
        answer = await studio.cancel(job)
        assert (answer.status_code, answer.json()["error"]) == (400, "Job already finished")


async def test_results_of_a_job_do_not_overwrite_those_of_another(studio: Studio) -> None:
    jobs = [await studio.submit(img2vid(2, path="the/same/")) for _ in range(2)]
    await studio.work()
    urls = {video["video_url"] for job in jobs for video in (await studio.show(job))["result"]["videos"]}
    assert len(urls) == 4


async def test_time_grows_with_the_images_without_a_cliff_at_fifty(studio: Studio) -> None:
    took = []
    for count in (50, 51):
        began = await studio.api.sandbox.clock.now()
        await studio.submit(img2vid(count))
        await studio.work()
        took.append(await studio.api.sandbox.clock.now() - began)
    assert took[0] == took[1]


async def test_the_seconds_that_runpod_worked_are_charged_by_operation(studio: Studio) -> None:
    await studio.client.set_price("runpod", "img2vid", unit=310)
    for operation in ("img2vid", "caption"):
        job = await studio.submit(operation=operation)
        await studio.work([job])
    totals = await studio.client.charge_totals(by=["provider", "what"])
    assert [(each.provider, each.what, each.units, each.micros, each.unpriced) for each in totals] == [
        ("runpod", "img2vid", 2.0, 620, 0),
        ("runpod", "caption", 1.0, 0, 1),
    ]


async def test_runpods_hint_is_taken_at_its_first_call_and_ends_the_waiting(studio: Studio) -> None:
    settings = Settings(port=0)
    listening = bound(settings, "127.0.0.1")
    async with serving(studio.api.server, listening, settings):
        studio.client.app.resources["host"].origin = address(listening)
        job = await studio.submit(operation="caption")
        await studio.do()
        await studio.standin.advance(60)
        assert studio.standin.webhooks == {"taken": 1}
        await studio.do()
        assert (await studio.show(job))["status"] == "COMPLETED"
