"""`python -m bench.pages`: how long pages take until their first byte, with a server in a process of its own.

The database has 100,000 runs that are over and as many that are open, each with a job that is ready, and one run with
2,000 items. Requests come one after the other; those for the overview so far apart that none finds its figures kept.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median, quantiles
from uuid import UUID

import httpx2
import uvloop

from bench import workloads
from bench.api import address_of
from bench.growth import _FINISHED_EVENTS, _FINISHED_JOBS, _FINISHED_RUNS, lay_out
from bench.machine import described
from bench.server import ROOT, serving
from bench.stage import Rig, Stage
from bench.workers import workers
from retoma.engine.figures import FRESH
from retoma.engine.sessions import hashed

RUNS, ITEMS, REQUESTS = 100_000, 2_000, 100
TARGET = 100  # milliseconds, of 95 in 100
PASSWORD = "a password of the benchmark"


async def filled(rig: Rig, stage: Stage) -> UUID:
    """Everything that is to be shown. Gives the run with many items."""
    count = rig.count(RUNS)
    async with workers(stage.url, 20, held=False):
        fan = await stage.start(workloads.fan, 1, {"n": rig.count(ITEMS, least=3)})
        await stage.over(fan, 0.05)
    await stage.client.start_many(workloads.drain, [{}] * 10, tenant="a small one")
    await stage.client.start_many(workloads.drain, [{}] * count)
    await lay_out(stage, "drain", count, (_FINISHED_RUNS, _FINISHED_JOBS, _FINISHED_EVENTS))
    return fan


@asynccontextmanager
async def visitor(stage: Stage) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody who has logged in to a server of their own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "retoma", "serve", "bench.workloads:app", "--port", "0"),
        cwd=ROOT,
        env=os.environ | {"RETOMA_DATABASE_URL": stage.url, "RETOMA_ADMIN_PASSWORD_HASH": hashed(PASSWORD)},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        address = await address_of(process)
        async with httpx2.AsyncClient(base_url=address, headers={"Origin": address}, timeout=60) as client:
            answer = await client.post("/login", data={"password": PASSWORD})
            if answer.status_code != 303:
                raise RuntimeError(f"the login was answered with {answer.status_code}")
            yield client
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def first_byte(client: httpx2.AsyncClient, path: str) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    async with client.stream("GET", path) as answer:
        if answer.status_code != 200:
            raise RuntimeError(f"{path} was answered with {answer.status_code}")
        async for _ in answer.aiter_raw():
            took = (time.perf_counter() - began) * 1_000
            break
        return took


async def measured(rig: Rig, requests: int) -> dict[str, list[float]]:
    async with rig.stage() as stage:
        fan = await filled(rig, stage)
        pages = {
            "overview": "/",
            "runs": "/runs",
            "runs of a small tenant": "/runs?tenant=a+small+one",
            "runs that failed": "/runs?state=failed",
            f"a run with {ITEMS:,} items": f"/runs/{fan}",
            "its items": f"/runs/{fan}?step=label",
            "stuck": "/stuck",
        }
        async with visitor(stage) as client:
            return {name: await times(client, path, requests) for name, path in pages.items()}


async def times(client: httpx2.AsyncClient, path: str, requests: int) -> list[float]:
    await first_byte(client, path)
    found = []
    for _ in range(requests):
        await asyncio.sleep(FRESH * 1.05 if path == "/" else 0)
        found.append(await first_byte(client, path))
    return found


async def _main(asked: argparse.Namespace) -> None:
    async with serving() as server:
        for name, value in (await described(server)).items():
            print(f"{name}: {value}")
        found = await measured(Rig(server, asked.scale, patience=900), asked.requests)
        await server.close()
    print("\n| page | p50, ms | p95, ms | worst, ms |\n| --- | --- | --- | --- |")
    for name, each in found.items():
        print(
            f"| {name} | {median(each):.1f} | {quantiles(each, n=20, method='inclusive')[18]:.1f} | {max(each):.1f} |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS, help="for each page")
    parser.add_argument("--scale", type=float, default=1.0, help="a part of all runs, for a quick look")
    uvloop.run(_main(parser.parse_args()))
