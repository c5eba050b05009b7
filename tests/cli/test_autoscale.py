"""`retoma worker --autoscale`: processes of this machine that follow the advice."""

from __future__ import annotations

import asyncio
import os
import signal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from retoma import Settings, blocking
from retoma.cli import machine
from retoma.cli.autoscale import Damper, Limits, WorkerGroup, _adjust
from retoma.cli.machine import Machine, limit_concurrency, limit_workers
from retoma.cli.worker_process import SupervisedWorker
from retoma.records import AutoscaleAdvice
from tests.cli.terminal import Terminal, wait_until

GIB = 2**30
# The machine that runs the tests may be busy.
ANY_MACHINE = ("--cpus-per-worker", "0", "--memory-per-worker", "1")


def test_workers_are_started_for_a_backlog_and_drained_after_it(terminal: Terminal) -> None:
    run = terminal.start("-i", "title=slow", "-i", "scenes=4")
    options = ("-c", "1", "--autoscale", "--max-workers", "3", "--cooldown", "0", *ANY_MACHINE)
    with terminal.process("worker", "film.py", *options) as supervisor:
        began = terminal.wait_for_images(3)
        assert len({pid for pid, _ in began}) == 3, "each worker runs one job at a time"
        assert str(supervisor.pid) not in {pid for pid, _ in began}
        (terminal.folder / "go").touch()
        wait_until(lambda: terminal.state(run) == "completed")
        wait_until(lambda: terminal.json("workers") == [])
        again = terminal.start("-i", "scenes=1")
        wait_until(lambda: terminal.state(again) == "completed")
        os.kill(supervisor.pid, signal.SIGTERM)
        assert supervisor.wait_for_exit() == 0
        assert "workers_scaled" in supervisor.wait_for_output("0 -> 1 workers: queues default, image")
    assert terminal.json("workers") == []


def test_a_stopped_supervisor_drains_its_workers(terminal: Terminal) -> None:
    run = terminal.start("-i", "title=slow", "-i", "scenes=1")
    with terminal.process("worker", "film.py", "--autoscale", "--min-workers", "2", *ANY_MACHINE) as supervisor:
        terminal.wait_for_images()
        os.kill(supervisor.pid, signal.SIGTERM)
        supervisor.wait_for_output("worker_stopping")
        (terminal.folder / "go").touch()
        assert supervisor.wait_for_exit() == 0
    assert terminal.json("runs", "show", run)["steps"][1]["jobs"] == {"succeeded": 1}
    assert terminal.json("workers") == []


def test_a_killed_worker_is_replaced(terminal: Terminal) -> None:
    with terminal.process("worker", "film.py", "--autoscale", "--min-workers", "1", *ANY_MACHINE) as supervisor:
        terminal.start("-i", "title=slow", "-i", "scenes=1")
        ((pid, _),) = terminal.wait_for_images()
        os.kill(int(pid), signal.SIGKILL)
        supervisor.wait_for_output("worker_exited")
        supervisor.wait_for_output("worker_ready")
        (terminal.folder / "go").touch()
        assert {began for began, _ in terminal.wait_for_images(2)} - {pid}
        os.kill(supervisor.pid, signal.SIGTERM)
        assert supervisor.wait_for_exit() == 0


@pytest.mark.parametrize(
    ("load", "memory", "allowed", "limit"),
    [
        (1.0, 64 * GIB, 4, "8 CPUs, 2 per worker"),
        (1.0, 5 * GIB, 3, "5120 MiB of memory are available"),
        (8.0, 64 * GIB, 1, "all CPUs are in use (load 8.0)"),
        (1.0, GIB, 1, "1024 MiB of memory are available"),
        (None, None, 4, "8 CPUs, 2 per worker"),
    ],
)
def test_cpu_and_memory_limit_the_workers(load: float | None, memory: int | None, allowed: int, limit: str) -> None:
    found = limit_workers(10, 1, Machine(8, load, memory), cpus_per_worker=2, memory_per_worker=2 * GIB)
    assert found == (allowed, limit)


def test_a_machine_with_room_runs_all_workers() -> None:
    idle = Machine(cpus=8, load=0.5, available_memory=64 * GIB)
    assert limit_workers(3, 0, idle, cpus_per_worker=2, memory_per_worker=2 * GIB) == (3, None)


