"""`python -m bench.chaos --seconds 300 --seed 7`: random faults, checked against a log outside the database."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from math import inf
from pathlib import Path

import asyncpg

from bench.chaos import fake_provider, skew
from bench.chaos.application import app
from bench.chaos.callback_sender import CallbackSender
from bench.chaos.checker import (
    FINAL_STATES,
    Findings,
    Store,
    check,
    check_deliveries,
    check_external_work,
    find_wrong_counters,
    find_wrong_slots,
)
from bench.chaos.client import Users
from bench.chaos.execution_log import NAME, read
from bench.chaos.faults import OUTCOME_LOST, FaultInjector
from bench.chaos.operations import Operations, find_excess, find_missing_files
from bench.chaos.operator import Operator
from bench.chaos.processes import FILES_HOME, LogSummary, Pooler, Postgres, WorkerProcess, read_logs, until
from bench.chaos.proxy import Proxy
from bench.chaos.receiver import Deliveries, Receiver
from bench.chaos.reviewer import Reviewer
from retoma.client import Client
from retoma.files import FileSettings, create_file_store
from retoma.outgoing import LOOPBACK, Guard
from retoma.settings import Settings
from retoma.store.database import Database

WORKERS = 3
USERS = 16
RECENT = timedelta(minutes=1)  # runs whose files are checked during the run; all are checked at the end
LONGEST_STALL = 90.0  # in seconds, while what is left is drained
FEWEST_RUNS_PER_SECOND = 2
SHORT, LONG = (
    25.0,
    120.0,
)  # seconds after which every fault, and after which a rejected late write, must have occurred
HOUR = 3600
_LEFT = (
    "select (select count(*) from retoma.runs where ended_at is null)"
    " + (select count(*) from retoma.deliveries where ended_at is null)"
    " + (select count(*) from retoma.external_work where ended_at is null)"
    " + (select count(*) from retoma.effects where next_at is not null)"
)
REQUIRED_COUNTS = (
    "child runs",
    "external work submitted",
    "calls left behind that were cancelled",
    "deliveries delivered",
    "callbacks accepted",
    "actions repeated with their keys",
    "runs removed by retention",
    "files deleted",
    "starts refused because their run was removed",
    "scheduled runs",
    "times that the budget was raised",
)
REQUIRED_FAULTS = (
    "worker killed (SIGKILL)",
    "PostgreSQL killed (SIGKILL)",
    OUTCOME_LOST,
)
# The minimum number of faults in ten minutes, by the start of their names.
IN_TEN_MINUTES = {
    "worker killed": 20,
    "worker paused beyond its lease": 8,
    "worker restarted": 10,
    "PostgreSQL killed": 8,
    "all connections": 8,
    "response lost after commit": 20,
    "request lost before the server": 8,
    "black hole": 3,
    "connection frozen without a close": 3,
    "50 ms delay": 3,
    "four reapers at once": 5,
    "notifications dropped": 3,
    "pool capacity changed": 8,
    "workers with a clock": 10 if skew.COMPILER else 0,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to inject faults (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="the same seed injects the same faults")
    parser.add_argument("--users", type=int, default=USERS, help=f"who start runs at the same time (default: {USERS})")
    parser.add_argument("--keep", action="store_true", help="keep the execution log, the logs and the database")
    parser.add_argument("--pooler", action="store_true", help="put a transaction pooler in front of the server")
    chosen = parser.parse_args()
    seed = secrets.randbelow(100_000) if chosen.seed is None else chosen.seed
    logging.basicConfig(level=logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="retoma-chaos-"))
    folder.chmod(0o755)  # the server may run as another user
    tempfile.tempdir = str(folder)  # where the workers write the execution log
    try:
        findings = asyncio.run(Run(folder, seed, chosen.seconds, chosen.users, pooler=chosen.pooler).run())
    finally:
        if chosen.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print_findings(findings, seed, chosen.seconds, chosen.users)
    return 0 if findings.is_good else 1


class Run:
    """One chaos run, from the first process to the printed results."""

    def __init__(self, folder: Path, seed: int, seconds: float, users: int, *, pooler: bool) -> None:
        self._folder = folder
        self._seed = seed
        self._seconds = seconds
        self._users = users
        self._pooler = pooler
        self._postgres = Postgres(folder / "home")
        self._files = create_file_store(FileSettings(home=folder / FILES_HOME))
        self._looked_at = 0
        self._wrong_counters: list[str] = []
        self._wrong_slots: list[str] = []
        self._excess: list[str] = []
        self._missing_files: list[str] = []
        self._undrained = 0

    async def run(self) -> Findings:
        await asyncio.to_thread(self._postgres.start)
        try:
            async with AsyncExitStack() as stack:
                return await self._with_server(stack)
        finally:
            await asyncio.to_thread(self._postgres.stop)

    async def _with_server(self, stack: AsyncExitStack) -> Findings:
        direct = await stack.enter_async_context(await Database.open(Settings(database_url=self._postgres.url)))
        await direct.upgrade()
        behind = self._postgres.port
        if self._pooler:
            behind = (await stack.enter_async_context(Pooler(self._folder, self._postgres))).port
        proxy = await stack.enter_async_context(Proxy(behind))
        url = self._postgres.url_by(proxy.port)
        database = await stack.enter_async_context(await Database.open(Settings(database_url=url)))
        client = Client(app, database, Guard.from_hosts(LOOPBACK))
        stack.push_async_callback(client.close)
        receiver = await stack.enter_async_context(Receiver(random.Random(self._seed + 1)))
        postman, editor = CallbackSender(client, self._folder), Reviewer(client)
        workers = self._workers(url)
        keeping = [asyncio.ensure_future(worker.keep()) for worker in workers]
        trouble = FaultInjector(random.Random(self._seed), proxy, self._postgres, workers, database)
        users = Users(client, receiver, self._seed, self._users)
        operator = Operator(client, users.log, self._seed + 2)
        operations = Operations(client, database, self._files, users.log, self._seed + 3)
        operating = asyncio.ensure_future(operations.run())
        walking = asyncio.gather(postman.run(), editor.run(), operator.run())
        try:
            await until(lambda: all(worker.is_ready for worker in workers), time.monotonic() + 30)
            await self._inject_faults(trouble, users)
            operator.only_repeats = True
            operating.cancel()
            await self._drain(direct, trouble, operations)
        finally:
            for task in (walking, operating):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await asyncio.gather(*(worker.close(task) for worker, task in zip(workers, keeping, strict=True)))
        findings = await self._check_results(direct, users, trouble, receiver, postman)
        await operations.check(findings, direct, read(self._folder / NAME))
        findings.expect("decisions answered inconsistently", editor.contradictions)
        findings.figures |= {"review decisions": editor.decided, "late decisions": editor.too_late}
        findings.expect("repeated actions with another answer", operator.contradictions)
        findings.figures |= {"actions": len(operator.acts), "actions repeated with their keys": operator.repeated}
        self._check_processes(findings, trouble, workers, proxy)
        return findings

    def _workers(self, url: str) -> list[WorkerProcess]:
        library = skew.library(self._folder)
        return [
            WorkerProcess(number, self._folder, url, library, [0, HOUR, -HOUR][number:] + [0, HOUR, -HOUR][:number])
            for number in range(WORKERS)
        ]

    async def _inject_faults(self, trouble: FaultInjector, users: Users) -> None:
        using = asyncio.ensure_future(users.run())
        looking = asyncio.ensure_future(self._watch_counters())
        making = asyncio.ensure_future(trouble.run(time.monotonic() + self._seconds))
        await asyncio.wait([using, making], return_when=asyncio.FIRST_COMPLETED)
        users.stop()
        looking.cancel()
        async with asyncio.timeout(LONGEST_STALL):
            await asyncio.gather(making, using)

    async def _watch_counters(self) -> None:
        while True:
            await asyncio.sleep(2)
            try:
                connection = await asyncpg.connect(self._postgres.url, timeout=5)
            except (OSError, asyncpg.PostgresError):
                continue
            try:
                looked_at, wrong = await find_wrong_counters(connection)
                self._looked_at += looked_at
                self._wrong_counters += wrong
                self._wrong_slots += await find_wrong_slots(connection)
                self._excess += await find_excess(connection)
                self._missing_files += await find_missing_files(connection, self._files, newest=RECENT)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                pass
            finally:
                connection.terminate()

    async def _drain(self, direct: Database, trouble: FaultInjector, operations: Operations) -> None:
        await asyncio.to_thread(self._postgres.revive)
        await trouble.finish()
        await operations.finish()
        deadline, least = time.monotonic() + LONGEST_STALL, inf
        while time.monotonic() < deadline:
            async with direct.connection() as connection:
                self._undrained = await connection.fetchval(_LEFT)
            if self._undrained == 0:
                return
            if self._undrained < least:  # jobs that wait for slots of a small pool take their time
                deadline, least = time.monotonic() + LONGEST_STALL, self._undrained
            await asyncio.sleep(0.2)

    async def _check_results(
        self, direct: Database, users: Users, trouble: FaultInjector, receiver: Receiver, postman: CallbackSender
    ) -> Findings:
        async with direct.connection() as connection:
            store = await Store.read(connection)
            at_rest = await find_wrong_slots(connection)
            deliveries = await Deliveries.read(connection)
        findings = check(store, users.log, read(self._folder / NAME), trouble.kills, trouble.deafness)
        works = fake_provider.list_work(self._folder)
        check_external_work(findings, works, store, at_rest=at_rest, deafness=trouble.deafness)
        check_deliveries(findings, deliveries, users.log, receiver)
        findings.expect("callbacks rejected as unknown", postman.contradictions)
        findings.figures |= {"callbacks accepted": postman.delivered, "callbacks repeated": postman.repeated}
        return findings

    def _check_processes(
        self, findings: Findings, trouble: FaultInjector, workers: list[WorkerProcess], proxy: Proxy
    ) -> None:
        said = read_logs(self._folder)
        findings.expect("inconsistent slots during the run", self._wrong_slots)
        findings.expect("inconsistent counters during the run", self._wrong_counters)
        findings.expect("budgets that were exceeded", self._excess)
        findings.expect("runs that named a missing file", self._missing_files)
        findings.expect("workers that exited unexpectedly", _find_exited_workers(workers))
        findings.expect("unhandled errors", said.errors)
        trouble.hits["workers with a clock an hour off"] += sum(worker.skewed for worker in workers)
        findings.expect("insufficient coverage", _check_coverage(findings, trouble, said, self._seconds))
        findings.figures |= {
            "open runs whose counters were checked": self._looked_at,
            "late writes rejected": said.refused,
            "workers started without a database": said.too_early,
            "notifications dropped": proxy.dropped_notifications,
            "log events of workers": dict(said.events.most_common(12)),
            "faults injected": dict(sorted(trouble.hits.items())),
        }


def _check_coverage(findings: Findings, trouble: FaultInjector, said: LogSummary, seconds: float) -> Iterator[str]:
    """Yield what is missing: a run without enough work and faults proves nothing."""
    ended = sum(count for state, count in findings.figures["runs by state"].items() if state in FINAL_STATES)
    if ended < seconds * FEWEST_RUNS_PER_SECOND:
        yield f"only {ended} runs ended"
    if seconds < SHORT:
        return
    yield from (f"no {fault}" for fault in REQUIRED_FAULTS if not trouble.hits[fault])
    yield from (f"no {figure}" for figure in REQUIRED_COUNTS if not findings.figures[figure])
    if not findings.figures["jobs reclaimed from dead workers"]:
        yield "no job was reclaimed from a dead worker"
    if seconds < LONG:
        return
    if not said.refused:
        yield "no late write was rejected"
    for kind, wanted in IN_TEN_MINUTES.items():
        hits = sum(count for name, count in trouble.hits.items() if name.startswith(kind))
        if hits < wanted * seconds / 600:
            yield f"only {hits} times: {kind}"


def _find_exited_workers(workers: list[WorkerProcess]) -> list[str]:
    return [
        f"worker {worker.number}, process {ended.pid}, with {ended.code}"
        for worker in workers
        for ended in worker.exits
        if not ended.expected and ended.was_ready
    ]


def print_findings(findings: Findings, seed: int, seconds: float, users: int) -> None:
    print(f"chaos run of {seconds:g} s with seed {seed} and {users} users")
    for what, figure in findings.figures.items():
        if isinstance(figure, dict):
            print(f"  {what}:")
            for name, count in figure.items():
                print(f"    {name:<60} {count:>8}")
        else:
            print(f"  {what:<62} {figure:>8}")
    for heading, sentences in findings.wrong.items():
        print(f"  {heading:<62} {len(sentences):>8}")
        for sentence in sentences[:10]:
            print(f"      {sentence}")
    print("passed" if findings.is_good else "FAILED")


if __name__ == "__main__":
    sys.exit(main())
