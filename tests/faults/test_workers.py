"""Workers that stand still, have a wrong clock, are restarted or blocked: all is done, and nothing needlessly twice."""

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
from retoma.engine.tenants import Tenants
from retoma.errors import DatabaseUnavailable
from retoma.store import workers
from retoma.store.database import Database
from retoma.worker import upkeep
from retoma.worker.heart import Heart
from tests.faults.stage import SILENCE, SOON, Stage, until
from tests.parts import require

HOUR = 3600


async def test_a_worker_that_stood_still_beyond_its_lease_changes_nothing(stage: Stage) -> None:
    zombie = stage.worker()
    run = await stage.start("held", "late")
    await until(lambda: stage.began(run), "the step begins")
    # Its late result must come before the news of its death.
    stage.proxy.loses_call = lambda call: "beat_at" in call.sql
    zombie.signal(signal.SIGSTOP)
    assert await until(stage.swept, "it is found dead")
    heir = stage.worker(by_proxy=False)
    await until(lambda: [line for line in stage.began(run) if line.pid == heir.pid], "another worker takes over")
    stage.let_go("late")
    assert await stage.ended(run) == ["completed"]
    before = await everything(stage)
    zombie.signal(signal.SIGCONT)
    (refused,) = await until(lambda: zombie.said("refused"), "the late result is refused")
    assert refused["jobs"] == 1
    assert await everything(stage) == before
    job = {job.step: job for job in await stage.client.jobs(run)}["waiting"]
    assert (job.attempt, job.output["attempt"]) == (2, 2)
    await stage.check()


async def everything(stage: Stage) -> list[object]:
    """All that is kept about runs."""
    async with stage.database.connection() as connection:
        return [
            await connection.fetch(f"select * from retoma.{table} order by 1, 2, 3")
            for table in ("runs", "jobs", "events")
        ]


async def test_of_many_sweepers_one_buries_a_dead_worker(stage: Stage) -> None:
    worker = stage.worker()
    run = await stage.start("held", "swept")
    await until(lambda: stage.began(run), "the step begins")
    await worker.end()
    ((_, jobs),) = await until(stage.swept, "the worker is found dead")
    assert jobs == 1
    kinds = [event.kind for event in await stage.client.events(run)]
    assert kinds == ["start", "retry"]
    stage.let_go("swept")
    async with stage.other_worker():
        assert await stage.ended(run) == ["completed"]
    await stage.check()


async def test_a_wrong_clock_changes_nothing(stage: Stage) -> None:
    library = skew.library(stage.folder)
    require(library is not None, "a C compiler: apt-get install gcc")
    skewed = [
        InstalledWorker(number, stage.folder, stage.through.url, library, [off], silence=SOON)
        for number, off in enumerate((HOUR, -HOUR))
    ]
    keeping = [asyncio.create_task(worker.keep()) for worker in skewed]
    try:
        await until(lambda: all(worker.is_ready for worker in skewed), "both are ready")
        due = datetime.now(UTC) + timedelta(seconds=0.5)
        delayed = await stage.client.start("chain", {"nonce": "delayed"}, run_at=due)
        runs = [await stage.start("weather", f"skewed-{number}", size=3) for number in range(4)]
        states = await stage.ended(delayed.id, *runs)
        jobs = [job for run in (delayed.id, *runs) for job in await stage.client.jobs(run)]
    finally:
        await asyncio.gather(*(one.close(task) for one, task in zip(skewed, keeping, strict=True)))
    assert set(states) == {"completed"}
    assert {round(hours_off(worker)) for worker in skewed} == {1, -1}
    assert {job.deaths for job in jobs} == {0}
    assert all(job.started_at >= due for job in await stage.client.jobs(delayed.id) if job.started_at)
    assert {len(worker.ended) for worker in skewed} == {1}
    await stage.check()


def hours_off(worker: InstalledWorker) -> float:
    """What its log says is the time, against when it was written."""
    first = json.loads(worker.log.read_text().splitlines()[0])
    said = datetime.fromisoformat(first["timestamp"]).timestamp()
    return (said - worker.log.stat().st_mtime) / HOUR


async def test_a_rolling_restart_loses_nothing_and_repeats_nothing(stage: Stage) -> None:
    fleet = [stage.worker(silence=SOON, drain=SOON) for _ in range(2)]
    stop = asyncio.Event()
    users = [asyncio.create_task(keep_using(stage, shape, stop)) for shape in ("chain", "album", "diamond", "gallery")]
    for old in range(2):
        await until(lambda: all(worker.is_ready for worker in fleet[old:]), "all are ready")  # noqa: B023
        await until(lambda: len(stage.told.acknowledged) >= 12 * (old + 1), "runs come and go")  # noqa: B023
        fleet.append(stage.worker(silence=SOON, drain=SOON))
        fleet[old].signal(signal.SIGTERM)
    await until(lambda: not any(worker.lives for worker in fleet[:2]), "the old ones end")
    stop.set()
    await asyncio.gather(*users)
    assert [worker.exit_code for worker in fleet[:2]] == [0, 0]
    assert {line.attempt for line in stage.lines} == {1}
    await stage.check()


