"""How many workers a queue needs: the rule, a simulation of it, and the load that is measured."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from retoma import Pipeline, Pool, Webhook, minutes
from retoma.engine.autoscale import MAX_WAIT_SECONDS, QueueLoad, advise, combine_loads
from retoma.errors import NotFound
from retoma.records import AutoscaleAdvice
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import pass_heartbeat_timeout, rows, run_claims, run_next
from tests.engine.test_external_work import Host, film, start_parked
from tests.engine.test_hot_statements import FEW, TABLES, Table, measure_reads, prepare_history
from tests.engine.test_leases import killed_worker

IDLE = QueueLoad(
    queued=0,
    startable=0,
    running=0,
    background=0,
    oldest_wait_seconds=0,
    workers=0,
    busy_workers=0,
    concurrency=1,
    seconds_per_job=10,
    busy_slots=0,
)
ARRIVALS = Path(__file__).with_name("arrivals.csv")
MEAN_SECONDS = 60.0
SECONDS_AFTER = 900


def desire(**load: Any) -> int:
    """Return the advised number of workers. Every queued job can start, unless `startable` says otherwise."""
    values = {"startable": load.get("queued", 0), **load}
    return advise("image", replace(IDLE, **values)).desired_workers


def test_nothing_needs_no_worker() -> None:
    advice = advise("image", replace(IDLE, workers=7, busy_slots=5))
    assert advice == AutoscaleAdvice("image", 0, 0, 0, 0, "nothing is waiting or running")


def test_a_backlog_is_started_within_half_a_minute() -> None:
    assert desire(queued=60, seconds_per_job=10) == 20
    assert desire(queued=60, seconds_per_job=10, concurrency=4) == 5
    assert desire(queued=60, seconds_per_job=10, running=8, workers=8, busy_workers=8) == 28


def test_one_job_gets_one_worker_however_long_it_takes() -> None:
    assert desire(queued=1, seconds_per_job=3600) == 1
    assert desire(queued=3, seconds_per_job=3600, running=2, workers=2, busy_workers=2) == 5


def test_the_longer_the_oldest_waits_the_more_workers_are_advised() -> None:
    advised = [desire(queued=60, oldest_wait_seconds=waited) for waited in (0, 30, 40, 50, 59)]
    assert advised == [20, 20, 30, 60, 60]


@pytest.mark.parametrize("queue", ["generate_image", "generate_audio"])
def test_more_workers_are_advised_when_a_job_waits_for_a_minute(queue: str) -> None:
    # Even if the jobs that end are quick: their mean says nothing about those that wait.
    load = replace(IDLE, queued=100, startable=100, running=4, workers=4, busy_workers=4, seconds_per_job=0.001)
    assert advise(queue, replace(load, oldest_wait_seconds=59)).desired_workers <= 5
    assert advise(queue, replace(load, workers=8, oldest_wait_seconds=61)).desired_workers == 10
    assert "61 s" in advise(queue, replace(load, workers=8, oldest_wait_seconds=61)).reason


def test_workers_are_doubled_until_a_first_job_ends() -> None:
    unknown = {"queued": 10_000, "seconds_per_job": None, "concurrency": 20}
    assert [desire(**unknown, workers=workers) for workers in (0, 1, 2, 40)] == [1, 2, 4, 80]
    assert desire(queued=10_000, seconds_per_job=None, concurrency=1) == 20
    assert desire(queued=3, seconds_per_job=None, workers=40) == 3


def test_no_more_workers_are_advised_than_the_pool_can_use() -> None:
    load = replace(IDLE, queued=100, startable=3, running=7, workers=7, busy_workers=7)
    advice = advise("image", load)
    assert advice.desired_workers == 10
    assert advice.reason == "waiting jobs that need slots of a pool that has none left: 97 of 100"
    assert desire(queued=100, startable=0, running=7, workers=7, busy_workers=7, oldest_wait_seconds=900) == 7


def test_a_paused_queue_asks_for_no_worker_and_says_so() -> None:
    load = replace(IDLE, queued=500, startable=500, workers=9, busy_slots=9, oldest_wait_seconds=900, is_paused=True)
    advice = advise("image", load)
    assert (advice.desired_workers, advice.queued) == (0, 500)
    assert advice.reason == "the queue is paused: its waiting jobs (500) do not start"
    # What runs already ends, and external work is still polled.
    assert advise("image", replace(load, running=7, busy_workers=3)).desired_workers == 3
    assert advise("image", replace(load, background=1)).desired_workers == 1


def test_workers_that_serve_several_queues_are_counted_once() -> None:
    light = replace(IDLE, queued=1, startable=1, running=1, workers=1, busy_workers=1, seconds_per_job=1, concurrency=8)
    assert advise("image", light).desired_workers == 1
    assert advise("four", combine_loads([light] * 4)).desired_workers == 1
    assert advise("twenty", combine_loads([light] * 20)).desired_workers == 3
    assert advise("none", combine_loads([])).desired_workers == 0


def test_paused_and_limited_queues_add_only_what_they_can_start() -> None:
    waiting = replace(IDLE, queued=100, startable=100, seconds_per_job=30, oldest_wait_seconds=20)
    paused = replace(waiting, is_paused=True, oldest_wait_seconds=900)
    limited = replace(waiting, limit=4, running=1, busy_workers=1)
    combined = combine_loads([waiting, paused, limited])
    assert (combined.queued, combined.startable, combined.running) == (200, 103, 1)
    assert combined.oldest_wait_seconds == 20


def test_no_more_workers_are_advised_than_the_limit_of_the_queue_can_use() -> None:
    advice = advise("image", replace(IDLE, queued=500, startable=500, running=2, busy_workers=2, workers=2, limit=4))
    assert (advice.desired_workers, advice.reason) == (4, "the queue may run at most 4 at once")
    assert desire(queued=1, limit=4, seconds_per_job=30) == 1


def test_workers_that_a_limit_leaves_without_work_are_given_up() -> None:
    busy: dict[str, Any] = {"queued": 500, "running": 50, "busy_workers": 50, "workers": 75, "oldest_wait_seconds": 900}
    assert desire(**busy, startable=0, busy_slots=50) == 50
    assert desire(**busy, limit=50, busy_slots=50) == 50
    # Not at once: a provider that is down for a moment leaves all slots of its pool empty.
    down: dict[str, Any] = {"queued": 500, "startable": 0, "workers": 75, "oldest_wait_seconds": 900}
    assert [desire(**down, busy_slots=slots) for slots in (50, 20, 0)] == [50, 20, 1]


def test_busy_workers_are_never_given_up() -> None:
    assert desire(running=5, workers=11, busy_workers=5, concurrency=20) == 5


def test_external_work_and_webhooks_keep_one_worker() -> None:
    assert desire(background=12, workers=9) == 1


def test_a_short_dip_of_the_load_keeps_the_workers() -> None:
    assert desire(running=60, workers=100, busy_workers=60) == 100
    assert desire(running=40, workers=100, busy_workers=40, busy_slots=60) == 90
    assert desire(running=40, workers=100, busy_workers=40, busy_slots=20) == 40
    assert desire(running=1, workers=1, busy_workers=1, busy_slots=90) == 1


# The simulation


@dataclass
class Worker:
    ready_at: float
    job_ends_at: float | None = None
    drains: bool = False


@dataclass
class Simulation:
    """A queue of jobs and workers of concurrency 1 that take time to start, second by second."""

    max_workers: int
    pool: int = 10_000
    start_seconds: float = 20
    seconds_between_reads: int = 15
    workers: list[Worker] = field(default_factory=list)
    queue: deque[tuple[float, float]] = field(default_factory=deque)
    ended: deque[tuple[float, float]] = field(default_factory=deque)
    waits: list[float] = field(default_factory=list)
    advised: list[int] = field(default_factory=list)
    worker_seconds: int = 0
    busy_seconds: float = 0

    def run(self, arrivals: Iterable[Sequence[float]]) -> None:
        """`arrivals` are the jobs of each second: how many seconds each takes."""
        for now, jobs in enumerate(arrivals):
            self.queue.extend((now, took) for took in jobs)
            self._end_jobs(now)
            self._start_jobs(now)
            self.waits.append(now - self.queue[0][0] if self.queue else 0)
            self.worker_seconds += len(self.workers)
            if now % self.seconds_between_reads == 0:
                self._follow(advise("image", self._measure(now)), now)

    def _end_jobs(self, now: float) -> None:
        for worker in self.workers:
            if worker.job_ends_at is not None and worker.job_ends_at <= now:
                worker.job_ends_at = None
        self.workers = [worker for worker in self.workers if not (worker.drains and worker.job_ends_at is None)]

    def _start_jobs(self, now: float) -> None:
        running = sum(worker.job_ends_at is not None for worker in self.workers)
        for worker in self.workers:
            if worker.ready_at <= now and worker.job_ends_at is None and self.queue and running < self.pool:
                _, took = self.queue.popleft()
                worker.job_ends_at = now + took
                self.ended.append((now + took, took))
                self.busy_seconds += took
                running += 1

    def _measure(self, now: float) -> QueueLoad:
        ended = [took for at, took in self.ended if now - 300 <= at <= now]
        running = sum(worker.job_ends_at is not None for worker in self.workers)
        return QueueLoad(
            queued=len(self.queue),
            startable=min(len(self.queue), self.pool - running),
            running=running,
            background=0,
            oldest_wait_seconds=self.waits[-1],
            workers=sum(worker.ready_at <= now for worker in self.workers),
            busy_workers=running,
            concurrency=1,
            seconds_per_job=sum(ended) / len(ended) if ended else None,
            busy_slots=sum(ended) / 300,
        )

    def _follow(self, advice: AutoscaleAdvice, now: float) -> None:
        busy = sum(worker.job_ends_at is not None for worker in self.workers)
        assert advice.desired_workers >= min(busy, advice.running)
        wanted = min(advice.desired_workers, self.max_workers)
        self.advised.append(wanted)
        active = [worker for worker in self.workers if not worker.drains]
        self.workers += [Worker(now + self.start_seconds) for _ in range(wanted - len(active))]
        # Busy workers drain last, and end their job.
        for worker in sorted(active, key=lambda one: one.job_ends_at is not None)[: max(len(active) - wanted, 0)]:
            worker.drains = True


def read_arrivals(queue: str) -> list[list[float]]:
    """Return the recorded jobs that arrived in each second, and then a while without any.

    The offline providers answer in a moment. The times that jobs took are stretched to the `MEAN_SECONDS` of a service,
    so that as many of them overlap as with one.
    """
    lines = [line for line in ARRIVALS.read_text().splitlines() if not line.startswith("#")]
    jobs = [(float(row["arrived"]), float(row["took"])) for row in csv.DictReader(lines) if row["queue"] == queue]
    stretch = MEAN_SECONDS * len(jobs) / sum(took for _, took in jobs)
    arrivals: list[list[float]] = [[] for _ in range(int(jobs[-1][0]) + 1 + SECONDS_AFTER)]
    for arrived, took in jobs:
        arrivals[int(arrived)].append(took * stretch)
    return arrivals


def arrive_steadily(jobs: int, seconds: int) -> list[list[float]]:
    """Return so many jobs in each second, which take half a minute on average."""
    random = Random(7)
    return [[random.uniform(10, 50) for _ in range(jobs)] for _ in range(seconds)]


def count_turns(advised: list[int]) -> int:
    """Return how often the advice turned by more than a fifth, from rising to falling or back."""
    turns, rising, extreme = 0, True, advised[0]
    for number in advised:
        if (number > extreme) == rising:
            extreme = number
        elif abs(number - extreme) > extreme / 5 + 1:
            turns, rising, extreme = turns + 1, not rising, number
    return turns


def test_recorded_arrivals_wait_at_most_a_minute_with_20_to_200_workers() -> None:
    simulation, arrivals = Simulation(max_workers=200), read_arrivals("generate_image")
    simulation.run(arrivals)
    assert max(simulation.waits) <= MAX_WAIT_SECONDS
    needed = sorted(number for number in simulation.advised if number)
    assert needed[len(needed) // 10] <= 30
    assert needed[-1] >= 180
    assert simulation.advised[-1] == 0, "nothing waits or runs in the end"
    # At most half of the paid time is idle, although the scenes of a story arrive all at once, and the load rises and
    # falls again within ten minutes.
    assert simulation.busy_seconds >= 0.5 * simulation.worker_seconds
    # The advice turns at most once in four minutes.
    assert count_turns(simulation.advised) <= len(arrivals) / 240


def test_a_steady_load_does_not_flap() -> None:
    simulation = Simulation(max_workers=200)
    simulation.run(arrive_steadily(2, 3600))
    settled = simulation.advised[40:]
    assert max(settled) - min(settled) <= 10
    assert count_turns(settled) == 0


def test_workers_stay_within_the_pool_of_their_provider() -> None:
    simulation = Simulation(max_workers=200, pool=50)
    simulation.run(arrive_steadily(5, 1800))
    assert max(simulation.advised) <= 50
    assert simulation.advised[-1] == 50


# The load that is measured


def images(pool: Pool | None = None, slots: int = 1) -> Pipeline:
    pipeline = Pipeline("stories", timeout=minutes(60))

    @pipeline.step(queue="image", pool=pool, slots=slots)
    def image() -> str:
        return "image"

    return pipeline


async def get_advice(sandbox: Sandbox) -> AutoscaleAdvice:
    sandbox.client._core.job_type_reader._last = None
    return await sandbox.client.queues.get_autoscale_advice("image")


async def test_the_advice_follows_the_queue(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(images()) as sandbox:
        await sandbox.client.start_many("stories", [None] * 61)
        async with sandbox.manual_worker() as worker:
            claims = await worker.claim(1)
            await sandbox.clock.advance(timedelta(seconds=20))
            await run_claims(worker, claims)
            advice = await get_advice(sandbox)
            assert (advice.queued, advice.running, advice.oldest_wait_seconds) == (60, 0, 20)
            # 60 jobs of 20 s within 30 s are 40 at once.
            assert advice.desired_workers == 40
            claims = await worker.claim(60)
            advice = await get_advice(sandbox)
            assert (advice.queued, advice.running, advice.oldest_wait_seconds) == (0, 60, 0)
            await run_claims(worker, claims)
        advice = await get_advice(sandbox)
    assert (advice.queued, advice.running, advice.desired_workers) == (0, 0, 0)


async def test_jobs_that_a_pool_cannot_take_need_no_worker(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(images(Pool("imagen", capacity=2))) as sandbox:
        await sandbox.client.start_many("stories", [None] * 500)
        async with sandbox.manual_worker() as worker:
            claims = await worker.claim(10)
            assert len(claims) == 2
            await sandbox.clock.advance(timedelta(minutes=5))
            advice = await get_advice(sandbox)
    assert (advice.queued, advice.running, advice.desired_workers) == (498, 2, 2)
    assert advice.reason.endswith("none left: 498 of 498")


@pytest.mark.parametrize(
    ("pool", "slots", "room"),
    [
        (Pool("imagen", capacity=7), 2, 3),
        (Pool("imagen", capacity=100, rate=0.1, burst=2), 1, 5),  # two at once, and three more within half a minute
    ],
)
async def test_a_pool_has_room_for_as_many_jobs_as_its_slots_and_rate_allow(
    open_sandbox: OpenSandbox, pool: Pool, slots: int, room: int
) -> None:
    async with open_sandbox(images(pool, slots)) as sandbox, sandbox.manual_worker():
        await sandbox.client.start_many("stories", [None] * 500)
        advice = await get_advice(sandbox)
    assert advice.desired_workers == room
    assert advice.reason.endswith(f"none left: {500 - room} of 500")


@pytest.mark.parametrize("closed", ["open_until", "paused_until"])
async def test_a_pool_whose_provider_is_left_alone_has_no_room(open_sandbox: OpenSandbox, closed: str) -> None:
    async with open_sandbox(images(Pool("imagen", capacity=50))) as sandbox, sandbox.manual_worker():
        await sandbox.client.start_many("stories", [None] * 500)
        assert (await get_advice(sandbox)).desired_workers == 20
        await rows(sandbox, f"update retoma.pools set {closed} = retoma.now() + interval '1 minute'")
        assert (await get_advice(sandbox)).desired_workers == 1


async def test_a_job_whose_worker_died_waits_too(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(images()) as sandbox:
        await sandbox.client.start("stories")
        async with killed_worker(sandbox) as dying:
            await dying.claim(1)
            await pass_heartbeat_timeout(sandbox)
        advice = await get_advice(sandbox)
    assert (advice.queued, advice.running, advice.desired_workers) == (1, 0, 1)


async def test_the_oldest_wait_is_that_of_the_tenant_that_waits_longest(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(images()) as sandbox:
        await sandbox.client.start("stories", tenant="patient")
        await sandbox.clock.advance(timedelta(seconds=50))
        await sandbox.client.start("stories", tenant="new")
        assert (await get_advice(sandbox)).oldest_wait_seconds == 50


async def test_a_worker_has_room_for_as_many_jobs_as_each_of_the_present_ones(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(images()) as sandbox, sandbox.manual_worker(), sandbox.manual_worker():
        await sandbox.client.start_many("stories", [None] * 500)
        assert (await get_advice(sandbox)).desired_workers == 20  # the first 20 jobs


async def test_jobs_of_the_last_hour_say_how_long_one_takes(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(images()) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start("stories")
        claims = await worker.claim(1)
        await sandbox.clock.advance(timedelta(seconds=20))
        await run_claims(worker, claims)
        await sandbox.clock.advance(timedelta(minutes=30))
        await sandbox.client.start_many("stories", [None] * 60)
        assert (await get_advice(sandbox)).desired_workers == 40
        await sandbox.clock.advance(timedelta(minutes=31))
        assert "none has ended recently" in (await get_advice(sandbox)).reason


async def test_the_advice_for_a_queue_follows_its_pause_and_limit(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(images()) as sandbox, sandbox.manual_worker():
        await sandbox.client.start_many("stories", [None] * 500)
        await sandbox.client.queues.update("image", concurrency=3)
        assert (await get_advice(sandbox)).reason == "the queue may run at most 3 at once"
        await sandbox.client.queues.pause("image", by="ana")
        advice = await get_advice(sandbox)
        assert (advice.desired_workers, "paused" in advice.reason) == (0, True)


async def test_external_work_is_polled_so_a_worker_stays(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await start_parked(sandbox, pipeline)
        advice = await sandbox.client.queues.get_autoscale_advice("default")
    assert (advice.queued, advice.running, advice.desired_workers) == (0, 0, 1)


async def test_a_due_webhook_is_sent_so_a_worker_stays(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(images()) as sandbox:
        await sandbox.client.start("stories", webhook=Webhook("https://hooks.example.com", events=("run.ended",)))
        async with sandbox.manual_worker() as worker:
            await run_next(worker, "image")
        assert (await get_advice(sandbox)).desired_workers == 1
        await rows(sandbox, "update retoma.deliveries set next_at = next_at + interval '1 hour'")
        assert (await get_advice(sandbox)).desired_workers == 0


async def test_an_unknown_queue_is_not_found(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(images()) as sandbox:
        await sandbox.client.start("stories")
        with pytest.raises(NotFound, match="no step uses queue 'imgae'"):
            await sandbox.client.queues.get_autoscale_advice("imgae")


@pytest.mark.parametrize("table", TABLES)
async def test_measuring_the_load_reads_no_history(open_sandbox: OpenSandbox, table: Table) -> None:
    async with prepare_history(open_sandbox, table) as (sandbox, _, connection):
        await sandbox.client.start("labels")
        async with sandbox.manual_worker() as worker:
            await worker.claim(1)
            await rows(sandbox, "delete from retoma.runs where state = 'pending'")
            async with measure_reads(connection) as read:
                (found,) = await connection.fetch("select * from retoma.queue_load('default', 20000, 20, '30 s')")
    assert (found["queued"], found["running"], found["busy_workers"]) == (1, 1, 1)
    assert read.whole_tables.keys() <= {"steps"}
    for index in ("open_runs", "open_runs_by_watch_at"):
        read.entries.pop(index, None)  # until a vacuum, they have entries of the runs that were deleted a moment ago
    assert sum(read.entries.values()) <= FEW, str(read.entries)
