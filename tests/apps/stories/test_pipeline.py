"""The jobs of a story: their types, their number, and when each starts."""

from __future__ import annotations

from uuid import UUID

import pytest

from retoma import GiveUp
from retoma.states import JobState
from retoma_apps.stories.pipeline import story as pipeline
from tests.apps.stories.story_app import StoryApp

TYPES = {
    "generate_script",
    "generate_image",
    "generate_audio",
    "translate_scene",
    "render_video",
    "generate_thumbnails",
    "generate_metadata",
    "upload_youtube",
}


async def test_a_story_has_the_eight_types_of_jobs(story_app: StoryApp) -> None:
    story = await story_app.order_until_published(scenes=15, languages=["en", "es"])
    jobs = await story_app.count_jobs(story)
    assert {name: jobs[name] for name in TYPES} == {
        "generate_script": 1,
        "generate_image": 15,
        "generate_audio": 15,
        "translate_scene": 30,
        "render_video": 1,
        "generate_thumbnails": 1,
        "generate_metadata": 1,
        "upload_youtube": 1,
    }
    assert len(story_app.painter.prompts) == 15


async def test_a_story_without_translations_has_none(story_app: StoryApp) -> None:
    story = await story_app.order_until_published(scenes=2)
    assert (await story_app.count_jobs(story))["translate_scene"] == 0


def test_each_type_has_its_own_queue() -> None:
    assert {step.policy.queue for step in pipeline.steps.values()} == TYPES
    assert all(pipeline.steps[name].policy.queue == name for name in TYPES)


async def test_the_jobs_of_a_scene_name_story_scene_and_language(story_app: StoryApp) -> None:
    story = await story_app.order(scenes=2, languages=["es"])
    await story_app.write_scripts()
    queued = (await story_app.api.get("/stories/jobs")).json()
    assert {(job["job_type"], job["scene_id"], job["language"]) for job in queued["jobs"]} == {
        (kind, scene, "es" if kind == "translate_scene" else None)
        for kind in ("generate_image", "generate_audio", "translate_scene")
        for scene in ("1", "2")
    }
    assert {job["story_id"] for job in queued["jobs"]} == {story}
    assert {job["state"] for job in queued["jobs"]} == {"ready"}


async def test_running_jobs_are_shown_by_type(story_app: StoryApp) -> None:
    await story_app.order(scenes=2)
    await story_app.write_scripts()
    async with story_app.api.sandbox.manual_worker() as worker:
        await worker.claim(1, queues=["generate_image"])
        counts = (await story_app.api.get("/stories/jobs")).json()["counts"]
    assert counts["generate_image"] == {"ready": 1, "running": 1}
    assert counts["generate_audio"] == {"ready": 2, "running": 0}


async def test_the_clip_of_a_scene_is_shown_as_a_part_of_the_render(story_app: StoryApp) -> None:
    story = await story_app.order(scenes=2, languages=["es"])
    await story_app.write_scripts()
    async with story_app.api.sandbox.manual_worker() as worker:
        for queue in ("generate_image", "generate_audio"):
            await worker.record_outcomes(await worker.attempt(await worker.claim(1, queues=[queue])))
        queued = (await story_app.api.get("/stories/jobs")).json()
    assert queued["counts"]["render_video"] == {"ready": 1, "running": 0}
    assert [job for job in queued["jobs"] if job["job_type"] == "render_video"] == [
        {"job_type": "render_video", "story_id": story, "scene_id": "1", "language": None, "state": "ready"}
    ]


async def test_all_jobs_of_scenes_are_created_with_the_script(story_app: StoryApp) -> None:
    """In the call that records the script, so that no join sees only some of them."""
    story = await story_app.order(scenes=4)
    async with story_app.api.sandbox.manual_worker() as worker:
        claims = await worker.claim(100)
        outcomes = await worker.attempt(claims)
        assert (await story_app.count_jobs(story))["generate_image"] == 0
        await worker.record_outcomes(outcomes)
    jobs = await story_app.count_jobs(story)
    assert (jobs["generate_image"], jobs["generate_audio"]) == (4, 4)


async def test_after_the_script_there_is_a_translation_for_each_scene_and_language(story_app: StoryApp) -> None:
    story = await story_app.order(scenes=3, languages=["en", "es"])
    await story_app.write_scripts()
    shown = await story_app.show(story)
    made = [(job["scene_id"], job["language"]) for scene in shown["scene_list"] for job in scene["jobs"]]
    assert sorted(each for each in made if each[1]) == [
        (scene, language) for scene in "123" for language in ("en", "es")
    ]
    assert (shown["status"], shown["scenes"]) == ("producing", 3)


async def test_a_repeated_script_creates_no_second_jobs(story_app: StoryApp) -> None:
    story = await story_app.order_until_review(scenes=3, languages=["es"])
    await story_app.client.runs.rerun(UUID(story), "generate_script")
    await story_app.work()
    jobs = await story_app.count_jobs(story)
    assert (jobs["generate_image"], jobs["generate_audio"], jobs["translate_scene"]) == (3, 3, 3)
    assert len(story_app.painter.prompts) == 3


PRODUCTION = ("generate_image", "generate_audio", "translate_scene")


