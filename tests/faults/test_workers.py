"""Workers that freeze, have a wrong clock, are restarted or blocked: all work is done, and nothing needlessly twice."""

from __future__ import annotations

import asyncio
import json
import signal
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest

from bench.chaos import skew
from bench.chaos.processes import WorkerProcess as InstalledWorker
from bench.chaos.proxy import Call
from retoma.errors import DatabaseUnavailable
from retoma.store import workers
from retoma.store.database import Database
from retoma.store.tenants import Tenants
from retoma.worker import maintenance
from retoma.worker.heartbeat import HeartbeatThread
from tests.faults.testbed import HEARTBEAT_TIMEOUT, LONG_TIMEOUT, FaultEnvironment, wait_until
from tests.system_packages import require

HOUR = 3600


async def test_a_worker_paused_beyond_its_lease_changes_nothing(testbed: FaultEnvironment) -> None:
    zombie = testbed.worker()
    run = await testbed.start("held", "late")
    await wait_until(lambda: testbed.list_starts(run), "the step begins")
    # Its late result must come before the news of its death.
    testbed.proxy.loses_call = lambda call: "beat_at" in call.sql
    zombie.signal(signal.SIGSTOP)
    assert await wait_until(testbed.reap_concurrently, "it is found dead")
    heir = testbed.worker(by_proxy=False)
    await wait_until(
        lambda: [line for line in testbed.list_starts(run) if line.pid == heir.pid], "another worker takes over"
    )
    testbed.release("late")
    assert await testbed.wait_for_end(run) == ["completed"]
    before = await read_all_rows(testbed)
    zombie.signal(signal.SIGCONT)
    (refused,) = await wait_until(
        lambda: zombie.list_log_events("late_outcomes_rejected"), "the late result is rejected"
    )
    assert refused["jobs"] == 1
    assert await read_all_rows(testbed) == before
    job = {job.step: job for job in await testbed.client.runs.list_jobs(run)}["waiting"]
    assert (job.attempt, job.output["attempt"]) == (2, 2)
    await testbed.check()


async def read_all_rows(testbed: FaultEnvironment) -> list[object]:
    """All that is kept about runs."""
    async with testbed.database.connection() as connection:
        return [
            await connection.fetch(f"select * from retoma.{table} order by 1, 2, 3")
            for table in ("runs", "jobs", "events")
        ]


async def test_only_one_of_many_reapers_reaps_a_dead_worker(testbed: FaultEnvironment) -> None:
    worker = testbed.worker()
    run = await testbed.start("held", "swept")
    await wait_until(lambda: testbed.list_starts(run), "the step begins")
    await worker.end()
    ((_, jobs),) = await wait_until(testbed.reap_concurrently, "the worker is found dead")
    assert jobs == 1
    kinds = [event.kind for event in await testbed.client.runs.list_events(run)]
    assert kinds == ["start", "retry"]
    testbed.release("swept")
    async with testbed.other_worker():
        assert await testbed.wait_for_end(run) == ["completed"]
    await testbed.check()


async def test_a_wrong_clock_changes_nothing(testbed: FaultEnvironment) -> None:
    library = skew.library(testbed.folder)
    require(library is not None, "a C compiler: apt-get install gcc")
    skewed = [
        InstalledWorker(number, testbed.folder, testbed.through.url, library, [off], heartbeat_timeout=LONG_TIMEOUT)
        for number, off in enumerate((HOUR, -HOUR))
    ]
    keeping = [asyncio.create_task(worker.keep()) for worker in skewed]
    try:
        await wait_until(lambda: all(worker.is_ready for worker in skewed), "both are ready")
        due = datetime.now(UTC) + timedelta(seconds=0.5)
        delayed = await testbed.client.start("chain", {"nonce": "delayed"}, run_at=due)
        runs = [await testbed.start("weather", f"skewed-{number}", size=3) for number in range(4)]
        states = await testbed.wait_for_end(delayed.id, *runs)
        jobs = [job for run in (delayed.id, *runs) for job in await testbed.client.runs.list_jobs(run)]
    finally:
        await asyncio.gather(*(one.close(task) for one, task in zip(skewed, keeping, strict=True)))
    assert set(states) == {"completed"}
    assert {round(clock_offset_hours(worker)) for worker in skewed} == {1, -1}
    assert {job.worker_deaths for job in jobs} == {0}
    assert all(job.started_at >= due for job in await testbed.client.runs.list_jobs(delayed.id) if job.started_at)
    assert {len(worker.exits) for worker in skewed} == {1}
    await testbed.check()