async def keep_using(stage: Stage, shape: str, stop: asyncio.Event) -> None:
    """One run after the other."""
    for number in count():
        if stop.is_set():
            return
        await stage.ended(await stage.start(shape, f"{shape}-{number}", size=3))


async def test_a_step_that_blocks_the_loop_does_not_make_its_worker_dead(stage: Stage) -> None:
    blocked, watching = stage.worker(), stage.worker()
    await until(lambda: blocked.is_ready and watching.is_ready, "both are ready")
    nonces = [f"blocking-{number}" for number in range(2)]
    runs = [await stage.start("blocking", nonce) for nonce in nonces]
    (begun, *_) = await until(lambda: stage.began(runs[0]) + stage.began(runs[1]), "a step begins")
    for _ in range(2):  # the first may have been under way
        former = await last_beat(stage, begun.pid)
        await until(partial(beats_after, stage, begun.pid, former), "its heart beats on")
    for nonce in nonces:
        stage.let_go(nonce)
    assert await stage.ended(*runs) == ["completed"] * 2
    jobs = [job for run in runs for job in await stage.client.jobs(run)]
    assert {(job.attempt, job.deaths) for job in jobs} == {(1, 0)}
    await stage.check()


async def last_beat(stage: Stage, pid: int) -> datetime:
    sql = "select beat_at from retoma.workers where ended_at is null and name like '%:' || $1"
    async with stage.database.connection() as connection:
        beat_at: datetime = await connection.fetchval(sql, str(pid))
        return beat_at


async def beats_after(stage: Stage, pid: int, former: datetime) -> bool:
    return await last_beat(stage, pid) > former


async def test_nobody_is_declared_dead_because_the_database_was_away(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all were silent then, and need time to beat again."""
    passed = pace = 0.0
    monkeypatch.setattr(upkeep, "time", SimpleNamespace(monotonic=lambda: passed))
    monkeypatch.setattr(upkeep, "SECONDS_BETWEEN_TICKS", 0.05)
    silence = timedelta(seconds=SOON)
    silent = await workers.register(stage.database, "silent", ["default"], 1, 1)
    answered: list[str] = []

    def notes(call: Call) -> bool:
        nonlocal passed
        if "retoma.promote" in call.sql:
            passed += pace
        answered.extend(name for name in ("promote", "sweep") if f"retoma.{name}" in call.sql)
        return False

    stage.proxy.loses_answer = notes
    ticks = asyncio.create_task(an_upkeep(stage.through, silence).run())
    try:
        await until(lambda: answered[-1:] == ["sweep"], "it sweeps")
        answered.clear()
        passed += HOUR  # in which the database did not answer
        await fall_silent(stage, silent)
        await until(lambda: answered.count("sweep") >= 3, "the database answers again")
        assert await is_registered(stage, silent)
        pace = SOON / 4  # from now on it answers every few seconds
        await until(lambda: was_deregistered(stage, silent), "a worker that stays silent is declared dead")
    finally:
        ticks.cancel()


async def is_registered(stage: Stage, worker: int) -> bool:
    async with stage.database.connection() as connection:
        return bool(await connection.fetchval("select ended_at is null from retoma.workers where id = $1", worker))


async def was_deregistered(stage: Stage, worker: int) -> bool:
    return not await is_registered(stage, worker)


async def fall_silent(stage: Stage, worker: int) -> None:
    async with stage.database.connection() as connection:
        await connection.execute(
            "update retoma.workers set beat_at = beat_at - interval '1 hour' where id = $1", worker
        )


def an_upkeep(database: Database, silence: timedelta) -> upkeep.Upkeep:
    async def nothing() -> None: ...

    return upkeep.Upkeep(
        database,
        silence=silence,
        refresh=nothing,
        worker=0,
        at_work=list,
        on_unwanted=lambda _: None,
        on_work=lambda: None,
        on_look=lambda: None,
    )


async def test_a_job_whose_attempt_could_not_be_made_goes_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held by a worker that lives, and forgotten by it, it would stay so for ever."""
    name_of, failures = Tenants.name_of, iter([DatabaseUnavailable("away"), OSError("no more processes")])

    async def fails_twice(tenants: Tenants, number: int) -> str:
        if error := next(failures, None):
            raise error
        return await name_of(tenants, number)

    monkeypatch.setattr(Tenants, "name_of", fails_twice)
    async with stage.other_worker():
        run = await stage.start("chain", "forgotten")
        assert await stage.ended(run) == ["completed"]
    first = {job.step: job for job in await stage.client.jobs(run)}["first"]
    assert first.attempt == 2  # the first gave its attempt back, the second failed


async def test_a_worker_that_stood_still_is_not_taken_for_blocked(stage: Stage) -> None:
    """When it goes on, its steps are past their time before its event loop could look at them."""
    number = await workers.register(stage.database, "stopped", ["default"], 1, 1)
    looks: list[list[str]] = [["long ago"], [], ["long ago"], []]
    given_up: list[str] = []
    heart = Heart(
        stage.database,
        number,
        timedelta(seconds=SILENCE),
        on_death=lambda: given_up.append("dead"),
        overdue=lambda: looks.pop(0) if looks else [],
        on_blocked=lambda: given_up.append("blocked"),
    )
    heart.start()
    try:
        await until(lambda: not looks, "it has looked at all")
    finally:
        heart.stop()
    assert given_up == []
