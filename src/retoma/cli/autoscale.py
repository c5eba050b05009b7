"""`retoma worker --autoscale`: start and drain worker processes of this machine, as their queues need them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from retoma.cli import machine, process_exit
from retoma.cli.command_setup import open_client
from retoma.cli.worker_process import SupervisedWorker
from retoma.client import Client
from retoma.errors import DatabaseUnavailable, NotFound
from retoma.logs import get_logger
from retoma.settings import Settings

log = get_logger(__name__)
SECONDS_BETWEEN_READS = 5.0


@dataclass(frozen=True)
class Limits:
    """Bounds of the number of processes. `memory_per_worker` is in bytes. The number falls only after the advice was
    lower for `cooldown` seconds."""

    min_workers: int
    max_workers: int | None
    cpus_per_worker: float
    memory_per_worker: int
    cooldown: float


async def run_autoscaled(
    settings: Settings, queues: Sequence[str], arguments: Sequence[str], name: str, limits: Limits
) -> None:
    """Follow the advice for these queues until a signal, then drain all processes. `arguments` are of each worker."""

    def make_worker(name: str) -> SupervisedWorker:
        return SupervisedWorker([*arguments, "--name", name], {}, _log_exit)

    group = WorkerGroup(name, make_worker)
    stopping = asyncio.Event()

    def stop(_: int) -> None:
        stopping.set()
        group.stop()

    process_exit.on_stop_signal(stop)
    async with open_client(settings) as client:
        await _follow(client, queues, group, limits, stopping)
    await group.wait()


class WorkerGroup:
    """The worker processes of this machine. One that exits is restarted, unless it is being drained."""

    def __init__(self, name: str, make_worker: Callable[[str], SupervisedWorker]) -> None:
        self._name = name
        self._make_worker = make_worker
        self._started = 0
        self._is_stopping = False
        self._active: dict[str, SupervisedWorker] = {}
        self._supervision: dict[SupervisedWorker, asyncio.Task[None]] = {}

    @property
    def size(self) -> int:
        """Return the number of processes, without those that drain."""
        return len(self._active)

    def start(self, count: int) -> None:
        for _ in range(0 if self._is_stopping else count):
            self._started += 1
            name = f"{self._name}-{self._started}"
            worker = self._active[name] = self._make_worker(name)
            self._supervision[worker] = asyncio.create_task(self._supervise(name, worker))

    def drain(self, count: int, busy: set[str]) -> None:
        """Drain up to `count` processes whose names are not among the busy ones, the newest first."""
        for name in [name for name in reversed(self._active) if name not in busy][:count]:
            self._active.pop(name).stop()

    def stop(self) -> None:
        """Drain all processes. A second call makes them release their jobs at once."""
        self._is_stopping = True
        self._active.clear()
        for worker in self._supervision:
            worker.stop()

    async def wait(self) -> None:
        """Wait until all processes have exited."""
        while self._supervision:
            await asyncio.wait(self._supervision.values())

    async def _supervise(self, name: str, worker: SupervisedWorker) -> None:
        try:
            await worker.supervise()
        finally:
            self._active.pop(name, None)  # it could not be started: the next advice starts another
            del self._supervision[worker]


class Damper:
    """Follows a rising number at once, and a falling one after it has been lower for a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._recent: deque[tuple[float, int]] = deque()

    def follow(self, wanted: int) -> int:
        now = time.monotonic()
        self._recent.append((now, wanted))
        while self._recent[0][0] < now - self._seconds:
            self._recent.popleft()
        return max(number for _, number in self._recent)


async def _follow(
    client: Client, queues: Sequence[str], group: WorkerGroup, limits: Limits, stopping: asyncio.Event
) -> None:
    damper = Damper(limits.cooldown)
    while not stopping.is_set():
        try:
            await _adjust(client, queues, group, limits, damper)
        except DatabaseUnavailable as error:
            log.warning(
                "autoscaling_delayed",
                message="the number of workers stays as it is while the database is unreachable",
                workers=group.size,
                error=error,
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS_BETWEEN_READS):
                await stopping.wait()


async def _adjust(client: Client, queues: Sequence[str], group: WorkerGroup, limits: Limits, damper: Damper) -> None:
    advised, reason = await _read_advice(client, queues)
    wanted = max(damper.follow(advised), limits.min_workers)
    if limits.max_workers is not None and wanted > limits.max_workers:
        wanted, reason = limits.max_workers, f"at most {limits.max_workers} workers are allowed"
    before = group.size
    if wanted > before:
        allowed, limit = machine.limit_workers(
            wanted,
            before,
            machine.read_machine(),
            cpus_per_worker=limits.cpus_per_worker,
            memory_per_worker=limits.memory_per_worker,
        )
        group.start(allowed - before)
        reason = limit or reason
    elif wanted < before:
        group.drain(before - wanted, await client.workers.list_busy())
    if group.size != before:
        log.info("workers_scaled", message=f"{before} -> {group.size} workers: {reason}", workers=group.size)


async def _read_advice(client: Client, queues: Sequence[str]) -> tuple[int, str]:
    """Return how many workers that serve all these queues are needed, and why."""
    try:
        advice = await client.queues.get_autoscale_advice(*queues)
    except NotFound:  # the pipelines are stored when they are first used
        return 0, "no run was started yet"
    return advice.desired_workers, f"{'queue' if len(queues) == 1 else 'queues'} {advice.queue}: {advice.reason}"


async def _log_exit(pid: int, code: int) -> None:
    log.warning("worker_exited", message="a worker exited; starting another", pid=pid, code=code)
