"""A bundled topic, drawn, spoken, rendered and published on this machine."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from PIL import ImageStat

from retoma.store.database import Database
from retoma.testing import sandbox
from retoma_apps.providers.images.offline import OfflineImages
from retoma_apps.stories.application import make_app
from retoma_apps.stories.demo import ORDERS, run_demo
from retoma_apps.stories.pipeline import story as pipeline
from retoma_apps.stories.steps.writing.bundled import BundledStoryWriter
from tests.apps.stories.story_app import make_services, running_story_app
from tests.apps.videos.media.material import frame
from tests.conftest import empty_database


async def test_a_bundled_topic_becomes_a_film_with_translated_subtitles(database: Database, tmp_path: Path) -> None:
    await empty_database(database)
    real = {"writer": BundledStoryWriter(), "images": OfflineImages()}
    async with running_story_app(database, tmp_path, **real) as app:
        story = await app.order("How coffee is made", scenes=3, languages=["pt-BR"])
        await app.work()
        shown = await app.show(story)
        assert (shown["status"], shown["scenes"], shown["error"]) == ("ready_for_review", 3, None)
        assert shown["metadata"]["localizations"]["pt-BR"]["title"] == "Como o café é feito"
        await app.publish(story)
        await app.work()
        (video,) = await app.channel.videos()
        results = await app.client.runs.get_results(UUID(story))
    film = results["render_video"]  # checked with ffmpeg when it was joined: its size, its length and its sound
    assert (film["width"], film["height"], film["size"]) == (320, 180, len(video.video.read_bytes()))
    assert film["seconds"] == pytest.approx(sum(clip["seconds"] for clip in results["render_scene"].values()), abs=0.2)
    assert "Toda xícara de café" in video.captions["pt-BR"].read_text("utf-8").replace("\n", " ")
    assert "Every cup of coffee" in video.captions["en"].read_text("utf-8").replace("\n", " ")
    assert video.thumbnail is not None
    between = frame(video.video, film["starts"][1])
    assert max(ImageStat.Stat(between).stddev) < 4, "drawings are animated, from behind a curtain"


@pytest.mark.parametrize("language", ["pt", "en"])
async def test_the_demo_orders_its_story_once(tmp_path: Path, language: str) -> None:
    services = make_services(tmp_path, writer=BundledStoryWriter())
    async with sandbox(make_app(services)) as made:
        for _ in range(2):
            message = await anext(run_demo(services, made.client, "http://127.0.0.1:8765", language))
        (run,) = await made.client.runs.list(pipeline=pipeline.name)
    assert run.input["topic"] == ORDERS[language].topic
    assert len(run.input["languages"]) == 1
    assert f"http://127.0.0.1:8765/storyboard/{run.id}" in message
