"""One video from its order to its publication, through the API alone."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx2
import pytest
from PIL import Image

from retoma.store.database import Database
from retoma.testing import NOON
from retoma_apps.providers.ffmpeg import Probe, probe
from retoma_apps.providers.youtube import LocalChannel
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.services import Services
from tests.apps.videos.media.material import mean_volume
from tests.apps.videos.small_services import make_small_services
from tests.apps.videos.video_app import TOPIC, VideoApp, running_video_app
from tests.conftest import empty_database

SCHEDULED = NOON + timedelta(days=1)
BRASILIA = timezone(timedelta(hours=-3))
REVIEWS = ("script_review", "audio_review", "broll_review", "final_review")


@dataclass
class Journey:
    """The answers on the way, by the name of the checkpoint. `at` is the channel's time."""

    at: datetime = NOON
    checkpoints: dict[str, dict[str, Any]] = field(default_factory=dict)
    videos: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, httpx2.Response] = field(default_factory=dict)
    part: httpx2.Response | None = None
    without_thumbnail: list[Any] = field(default_factory=list)
    uploaded: dict[str, Any] = field(default_factory=dict)
    published: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    reviews: list[Any] = field(default_factory=list)
    film: Probe | None = None
    channel: list[Any] = field(default_factory=list)

    def data(self, name: str) -> dict[str, Any]:
        return dict(self.checkpoints[name]["data"])


@pytest.fixture(scope="module")
async def journey(database: Database, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Journey]:
    await empty_database(database)
    folder = tmp_path_factory.mktemp("journey")
    seen = Journey()
    channel = LocalChannel(folder / "channel", now=lambda: seen.at)
    services = replace(make_small_services(folder), channel=lambda _: channel)
    async with running_video_app(database, folder, services) as video_app:
        await _record_journey(video_app, seen)
        seen.channel = await channel.videos()
        seen.film = await probe(seen.channel[0].video)
        yield seen


async def _record_journey(video_app: VideoApp, seen: Journey) -> None:
    video = await video_app.order(scheduled_for=SCHEDULED.astimezone(BRASILIA).isoformat())
    for name in REVIEWS:
        checkpoint = seen.checkpoints[name] = await video_app.work_until_review(video)
        seen.videos[name] = await video_app.show(video)
        for url in _urls(checkpoint["data"]):
            seen.files[url] = await video_app.api.get(url, key=None)
        if name == "final_review":
            await _try_without_thumbnail(video_app, checkpoint, seen)
        chosen = {"thumbnail": 2, "tags": ["renda fixa"]} if name == "final_review" else {}
        answer = await video_app.decide(checkpoint, "approved", **chosen)
        assert answer.status_code == 200, answer.text
    await video_app.work()
    seen.uploaded = await video_app.show(video)
    await video_app.api.sandbox.clock.set(SCHEDULED)
    seen.at = await video_app.api.sandbox.clock.now()
    await video_app.work()
    seen.published = await video_app.show(video)
    seen.results = await video_app.client.runs.get_results(UUID(video))
    seen.reviews = await video_app.client.reviews.list(run=UUID(video), states=None)


async def _try_without_thumbnail(video_app: VideoApp, checkpoint: dict[str, Any], seen: Journey) -> None:
    ids = {"checkpoint_ids": [checkpoint["checkpoint_id"]]}
    many = await video_app.api.post("/api/v1/checkpoints/batch/approve", json=ids)
    seen.without_thumbnail = [await video_app.decide(checkpoint, "approved"), many.json()["results"][0]]
    seen.part = await video_app.api.get(checkpoint["data"]["video_preview_url"], headers={"Range": "bytes=4-7"})


def _urls(data: Any) -> list[str]:
    text = json.dumps(data)
    return [word for word in text.split('"') if "/api/v1/files/" in word]


def test_a_video_without_problems_asks_people_exactly_four_times(journey: Journey) -> None:
    assert sorted(review.step for review in journey.reviews) == sorted(REVIEWS)
    assert [one["checkpoint_type"] for one in journey.checkpoints.values()] == list(REVIEWS)
    assert {one["status"] for one in journey.checkpoints.values()} == {"pending"}
    assert {one["status"] for one in journey.videos.values()} == {"paused"}


def test_a_video_passes_its_stages_in_order(journey: Journey) -> None:
    stages = [video["stage"] for video in (*journey.videos.values(), journey.uploaded, journey.published)]
    assert stages == ["scripted", "producing", "producing", "ready", "uploaded", "published"]


def test_all_fifteen_steps_and_the_publication_check_run_in_order(journey: Journey) -> None:
    assert journey.published["steps_done"] == list(longform.steps)
    assert len(longform.steps) == 16
    assert journey.published["status"] == "completed"


def test_the_script_review_has_every_field(journey: Journey) -> None:
    data = journey.data("script_review")
    assert data["topic"] == TOPIC
    assert data["word_count"] == len(data["script_full"].split()) > 20
    report = data["quality_report"]
    assert set(report) == {"passed", "readability_score", "visual_markers", "issues"}
    assert isinstance(report["passed"], bool)
    assert 0 < report["readability_score"] <= 10
    assert report["visual_markers"] == len(data["scenes"])
    assert data["research_sources"]
    assert all(
        set(source) == {"name", "url", "confidence", "origin", "verified"} for source in data["research_sources"]
    )
    assert all(0 <= source["confidence"] <= 1 for source in data["research_sources"])
    assert data["facts_used"] > 0
    assert data["knowledge_reuse_rate"] == 0


