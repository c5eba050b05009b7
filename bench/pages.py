"""`python -m bench.pages`: the time to first byte of pages, with the server in its own process.

The database has 100,000 ended runs and as many open ones, each with a ready job, one run with 2,000 items, and two
executions of the classifier with 2,000 documents, one ended and one not started. Requests are sequential; those for
the overview are far enough apart to miss its cache.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from uuid import UUID

import httpx2
import uvloop

from bench import workloads
from bench.api import read_address
from bench.classifier import CONCURRENCY, WAIT_TIMEOUT, InstantLlm, worker_processes
from bench.growth import FINISHED, insert_history
from bench.machine import describe
from bench.server import ROOT, open_server
from bench.testbed import Rig, Testbed
from bench.workers import workers
from retoma import Settings, connect
from retoma.engine.metrics import MAX_AGE_SECONDS
from retoma.files import FileSettings, create_file_store
from retoma_apps.classifier.application import make_app
from retoma_apps.classifier.models import Category, Project
from retoma_apps.classifier.operations import executions, projects
from retoma_apps.classifier.operations.uploads import Upload
from tests.apps.classifier.papers import KINDS, papers

RUNS, ITEMS, REQUESTS = 100_000, 2_000, 100
TARGET = 100  # milliseconds, 95th percentile
EMAIL = "bench@example.com"
PASSWORD = "a password of the benchmark"


async def fill_database(rig: Rig, testbed: Testbed) -> UUID:
    """Insert everything that the pages show. Return the run with many items."""
    count = rig.count(RUNS)
    async with workers(testbed.url, 20, held=False):
        fan = await testbed.start(workloads.fan, 1, {"n": rig.count(ITEMS, least=3)})
        await testbed.wait_for_end(fan, 0.05)
    await testbed.client.start_many(workloads.drain, [{}] * 10, tenant="a small one")
    await testbed.client.start_many(workloads.drain, [{}] * count)
    await insert_history(testbed, "drain", count, FINISHED)
    return fan


async def create_executions(rig: Rig, testbed: Testbed, home: Path) -> tuple[UUID, UUID]:
    """Create an execution of the classifier that has ended, and one that has not started."""
    files = create_file_store(FileSettings(home=home))
    uploads = [
        Upload(nome=paper.name, arquivo=await files.save(paper.data, name=paper.name))
        for paper in papers(rig.count(ITEMS, least=3))
    ]
    async with connect(make_app(files, InstantLlm()), Settings(database_url=testbed.url)) as client:
        project = Project(nome="Peças", taxonomia=[Category(rotulo=kind) for kind in KINDS])
        kept = await projects.create_project(client, project)
        over = await executions.start_execution(client, files, kept, uploads)
        async with worker_processes("bench.classifier:app", testbed.url, home, 1, CONCURRENCY):
            await client.wait(over.id, WAIT_TIMEOUT)
        return over.id, (await executions.start_execution(client, files, kept, uploads)).id


@asynccontextmanager
async def open_visitor(testbed: Testbed, app: str, home: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a logged-in client of its own server."""
    settings = {"DATABASE_URL": testbed.url, "HOME": home}
    async with connect(None, Settings(database_url=testbed.url, home=home)) as owner:
        if not await owner.people.list():
            await owner.people.create("Bench", EMAIL, role="administrator", password=PASSWORD)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "retoma", "serve", app, "--port", "0"),
        cwd=ROOT,
        env=os.environ | {f"RETOMA_{name}": value for name, value in settings.items()},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        address = await read_address(process)
        async with httpx2.AsyncClient(base_url=address, headers={"Origin": address}, timeout=60) as client:
            answer = await client.post("/login", data={"email": EMAIL, "password": PASSWORD})
            if answer.status_code != 303:
                raise RuntimeError(f"the login was answered with {answer.status_code}")
            yield client
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def first_byte(client: httpx2.AsyncClient, path: str) -> float:
    """Return the time to first byte in milliseconds."""
    began = time.perf_counter()
    async with client.stream("GET", path) as answer:
        if answer.status_code != 200:
            raise RuntimeError(f"{path} was answered with {answer.status_code}")
        async for _ in answer.aiter_raw():
            took = (time.perf_counter() - began) * 1_000
            break
        return took


async def measure(rig: Rig, requests: int) -> dict[str, list[float]]:
    with TemporaryDirectory(prefix="retoma-bench-") as home:
        async with rig.testbed() as stage:
            return await _measure_pages(rig, stage, home, requests)


async def _measure_pages(rig: Rig, testbed: Testbed, home: str, requests: int) -> dict[str, list[float]]:
    fan = await fill_database(rig, testbed)
    over, waiting = await create_executions(rig, testbed, Path(home))
    pages = {
        "overview": "/",
        "runs": "/runs",
        "runs of a small tenant": "/runs?tenant=a+small+one",
        "runs that failed": "/runs?state=failed",
        f"a run with {ITEMS:,} items": f"/runs/{fan}",
        "its items": f"/runs/{fan}?step=label",
        "stuck": "/stuck",
    }
    own = {
        "the classifier": "/classificador/",
        f"an execution with {ITEMS:,} documents": f"/classificador/execucoes/{over}",
        "the same, not begun": f"/classificador/execucoes/{waiting}",
    }
    found: dict[str, list[float]] = {}
    for app, paths in (("bench.workloads:app", pages), ("retoma_apps.classifier", own)):
        async with open_visitor(testbed, app, home) as client:
            found |= {name: await times(client, path, requests) for name, path in paths.items()}
    return found


async def times(client: httpx2.AsyncClient, path: str, requests: int) -> list[float]:
    await first_byte(client, path)
    found = []
    for _ in range(requests):
        await asyncio.sleep(MAX_AGE_SECONDS * 1.05 if path == "/" else 0)
        found.append(await first_byte(client, path))
    return found


async def _main(arguments: argparse.Namespace) -> None:
    async with open_server() as server:
        for name, value in (await describe(server)).items():
            print(f"{name}: {value}")
        found = await measure(Rig(server, arguments.scale, timeout=900), arguments.requests)
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
