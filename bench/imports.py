"""`python -m bench.imports`: how fast the articles of an AutoWriter import start, as child runs of the import.

One worker also writes the articles meanwhile, with a model that answers after some seconds, on a database that syncs
every commit. The time is from the call that starts the import until a client sees that every article has started.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import uvloop

from bench.classifier import CONCURRENCY, worker_processes
from bench.rounds import measure_rounds
from bench.testbed import Rig
from retoma import App, Settings, connect
from retoma.connections import TenantConnections
from retoma.files import FileSettings, FileStore, create_file_store
from retoma_apps.autowriter.application import make_app
from retoma_apps.autowriter.models import Blog
from retoma_apps.autowriter.operations.blogs import set_blog
from retoma_apps.autowriter.operations.imports import start_import
from retoma_apps.autowriter.steps.writing.offline import MODEL, OfflineWriter
from retoma_apps.providers.images.offline import OfflineImages
from retoma_apps.providers.keywords import OfflineKeywords
from retoma_apps.providers.llm import LanguageModel, Message, Reply
from retoma_apps.providers.wordpress import LocalBlog

ARTICLES = 5_000
ANSWER_SECONDS = 3.0  # of the model
BLOGS = 10
TARGET = 40  # seconds until all have started
TIMEOUT = 600.0
_STARTED = "select count(*) from retoma.runs where parent is not null"
_TRANSACTIONS = "select xact_commit from pg_stat_database where datname = current_database()"


@dataclass(frozen=True)
class Measurement:
    """Seconds until all articles of an import have started, and the transactions of all processes meanwhile."""

    articles: int
    seconds: float
    transactions: int

    @property
    def per_second(self) -> float:
        return self.articles / self.seconds


class SlowWriter(OfflineWriter):
    async def ask(self, messages: Sequence[Message], **options: Any) -> Reply:
        await asyncio.sleep(ANSWER_SECONDS)
        return await super().ask(messages, **options)


SLOW_MODEL = LanguageModel(SlowWriter(), MODEL)


def app_of(files: FileStore, home: Path) -> App:
    return make_app(
        llm=SLOW_MODEL,
        images=OfflineImages(),
        keywords=OfflineKeywords(),
        open_blog=LocalBlog.for_tenant(TenantConnections(), home / "wordpress"),
        files=files,
    )


def __getattr__(name: str) -> Any:
    """Return `app` for workers; its files are in RETOMA_HOME."""
    if name != "app":
        raise AttributeError(name)
    settings = FileSettings()
    return app_of(create_file_store(settings), settings.home)


async def measure(rig: Rig, *, concurrency: int = CONCURRENCY) -> Measurement:
    with TemporaryDirectory(prefix="retoma-bench-") as folder:
        async with rig.server.fresh() as url, rig.server.connection(url) as connection, asyncio.timeout(rig.timeout):
            return await _measure_import(url, connection, Path(folder), rig.count(ARTICLES, least=2), concurrency)


async def _measure_import(
    url: str, connection: asyncpg.Connection, home: Path, count: int, concurrency: int
) -> Measurement:
    files = create_file_store(FileSettings(home=home))
    async with connect(app_of(files, home), Settings(database_url=url)) as client:
        for number in range(BLOGS):
            await set_blog(client, f"blog-{number}", Blog(name=f"Blog {number}"), revision=0)
        async with worker_processes("bench.imports:app", url, home, 1, concurrency):
            while not await client.workers.list():  # noqa: ASYNC110  (it is another process)
                await asyncio.sleep(0.1)
            before, began = await connection.fetchval(_TRANSACTIONS), time.perf_counter()
            await start_import(client, SLOW_MODEL, _make_file(count))
            while await connection.fetchval(_STARTED) < count:  # noqa: ASYNC110  (it happens in another process)
                await asyncio.sleep(0.1)
            seconds = time.perf_counter() - began
            return Measurement(count, seconds, await connection.fetchval(_TRANSACTIONS) - before)


def _make_file(count: int) -> bytes:
    lines = (f"blog-{number % BLOGS},Coffee and caffeine {number},explain it,en,400" for number in range(count))
    return "\n".join(["blog_id,theme,objective,language,word_count", *lines]).encode()


async def _main(arguments: argparse.Namespace) -> None:
    rounds = await measure_rounds(
        lambda rig: measure(rig, concurrency=arguments.concurrency),
        _format_measurement,
        repeats=arguments.repeats,
        scale=arguments.scale,
        timeout=TIMEOUT,
    )
    seconds = median(figures.seconds for figures in rounds)
    print(f"median: {seconds:.1f} s for {rounds[0].articles:,} articles; target {TARGET} s for 5,000")


def _format_measurement(figures: Measurement) -> str:
    return (
        f"{figures.articles:,} articles started in {figures.seconds:.1f} s, {figures.per_second:,.0f}/s, with "
        f"{figures.transactions / figures.articles:.1f} transactions each"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.imports", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=CONCURRENCY, help=f"of the worker ({CONCURRENCY})")
    parser.add_argument("--scale", type=float, default=1.0, help="a part of all articles, for a quick look")
    uvloop.run(_main(parser.parse_args()))
