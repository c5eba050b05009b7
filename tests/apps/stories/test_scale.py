"""Many stories at once: one queue, and workers that belong to no story."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from retoma import Settings
from retoma.states import RunState
from retoma.store.database import Database
from retoma.worker.worker import Worker
from retoma_apps.stories.operations import queue
from tests.apps.stories.story_app import Painter, StoryApp, patch_media, running_story_app
from tests.conftest import empty_database
from tests.wait_timeout import WAIT_TIMEOUT


async def count_queue(story_app: StoryApp) -> dict[str, int]:
    counts = (await story_app.api.get("/stories/jobs")).json()["counts"]
    return {kind: sum(states.values()) for kind, states in counts.items() if any(states.values())}


async def test_five_orders_fill_the_queue_as_scripts_are_written(story_app: StoryApp) -> None:
    stories = [await story_app.order(f"Story {number}", languages=["en"]) for number in range(5)]
    assert await count_queue(story_app) == {"generate_script": 5}
    await story_app.write_scripts(2)
    assert await count_queue(story_app) == {
        "generate_script": 3,
        "generate_image": 30,
        "generate_audio": 30,
        "translate_scene": 30,
    }
    assert len(set(stories)) == 5


async def test_the_queue_shows_the_jobs_of_the_oldest_story_first(story_app: StoryApp) -> None:
    stories = [await story_app.order(f"Story {number}", scenes=1) for number in range(3)]
    await story_app.write_scripts()
    jobs = (await story_app.api.get("/stories/jobs")).json()["jobs"]
    assert [job["story_id"] for job in jobs if job["job_type"] == "generate_image"] == stories


async def test_the_queue_says_that_it_shows_only_the_newest_stories(
    story_app: StoryApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_STORIES", 2)
    stories = [await story_app.order(f"Story {number}") for number in range(2)]
    assert (await story_app.api.get("/stories/jobs")).json()["has_more_stories"] is False
    stories.append(await story_app.order("Story 2"))
    shown = (await story_app.api.get("/stories/jobs")).json()
    assert shown["has_more_stories"] is True
    assert [job["story_id"] for job in shown["jobs"]] == stories[1:]


async def test_one_script_worker_writes_all_scripts(story_app: StoryApp) -> None:
    stories = [await story_app.order(f"Story {number}", scenes=2) for number in range(5)]
    await story_app.write_scripts()
    assert [(await story_app.show(story))["status"] for story in stories] == ["producing"] * 5


async def test_a_worker_claims_only_its_types_and_from_any_story(story_app: StoryApp) -> None:
    stories = {UUID(await story_app.order(f"Story {number}", scenes=2)) for number in range(3)}
    await story_app.write_scripts()
    async with story_app.api.sandbox.manual_worker() as one, story_app.api.sandbox.manual_worker() as other:
        images = [*await one.claim(3, queues=["generate_image"]), *await other.claim(3, queues=["generate_image"])]
        audio = await other.claim(100, queues=["generate_audio"])
    assert {claim.step for claim in images} == {"generate_image"}
    assert len({(claim.run, claim.item) for claim in images}) == 6
    assert {claim.run for claim in images} == stories
    assert {(claim.step, claim.run) for claim in audio} == {("generate_audio", story) for story in stories}


async def test_a_worker_changes_only_what_it_has_claimed(story_app: StoryApp) -> None:
    """A result for the job of another worker, or of another story, is refused."""
    mine, others = await story_app.order("Mine", channel="one", scenes=1), await story_app.order("Other", channel="two")
    async with story_app.api.sandbox.manual_worker() as owner, story_app.api.sandbox.manual_worker() as intruder:
        claims = await owner.claim(100, queues=["generate_script"])
        outcomes = await intruder.attempt([claim for claim in claims if claim.step == "generate_script"])
        await intruder.record_outcomes(outcomes)
        assert intruder.rejected_outcomes == len(outcomes) == 2
    assert {(await story_app.show(story))["status"] for story in (mine, others)} == {"scripting"}


class MeetingPainter(Painter):
    """Its first pictures are done only once so many of them are being drawn at the same time."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self._all_drawing = asyncio.Event()

    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        picture = await super().make(prompt, width=width, height=height)
        if len(self.prompts) == self._count:
            self._all_drawing.set()
        await self._all_drawing.wait()
        return picture


