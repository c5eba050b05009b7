"""The environment of the fault tests: a database behind a proxy, worker processes, and an execution log outside it."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from bench.chaos import fake_provider
from bench.chaos.checker import Findings, Store, check, check_external_work, find_wrong_slots
from bench.chaos.client import Acknowledged, UserLog
from bench.chaos.execution_log import NAME, Line, read
from bench.chaos.proxy import Proxy
from bench.chaos.reviewer import Reviewer
from retoma import logs
from retoma.cli import worker as cli
from retoma.client import Client
from retoma.define.webhook import Webhook
from retoma.outgoing import LOOPBACK, Guard
from retoma.settings import Settings
from retoma.store import workers
from retoma.store.database import Database
from retoma.worker import external_work_poller
from retoma.worker.worker import Worker
from tests.environment import clear_project_variables
from tests.faults.application import app, release_file
from tests.wait_timeout import WAIT_TIMEOUT

LONG_TIMEOUT = 20.0  # seconds of silence or draining, of which no test waits for the end
HEARTBEAT_TIMEOUT = 0.6  # of frozen and dead workers; running ones may be slow
LEASE = timedelta(seconds=0.5)  # of a poll of external work
OUTGOING_SETTINGS: dict[str, Any] = {"public_url": "http://127.0.0.1:9", "allow_hosts": "127.0.0.1"}
# Forked from a process that has imported everything, so that a worker is there in a moment.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.faults.testbed"])


async def wait_until(holds: Callable[[], Any], what: str) -> Any:
    """Return the result of `holds` once it is truthy."""
    deadline = time.monotonic() + WAIT_TIMEOUT
    while True:
        found = holds()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {WAIT_TIMEOUT:g} s: {what}"
        await asyncio.sleep(0.01)


def worker_process(url: str, folder: str, log: str, settings: dict[str, Any], concurrency: int) -> None:
    """The main function of a worker process."""
    clear_project_variables()
    os.environ["TMPDIR"], tempfile.tempdir = folder, None
    os.environ |= {"RETOMA_LOG": "json", "CHAOS_HURRY": "1"}
    external_work_poller.LEASE = LEASE
    with Path(log).open("ab", buffering=0) as lines:
        os.dup2(lines.fileno(), 1)
        os.dup2(lines.fileno(), 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    logs.configure_logging()
    work = cli._run_worker(app, Settings(database_url=url, **settings), [], concurrency, None, watches_stdin=False)
    cli.run_process(work)


class WorkerProcess:
    """A worker in its own process."""

    def __init__(self, process: ForkServerProcess, log: Path) -> None:
        self._process = process
        self.log = log
        process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    @property
    def is_running(self) -> bool:
        return self._process.exitcode is None

    def signal(self, number: signal.Signals) -> None:
        if self.is_running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def list_log_events(self, event: str) -> list[dict[str, Any]]:
        """Return the lines of its log with this event."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        events = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [each for each in events if each["event"] == event]

    @property
    def is_ready(self) -> bool:
        assert self.is_running, self.log.read_text()
        return bool(self.list_log_events("worker_ready"))

    async def end(self) -> None:
        self.signal(signal.SIGKILL)
        await asyncio.to_thread(self._process.join)


