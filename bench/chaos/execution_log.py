"""A log of executions outside the database: one line when a step starts, and one when it ends or fails."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from retoma import Context

Key = tuple[UUID, str, str, int]  # run, step, item, revision
NAME = "execution-log"
KILL_MARK = "fate"


@dataclass(frozen=True, slots=True)
class Line:
    """`at` is monotonic, a clock that all processes of a machine share, whatever their system time."""

    at: float
    pid: int
    key: Key
    attempt: int
    token: str
    what: str


def get_path() -> Path:
    # A child process of an isolated step has only a few harmless variables of its worker's environment.
    return Path(tempfile.gettempdir()) / NAME


def record_start(ctx: Context, pid: int) -> str:
    """Record the start of an execution, and return a token for its result."""
    token = uuid4().hex[:16]
    write(ctx, pid, token, "began")
    return token


def write(ctx: Context, pid: int, token: str, what: str) -> None:
    words = (f"{time.monotonic():.6f}", pid, ctx.run, ctx.step, ctx.item or "-", ctx.revision, ctx.attempt, token, what)
    log = os.open(get_path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(log, f"{' '.join(map(str, words))}\n".encode())
    finally:
        os.close(log)
    _kill_worker_if_marked(ctx.run, pid)


def kill_worker_at(folder: Path, run: UUID, beginning: int) -> None:
    """Kill the worker that starts the n-th step execution of this run."""
    (folder / KILL_MARK).write_text(f"{run} {beginning}")


def _kill_worker_if_marked(run: UUID, pid: int) -> None:
    fate = get_path().with_name(KILL_MARK)
    if fate.exists():
        of_run, beginning = fate.read_text().split()
        began = [line for line in read(get_path()) if line.key[0] == run and line.what == "began"]
        if str(run) == of_run and len(began) >= int(beginning):
            fate.unlink(missing_ok=True)
            os.kill(pid, signal.SIGKILL)


def read(path: Path) -> list[Line]:
    return [_line(line) for line in path.read_text().splitlines()] if path.exists() else []


def _line(line: str) -> Line:
    at, pid, run, step, item, revision, attempt, token, what = line.split()
    key = UUID(run), step, "" if item == "-" else item, int(revision)
    return Line(float(at), int(pid), key, int(attempt), token, what)
