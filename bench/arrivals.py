"""`python -m bench.arrivals FILE`: record when jobs of stories arrive in their queues, and how long they take.

It orders stories at random times, at rates that rise and fall as `STORIES_PER_MINUTE` says: nobody's real orders. One
worker makes their scripts and translations, another their images, with the offline providers. Nothing is spoken or
rendered: that would take most of the processor, and delay the scripts.

Each line of the file is a job: its queue, when it could start, in seconds after the first order, and how many seconds
it took. `tests/engine/test_autoscale.py` replays the file.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple
from uuid import UUID

import uvloop

from bench.classifier import worker_processes
from bench.machine import get_load
from bench.server import Server, open_server
from retoma import Client, Settings, connect
from retoma.states import JobState
from retoma_apps.providers.topics import find_translation, list_topics
from retoma_apps.stories import app
from retoma_apps.stories.models import Order
from retoma_apps.stories.operations.stories import order_story
from retoma_apps.stories.steps.writing.bundled import BundledStoryWriter

APPLICATION = "retoma_apps.stories"
QUEUES_OF_WORKERS = (("generate_script", "translate_scene"), ("generate_image",))
QUEUES = tuple(queue for queues in QUEUES_OF_WORKERS for queue in queues)
STORIES_PER_MINUTE = (2, 4, 8, 14, 10, 4, 2)
PHASE_SECONDS = 90.0
SCENES, LANGUAGE = 15, "en"
CHANNELS = 5
CONCURRENCY = 4
COLUMNS = ("queue", "arrived", "took")


class Arrival(NamedTuple):
    queue: str
    arrived: float
    took: float


async def record(server: Server, *, scale: float = 1.0) -> list[Arrival]:
    """Return the jobs of all stories, in the order in which they could start. `scale` shortens the recording."""
    with TemporaryDirectory(prefix="retoma-bench-") as folder:
        async with server.fresh() as url, connect(app, Settings(database_url=url)) as client:
            async with AsyncExitStack() as workers:
                for queues in QUEUES_OF_WORKERS:
                    await workers.enter_async_context(
                        worker_processes(APPLICATION, url, Path(folder), 1, CONCURRENCY, queues)
                    )
                while len(await client.workers.list()) < len(QUEUES_OF_WORKERS):  # noqa: ASYNC110  (other processes)
                    await asyncio.sleep(0.1)
                stories = await _order_stories(client, PHASE_SECONDS * scale)
                while await _has_work(client):  # noqa: ASYNC110  (it is done in other processes)
                    await asyncio.sleep(1)
            return await _list_arrivals(client, stories)


async def _has_work(client: Client) -> bool:
    queues = [each.jobs for each in await client.queues.list() if each.queue in QUEUES]
    return any(jobs.get("ready") or jobs.get("running") for jobs in queues)


async def _order_stories(client: Client, phase_seconds: float) -> list[UUID]:
    random, began = Random(7), time.monotonic()
    stories: list[UUID] = []
    topics = [each for each in list_topics() if each.language == "pt-BR" and find_translation(each, LANGUAGE)]
    for at in _list_order_times(random, phase_seconds):
        await asyncio.sleep(began + at - time.monotonic())
        order = Order(
            topic=random.choice(topics).title,
            scenes=SCENES,
            languages=[LANGUAGE],
            channel=f"channel-{len(stories) % CHANNELS}",
        )
        stories.append(await order_story(client, order, BundledStoryWriter(), key=None))
    return stories


def _list_order_times(random: Random, phase_seconds: float) -> Iterator[float]:
    """Return the times of the orders, which come independently of each other."""
    at = 0.0
    yield at
    for number, rate in enumerate(STORIES_PER_MINUTE):
        while (at := at + random.expovariate(rate / 60)) < (number + 1) * phase_seconds:
            yield at
        at = (number + 1) * phase_seconds


async def _list_arrivals(client: Client, stories: Sequence[UUID]) -> list[Arrival]:
    jobs = [job for story in stories for job in await client.runs.list_jobs(story)]
    began = min(job.created_at for job in jobs)
    return sorted(
        (
            Arrival(
                job.queue,
                round((job.created_at - began).total_seconds(), 2),
                round((job.ended_at - job.started_at).total_seconds(), 3),
            )
            for job in jobs
            if job.state is JobState.SUCCEEDED and job.queue in QUEUES and job.started_at and job.ended_at
        ),
        key=lambda arrival: arrival.arrived,
    )


def write_arrivals(arrivals: Sequence[Arrival], file: Path) -> None:
    with file.open("w", newline="", encoding="utf-8") as output:
        output.write(
            f"# Recorded by `python -m bench.arrivals` on {datetime.now(UTC):%Y-%m-%d}, with workers of concurrency "
            f"{CONCURRENCY}, load {get_load()}.\n"
        )
        writer = csv.writer(output, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(arrivals)


async def _main(arguments: argparse.Namespace) -> None:
    async with open_server() as server:
        arrivals = await record(server, scale=arguments.scale)
        await server.close()
    write_arrivals(arrivals, arguments.file)
    print(f"{len(arrivals):,} jobs in {arrivals[-1].arrived:.0f} s: {arguments.file}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.arrivals", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the time, for a quick look")
    uvloop.run(_main(parser.parse_args()))
