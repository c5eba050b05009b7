"""The status of a story, derived from its run and jobs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from retoma import GiveUp
from retoma.records import StepProgress
from retoma.states import JobState, RunState
from retoma_apps.stories.states import STATUS_BY_RUN_STATE, Status, status_of
from tests.apps.stories.story_app import StoryApp

STEPS = ("generate_script", "generate_image", "generate_audio", "translate_scene", "render_scene", "render_video")
LATER = ("generate_thumbnails", "generate_metadata", "approval", "upload_youtube")


def progress(*done: str) -> list[StepProgress]:
    """Return two jobs of each step, which have succeeded if they are `done`."""

    def jobs(step: str) -> dict[JobState, int]:
        return {JobState.SUCCEEDED: 2} if step in done else {JobState.SUCCEEDED: 1, JobState.WAITING: 1}

    nothing: Any = (None, None, None)
    return [StepProgress(step, "scene" in step, "default", jobs(step), *nothing) for step in (*STEPS, *LATER)]


@pytest.mark.parametrize(
    ("done", "status"),
    [
        (0, Status.SCRIPTING),
        (1, Status.PRODUCING),
        (3, Status.PRODUCING),
        (4, Status.RENDERING),
        (6, Status.RENDERING),
        (7, Status.RENDERING),
        (8, Status.READY_FOR_REVIEW),
        (9, Status.READY_FOR_REVIEW),
        (10, Status.PUBLISHED),
    ],
)
def test_the_status_follows_the_first_step_without_all_results(done: int, status: Status) -> None:
    assert status_of(RunState.RUNNING, progress(*(*STEPS, *LATER)[:done])) is status


def test_thumbnails_and_metadata_may_end_in_any_order() -> None:
    assert status_of(RunState.RUNNING, progress(*STEPS, "generate_metadata")) is Status.RENDERING
    assert status_of(RunState.RUNNING, progress(*STEPS, *LATER[:2])) is Status.READY_FOR_REVIEW


@pytest.mark.parametrize("state", list(RunState))
def test_every_run_state_has_exactly_one_status(state: RunState) -> None:
    assert state in STATUS_BY_RUN_STATE
    for done in range(len(STEPS) + len(LATER) + 1):
        assert isinstance(status_of(state, progress(*(*STEPS, *LATER)[:done])), Status)


def test_ended_runs_have_their_own_statuses() -> None:
    shown = {state: status_of(state, progress()) for state in RunState if state.is_over}
    assert shown == {
        RunState.COMPLETED: Status.PUBLISHED,
        RunState.COMPLETED_WITH_ERRORS: Status.FAILED,
        RunState.FAILED: Status.FAILED,
        RunState.REJECTED: Status.REJECTED,
        RunState.CANCELLED: Status.CANCELLED,
    }


async def test_a_story_passes_its_statuses_in_order(story_app: StoryApp) -> None:
    story = await story_app.order(scenes=2, languages=["es"])
    seen = [(await story_app.show(story))["status"]]
    async with story_app.api.sandbox.manual_worker() as worker:
        while claims := await worker.claim(1):
            await worker.record_outcomes(await worker.attempt(claims))
            seen.append((await story_app.show(story))["status"])
    await story_app.publish(story)
    seen.append((await story_app.show(story))["status"])
    await story_app.work()
    seen.append((await story_app.show(story))["status"])
    assert list(dict.fromkeys(seen)) == ["scripting", "producing", "rendering", "ready_for_review", "published"]
    assert seen == sorted(seen, key=list(dict.fromkeys(seen)).index)


async def test_a_late_worker_cannot_move_the_status_back(story_app: StoryApp) -> None:
    """It reports its image again when the story is published."""
    story = await story_app.order(scenes=2)
    await story_app.write_scripts()
    async with story_app.api.sandbox.manual_worker() as late:
        outcomes = await late.attempt(await late.claim(1, queues=["generate_image"]))
        await late.record_outcomes(outcomes)
        await story_app.work()
        await story_app.publish(story)
        await story_app.work()
        assert (await story_app.show(story))["status"] == "published"
        await late.record_outcomes(outcomes)
        assert late.rejected_outcomes == 1
    assert (await story_app.show(story))["status"] == "published"


async def test_a_cancelled_story_says_so(story_app: StoryApp) -> None:
    story = await story_app.order()
    await story_app.client.runs.cancel(UUID(story))
    assert (await story_app.show(story))["status"] == "cancelled"


async def test_a_failed_upload_fails_the_story_and_can_be_resumed(story_app: StoryApp) -> None:
    story = await story_app.order_until_review()

    async def refuse(*_: Any) -> str:
        raise GiveUp("the channel is closed")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(story_app.channel, "begin", refuse)
        await story_app.publish(story)
        await story_app.work()
    shown = await story_app.show(story)
    assert (shown["status"], shown["error"]["job_type"]) == ("failed", "upload_youtube")
    await story_app.client.runs.resume(UUID(story))
    await story_app.work()
    assert (await story_app.show(story))["status"] == "published"
