"""Real servers for tests, each in its own folder, stopped by the process id that started it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port
from tests.system_packages import require
from tests.wait_timeout import WAIT_TIMEOUT

POSTGRESQL_15 = Path("/usr/lib/postgresql/15/bin")


@contextmanager
def postgresql_15() -> Iterator[int]:
    """Start Debian's PostgreSQL 15 on loopback, without fsync, and yield its port."""
    require((POSTGRESQL_15 / "postgres").exists(), "PostgreSQL 15 (apt-get install postgresql-15)")
    with _folder() as folder:
        _run(
            [
                POSTGRESQL_15 / "initdb",
                "-D",
                folder / "data",
                "-U",
                "retoma",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C.UTF-8",
            ]
        )
        port = free_port()
        options = [
            "-k",
            folder,
            "-p",
            port,
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "fsync=off",
            "-c",
            "track_functions=all",
            "-c",
            "max_connections=200",
        ]
        with _server([POSTGRESQL_15 / "postgres", "-D", folder / "data", *options], port):
            yield port


@contextmanager
def pgbouncer(behind: int) -> Iterator[int]:
    """Start a transaction pooler in front of the PostgreSQL on port `behind` and yield its port."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    require(program is not None, "pgbouncer (apt-get install pgbouncer)")
    with _folder() as folder:
        port = free_port()
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(
            f"[databases]\n* = host=127.0.0.1 port={behind} user=retoma\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\npool_mode = transaction\n"
            "max_client_conn = 500\ndefault_pool_size = 20\nunix_socket_dir =\n"
        )
        with _server([program, configuration], port):
            yield port


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="retoma-server-", dir="/tmp"))
    user = _user()
    if user is not None:
        os.chown(folder, user, -1)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _server(command: list[object], port: int) -> Iterator[None]:
    process = subprocess.Popen(
        list(map(str, command)), user=_user(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(port, process)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + WAIT_TIMEOUT
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server for port {port} ended with {process.returncode}"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"nothing answers on port {port}")


def _run(command: list[object]) -> None:
    subprocess.run(list(map(str, command)), user=_user(), check=True, stdout=subprocess.DEVNULL)


def _user() -> int | None:
    """Neither server runs as root."""
    return pwd.getpwnam("postgres").pw_uid if os.geteuid() == 0 else None
