"""Repeat a measurement, and print the machine and each result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from bench.machine import describe, get_load
from bench.server import open_server
from bench.testbed import Rig

Measured = TypeVar("Measured")


async def measure_rounds(
    measure: Callable[[Rig], Awaitable[Measured]],
    format_result: Callable[[Measured], str],
    *,
    repeats: int,
    scale: float,
    timeout: float,
) -> list[Measured]:
    """Return the results of all rounds."""
    async with open_server() as server:
        for name, value in (await describe(server)).items():
            print(f"{name}: {value}")
        rounds: list[Measured] = []
        for _ in range(repeats):
            rounds.append(await measure(Rig(server, scale, timeout=timeout)))
            print(format_result(rounds[-1]), flush=True)
        await server.close()
    print(f"load when it ended: {get_load()}")
    return rounds
