"""The video workflow without rendering: every file is a few bytes that describe its inputs."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from PIL import Image

from retoma import Context
from retoma.store.database import Database
from retoma_apps.media.models import Line
from retoma_apps.videos.models import Assembly, Broll, Clip, Fact, Narration, Script
from retoma_apps.videos.services import Services
from retoma_apps.videos.steps import footage, narration, thumbnails
from retoma_apps.videos.steps.writing.port import WritingRequest
from tests.apps.videos.small_services import AnyTopicWriter, make_small_services
from tests.apps.videos.video_app import VideoApp, running_video_app

REVIEWS = ("script_review", "audio_review", "broll_review", "final_review")
THUMBNAIL = {"thumbnail": 1}


@dataclass
class FailingWriter(AnyTopicWriter):
    """Raises the errors in `moods` for the step, one per attempt, in order; then it writes."""

    failures: dict[str, list[BaseException]] = field(default_factory=dict)

    async def research(self, request: WritingRequest, **options: Any) -> list[Fact]:
        self._raise("research")
        return await super().research(request, **options)

    async def script(self, request: WritingRequest, **options: Any) -> Script:
        self._raise("script_generation")
        return await super().script(request, **options)

    def _raise(self, step: str) -> None:
        if left := self.failures.get(step):
            raise left.pop(0)


class BlankImages:
    name = "offline"
    is_offline = True
    follows_notes = False
    model = "blank"

    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        return prompt.encode()


async def fake_narration(script: Script, voice: str, language: str, services: Services, ctx: Context) -> Narration:
    lines = [Line(text=scene.text, start=at, end=at + 0.9) for at, scene in enumerate(script.scenes)]
    audio = await ctx.save_file(script.text.encode(), "narration.wav")
    starts = [float(at) for at in range(len(lines))]
    return Narration(audio=audio, seconds=len(lines), voice=voice or "quick", lines=lines, scene_starts=starts)


async def fake_search(script: Script, narration: Narration, language: str, services: Services, ctx: Context) -> Broll:
    made = await ctx.save_file(narration.audio.file.encode(), "clip.mp4")
    kept: dict[str, Any] = {"video": made, "thumbnail": made, "source": "offline", "seconds": 1, "relevance": 0.5}
    clips = [Clip(**kept, query=scene.visual, scene=number) for number, scene in enumerate(script.scenes)]
    return Broll(clips=clips, total_seconds=len(clips), audio_seconds=narration.seconds, coverage=100)


async def fake_assembly(narration: Narration, broll: Broll, services: Services, ctx: Context) -> Assembly:
    film = f"{narration.audio.file} {[clip.query for clip in broll.clips]}".encode()
    video = await ctx.save_file(film, "film.mp4")
    return Assembly(video=video, seconds=narration.seconds, width=1920, height=1080, size=len(film))


def fake_thumbnail(background: bytes, text: str, path: Path, palette: Any, layout: Any) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (8, 8), (len(text) % 256, 0, 0)).save(picture, "PNG")
    path.write_bytes(picture.getvalue())


def record_calls(calls: list[str], name: str, call: Any) -> Any:
    """Return the same method, which first records the call."""

    async def noted(*given: Any, **options: Any) -> Any:
        calls.append(name)
        return await call(*given, **options)

    return noted


@dataclass
class FastVideoApp(VideoApp):
    services: Services

    @property
    def failures(self) -> dict[str, list[BaseException]]:
        assert isinstance(self.services.writer, FailingWriter)
        return self.services.writer.failures

    async def run_of(self, video: str) -> Any:
        return await self.client.runs.get(UUID(video))

    async def order_until(self, review: str, **values: Any) -> dict[str, Any]:
        """Order a video and return its checkpoint of this name."""
        video = await self.order(**values)
        for _ in REVIEWS:
            checkpoint = await self.work_until_review(video)
            if checkpoint["checkpoint_type"] == review:
                return checkpoint
            await self.approve(checkpoint)
        raise AssertionError(f"there is no {review}")

    async def approve(self, checkpoint: dict[str, Any], **values: Any) -> dict[str, Any]:
        chosen = THUMBNAIL if checkpoint["checkpoint_type"] == "final_review" else {}
        answer = await self.decide(checkpoint, "approved", **chosen, **values)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def finish(self, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """Approve and finish everything that is left, and return the video."""
        while True:
            await self.approve(checkpoint)
            await self.work()
            shown = await self.show(checkpoint["video_id"])
            if shown["checkpoint"] is None:
                return shown
            checkpoint = await self.checkpoint(shown["checkpoint"]["id"])


@asynccontextmanager
async def running_fast_video_app(
    database: Database, folder: Path, patched: pytest.MonkeyPatch, **replaced_services: Any
) -> AsyncIterator[FastVideoApp]:
    patched.setattr(narration, "generate_narration", fake_narration)
    patched.setattr(footage, "search_footage", fake_search)
    patched.setattr(footage, "assemble_film", fake_assembly)
    patched.setattr(thumbnails, "draw_thumbnail", fake_thumbnail)
    services = replace(
        make_small_services(folder), **{"writer": FailingWriter(), "images": BlankImages(), **replaced_services}
    )
    async with running_video_app(database, folder, services) as video_app:
        yield FastVideoApp(video_app.api, services)
