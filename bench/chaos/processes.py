"""The processes of a chaos run. Each is started here and ended by its process id only."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from bench.chaos import skew
from bench.chaos.receiver import SECRET
from retoma.store import embedded, roles
from retoma.store.embedded import Embedded
from retoma.store.supervisor import lock

APPLICATION = Path(__file__).with_name("application.py")
ROOT = APPLICATION.parents[2]
HEARTBEAT_TIMEOUT = 3.0
LEASE = 4.0  # of a poll and of a delivery, instead of 90 and 30
DRAIN = 3.0
LONGEST_BACKOFF = 2.0
LONGEST_STOP = 30.0
NOBODY = 65534
FILES_HOME = "files_home"  # the folder of the file store of all workers
PUBLIC_URL = "http://127.0.0.1:9"  # not served: the callback sender uses the client


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Postgres:
    """A PostgreSQL server with production durability, whose supervisor restarts it when it dies."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        self.home = home
        self._server: Embedded | None = None

    def start(self) -> None:
        self._server = embedded.attach(self.home, self.port)

    def stop(self) -> None:
        """Stop the server and its supervisor, and wait for them."""
        self.server.close()
        held = self.server.folder / "supervisor.lock"
        with suppress(OSError, ValueError):
            os.kill(int(held.read_text()), signal.SIGTERM)
        deadline = time.monotonic() + LONGEST_STOP
        while (free := lock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if free is not None:
            os.close(free)

    @property
    def server(self) -> Embedded:
        assert self._server is not None
        return self._server

    @property
    def url(self) -> str:
        """Return the address that bypasses the proxy."""
        return self.server.url

    def url_by(self, port: int) -> str:
        password = (self.server.folder / roles.PASSWORD_FILE).read_text()
        return f"postgresql://{roles.ROLE}:{password}@127.0.0.1:{port}/retoma?sslmode=disable"

    @property
    def pid(self) -> int:
        return int((self.server.data / "postmaster.pid").read_text().split()[0])

    def kill(self) -> bool:
        with suppress(OSError, ValueError, IndexError):
            os.kill(self.pid, signal.SIGKILL)
            return True
        return False

    def revive(self) -> None:
        """Start it again if its supervisor has given up too."""
        self.server.ensure()


class Pooler:
    """A pgbouncer in front of the server, which hands a connection to another client after each transaction."""

    def __init__(self, folder: Path, postgres: Postgres) -> None:
        self.port = free_port()
        self._configuration = folder / "pgbouncer.ini"
        password = (postgres.server.folder / roles.PASSWORD_FILE).read_text()
        self._configuration.write_text(
            f"[databases]\n* = host=127.0.0.1 port={postgres.port} user={roles.ROLE} password={password}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\nmax_client_conn = 500\nserver_login_retry = 1\n"
        )
        self._log = folder / "pgbouncer.log"
        self._keeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._keeping = asyncio.ensure_future(self._keep())
        assert await until(self._answers, time.monotonic() + 10), self._log.read_text()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._keeping is not None
        self._keeping.cancel()
        with suppress(asyncio.CancelledError):
            await self._keeping

    async def _keep(self) -> None:
        """Run it, and restart it when it ends: some releases crash if queries are cancelled at a bad moment."""
        program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program is not None, "there is no pgbouncer: apt-get install pgbouncer"
        user = NOBODY if os.geteuid() == 0 else None
        while True:
            with self._log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    program, str(self._configuration), stdin=DEVNULL, stdout=log, stderr=log, user=user
                )
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@dataclass
class ProcessExit:
    pid: int
    code: int
    expected: bool
    was_ready: bool