@pytest.mark.parametrize("last", PRODUCTION)
async def test_the_render_waits_for_every_job_of_every_scene(story_app: StoryApp, last: str) -> None:
    story = await story_app.order(scenes=2, languages=["es"])
    await story_app.write_scripts()
    async with story_app.api.sandbox.manual_worker() as worker:
        claims = await worker.claim(100)
        held = next(claim for claim in claims if claim.step == last)
        await worker.record_outcomes(await worker.attempt([claim for claim in claims if claim is not held]))
        for _ in range(3):  # whatever may follow, such as the clips of finished scenes
            await worker.record_outcomes(await worker.attempt(await worker.claim(100)))
        states = {job.step: job.state for job in await story_app.client.runs.list_jobs(UUID(story))}
        assert states.get("render_video") in (None, JobState.WAITING)
        assert (await story_app.show(story))["status"] == "producing"
        await worker.record_outcomes(await worker.attempt([held]))
    await story_app.work()
    assert (await story_app.show(story))["status"] == "ready_for_review"


def test_the_dependencies_of_the_render_are_in_the_definition() -> None:
    assert {binding.name for binding in pipeline.steps["render_video"].bindings} >= {*PRODUCTION, "render_scene"}


async def test_a_failed_scene_fails_the_story_when_the_others_have_ended(story_app: StoryApp) -> None:
    story_app.painter.failures["picture 2."] = [GiveUp("the picture was refused", "IMAGE_CONTENT_FILTERED")]
    story = await story_app.order(scenes=3, languages=["es"])
    await story_app.work()
    shown = await story_app.show(story)
    assert shown["status"] == "failed"
    assert shown["error"] == {
        "job_type": "generate_image",
        "scene_id": "2",
        "code": "IMAGE_CONTENT_FILTERED",
        "message": "the picture was refused",
    }
    assert shown["scene_jobs_done"] == 8
    assert "succeeded" not in dict(await story_app.list_revisions(story, "generate_thumbnails")).values()


async def test_a_failed_scene_is_rerun_alone(story_app: StoryApp) -> None:
    story_app.painter.failures["picture 2."] = [GiveUp("the picture was refused")]
    story = await story_app.order(scenes=3, languages=["es"])
    await story_app.work()
    drawn = len(story_app.painter.prompts)
    assert (await story_app.rerun_scene(story, "2")).status_code == 202
    await story_app.work()
    shown = await story_app.show(story)
    assert (shown["status"], shown["error"]) == ("ready_for_review", None)
    assert [prompt.split(".")[0] for prompt in story_app.painter.prompts[drawn:]] == ["picture 2"]
    assert await story_app.list_revisions(story, "generate_audio", "2") == [(1, "succeeded")]
    ended = await story_app.list_revisions(story, "generate_thumbnails")
    assert [state for _, state in ended if state != "cancelled"] == ["succeeded"]


async def test_a_rerun_of_scene_1_is_none_of_scene_10(story_app: StoryApp) -> None:
    story = await story_app.order_until_review(scenes=10)
    drawn = len(story_app.painter.prompts)
    await story_app.rerun_scene(story, "1")
    await story_app.work()
    assert [prompt.split(".")[0] for prompt in story_app.painter.prompts[drawn:]] == ["picture 1"]
    assert await story_app.list_revisions(story, "generate_audio", "10") == [(1, "succeeded")]


async def test_a_rerun_asks_for_another_picture(story_app: StoryApp) -> None:
    story = await story_app.order_until_review(scenes=2)
    first = next(prompt for prompt in story_app.painter.prompts if prompt.startswith("picture 2."))
    await story_app.rerun_scene(story, "2", "image")
    await story_app.work()
    assert story_app.painter.prompts[-1] == f"{first} Version 2."


async def test_a_failed_translation_fails_the_story_and_is_rerun_alone(story_app: StoryApp) -> None:
    story_app.writer.failures["translation 1"] = [GiveUp("not this one")]
    story = await story_app.order(scenes=2, languages=["es"])
    await story_app.work()
    assert (await story_app.show(story))["error"]["job_type"] == "translate_scene"
    await story_app.rerun_scene(story, "1")
    await story_app.work()
    assert (await story_app.show(story))["status"] == "ready_for_review"
    assert story_app.writer.translated == {("1", "es"): 1, ("2", "es"): 1}


async def test_a_scene_rerun_after_the_render_renders_once_more(story_app: StoryApp) -> None:
    story = await story_app.order_until_review(scenes=3)
    film = (await story_app.show(story))["film_url"]
    assert (await story_app.rerun_scene(story, "2", "image", "audio")).status_code == 202
    await story_app.work()
    shown = await story_app.show(story)
    assert (shown["status"], shown["revision"]) == ("ready_for_review", 2)
    assert shown["film_url"] != film
    for step in ("render_video", "generate_thumbnails", "generate_metadata"):
        assert await story_app.list_revisions(story, step) == [(1, "succeeded"), (2, "succeeded")], step
    assert await story_app.list_revisions(story, "generate_image", "1") == [(1, "succeeded")]
    assert await story_app.list_revisions(story, "generate_image", "2") == [(1, "succeeded"), (2, "succeeded")]


async def test_thumbnails_and_metadata_are_ready_together(story_app: StoryApp) -> None:
    await story_app.order(scenes=1)
    async with story_app.api.sandbox.manual_worker() as worker:
        while claims := await worker.claim(100):
            if "generate_metadata" in (steps := {claim.step for claim in claims}):
                break
            await worker.record_outcomes(await worker.attempt(claims))
    assert steps == {"generate_thumbnails", "generate_metadata"}


async def test_a_script_of_no_scenes_ends_at_once_and_renders_nothing(story_app: StoryApp) -> None:
    story_app.writer.scenes = 0
    story = await story_app.order()
    await story_app.work()
    shown = await story_app.show(story)
    assert (shown["status"], shown["error"]["code"], shown["error"]["job_type"]) == (
        "failed",
        "NO_SCENES",
        "generate_script",
    )
    assert await story_app.list_revisions(story, "render_video") == [(1, "cancelled")]
    assert await story_app.list_revisions(story, "render_scene", "1") == []
