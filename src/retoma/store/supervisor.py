"""Keep one PostgreSQL server running while any process holds `attached.lock`, then stop it and exit.

Started by path (`python -I -S supervisor.py PLAN`), so it imports only the standard library. It inherits
`supervisor.lock`, which the kernel releases when it dies: that lock is the only proof that it is running.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partialmethod
from pathlib import Path
from typing import Any, NamedTuple

SOCKET = ".s.PGSQL.5432"
GRACE_SECONDS = 2.0  # without an attached process before the server stops
MAX_FIRST_DEATHS = 3  # in a row before giving up on a server that never worked: about a second
MAX_DEATHS = 20  # the same for one that did: half a minute, as busy backends of a killed server delay the next one
STEADY_SECONDS = 5.0  # after which a running server counts as working
LOG_BYTES = 8 << 20
STOP_SIGNALS = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
PR_SET_PDEATHSIG = 1
PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


class Log:
    """Writes lines as `retoma.logs` does, with the date, because they stay in a file."""

    def _write(self, level: str, event: str, *, message: str) -> None:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        with suppress(OSError):
            print(f"{at} {level:<8} {event}  {message}  [retoma.store.supervisor]", file=sys.stderr, flush=True)

    info = partialmethod(_write, "info")
    warning = partialmethod(_write, "warning")
    error = partialmethod(_write, "error")


log = Log()


class Plan(NamedTuple):
    command: list[str]  # PROGRAM -D DATA ...
    folder: str  # of locks and logs
    run: str  # of the socket
    socket: str  # the socket's name, which carries the port
    user: list[int] | None  # uid and gid of the server, if not those of this process
    lock: int  # the descriptor of supervisor.lock

    @property
    def data(self) -> Path:
        return Path(self.command[2])

    @property
    def log(self) -> Path:
        return Path(self.folder, "postgres.log")


def lock(path: Path, operation: int, *, create: bool = True) -> int | None:
    """Return a descriptor that holds the lock until closed; None if `operation` has LOCK_NB and the lock is taken."""
    descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(descriptor, operation)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor


def run_as(user: list[int] | None) -> dict[str, Any]:
    """Return the options of `subprocess` to run a program of PostgreSQL as that user, without our secrets."""
    other = {"user": user[0], "group": user[1], "extra_groups": []} if user else {}
    return {"cwd": "/", "env": {"PATH": os.defpath, "LC_ALL": "C"}, **other}


def main() -> None:
    plan = Plan(*json.loads(sys.argv[1]))
    if os.fork():  # the starter waits only for this process; init adopts the supervisor
        os._exit(0)
    with suppress(OSError):  # on a full disk the server may still work
        os.ftruncate(plan.lock, 0)
        os.write(plan.lock, f"{os.getpid()}\n".encode())
    try:
        supervise(plan, Alarm())
    except OSError as error:
        log.error("embedded_server_not_started", message=f"cannot run the server: {error}")


class Alarm:
    """Sleeps that end early when a child dies or a signal asks the supervisor to stop."""

    def __init__(self) -> None:
        self.asked_to_stop = False
        self._wake, self._wakened = socket.socketpair()
        self._wakened.setblocking(False)
        signal.set_wakeup_fd(self._wakened.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the thread that attached may have blocked them

    def sleep(self, seconds: float) -> None:
        if select.select([self._wake], [], [], seconds)[0]:
            self._wake.recv(64)

    def _stop(self, *_: object) -> None:
        self.asked_to_stop = True


def supervise(plan: Plan, alarm: Alarm) -> None:
    deaths, limit = 0, MAX_FIRST_DEATHS
    while deaths < limit:
        started_at = time.monotonic()
        if serve(plan, alarm) or alarm.asked_to_stop:
            return
        if time.monotonic() - started_at > STEADY_SECONDS:
            deaths, limit = 0, MAX_DEATHS
        alarm.sleep(min(0.1 * 2**deaths, 2.0))
        deaths += 1
    log.error("embedded_server_given_up", message=f"the server died {deaths} times in a row and is not started again")


def serve(plan: Plan, alarm: Alarm) -> bool:
    """Run a server until no process is attached (True) or it dies (False)."""
    server = start(plan)
    try:
        unwanted = watch(server, plan, alarm)
    finally:
        stop(server.pid, lambda: server.poll() is not None)
    if unwanted:
        log.info("embedded_server_stopped", message=f"stopped server {server.pid}: no process uses it")
    else:
        log.warning("embedded_server_died", message=f"server {server.pid} exited with {server.returncode}")
    return unwanted


def watch(server: subprocess.Popen[bytes], plan: Plan, alarm: Alarm) -> bool:
    wanted_at = time.monotonic()
    while server.poll() is None:
        # Create nothing: otherwise somebody who deletes the folder finds it not empty, and the server would outlive it.
        closing = lock(Path(plan.folder, "attached.lock"), fcntl.LOCK_EX | fcntl.LOCK_NB, create=False)
        if closing is None:
            wanted_at = time.monotonic()
        elif time.monotonic() - wanted_at > GRACE_SECONDS:
            return True  # `closing` stays locked: a process that attaches now waits until we exit, then starts a server
        else:
            os.close(closing)
        if alarm.asked_to_stop:
            return True
        rotate(plan.log)
        alarm.sleep(0.5)
    return False


def start(plan: Plan) -> subprocess.Popen[bytes]:
    leftover = read_recorded_pid(plan.data)
    if is_server(leftover, plan.data):
        log.warning("embedded_server_orphaned", message=f"stopping server {leftover}, which has no supervisor")
        stop(leftover, lambda: not is_server(leftover, plan.data))
    clear_sockets(plan)
    options = run_as(plan.user)
    # PostgreSQL takes a recorded pid for alive if any process has it by now, except its own "grandparent".
    # Deleting postmaster.pid instead would lose its check that no backend of the dead server remains.
    options["env"]["PG_GRANDPARENT_PID"] = str(leftover)
    with open(plan.log, "ab", opener=existing_opener) as output:
        options |= {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, "umask": 0o077}
        return subprocess.Popen(plan.command, preexec_fn=die_with(os.getpid()), **options)  # noqa: S603


def die_with(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        if PRCTL:
            PRCTL(PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def clear_sockets(plan: Plan) -> None:
    """Remove the sockets of a dead server, and link the default name to a socket with another port."""
    for stale in Path(plan.run).glob(".s.PGSQL.*"):
        stale.unlink()
    if plan.socket != SOCKET:
        Path(plan.run, SOCKET).symlink_to(plan.socket)


def read_recorded_pid(data: Path) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int((data / "postmaster.pid").read_text().split()[0])
    return 0


def is_server(pid: int, data: Path) -> bool:
    """Return whether `pid` is a running server of this data, and not a zombie or an unrelated process."""
    if sys.platform == "linux":
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            return words[0].endswith(b"postgres") and words[1:3] == [b"-D", os.fsencode(data)]
        return False
    shown = subprocess.run(["/bin/ps", "-p", str(pid), "-o", "command="], capture_output=True, text=True)  # noqa: S603
    return f"postgres -D {data} " in shown.stdout


def stop(pid: int, gone: Callable[[], bool]) -> None:
    for number, patience in STOP_SIGNALS:
        if gone():
            return
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + patience
        while not gone() and time.monotonic() < deadline:
            time.sleep(0.02)


def rotate(file: Path) -> None:
    """Bound a log to two files. It is copied and truncated, because the server keeps it open."""
    with suppress(OSError):
        if file.stat().st_size > LOG_BYTES:
            with suppress(OSError), open(file.with_suffix(".log.1"), "wb", opener=private_opener) as previous:
                previous.write(file.read_bytes())
            os.truncate(file, 0)


def private_opener(path: str, flags: int) -> int:
    """Let `open` create a file that only its owner may read, and restrict an existing one."""
    descriptor = os.open(path, flags, 0o600)
    with suppress(OSError):
        os.fchmod(descriptor, 0o600)
    return descriptor


def existing_opener(path: str, flags: int) -> int:
    """Let `open` append to a private file, and fail if it is gone: its folder is being deleted."""
    return private_opener(path, flags & ~os.O_CREAT)


if __name__ == "__main__":
    main()
