"""Ordering and reading stories over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from retoma.records import Scope
from retoma.store.database import Database
from retoma_apps.stories.steps.writing.bundled import BundledStoryWriter
from tests.apps.stories.story_app import StoryApp, running_story_app
from tests.conftest import empty_database


async def test_an_order_answers_with_id_and_status_before_any_work(story_app: StoryApp) -> None:
    answer = await story_app.api.post("/stories", json={"topic": "Tea"})
    story = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/stories/{story['id']}"
    assert (story["status"], story["scenes"], story["languages"], story["channel"]) == ("scripting", 0, [], "principal")
    run = await story_app.client.runs.get(UUID(story["id"]))
    assert run.input["scenes"] == 15
    counts = (await story_app.api.get("/stories/jobs")).json()["counts"]
    assert {kind: sum(states.values()) for kind, states in counts.items() if any(states.values())} == {
        "generate_script": 1
    }


async def test_an_order_has_topic_scenes_languages_and_channel(story_app: StoryApp) -> None:
    story = await story_app.order("Tea", scenes=7, languages=["en", "es"], channel="chá")
    shown = await story_app.show(story)
    assert (shown["topic"], shown["channel"], shown["languages"]) == ("Tea", "chá", ["en", "es"])
    await story_app.write_scripts()
    assert (await story_app.show(story))["scenes"] == 7


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"topic": ""},
        {"topic": "Tea", "scenes": 0},
        {"topic": "Tea", "scenes": 101},
        {"topic": "Tea", "languages": ["en", "EN"]},
        {"topic": "Tea", "languages": ["../etc"]},
        {"topic": "Tea", "channel": "a/b"},
        {"topic": "Tea", "colour": "red"},
    ],
)
async def test_an_invalid_order_is_refused(story_app: StoryApp, wrong: dict[str, Any]) -> None:
    assert (await story_app.api.post("/stories", json=wrong)).status_code == 422
    assert (await story_app.api.get("/stories")).json()["stories"] == []


async def test_the_same_key_orders_one_story(story_app: StoryApp) -> None:
    headers = {"Idempotency-Key": "order-1"}
    ids = {
        (await story_app.api.post("/stories", json={"topic": "Tea"}, headers=headers)).json()["id"] for _ in range(2)
    }
    assert len(ids) == 1
    other = await story_app.api.post("/stories", json={"topic": "Coffee"}, headers=headers)
    assert other.status_code == 422


async def test_a_repeated_order_is_answered_though_the_model_is_gone(story_app: StoryApp) -> None:
    order, headers = {"topic": "The history of tea"}, {"Idempotency-Key": "order-1"}
    first = await story_app.api.post("/stories", json=order, headers=headers)
    object.__setattr__(story_app.services, "writer", BundledStoryWriter())
    again = await story_app.api.post("/stories", json=order, headers=headers)
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert (await story_app.api.post("/stories", json=order)).json()["code"] == "NEEDS_LANGUAGE_MODEL"


async def test_stories_are_listed_newest_first(story_app: StoryApp) -> None:
    ids = [await story_app.order(topic) for topic in ("One", "Two", "Three")]
    first = (await story_app.api.get("/stories?limit=2")).json()
    second = (await story_app.api.get(f"/stories?limit=2&before={first['next']}")).json()
    assert [each["id"] for each in (*first["stories"], *second["stories"])] == ids[::-1]
    assert second["next"] is None


async def test_a_story_shows_its_scenes_and_their_jobs(story_app: StoryApp) -> None:
    story = await story_app.order_until_review(languages=["en"])
    shown = await story_app.show(story)
    scene = shown["scene_list"][1]
    assert (scene["scene_id"], scene["text"]) == ("2", "Sentence 2 on How coffee is made.")
    assert {(job["job_type"], job["scene_id"], job["language"], job["state"]) for job in scene["jobs"]} == {
        ("generate_audio", "2", None, "succeeded"),
        ("generate_image", "2", None, "succeeded"),
        ("translate_scene", "2", "en", "succeeded"),
    }
    picture = await story_app.api.get(
        scene["image_url"].partition("/api/")[1] + scene["image_url"].partition("/api/")[2]
    )
    assert picture.content.startswith(b"picture 2.")
    assert {track["language"] for track in shown["subtitles"]} == {"pt-BR", "en"}
    assert len(shown["thumbnail_urls"]) == 3


async def test_runs_of_other_pipelines_are_no_stories(story_app: StoryApp) -> None:
    unknown = "01990000-0000-7000-8000-000000000000"
    assert (await story_app.api.get(f"/stories/{unknown}")).status_code == 404
    assert (await story_app.publish(unknown)).status_code == 404


async def test_an_unknown_scene_is_not_rerun(story_app: StoryApp) -> None:
    story = await story_app.order_until_review()
    assert (await story_app.rerun_scene(story, "99")).status_code == 404
    assert (await story_app.rerun_scene(story, "1", "translations")).status_code == 404
    assert (await story_app.show(story))["revision"] == 1


async def test_a_channels_key_sees_only_its_own_stories(story_app: StoryApp) -> None:
    story = await story_app.order_until_review(channel="one")
    scopes = [Scope.RUNS_READ, Scope.RUNS_WRITE, Scope.REVIEWS_WRITE]
    key = await story_app.client.api_keys.create("two", scopes, tenant="two")
    headers = {"X-API-Key": key.secret}
    assert (await story_app.api.get("/stories", headers=headers)).json()["stories"] == []
    assert (await story_app.api.get("/stories/jobs", headers=headers)).json()["jobs"] == []
    assert (await story_app.publish(story, headers=headers)).status_code == 404
    order = {"topic": "Tea", "channel": "one"}
    assert (await story_app.api.post("/stories", json=order, headers=headers)).status_code == 404


async def test_the_topics_that_can_be_ordered_are_listed(database: Database, tmp_path: Path) -> None:
    await empty_database(database)
    async with running_story_app(database, tmp_path, writer=BundledStoryWriter()) as app:
        listed = (await app.api.get("/stories/topics")).json()
        assert listed["any_topic"] is False
        assert {"title": "How coffee is made", "language": "en"} in listed["topics"]
        portuguese = (await app.api.get("/stories/topics?language=pt-BR")).json()["topics"]
        assert {topic["language"] for topic in portuguese} == {"pt-BR"}
        for topic in listed["topics"]:
            assert (await app.api.post("/stories", json={"topic": topic["title"], "scenes": 1})).status_code == 202


async def test_without_a_model_only_bundled_topics_are_accepted(database: Database, tmp_path: Path) -> None:
    await empty_database(database)
    async with running_story_app(database, tmp_path, writer=BundledStoryWriter()) as app:
        unknown = await app.api.post("/stories", json={"topic": "The history of tea"})
        assert (unknown.status_code, unknown.json()["code"]) == (422, "NEEDS_LANGUAGE_MODEL")
        assert "needs a language model: set OPENROUTER_API_KEY, or choose one of" in unknown.json()["detail"]
        assert "How coffee is made" in unknown.json()["detail"]
        untranslated = await app.api.post("/stories", json={"topic": "How coffee is made", "languages": ["es"]})
        assert (untranslated.status_code, untranslated.json()["code"]) == (422, "NEEDS_LANGUAGE_MODEL")
        order = {"topic": "How coffee is made", "languages": ["pt-BR", "en"]}
        story = (await app.api.post("/stories", json=order)).json()
        assert (story["language"], story["languages"]) == ("en", ["pt-BR"])