def test_the_audio_review_has_every_field_and_a_playable_recording(journey: Journey) -> None:
    data = journey.data("audio_review")
    assert "/api/v1/files/audio/" in data["audio_url"]
    sound = journey.files[data["audio_url"]]
    assert (sound.status_code, sound.headers["content-type"]) == (200, "audio/x-wav")
    with wave.open(io.BytesIO(sound.content)) as read:
        assert abs(read.getnframes() / read.getframerate() - data["duration_seconds"]) < 0.02
    assert data["voice_used"] == "espeak_pt_br"
    assert data["script_text"] == journey.data("script_review")["script_full"]


def test_the_broll_review_has_every_field_and_its_files(journey: Journey) -> None:
    data = journey.data("broll_review")
    assert data["total_clips"] == len(data["clips"]) > 0
    for clip in data["clips"]:
        assert (clip["source"], bool(clip["query_used"])) == ("offline", True)
        assert clip["duration_seconds"] > 0
        assert 0 <= clip["relevance_score"] <= 1
        picture, film = journey.files[clip["thumbnail_url"]], journey.files[clip["preview_url"]]
        assert (picture.headers["content-type"], film.headers["content-type"]) == ("image/jpeg", "video/mp4")
        assert Image.open(io.BytesIO(picture.content)).format == "JPEG"
        assert film.content[4:8] == b"ftyp"
    assert data["total_duration"] == pytest.approx(sum(clip["duration_seconds"] for clip in data["clips"]), abs=0.1)
    assert data["audio_duration"] == pytest.approx(journey.data("audio_review")["duration_seconds"], abs=0.02)
    assert 0 < data["coverage_percentage"] <= 100


def test_the_final_review_has_every_field_and_its_files(journey: Journey) -> None:
    data = journey.data("final_review")
    assert "/api/v1/files/video/" in data["video_preview_url"]
    film = journey.files[data["video_preview_url"]]
    assert (film.status_code, film.headers["content-type"]) == (200, "video/mp4")
    assert data["file_size_mb"] == round(len(film.content) / 1e6, 2)
    assert data["resolution"] == "320x180"
    assert Services.size == (1920, 1080)  # by default
    assert [variant["number"] for variant in data["thumbnail_variants"]] == [1, 2, 3]
    for variant in data["thumbnail_variants"]:
        assert variant["text"]
        assert Image.open(io.BytesIO(journey.files[variant["url"]].content)).size == (1280, 720)
    assert set(data["metadata"]) == {"title", "description", "tags"}
    assert data["scheduled_for"] == "2030-01-02T12:00:00Z"  # ordered for nine in Brasília


def test_the_video_is_as_long_as_its_narration_and_audible(journey: Journey) -> None:
    film = journey.film
    assert film is not None
    assert film.seconds == pytest.approx(journey.data("final_review")["duration_seconds"], abs=0.02)
    assert abs(film.seconds - journey.data("audio_review")["duration_seconds"]) <= 0.2
    assert (film.video_codec, film.audio_codec) == ("h264", "aac")
    assert mean_volume(journey.channel[0].video) > -40


def test_a_byte_range_of_a_file_can_be_requested(journey: Journey) -> None:
    assert journey.part is not None
    size = len(journey.files[journey.data("final_review")["video_preview_url"]].content)
    assert (journey.part.status_code, journey.part.content) == (206, b"ftyp")
    assert journey.part.headers["content-range"] == f"bytes 4-7/{size}"


def test_a_final_review_cannot_be_approved_without_a_thumbnail_alone_or_in_a_batch(journey: Journey) -> None:
    alone, of_many = journey.without_thumbnail
    assert (alone.status_code, alone.json()["code"]) == (422, "INVALID_INPUT")
    assert (of_many["status"], of_many["code"]) == ("error", "INVALID_INPUT")


def test_the_channel_has_the_video_once_with_the_chosen_options(journey: Journey) -> None:
    (video,) = journey.channel
    final = journey.data("final_review")
    assert (video.title, video.publish_at) == (final["metadata"]["title"], SCHEDULED)
    assert "renda fixa" in video.tags
    assert video.synthetic
    assert video.thumbnail.read_bytes() == journey.files[final["thumbnail_variants"][1]["url"]].content
    assert video.video.read_bytes() == journey.files[final["video_preview_url"]].content


def test_a_scheduled_video_is_published_at_its_time_and_not_before(journey: Journey) -> None:
    assert (journey.uploaded["stage"], journey.uploaded["current_step"]) == ("uploaded", "publication")
    assert journey.uploaded["url"] == journey.results["publication"]["url"]
    assert datetime.fromisoformat(journey.published["ended_at"]) >= SCHEDULED


def test_the_subtitles_follow_the_narration(journey: Journey) -> None:
    lines = journey.data("audio_review")["lines"]
    assert lines[0]["start"] >= 0
    assert all(line["start"] < line["end"] for line in lines)
    assert lines[-1]["end"] <= journey.data("audio_review")["duration_seconds"] + 0.01
    message = " ".join(line["text"].replace("\n", " ") for line in lines).split()
    assert message == journey.data("script_review")["script_full"].split()


def test_the_analytics_record_is_of_the_uploaded_video(journey: Journey) -> None:
    record = journey.results["analytics_init"]
    assert (record["video_id"], record["channel"]) == (journey.results["upload"]["video_id"], "financas")
    assert record["words"] == journey.data("script_review")["word_count"]


def test_researched_facts_are_stored(journey: Journey) -> None:
    assert journey.results["knowledge_store"] == len(journey.results["research"]["facts"]) > 0


def test_file_urls_reveal_nothing_about_this_machine(journey: Journey, tmp_path_factory: Any) -> None:
    assert all(Path(urlsplit(url).path).parts[1:4] == ("api", "v1", "files") for url in journey.files)
    assert str(tmp_path_factory.getbasetemp()) not in json.dumps(journey.checkpoints)
