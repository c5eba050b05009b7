"""`python -m bench.classifier`: the overhead of the classifier, with real PDFs and a model that responds at once.

Each document is stored as a file, read in a child process and labelled, on a database that syncs every commit. The
time is from the call that starts the batch until a client sees its end, with workers that are warmed up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import uvloop

from bench.rounds import measure_rounds
from bench.server import ROOT
from bench.testbed import Rig
from retoma import App, Client, Settings, connect
from retoma.files import FileSettings, FileStore, create_file_store
from retoma_apps.classifier.models import Batch, Category, Criteria, Document
from retoma_apps.classifier.pipeline import classification
from retoma_apps.classifier.steps.labelling import Labeller
from retoma_apps.providers.llm import Message, Reply, Usage
from tests.apps.classifier.papers import KINDS, papers

DOCUMENTS = 2_000
CONCURRENCY = 20  # as `retoma worker` has it
TARGET, AIM = 60, 20  # seconds for all of them
WAIT_TIMEOUT = timedelta(minutes=10)


class InstantLlm:
    """A model that takes no time, so only our own overhead is measured."""

    name = "instant"
    is_offline = False

    async def ask(self, messages: Sequence[Message], *, model: str, **_: Any) -> Reply:
        answer = {"rotulo": KINDS[0], "confianca": 1.0, "justificativa": ""}
        return Reply(json.dumps(answer), answer, Usage(), model, "at-once", "stop")


@dataclass(frozen=True)
class Measurement:
    """Seconds of one batch, and the CPU seconds of its workers and their children."""

    documents: int
    saving: float
    working: float
    processor: float

    @property
    def per_second(self) -> float:
        return self.documents / self.working


def app_of(files: FileStore) -> App:
    return App("bench", pipelines=[classification], resources={"labeller": Labeller(files, InstantLlm())}, files=files)


def __getattr__(name: str) -> Any:
    """Return `app` for workers; its files are in RETOMA_HOME."""
    if name != "app":
        raise AttributeError(name)
    return app_of(create_file_store(FileSettings()))


async def measure(rig: Rig, *, processes: int = 1, concurrency: int = CONCURRENCY) -> Measurement:
    with TemporaryDirectory(prefix="retoma-bench-") as folder:
        async with rig.server.fresh() as url, asyncio.timeout(rig.timeout):
            return await _measure_batch(url, Path(folder), rig.count(DOCUMENTS, least=2), processes, concurrency)


async def _measure_batch(url: str, home: Path, count: int, processes: int, concurrency: int) -> Measurement:
    files = create_file_store(FileSettings(home=home))
    began = time.perf_counter()
    documents = await _save_documents(files, count)
    saving, used = time.perf_counter() - began, _processor()
    async with connect(app_of(files), Settings(database_url=url)) as client:
        async with worker_processes("bench.classifier:app", url, home, processes, concurrency):
            await _label_documents(client, documents[:1])
            working = await _label_documents(client, documents)
        return Measurement(count, saving, working, _processor() - used)


async def _save_documents(files: FileStore, count: int) -> list[Document]:
    return [
        Document(codigo=paper.name, arquivo=await files.save(paper.data, name=paper.name)) for paper in papers(count)
    ]


async def _label_documents(client: Client, documents: list[Document]) -> float:
    """Return the seconds until all have a label. Raise if one has none."""
    criteria = Criteria(taxonomia=[Category(rotulo=label) for label in KINDS])
    began = time.perf_counter()
    started = await client.start(classification, Batch(criterios=criteria, documentos=documents))
    run = await client.wait(started.id, WAIT_TIMEOUT)
    taken = time.perf_counter() - began
    found = (await client.runs.get_results(started.id)).get("summary")
    if run.state != "completed" or found is None or found["rotulos"] != {KINDS[0]: len(documents)}:
        raise RuntimeError(f"{len(documents)} documents should have a label; the run is {run.state}, with {found}")
    return taken


@asynccontextmanager
async def worker_processes(
    app: str, url: str, home: Path, processes: int, concurrency: int, queues: Sequence[str] = ()
) -> AsyncIterator[None]:
    """Run workers of an application, given as `module:attribute`, for these queues or all. Its files are in `home`."""
    async with AsyncExitStack() as stack:
        for _ in range(processes):
            await stack.enter_async_context(_worker(app, url, home, concurrency, queues))
        yield


@asynccontextmanager
async def _worker(app: str, url: str, home: Path, concurrency: int, queues: Sequence[str]) -> AsyncIterator[None]:
    command = ["-m", "retoma", "worker", app, "-c", str(concurrency), "--until-stdin-closes"]
    command += [argument for queue in queues for argument in ("-q", queue)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command),
        cwd=ROOT,
        env=os.environ | {"RETOMA_DATABASE_URL": url, "RETOMA_HOME": str(home), "RETOMA_LOG_LEVEL": "warning"},
        stdin=PIPE,
    )
    assert process.stdin is not None
    try:
        yield
    finally:
        process.stdin.close()
        await process.wait()


def _processor() -> float:
    """Return the CPU seconds of our ended child processes, including their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _main(arguments: argparse.Namespace) -> None:
    rounds = await measure_rounds(
        lambda rig: measure(rig, processes=arguments.processes, concurrency=arguments.concurrency),
        _format_measurement,
        repeats=arguments.repeats,
        scale=arguments.scale,
        timeout=WAIT_TIMEOUT.total_seconds(),
    )
    seconds = median(figures.working for figures in rounds)
    print(f"median: {seconds:.1f} s for {rounds[0].documents:,} documents; target {TARGET} s, aim {AIM} s for 2,000")


def _format_measurement(figures: Measurement) -> str:
    return (
        f"{figures.documents:,} documents in {figures.working:.1f} s, {figures.per_second:,.0f}/s; workers and their "
        f"children used {figures.processor:.1f} s of processor; keeping the files took {figures.saving:.1f} s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.classifier", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="workers (1)")
    parser.add_argument("--concurrency", type=int, default=CONCURRENCY, help=f"of each worker ({CONCURRENCY})")
    parser.add_argument("--scale", type=float, default=1.0, help="a part of all documents, for a quick look")
    uvloop.run(_main(parser.parse_args()))
