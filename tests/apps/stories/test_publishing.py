"""Publishing: who may, once, and what changes in place."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from retoma import minutes
from retoma.reviews import Decision
from tests.apps.stories.story_app import StoryApp


async def count_videos(story_app: StoryApp) -> int:
    return len(await story_app.channel.videos())


async def test_a_story_is_uploaded_only_after_its_approval(story_app: StoryApp) -> None:
    story = await story_app.order_until_review()
    assert await count_videos(story_app) == 0
    answer = await story_app.publish(story)
    assert (answer.status_code, answer.json()["status"]) == (202, "ready_for_review")
    await story_app.work()
    shown = await story_app.show(story)
    assert shown["status"] == "published"
    (video,) = await story_app.channel.videos()
    assert shown["url"] == f"/storyboard/channel/{video.video_id}"


async def test_the_upload_has_film_thumbnail_texts_and_tracks(story_app: StoryApp) -> None:
    story = await story_app.order_until_review(languages=["en", "es"])
    await story_app.publish(story, thumbnail=2, title="Another title")
    await story_app.work()
    (video,) = await story_app.channel.videos()
    shown = await story_app.show(story)
    assert b"moving" in video.video.read_bytes()
    assert video.thumbnail is not None
    assert (video.title, video.description) == ("Another title", "About it.")
    assert {language: texts.title for language, texts in video.localizations.items()} == {
        "en": "How coffee is made (en)",
        "es": "How coffee is made (es)",
    }
    assert sorted(video.captions) == ["en", "es", "pt-BR"]
    assert "(es, version 1)" in video.captions["es"].read_text("utf-8").replace("\n", " ")
    assert shown["metadata"]["title"] == "How coffee is made"


async def test_the_approval_names_who_and_when(story_app: StoryApp) -> None:
    story = await story_app.order_until_review()
    await story_app.api.sandbox.clock.advance(timedelta(minutes=5))
    await story_app.publish(story)
    approval = (await story_app.show(story))["approval"]
    (review,) = await story_app.client.reviews.list(run=UUID(story), states=None)
    assert approval == {"by": review.decided_by, "at": review.decided_at.isoformat(), "via": "api"}
    assert review.decided_by
    assert review.decided_at - review.opened_at == timedelta(minutes=5)


async def test_the_approval_is_the_latest_one(story_app: StoryApp) -> None:
    story = await story_app.order_until_published()
    first = (await story_app.show(story))["approval"]
    await story_app.rerun_scene(story, "2", "image")
    await story_app.work()
    await story_app.api.sandbox.clock.advance(timedelta(minutes=5))
    await story_app.publish(story)
    assert (await story_app.show(story))["approval"]["at"] > first["at"]


async def test_publishing_twice_uploads_once(story_app: StoryApp) -> None:
    story = await story_app.order_until_review()
    answers = await asyncio.gather(*(story_app.publish(story) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [202, 409, 409, 409]
    assert {answer.json()["code"] for answer in answers if answer.status_code == 409} == {"ALREADY_DECIDED"}
    await story_app.work()
    assert (await story_app.publish(story)).json()["code"] == "ALREADY_DECIDED"
    await story_app.work()
    assert await count_videos(story_app) == 1
    assert await story_app.list_revisions(story, "upload_youtube") == [(1, "succeeded")]


async def test_a_repeated_key_is_the_same_decision(story_app: StoryApp) -> None:
    story = await story_app.order_until_review()
    headers = {"Idempotency-Key": "click"}
    first, second = [await story_app.publish(story, headers=headers) for _ in range(2)]
    assert (first.status_code, second.status_code) == (202, 202)
    await story_app.work()
    assert await count_videos(story_app) == 1


async def test_publishing_too_early_changes_nothing_and_says_so(story_app: StoryApp) -> None:
    story = await story_app.order(scenes=2)
    await story_app.write_scripts()
    answer = await story_app.publish(story)
    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_READY")
    assert "is producing" in answer.json()["detail"]
    await story_app.work()
    shown = await story_app.show(story)
    assert (shown["status"], shown["approval"]) == ("ready_for_review", None)


async def test_publishing_while_a_scene_is_rerun_is_too_early(story_app: StoryApp) -> None:
    story = await story_app.order_until_published()
    await story_app.rerun_scene(story, "1", "image")
    answer = await story_app.publish(story)
    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_READY")


async def test_a_decision_on_an_older_revision_is_refused(story_app: StoryApp) -> None:
    story = await story_app.order_until_review()
    await story_app.rerun_scene(story, "1", "image")
    await story_app.work()
    answer = await story_app.publish(story, seen=1)
    assert (answer.status_code, answer.json()["code"]) == (409, "REVISION_CHANGED")


async def test_a_rejected_story_is_never_uploaded(story_app: StoryApp) -> None:
    story = await story_app.order_until_review()
    (review,) = await story_app.client.reviews.list(run=UUID(story))
    await story_app.client.reviews.decide(review.id, Decision("reject", by="ana", notes="too dark"))
    await story_app.work()
    shown = await story_app.show(story)
    assert (shown["status"], shown["error"]["message"]) == ("rejected", "too dark")
    assert (await story_app.publish(story)).status_code == 409
    assert await count_videos(story_app) == 0


async def test_a_new_translation_updates_the_subtitles_in_place(story_app: StoryApp) -> None:
    story = await story_app.order_until_published(languages=["en"])
    (before,) = await story_app.channel.videos()
    await story_app.rerun_scene(story, "2", "translations")
    await story_app.work()
    assert (await story_app.show(story))["status"] == "ready_for_review"
    await story_app.publish(story, title="A better title")
    await story_app.work()
    (after,) = await story_app.channel.videos()
    assert (after.video_id, after.title) == (before.video_id, "A better title")
    assert "(en, version 2)" in after.captions["en"].read_text("utf-8").replace("\n", " ")
    shown = await story_app.show(story)
    assert (shown["status"], shown["published_film_is_current"], shown["earlier_urls"]) == ("published", True, [])


async def test_a_new_film_replaces_no_published_one(story_app: StoryApp) -> None:
    story = await story_app.order_until_published()
    (before,) = await story_app.channel.videos()
    content = before.video.read_bytes()
    await story_app.rerun_scene(story, "2", "image")
    await story_app.work()
    await story_app.publish(story)
    await story_app.work()
    (after,) = await story_app.channel.videos()
    assert (after.video_id, after.video.read_bytes()) == (before.video_id, content)
    shown = await story_app.show(story)
    assert (shown["status"], shown["published_film_is_current"]) == ("published", False)


async def test_publishing_as_a_new_video_keeps_and_names_the_old_one(story_app: StoryApp) -> None:
    story = await story_app.order_until_published()
    old = (await story_app.show(story))["url"]
    await story_app.rerun_scene(story, "2", "image")
    await story_app.work()
    await story_app.publish(story, new_video=True)
    await story_app.work()
    shown = await story_app.show(story)
    assert await count_videos(story_app) == 2
    assert shown["url"] != old
    assert (shown["earlier_urls"], shown["published_film_is_current"]) == ([old], True)


async def test_a_story_names_all_its_earlier_videos(story_app: StoryApp) -> None:
    story, urls = await story_app.order_until_published(), []
    for _ in range(2):
        urls.append((await story_app.show(story))["url"])
        await story_app.rerun_scene(story, "2", "image")
        await story_app.work()
        await story_app.publish(story, new_video=True)
        await story_app.work()
    assert (await story_app.show(story))["earlier_urls"] == urls
    assert len(set(urls)) == 2


async def test_a_new_video_of_the_same_film_is_not_uploaded_again(story_app: StoryApp) -> None:
    story = await story_app.order_until_published(languages=["en"])
    await story_app.rerun_scene(story, "2", "translations")
    await story_app.work()
    await story_app.publish(story, new_video=True, title="A better title")
    await story_app.work()
    (video,) = await story_app.channel.videos()
    assert video.title == "A better title"
    assert (await story_app.show(story))["earlier_urls"] == []


async def test_a_resumed_upload_uses_no_video_that_is_about_to_be_deleted(
    story_app: StoryApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = await story_app.order_until_review(languages=["en"])
    clock = story_app.api.sandbox.clock

    async def fail(*_: Any) -> None:
        raise RuntimeError("the channel does not answer")

    with monkeypatch.context() as patched:
        for name in ("set_captions", "delete"):
            patched.setattr(story_app.channel, name, fail)
        await story_app.publish(story)
        for _ in range(6):
            await story_app.work()
            await clock.advance(minutes(20))
        assert ((await story_app.show(story))["status"], await count_videos(story_app)) == ("failed", 1)
        await story_app.client.runs.resume(UUID(story))
        await story_app.work()
    for _ in range(3):  # the first video is deleted, and then the film is sent again
        await clock.advance(minutes(2))
        await story_app.work()
    assert ((await story_app.show(story))["status"], await count_videos(story_app)) == ("published", 1)


async def test_subtitles_of_another_timing_are_not_set_on_the_old_film(
    story_app: StoryApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = await story_app.order_until_published(languages=["en"])
    monkeypatch.setattr("retoma_apps.stories.steps.scenes.PAUSE_SECONDS", 1.7)
    await story_app.rerun_scene(story, "1", "audio", "translations")
    await story_app.work()
    await story_app.publish(story)
    await story_app.work()
    (video,) = await story_app.channel.videos()
    assert "(en, version 2)" not in video.captions["en"].read_text("utf-8").replace("\n", " ")


async def test_a_story_cannot_be_sent_back(story_app: StoryApp) -> None:
    story = await story_app.order_until_review()
    (review,) = await story_app.client.reviews.list(run=UUID(story))
    path = f"/api/v1/reviews/{review.id}/decision"
    answer = await story_app.api.post(path, json={"action": "send_back", "notes": "add a cat"})
    assert answer.status_code == 422
    assert "cannot be sent back: approve or reject it" in answer.json()["detail"]
    assert (await story_app.show(story))["status"] == "ready_for_review"
