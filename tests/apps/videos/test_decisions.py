"""A checkpoint's decision, as its caller reads it later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from retoma import File
from retoma.reviews import Comment
from retoma.store.database import Database
from retoma_apps.videos.models import Broll, Clip
from retoma_apps.videos.steps.footage import find_commented_clips
from tests.apps.videos.fast_video_app import FastVideoApp, running_fast_video_app
from tests.conftest import empty_database


@pytest.fixture
async def video_app(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FastVideoApp]:
    await empty_database(database)
    async with running_fast_video_app(database, tmp_path, monkeypatch) as made:
        yield made


REMARK = {"text": "mais curto", "at": 1.0, "to": None}
DECISIONS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("script_review", "approved", {"notes": "bom"}, {}),
    (
        "script_review",
        "revision_requested",
        {"comments": [REMARK], "rewind_to": "research"},
        {"comments": [REMARK], "rewind_to": "research"},
    ),
    ("audio_review", "revision_requested", {"rate": 1.2}, {"rate": 1.2, "rewind_to": "audio_generation"}),
    (
        "broll_review",
        "revision_requested",
        {"clips": [1, 3], "queries": {"3": "um rio"}},
        {"clips": [1, 3], "queries": {"3": "um rio"}, "rewind_to": "broll_search"},
    ),
    ("final_review", "revision_requested", {"subtitles": False}, {"subtitles": False, "rewind_to": "video_assembly"}),
    ("final_review", "approved", {"thumbnail": 2, "tags": []}, {"thumbnail": 2, "tags": []}),
    ("final_review", "rejected", {"notes": "não"}, {}),
]


@pytest.mark.parametrize(("review", "action", "values", "decided"), DECISIONS)
async def test_a_decided_checkpoint_shows_the_decision(
    video_app: FastVideoApp, review: str, action: str, values: dict[str, Any], decided: dict[str, Any]
) -> None:
    checkpoint = await video_app.order_until(review)
    assert checkpoint["decided"] is None
    answer = await video_app.decide(checkpoint, action, **values)
    assert answer.status_code == 200, answer.text
    assert (await video_app.checkpoint(checkpoint["checkpoint_id"]))["decided"] == answer.json()["decided"] == decided


async def test_a_decided_checkpoint_shows_the_approved_version(video_app: FastVideoApp) -> None:
    checkpoint = await video_app.order_until("script_review")
    written = (await video_app.client.runs.get_results(UUID(checkpoint["video_id"])))["script_generation"]
    reported = await video_app.approve(checkpoint, value={**written, "title": "Outro"})
    assert reported["decided"]["value"]["title"] == "Outro"


async def test_the_lengths_of_footage_and_narration_are_rounded_the_same_way(video_app: FastVideoApp) -> None:
    checkpoint = await video_app.order_until("broll_review")
    video = UUID(checkpoint["video_id"])
    found = Broll.model_validate((await video_app.client.runs.get_results(video))["broll_search"])
    uneven = found.model_copy(update={"total_seconds": 26.2399999, "audio_seconds": 26.243333333333332})
    await video_app.client.runs.edit(video, "broll_search", uneven.model_dump(mode="json"), by="ana")
    data = (await video_app.work_until_review(str(video)))["data"]
    assert (data["total_duration"], data["audio_duration"]) == (26.24, 26.24)


REVIEWS_WITHOUT_NOTES = [
    ("broll_review", "broll_search", "clips can be replaced"),
    ("final_review", "video_assembly", "comments on moments have no effect on this step"),
    ("final_review", "thumbnail_gen", "comments on moments have no effect on this step"),
    ("final_review", "broll_search", "clips can be replaced"),
    ("final_review", "audio_generation", "the narration can use another voice or speed"),
    ("final_review", "script_generation", "the script can only become shorter or longer"),
]


@pytest.mark.parametrize(("review", "target", "reason"), REVIEWS_WITHOUT_NOTES)
async def test_a_timed_comment_is_rejected_where_it_would_have_no_effect(
    video_app: FastVideoApp, review: str, target: str, reason: str
) -> None:
    checkpoint = await video_app.order_until(review)
    remarks = [{"text": "alto demais", "at": 83}]
    answer = await video_app.decide(checkpoint, "revision_requested", notes="som", comments=remarks, rewind_to=target)
    assert (answer.status_code, reason in answer.text) == (422, True), answer.text
    assert (await video_app.checkpoint(checkpoint["checkpoint_id"]))["status"] == "pending"


@pytest.mark.parametrize(("review", "target", "reason"), REVIEWS_WITHOUT_NOTES[:2])
async def test_a_comment_without_effect_is_rejected_by_every_way_of_sending_back(
    video_app: FastVideoApp, review: str, target: str, reason: str
) -> None:
    checkpoint = await video_app.order_until(review)
    body = {"action": "send_back", "to": target, "comments": [{"text": "alto demais", "at": 83}]}
    answer = await video_app.api.post(f"/api/v1/reviews/{checkpoint['checkpoint_id']}/decision", json=body)
    assert (answer.status_code, reason in answer.text) == (422, True), answer.text


async def test_the_final_review_goes_back_to_the_narration_with_another_speed(video_app: FastVideoApp) -> None:
    final = await video_app.order_until("final_review")
    refused = await video_app.decide(final, "revision_requested", rate=1.2, rewind_to="thumbnail_gen")
    assert (refused.status_code, "it has no effect on thumbnail_gen" in refused.text) == (422, True)
    answer = await video_app.decide(final, "revision_requested", rate=1.2, rewind_to="audio_generation")
    assert answer.status_code == 200, answer.text
    sent_back = await video_app.client.reviews.get(UUID(final["checkpoint_id"]))
    assert (sent_back.back_to, (sent_back.feedback or {})["rate"]) == ("audio_generation", 1.2)


@pytest.mark.parametrize(
    ("comment", "numbers"),
    [
        (Comment("outro clipe", 4.1), {2}),
        (Comment("outro clipe", 3.9, 4.2), {1}),  # it ends just after the cut
        (Comment("outro clipe", 3.0, 9.0), {1, 2, 3}),
        (Comment("outro clipe", 99.0), set()),
        (Comment("outro clipe"), set()),
    ],
)
def test_a_comment_on_the_film_marks_the_clips_shown_at_its_moment(comment: Comment, numbers: set[int]) -> None:
    file = File(file="0" * 64, name="clip.mp4", size=1, media_type="video/mp4")
    kept: dict[str, Any] = {"video": file, "thumbnail": file, "source": "offline", "query": "x", "relevance": 0.5}
    clips = [Clip(**kept, seconds=4, scene=number) for number in range(3)]
    assert find_commented_clips(clips, [comment]) == numbers
