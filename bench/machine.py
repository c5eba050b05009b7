"""Describe the machine, because results of different machines are not comparable."""

from __future__ import annotations

import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from bench.server import Server


async def describe(server: Server) -> dict[str, str]:
    found = await server.settings()
    return {
        "measured": f"{datetime.now(UTC):%d %B %Y %H:%M} UTC",
        "processor": f"{_processor()}, {os.cpu_count()} cores for client, workers and database together",
        "load when it began": get_load(),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "PostgreSQL": f"{found.pop('server_version')}, "
        + ", ".join(f"{name} {value}" for name, value in found.items()),
        "one commit alone": f"{await _commit(server):.2f} ms",
    }


def get_load() -> str:
    """Return the load of the last 1, 5 and 15 minutes. Above zero at the start, other processes are running."""
    return ", ".join(f"{one:.2f}" for one in os.getloadavg())


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in information.read_text().splitlines() if "model name" in line]
    return models[0] if models else platform.machine()


async def _commit(server: Server, times: int = 100) -> float:
    """Return the milliseconds of the smallest transaction that is synced to disk."""
    async with server.empty() as url, server.connection(url) as connection:
        await connection.execute("create table commits (at timestamptz)")
        taken = []
        for _ in range(times):
            began = time.perf_counter()
            await connection.execute("insert into commits values (now())")
            taken.append(time.perf_counter() - began)
        return 1_000 * median(taken)