class FaultEnvironment:
    def __init__(self, database: Database, proxy: Proxy, through: Database, folder: Path) -> None:
        self.database = database
        self.proxy = proxy
        self.through = through  # the same database, by way of the proxy
        self.folder = folder
        self.client = Client(app, database, Guard.from_hosts(LOOPBACK))
        self.user_log = UserLog()
        self._workers: list[WorkerProcess] = []

    def worker(
        self,
        *,
        by_proxy: bool = True,
        concurrency: int = 4,
        heartbeat_timeout: float = LONG_TIMEOUT,
        drain: float = 5.0,
    ) -> WorkerProcess:
        url = (self.through if by_proxy else self.database).url
        log = self.folder / f"worker-{len(self._workers)}.log"
        settings = {"heartbeat_timeout_seconds": heartbeat_timeout, "drain_seconds": drain, **OUTGOING_SETTINGS}
        arguments = (url, str(self.folder), str(log), settings, concurrency)
        worker = WorkerProcess(PROCESSES.Process(target=worker_process, args=arguments), log)
        self._workers.append(worker)
        return worker

    @asynccontextmanager
    async def other_worker(self) -> AsyncIterator[Worker]:
        """A worker in this process, past the proxy."""
        worker = Worker(
            app, self.database, Settings(heartbeat_timeout_seconds=LONG_TIMEOUT, **OUTGOING_SETTINGS), concurrency=4
        )
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await asyncio.wait_for(task, WAIT_TIMEOUT)

    @asynccontextmanager
    async def run_reviewer(self) -> AsyncIterator[None]:
        """Decide every review that waits for people."""
        walking = asyncio.create_task(Reviewer(self.client).run())
        try:
            yield
        finally:
            walking.cancel()
            with suppress(asyncio.CancelledError):
                await walking

    async def start(
        self, pipeline: str, nonce: str, *, size: int = 0, client: Client | None = None, webhook: Webhook | None = None
    ) -> UUID:
        body = {"nonce": nonce, "size": size}
        started = await (client or self.client).start(pipeline, body, key=nonce, webhook=webhook)
        self.user_log.acknowledged[nonce] = Acknowledged(started.id, pipeline, nonce, size)
        return started.id

    def release(self, nonce: str) -> None:
        release_file(nonce).touch()

    async def is_over(self, run: UUID) -> bool:
        return (await self.client.runs.get(run)).ended_at is not None

    async def wait_for_end(self, *runs: UUID) -> list[str]:
        """Their states, once they are over."""
        return [str((await self.client.wait(run, timedelta(seconds=WAIT_TIMEOUT))).state) for run in runs]

    async def declare_all_dead(self) -> None:
        """Declare dead all workers that there are, also one whose last call is still under way."""

        async def none_is_left() -> bool:
            async with self.database.connection() as connection:
                await connection.execute(
                    "select retoma.deregister_worker(id, 'died', 'WORKER_DIED') "
                    "from retoma.workers where ended_at is null"
                )
            return not await workers.list_alive(self.database)

        await wait_until(none_is_left, "all are declared dead")

    async def reap_concurrently(self) -> list[tuple[int, int]]:
        """Workers that were silent for a while and are now dead, by the first of many sweepers at once."""
        silence = timedelta(seconds=HEARTBEAT_TIMEOUT)
        found = await asyncio.gather(*(workers.reap_dead_workers(self.database, silence) for _ in range(8)))
        return [dead for one in found for dead in one]

    async def end_leases(self) -> None:
        """Of deliveries that are under way, as if their senders had been silent for long."""
        async with self.database.connection() as connection:
            await connection.execute("update retoma.deliveries set next_at = retoma.now() where state = 'sending'")

    @property
    def lines(self) -> list[Line]:
        return read(self.folder / NAME)

    def list_starts(self, run: UUID) -> list[Line]:
        return [line for line in self.lines if line.key[0] == run and line.what == "began"]

    async def check_findings(self) -> Findings:
        async with self.database.connection() as connection:
            store = await Store.read(connection)
            slots = await find_wrong_slots(connection)
        findings = check(store, self.user_log, self.lines)
        check_external_work(findings, fake_provider.list_work(self.folder), store, at_rest=slots)
        return findings

    async def check(self) -> None:
        """All that must always be true, of all runs so far."""
        findings = await self.check_findings()
        assert findings.is_good, {heading: expected for heading, expected in findings.wrong.items() if expected}

    async def close(self) -> None:
        for worker in self._workers:
            await worker.end()
        await self.client.close()


def get_server_address(database: Database) -> int | Path:
    """Where the server of this database listens, for a proxy to pass on to."""
    address = urlsplit(database.url)
    if folder := parse_qs(address.query).get("host"):
        return Path(folder[0]) / ".s.PGSQL.5432"
    return address.port or 5432


def url_by(database: Database, port: int) -> str:
    address = urlsplit(database.url)
    user, _, _ = address.netloc.rpartition("@")
    return address._replace(netloc=f"{user}@127.0.0.1:{port}", query="sslmode=disable").geturl()


@asynccontextmanager
async def open_testbed(database: Database, folder: Path) -> AsyncIterator[FaultEnvironment]:
    async with (
        Proxy(get_server_address(database)) as proxy,
        await Database.open(Settings(database_url=url_by(database, proxy.port))) as through,
    ):
        testbed = FaultEnvironment(database, proxy, through, folder)
        try:
            yield testbed
        finally:
            await testbed.close()
