from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from retoma import File
from retoma.records import Review
from retoma.reviews import Decision
from retoma.states import RunState
from retoma.testing import Sandbox, sandbox
from retoma_apps.providers.ffmpeg import probe
from retoma_apps.providers.youtube import LocalChannel
from retoma_apps.videos.operations.checkpoints import get_payload
from tests.apps.videos.media.material import mean_volume
from tests.apps.videos.small_services import make_small_app, make_small_services

NOTHING: dict[str, Any] = {}
BRIEF = {"topic": "Como investir em renda fixa", "seconds": 20}


@pytest.fixture
async def video_sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with sandbox(make_small_app(tmp_path)) as opened:
        yield opened


async def work_until_review(video_sandbox: Sandbox, run: UUID) -> Review:
    await video_sandbox.work(advance_clock=False)
    (review,) = await video_sandbox.client.reviews.list(run=run)
    return review


async def approve_all(video_sandbox: Sandbox, run: UUID, **values: Any) -> Review:
    review = await work_until_review(video_sandbox, run)
    return await video_sandbox.client.reviews.decide(review.id, Decision("approve", by="ana", **values))


async def test_a_topic_becomes_a_published_video_through_four_reviews_each_sent_back_once(
    video_sandbox: Sandbox, tmp_path: Path
) -> None:
    run = (await video_sandbox.client.start("longform", BRIEF, tenant="financas")).id
    kinds = []
    notes = {
        "script_review": Decision("send_back", by="ana", notes="mais curto, e fale do risco"),
        "audio_review": Decision("send_back", by="ana", notes="mais rápido"),
        "broll_review": Decision("send_back", by="ana", notes="outro", items=["1"]),
        "final_review": Decision("send_back", by="ana", notes="outras cores", to="thumbnail_gen"),
    }
    for _ in range(8):
        review = await work_until_review(video_sandbox, run)
        kinds.append(review.step)
        shown = await get_payload(video_sandbox.client, review, "")
        assert shown["data"]
        back = notes.pop(review.step, None)
        final: dict[str, Any] = {"value": {"thumbnail": 2}} if review.step == "final_review" else {}
        await video_sandbox.client.reviews.decide(review.id, back or Decision("approve", by="ana", **final))
    assert kinds == [name for name in dict.fromkeys(kinds) for _ in range(2)]
    await video_sandbox.work()
    assert (await video_sandbox.client.runs.get(run)).state is RunState.COMPLETED
    results = await video_sandbox.client.runs.get_results(run)
    path = await make_small_services(tmp_path).files.get_path(File.model_validate(results["video_assembly"]["video"]))
    film = await probe(path)
    assert abs(film.seconds - results["audio_generation"]["seconds"]) <= 0.2
    assert (film.width, film.height, film.video_codec, film.audio_codec) == (320, 180, "h264", "aac")
    assert mean_volume(path) > -40
    (before, after) = (
        made.output for made in reversed(await video_sandbox.client.runs.get_step_history(run, "audio_generation"))
    )
    assert after["rate"] > before["rate"]
    (first, second) = (
        made.output["clips"] for made in reversed(await video_sandbox.client.runs.get_step_history(run, "broll_search"))
    )
    assert first[0]["video"] != second[0]["video"]
    assert first[1:] == second[1:]
    (video,) = await LocalChannel(tmp_path / "channel").videos()
    assert video.title == results["script_review"]["title"]


async def test_facts_learnt_by_one_video_are_known_to_the_next_of_its_channel(video_sandbox: Sandbox) -> None:
    first = (await video_sandbox.client.start("longform", BRIEF, tenant="financas")).id
    for value in NOTHING, NOTHING, NOTHING, {"value": {"thumbnail": 1}}:
        await approve_all(video_sandbox, first, **value)
    await video_sandbox.work()
    longer = (await video_sandbox.client.start("longform", {**BRIEF, "seconds": 60}, tenant="financas")).id
    data = (await get_payload(video_sandbox.client, await work_until_review(video_sandbox, longer), ""))["data"]
    assert data["knowledge_reuse_rate"] > 0.5