@dataclass(eq=False)
class WorkerProcess:
    """One worker slot: a worker that has ended is replaced by a new one."""

    number: int
    folder: Path
    url: str
    library: Path | None
    skews: list[int]
    concurrency: int = 8
    heartbeat_timeout: float = HEARTBEAT_TIMEOUT
    process: Process | None = None
    started: int = 0
    skewed: int = 0
    exits: list[ProcessExit] = field(default_factory=list)
    is_stopped: bool = False
    _closing: bool = False
    _expected: set[int] = field(default_factory=set)

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None and self.process.returncode is None else 0

    @property
    def log(self) -> Path:
        return self.folder / f"worker-{self.number}-{self.started}.log"

    @property
    def is_ready(self) -> bool:
        return bool(self.pid) and _was_ready(self.log)

    async def keep(self) -> None:
        """Run a worker, and replace it when it ends, until closed."""
        failures = 0
        while not self._closing:
            self.process = await self._start()
            code = await self.process.wait()
            ready = _was_ready(self.log)
            self.exits.append(ProcessExit(self.process.pid, code, self.process.pid in self._expected, ready))
            failures = 0 if ready else failures + 1
            if not self._closing:
                await asyncio.sleep(min(LONGEST_BACKOFF, 0.1 * failures))

    def kill(self) -> int:
        """Kill it as a crash would. Return the process id, or 0 if there was none."""
        return self._signal(signal.SIGKILL)

    def terminate(self) -> int:
        return self._signal(signal.SIGTERM)

    async def pause(self, seconds: float) -> int:
        """Pause it, as a suspended machine would."""
        if not (pid := self._signal(signal.SIGSTOP)):
            return 0
        self.is_stopped = True
        try:
            await asyncio.sleep(seconds)
        finally:
            self.is_stopped = False
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return pid

    async def close(self, keeping: asyncio.Task[None]) -> None:
        self._closing = True
        self.terminate()
        done, _ = await asyncio.wait([keeping], timeout=DRAIN + 10)
        if not done:
            self.kill()
            await keeping

    def _signal(self, number: signal.Signals) -> int:
        if not (pid := self.pid):
            return 0
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # it ended just now and was not yet waited for
            return 0
        if number != signal.SIGSTOP:
            self._expected.add(pid)
        return pid

    async def _start(self) -> Process:
        self.started += 1
        off = self.skews[self.started % len(self.skews)]
        self.skewed += bool(self.library and off)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RETOMA_")},
            **skew.environment(self.library, off),
            "RETOMA_DATABASE_URL": self.url,
            "RETOMA_HEARTBEAT_TIMEOUT_SECONDS": str(self.heartbeat_timeout),
            "RETOMA_DRAIN_SECONDS": str(DRAIN),
            "RETOMA_LOG": "json",
            "RETOMA_ALLOW_HOSTS": "127.0.0.1",
            "RETOMA_PUBLIC_URL": PUBLIC_URL,
            "CHAOS_FILES": str(self.folder / FILES_HOME),
            "RETOMA_WEBHOOK_SECRET": SECRET,
            "CHAOS_LEASE": str(LEASE),
            "TMPDIR": str(self.folder),
        }
        command = [sys.executable, "-m", "retoma", "worker", str(APPLICATION), "-c", str(self.concurrency)]
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *command,
                "--until-stdin-closes",  # if we are killed, it ends too
                env=environment,
                cwd=ROOT,
                stdin=PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def _was_ready(log: Path) -> bool:
    return log.exists() and b"worker_ready" in log.read_bytes()


@dataclass
class LogSummary:
    """A summary of the workers' logs."""

    events: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    too_early: int = 0  # workers that found no database at startup and exited
    errors: list[str] = field(default_factory=list)


def read_logs(folder: Path) -> LogSummary:
    said = LogSummary()
    for log in sorted(folder.glob("worker-*.log")):
        for line in log.read_text(errors="replace").splitlines():
            _read(line, log, said)
    return said


def _read(line: str, log: Path, said: LogSummary) -> None:
    try:
        event = json.loads(line)
    except ValueError:
        if line.startswith("Error: ") and ("cannot connect" in line or "is unreachable" in line):
            said.too_early += 1
        elif line.strip():
            said.errors.append(f"{log.name}: {line}")
        return
    said.events[event["event"]] += 1
    if event["event"] == "late_outcomes_rejected":
        said.refused += event["jobs"]
    if "exception" in event:
        said.errors.append(f"{log.name}: {event['event']}: {event['exception'].splitlines()[-1]}")


async def until(holds: object, deadline: float) -> bool:
    """Return whether the condition becomes true in time."""
    assert callable(holds)
    while not holds():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True
