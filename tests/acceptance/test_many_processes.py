"""Two servers behind a proxy and three workers, all real processes; one of each is killed while runs are started."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from itertools import count, cycle
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2

from retoma.client import Client
from retoma.records import Scope
from retoma.store.database import Database
from retoma.testing import fresh_database
from tests.cli.terminal import FILM, Process, Terminal, wait_until

STARTERS = 8
STARTS_BEFORE, STARTS_AFTER = 40, 80
WAIT_TIMEOUT = 120.0


class Proxy:
    """Passes each connection on to the next server that takes it."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = cycle(ports)
        self._tries = len(ports)
        self.refused = 0
        self.port = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            server.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(self._tries):
            try:
                back, forth = await asyncio.open_connection("127.0.0.1", next(self._ports))
            except OSError:
                self.refused += 1
                continue
            await asyncio.gather(_pump(reader, forth), _pump(back, writer))
            return
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


class Load:
    """Starts runs through the proxy, each again with its key until it is acknowledged."""

    def __init__(self, address: str, key: str) -> None:
        self.acknowledged: dict[str, set[UUID]] = {}
        self.troubles: Counter[str] = Counter()
        self._address = address
        self._key = key
        self._numbers = count()

    async def start(self, starts: int) -> None:
        """So many more, by several callers at a time."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            await asyncio.gather(*(self._call(starts // STARTERS) for _ in range(STARTERS)))

    async def _call(self, times: int) -> None:
        for _ in range(times):
            await self.start_one(f"order-{next(self._numbers)}", {"title": "quick", "scenes": 2})

    async def start_one(self, name: str, inputs: dict[str, Any]) -> UUID:
        headers = {"X-API-Key": self._key, "Idempotency-Key": name}
        while True:
            try:
                # A connection each, so that the proxy shares them out.
                async with httpx2.AsyncClient(timeout=10) as http:
                    answer = await http.post(
                        f"{self._address}/api/v1/runs", json={"pipeline": "film", "input": inputs}, headers=headers
                    )
            except httpx2.HTTPError as error:
                self.troubles[type(error).__name__] += 1
                continue
            assert answer.status_code in (200, 202, 503), answer.text
            if answer.status_code != 503:
                run = UUID(answer.json()["id"])
                self.acknowledged.setdefault(name, set()).add(run)
                return run


@contextmanager
def processes(terminal: Terminal) -> Iterator[tuple[list[Process], list[Process]]]:
    with ExitStack() as stack:
        servers = [stack.enter_context(terminal.process("serve", "film.py", "--port", "0")) for _ in range(2)]
        workers = [stack.enter_context(terminal.process("worker", "film.py", "-c", "4")) for _ in range(3)]
        for server in servers:
            server.wait_for_output("server_ready")
        for worker in workers:
            worker.wait_for_output("worker_ready")
        yield servers, workers


def port_of(server: Process) -> int:
    (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)", server.output.read_text())
    return int(port)


async def are_all_ended(client: Client, runs: set[UUID]) -> Counter[str]:
    async with asyncio.timeout(WAIT_TIMEOUT):
        return Counter([str((await client.wait(run)).state) for run in runs])


async def get_final_states(database: Database) -> list[int]:
    async with database.connection() as connection:
        rows = await connection.fetch("select count(*) as count from retoma.events where kind = 'end' group by run")
    return [row["count"] for row in rows]


async def test_acknowledged_runs_end_once_though_a_server_and_a_worker_die(tmp_path: Path) -> None:
    async with fresh_database() as database:
        client = Client(None, database)
        key = (await client.api_keys.create("load", [Scope.RUNS_WRITE, Scope.RUNS_READ])).secret
        (tmp_path / "film.py").write_text(FILM)
        variables = {"RETOMA_DATABASE_URL": database.url, "RETOMA_HEARTBEAT_TIMEOUT_SECONDS": "2"}
        terminal = Terminal(tmp_path, variables)
        with processes(terminal) as (servers, workers):
            proxy = Proxy([port_of(server) for server in servers])
            async with proxy.open() as address:
                load = Load(address, key)
                for number in range(6):
                    await load.start_one(f"slow-{number}", {"title": "slow", "scenes": 2})
                # The proxy has given them to both servers in turn, and either shows all of them.
                for server in servers:
                    for name in ("slow-0", "slow-1"):
                        (run,) = load.acknowledged[name]
                        assert await get_run_from(server, key, run) == (str(run), "running")
                await load.start(STARTS_BEFORE)
                victim = await asyncio.to_thread(_find_busy_worker, terminal, workers)
                starting = asyncio.create_task(load.start(STARTS_AFTER))
                await load.start_one("while they start", {"title": "quick", "scenes": 1})
                for process in (victim, servers[0]):
                    os.kill(process.pid, signal.SIGKILL)
                await starting
                for number in range(2):  # of which the proxy passes one on to the server that is gone
                    await load.start_one(f"late-{number}", {"title": "quick", "scenes": 1})
                assert (victim.wait_for_exit(), servers[0].wait_for_exit()) == (-9, -9)
                (tmp_path / "go").touch()
                runs = {run for found in load.acknowledged.values() for run in found}
                assert await are_all_ended(client, runs) == {"completed": len(load.acknowledged)}
                stored = await client.runs.list(limit=1_000)
                died = [job.worker_deaths for run in runs for job in await client.runs.list_jobs(run)]
                await client.close()
        assert [len(found) for found in load.acknowledged.values()] == [1] * (9 + STARTS_BEFORE + STARTS_AFTER)
        assert {run.id for run in stored} == runs
        assert set(await get_final_states(database)) == {1}
        assert sum(died) > 0, "the worker held nothing when it was killed"
        assert proxy.refused > 0, "the server was not missed"


async def get_run_from(server: Process, key: str, run: UUID) -> tuple[str, str]:
    """Id and state of a run as this server shows it."""
    async with httpx2.AsyncClient(timeout=WAIT_TIMEOUT, headers={"X-API-Key": key}) as http:
        shown = (await http.get(f"http://127.0.0.1:{port_of(server)}/api/v1/runs/{run}")).json()
    return shown["id"], shown["state"]


def _find_busy_worker(terminal: Terminal, workers: list[Process]) -> Process:
    """Find a worker that runs a step which does not end before it is released."""

    def found() -> Process | None:
        slow = {int(pid) for pid, line in terminal.wait_for_images() if line.startswith("slow")}
        return next((worker for worker in workers if worker.pid in slow), None)

    return wait_until(found)
