from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from retoma import Decision, File
from retoma.records import Review
from retoma.states import RunState
from retoma.testing import Sandbox, sandbox
from retoma_apps.providers.youtube import LocalChannel
from retoma_apps.videos.checkpoints import payload
from retoma_apps.videos.media.probe import probe
from tests.apps.videos.media.material import mean_volume
from tests.apps.videos.studio import small_app, small_studio

NOTHING: dict[str, Any] = {}
BRIEF = {"topic": "Como investir em renda fixa", "seconds": 20}


@pytest.fixture
async def studio(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with sandbox(small_app(tmp_path)) as opened:
        yield opened


async def asked(studio: Sandbox, run: UUID) -> Review:
    await studio.work(until_later=False)
    (review,) = await studio.client.reviews(run=run)
    return review


async def approved(studio: Sandbox, run: UUID, **given: Any) -> Review:
    review = await asked(studio, run)
    return await studio.client.decide(review.id, Decision("approve", by="ana", **given))


async def test_a_topic_becomes_a_published_video_through_four_reviews_each_sent_back_once(
    studio: Sandbox, tmp_path: Path
) -> None:
    run = (await studio.client.start("longform", BRIEF, tenant="financas")).id
    kinds = []
    notes = {
        "script_review": Decision("send_back", by="ana", notes="mais curto, e fale do risco"),
        "audio_review": Decision("send_back", by="ana", notes="mais rápido"),
        "broll_review": Decision("send_back", by="ana", notes="outro", items=["1"]),
        "final_review": Decision("send_back", by="ana", notes="outras cores", to="thumbnail_gen"),
    }
    for _ in range(8):
        review = await asked(studio, run)
        kinds.append(review.step)
        shown = await payload(studio.client, review, "")
        assert shown["data"]
        back = notes.pop(review.step, None)
        final: dict[str, Any] = {"value": {"thumbnail": 2}} if review.step == "final_review" else {}
        await studio.client.decide(review.id, back or Decision("approve", by="ana", **final))
    assert kinds == [name for name in dict.fromkeys(kinds) for _ in range(2)]
    await studio.work()
    assert (await studio.client.show(run)).state is RunState.COMPLETED
    results = await studio.client.results(run)
    path = await small_studio(tmp_path).files.path(File.model_validate(results["video_assembly"]["video"]))
    film = await probe(path)
    assert abs(film.seconds - results["audio_generation"]["seconds"]) <= 0.2
    assert (film.width, film.height, film.video_codec, film.audio_codec) == (320, 180, "h264", "aac")
    assert mean_volume(path) > -40
    (before, after) = (made.output for made in reversed(await studio.client.made(run, "audio_generation")))
    assert after["rate"] > before["rate"]
    (first, second) = (made.output["clips"] for made in reversed(await studio.client.made(run, "broll_search")))
    assert first[0]["video"] != second[0]["video"]
    assert first[1:] == second[1:]
    (video,) = await LocalChannel(tmp_path / "channel").videos()
    assert video.title == results["script_review"]["title"]


async def test_what_one_video_learnt_is_known_to_the_next_of_its_channel(studio: Sandbox) -> None:
    first = (await studio.client.start("longform", BRIEF, tenant="financas")).id
    for given in NOTHING, NOTHING, NOTHING, {"value": {"thumbnail": 1}}:
        await approved(studio, first, **given)
    await studio.work()
    longer = (await studio.client.start("longform", {**BRIEF, "seconds": 60}, tenant="financas")).id
    data = (await payload(studio.client, await asked(studio, longer), ""))["data"]
    assert data["knowledge_reuse_rate"] > 0.5