@asynccontextmanager
async def image_workers(story_app: StoryApp, count: int) -> AsyncIterator[None]:
    """Run so many workers, each of which draws one image at a time."""
    made = story_app.api.sandbox
    workers = [
        Worker(made.app, made.database, Settings(), queues=["generate_image"], concurrency=1) for _ in range(count)
    ]
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(worker.run())
        try:
            yield
        finally:
            for worker in workers:
                worker.stop()


@pytest.mark.parametrize(("count", "stories", "scenes"), [(10, 10, 10), (20, 5, 12)])
async def test_so_many_image_workers_draw_so_many_images_at_a_time(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, stories: int, scenes: int
) -> None:
    await empty_database(database)
    patch_media(monkeypatch)
    painter = MeetingPainter(count)
    async with running_story_app(database, tmp_path, images=painter) as app:
        for number in range(stories):
            await app.order(f"Story {number}", scenes=scenes)
        await app.write_scripts()
        async with image_workers(app, count), asyncio.timeout(WAIT_TIMEOUT):
            while (await count_queue(app)).get("generate_image"):  # noqa: ASYNC110  (it happens in the database)
                await asyncio.sleep(0.05)
    assert len(painter.prompts) == stories * scenes
    at_once = {prompt.split(".")[1] for prompt in painter.prompts[:count]}
    assert len(at_once) > (scenes < count), "workers stay with one story"


async def test_several_stories_are_produced_at_the_same_time(story_app: StoryApp) -> None:
    stories = [await story_app.order(f"Story {number}", scenes=15) for number in range(5)]
    await story_app.write_scripts()
    async with AsyncExitStack() as stack:
        for _ in range(5):  # workers with room for 20 of the 75 images
            worker = await stack.enter_async_context(story_app.api.sandbox.manual_worker())
            assert len(await worker.claim(4, queues=["generate_image"])) == 4
        running = [await story_app.client.runs.get(UUID(story)) for story in stories]
        held = (await story_app.api.get("/stories/jobs")).json()["jobs"]
    assert {run.state for run in running} == {RunState.RUNNING}
    assert {job["story_id"] for job in held if job["state"] == "running"} == set(stories)


async def test_five_stories_are_produced_side_by_side_on_one_worker(story_app: StoryApp) -> None:
    """Images of all five are drawn before those of the first are all done."""
    stories = [UUID(await story_app.order(f"Story {number}", scenes=15)) for number in range(5)]
    await story_app.write_scripts()
    drawn: list[UUID] = []
    async with story_app.api.sandbox.manual_worker() as worker:
        while drawn.count(stories[0]) < 15:
            claims = await worker.claim(1, queues=["generate_image"])
            await worker.record_outcomes(await worker.attempt(claims))
            drawn += [claim.run for claim in claims]
    assert set(drawn) == set(stories)
    assert len(drawn) < 75


@pytest.mark.parametrize("last", ["generate_image", "generate_audio", "translate_scene"])
async def test_last_jobs_that_end_together_start_one_render(story_app: StoryApp, last: str) -> None:
    story = await story_app.order(scenes=4, languages=["en"])
    await story_app.write_scripts()
    async with AsyncExitStack() as stack:
        hands = [await stack.enter_async_context(story_app.api.sandbox.manual_worker()) for _ in range(4)]
        held = [(worker, await worker.claim(1, queues=[last])) for worker in hands]
        await story_app.work()
        outcomes = [(worker, await worker.attempt(claims)) for worker, claims in held]
        await asyncio.gather(*(worker.record_outcomes(each) for worker, each in outcomes))
    await story_app.work()
    assert await story_app.list_revisions(story, "render_video") == [(1, "succeeded")]
    assert (await story_app.show(story))["status"] == "ready_for_review"
