"""Three worker processes that serve different types of jobs; one of them is killed with a job in its hands."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack
from pathlib import Path

from retoma import Client
from retoma.store.database import Database
from retoma.testing import fresh_database
from retoma_apps.stories.application import make_app
from retoma_apps.stories.models import Brief
from retoma_apps.stories.operations.overview import get_overview
from retoma_apps.stories.pipeline import story
from retoma_apps.stories.states import Status
from tests.apps.stories.story_app import make_services
from tests.cli.terminal import Terminal, wait_until
from tests.wait_timeout import WAIT_TIMEOUT

ROOT = Path(__file__).parents[2]
MODULE = "tests.acceptance.stories_application"  # patches what it imports: never import it here
STORIES = 5
QUEUES = (
    ("generate_script", "render_video", "generate_thumbnails", "generate_metadata"),
    ("generate_image",),
    ("generate_image", "generate_audio", "translate_scene"),
)


async def wait_for_reviews(client: Client, count: int) -> None:
    async with asyncio.timeout(2 * WAIT_TIMEOUT):
        while len(await client.reviews.list(limit=100)) < count:  # noqa: ASYNC110  (it happens in processes)
            await asyncio.sleep(0.1)


async def count_deaths(client: Client) -> int:
    runs = await client.runs.list(pipeline=story.name)
    jobs = [job for run in runs for job in await client.runs.list_jobs(run.id)]
    return sum(job.worker_deaths for job in jobs)


async def start_stories(database: Database, folder: Path) -> Client:
    client = Client(make_app(make_services(folder)), database)
    for number in range(STORIES):
        await client.start(story, Brief(topic=f"Story {number}", scenes=3, languages=["en"]))
    return client


async def test_stories_end_though_a_worker_of_one_type_is_killed(tmp_path: Path) -> None:
    async with fresh_database() as database:
        variables = {
            "RETOMA_DATABASE_URL": database.url,
            "RETOMA_HEARTBEAT_TIMEOUT_SECONDS": "2",
            "PYTHONPATH": str(ROOT),
        }
        terminal = Terminal(tmp_path, variables)
        client = await start_stories(database, tmp_path)
        with ExitStack() as stack:
            workers = [
                stack.enter_context(terminal.process("worker", MODULE, "-c", "2", *(f"-q{queue}" for queue in queues)))
                for queues in QUEUES
            ]
            for worker in workers:
                await asyncio.to_thread(worker.wait_for_output, "worker_ready")
            began, victim = tmp_path / "began", workers[1]
            await asyncio.to_thread(wait_until, lambda: began.exists() and str(victim.pid) in began.read_text().split())
            os.kill(victim.pid, signal.SIGKILL)
            (tmp_path / "go").touch()
            await wait_for_reviews(client, STORIES)
        runs = await client.runs.list(pipeline=story.name)
        assert {(await get_overview(client, run)).status for run in runs} == {Status.READY_FOR_REVIEW}
        assert await count_deaths(client) > 0, "the worker held nothing when it was killed"
        await client.close()