def test_a_busy_machine_still_runs_one_worker() -> None:
    busy = Machine(cpus=2, load=9.0, available_memory=0)
    allowed, _ = limit_workers(5, 0, busy, cpus_per_worker=4, memory_per_worker=GIB)
    assert allowed == 1
    assert limit_workers(0, 0, busy, cpus_per_worker=4, memory_per_worker=GIB) == (0, None)


@pytest.mark.parametrize(
    ("cpus_per_job", "memory_per_job", "jobs"),
    [(0, 0, 20), (2, 0, 4), (0, 3 * GIB, 5), (2, 3 * GIB, 4), (2, 8 * GIB, 2), (9, 0, 1), (0, 99 * GIB, 1)],
)
def test_a_worker_runs_as_many_jobs_as_cpu_and_memory_have_room_for(
    cpus_per_job: float, memory_per_job: int, jobs: int
) -> None:
    found = Machine(cpus=8, load=7.0, available_memory=16 * GIB)
    assert limit_concurrency(20, found, cpus_per_job=cpus_per_job, memory_per_job=memory_per_job) == jobs


def test_the_advice_follows_from_what_one_job_needs(terminal: Terminal) -> None:
    """Each worker has room for one job, so five jobs need five workers."""
    terminal.start("-i", "title=slow", "-i", "scenes=5")
    with terminal.process("worker", "film.py", "-c", "20", "--cpus-per-job", "10000"):
        terminal.wait_for_images(1)
        (worker,) = terminal.json("workers")
        assert worker["concurrency"] == 1
        with blocking.connect(None, Settings(database_url=terminal.variables["RETOMA_DATABASE_URL"])) as client:
            assert client.queues.get_autoscale_advice("image").desired_workers == 5
        (terminal.folder / "go").touch()


def test_what_one_job_needs_is_refused_with_autoscale(terminal: Terminal) -> None:
    ended = terminal.run("worker", "film.py", "--autoscale", "--cpus-per-job", "2")
    assert ended.returncode == 2
    assert "--cpus-per-worker" in ended.stderr


async def test_no_worker_is_started_for_which_the_machine_has_no_memory() -> None:
    async def get_autoscale_advice(*queues: str) -> AutoscaleAdvice:
        return AutoscaleAdvice("image", 9, 0, 0, 9, "9 jobs are waiting")

    client: Any = SimpleNamespace(queues=SimpleNamespace(get_autoscale_advice=get_autoscale_advice))
    group = WorkerGroup("w", lambda name: cast("SupervisedWorker", IdleWorker()))
    too_large = Limits(min_workers=0, max_workers=None, cpus_per_worker=0, memory_per_worker=2**60, cooldown=0)
    await _adjust(client, ["image"], group, too_large, Damper(0))
    assert group.size == 1
    group.stop()
    await group.wait()


def test_work_that_needs_no_cpu_is_not_limited_by_it() -> None:
    busy = Machine(cpus=2, load=9.0, available_memory=64 * GIB)
    assert limit_workers(20, 1, busy, cpus_per_worker=0, memory_per_worker=GIB) == (20, None)


def test_this_machine_tells_its_cpus_and_memory() -> None:
    found = machine.read_machine()
    assert 0 < found.cpus <= (os.cpu_count() or 1)
    assert found.load is not None
    assert found.available_memory is not None
    assert found.available_memory > 0


class IdleWorker:
    """Supervises nothing until it is stopped."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    async def supervise(self) -> None:
        await self.stopped.wait()

    def stop(self) -> None:
        self.stopped.set()


async def test_a_worker_that_runs_jobs_is_not_drained() -> None:
    workers: dict[str, IdleWorker] = {}

    def make_worker(name: str) -> Any:
        return workers.setdefault(name, IdleWorker())

    group = WorkerGroup("w", make_worker)
    group.start(4)
    group.drain(2, busy={"w-4"})
    assert [name for name, worker in workers.items() if worker.stopped.is_set()] == ["w-2", "w-3"]
    group.drain(4, busy={"w-1", "w-4"})
    assert group.size == 2
    group.stop()
    await group.wait()


def test_fewer_workers_are_followed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("retoma.cli.autoscale.time", SimpleNamespace(monotonic=lambda: now))
    damper = Damper(30)
    assert damper.follow(5) == 5
    now = 120
    assert damper.follow(2) == 5
    assert damper.follow(7) == 7
    now = 140
    assert damper.follow(2) == 7
    now = 151
    assert damper.follow(2) == 2