def clock_offset_hours(worker: InstalledWorker) -> float:
    """Compare the timestamp in its log with the time of writing."""
    first = json.loads(worker.log.read_text().splitlines()[0])
    message = datetime.fromisoformat(first["timestamp"]).timestamp()
    return (message - worker.log.stat().st_mtime) / HOUR


async def test_a_rolling_restart_loses_nothing_and_repeats_nothing(testbed: FaultEnvironment) -> None:
    fleet = [testbed.worker(heartbeat_timeout=LONG_TIMEOUT, drain=LONG_TIMEOUT) for _ in range(2)]
    stop = asyncio.Event()
    users = [
        asyncio.create_task(keep_using(testbed, shape, stop)) for shape in ("chain", "album", "diamond", "gallery")
    ]
    for old in range(2):
        await wait_until(lambda: all(worker.is_ready for worker in fleet[old:]), "all are ready")  # noqa: B023
        await wait_until(lambda: len(testbed.user_log.acknowledged) >= 12 * (old + 1), "runs come and go")  # noqa: B023
        fleet.append(testbed.worker(heartbeat_timeout=LONG_TIMEOUT, drain=LONG_TIMEOUT))
        fleet[old].signal(signal.SIGTERM)
    await wait_until(lambda: not any(worker.is_running for worker in fleet[:2]), "the old ones end")
    stop.set()
    await asyncio.gather(*users)
    assert [worker.exit_code for worker in fleet[:2]] == [0, 0]
    assert {line.attempt for line in testbed.lines} == {1}
    await testbed.check()


async def keep_using(testbed: FaultEnvironment, shape: str, stop: asyncio.Event) -> None:
    """One run after the other."""
    for number in count():
        if stop.is_set():
            return
        await testbed.wait_for_end(await testbed.start(shape, f"{shape}-{number}", size=3))


async def test_a_step_that_blocks_the_loop_does_not_make_its_worker_dead(testbed: FaultEnvironment) -> None:
    blocked, watching = testbed.worker(), testbed.worker()
    await wait_until(lambda: blocked.is_ready and watching.is_ready, "both are ready")
    nonces = [f"blocking-{number}" for number in range(2)]
    runs = [await testbed.start("blocking", nonce) for nonce in nonces]
    (begun, *_) = await wait_until(lambda: testbed.list_starts(runs[0]) + testbed.list_starts(runs[1]), "a step begins")
    for _ in range(2):  # the first may have been under way
        previous = await get_last_heartbeat(testbed, begun.pid)
        await wait_until(partial(has_heartbeat_after, testbed, begun.pid, previous), "it sends heartbeats")
    for nonce in nonces:
        testbed.release(nonce)
    assert await testbed.wait_for_end(*runs) == ["completed"] * 2
    jobs = [job for run in runs for job in await testbed.client.runs.list_jobs(run)]
    assert {(job.attempt, job.worker_deaths) for job in jobs} == {(1, 0)}
    await testbed.check()


async def get_last_heartbeat(testbed: FaultEnvironment, pid: int) -> datetime:
    sql = "select heartbeat_at from retoma.workers where ended_at is null and name like '%:' || $1"
    async with testbed.database.connection() as connection:
        beat_at: datetime = await connection.fetchval(sql, str(pid))
        return beat_at


async def has_heartbeat_after(testbed: FaultEnvironment, pid: int, previous: datetime) -> bool:
    return await get_last_heartbeat(testbed, pid) > previous


async def test_no_worker_is_declared_dead_because_the_database_was_unreachable(
    testbed: FaultEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have missed heartbeats by then, and need time to send one."""
    passed = pace = 0.0
    monkeypatch.setattr(maintenance, "time", SimpleNamespace(monotonic=lambda: passed))
    monkeypatch.setattr(maintenance, "SECONDS_BETWEEN_TICKS", 0.05)
    silence = timedelta(seconds=LONG_TIMEOUT)
    silent = await workers.register_worker(testbed.database, "silent", ["default"], 1, 1)
    answered: list[str] = []

    def notes(call: Call) -> bool:
        nonlocal passed
        if "retoma.release_due_jobs" in call.sql:
            passed += pace
        answered.extend(name for name in ("release_due_jobs", "reap_dead_workers") if f"retoma.{name}" in call.sql)
        return False

    testbed.proxy.loses_answer = notes
    ticks = asyncio.create_task(running_maintenance(testbed.through, silence).run())
    try:
        await wait_until(lambda: answered[-1:] == ["reap_dead_workers"], "it sweeps")
        answered.clear()
        passed += HOUR  # in which the database did not answer
        await wait_for_heartbeat_timeout(testbed, silent)
        await wait_until(lambda: answered.count("reap_dead_workers") >= 3, "the database answers again")
        assert await is_registered(testbed, silent)
        pace = LONG_TIMEOUT / 4  # from now on it answers every few seconds
        await wait_until(lambda: was_deregistered(testbed, silent), "a worker that stays silent is declared dead")
    finally:
        ticks.cancel()


async def is_registered(testbed: FaultEnvironment, worker: int) -> bool:
    async with testbed.database.connection() as connection:
        return bool(await connection.fetchval("select ended_at is null from retoma.workers where id = $1", worker))


async def was_deregistered(testbed: FaultEnvironment, worker: int) -> bool:
    return not await is_registered(testbed, worker)


async def wait_for_heartbeat_timeout(testbed: FaultEnvironment, worker: int) -> None:
    async with testbed.database.connection() as connection:
        await connection.execute(
            "update retoma.workers set heartbeat_at = heartbeat_at - interval '1 hour' where id = $1", worker
        )


def running_maintenance(database: Database, heartbeat_timeout: timedelta) -> maintenance.Maintenance:
    async def nothing() -> None: ...

    return maintenance.Maintenance(
        database,
        heartbeat_timeout=heartbeat_timeout,
        refresh=nothing,
        worker=0,
        list_running=list,
        on_unwanted=lambda _: None,
        on_work=lambda: None,
        on_poll_due=lambda: None,
    )


async def test_a_job_whose_attempt_could_not_start_is_returned(
    testbed: FaultEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that a running worker holds but has forgotten would otherwise stay held for ever."""
    name_of, failures = Tenants.get_name, iter([DatabaseUnavailable("away"), OSError("no more processes")])

    async def fails_twice(tenants: Tenants, number: int) -> str:
        if error := next(failures, None):
            raise error
        return await name_of(tenants, number)

    monkeypatch.setattr(Tenants, "get_name", fails_twice)
    async with testbed.other_worker():
        run = await testbed.start("chain", "forgotten")
        assert await testbed.wait_for_end(run) == ["completed"]
    first = {job.step: job for job in await testbed.client.runs.list_jobs(run)}["first"]
    assert first.attempt == 2  # the first gave its attempt back, the second failed


async def test_a_paused_worker_is_not_reported_as_blocked(testbed: FaultEnvironment) -> None:
    """When it continues, its steps are past their time before its event loop could check them."""
    number = await workers.register_worker(testbed.database, "stopped", ["default"], 1, 1)
    reads: list[list[str]] = [["long ago"], [], ["long ago"], []]
    given_up: list[str] = []
    heart = HeartbeatThread(
        testbed.database,
        number,
        timedelta(seconds=HEARTBEAT_TIMEOUT),
        on_declared_dead=lambda: given_up.append("dead"),
        on_drain_requested=lambda: given_up.append("drained"),
        list_overdue=lambda: reads.pop(0) if reads else [],
        list_stacks=lambda _: [],
        on_blocked=lambda: given_up.append("blocked"),
    )
    heart.start()
    try:
        await wait_until(lambda: not reads, "it has looked at all")
    finally:
        heart.stop()
    assert given_up == []
