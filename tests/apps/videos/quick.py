"""The video workflow with nothing rendered: every file is a few bytes that say what it was made of."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from PIL import Image

from retoma import Context
from retoma.store.database import Database
from retoma_apps.videos import filming, narrating, picturing
from retoma_apps.videos.models import Assembly, Brief, Broll, Clip, Fact, Line, Narration, Script
from retoma_apps.videos.studio import Studio
from retoma_apps.videos.writing.port import Researched, Written
from retoma_apps.videos.writing.template import TemplateWriter
from tests.apps.videos.house import House, a_house
from tests.apps.videos.studio import small_studio

REVIEWS = ("script_review", "audio_review", "broll_review", "final_review")
THUMBNAIL = {"thumbnail": 1}


@dataclass
class Moody(TemplateWriter):
    """Raises what stands in `moods` for the step, one at each attempt, the first first; then it writes."""

    moods: dict[str, list[BaseException]] = field(default_factory=dict)

    async def research(self, brief: Brief, known: Sequence[Fact], wishes: Sequence[str], **options: Any) -> Researched:
        self._raise("research")
        return await super().research(brief, known, wishes, **options)

    async def script(self, brief: Brief, facts: Sequence[Fact], **options: Any) -> Written:
        self._raise("script_generation")
        return await super().script(brief, facts, **options)

    def _raise(self, step: str) -> None:
        if left := self.moods.get(step):
            raise left.pop(0)


class Blank:
    name = "offline"
    follows_notes = False
    model = "blank"

    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        return prompt.encode()


async def narrated(script: Script, voice: str, language: str, studio: Studio, ctx: Context) -> Narration:
    lines = [Line(text=scene.text, start=at, end=at + 0.9) for at, scene in enumerate(script.scenes)]
    audio = await ctx.save_file(script.text.encode(), "narration.wav")
    starts = [float(at) for at in range(len(lines))]
    return Narration(audio=audio, seconds=len(lines), voice=voice or "quick", lines=lines, scene_starts=starts)


async def searched(script: Script, narration: Narration, language: str, studio: Studio, ctx: Context) -> Broll:
    made = await ctx.save_file(narration.audio.file.encode(), "clip.mp4")
    kept: dict[str, Any] = {"video": made, "thumbnail": made, "source": "offline", "seconds": 1, "relevance": 0.5}
    clips = [Clip(**kept, query=scene.visual, scene=number) for number, scene in enumerate(script.scenes)]
    return Broll(clips=clips, total_seconds=len(clips), audio_seconds=narration.seconds, coverage=100)


async def assembled(narration: Narration, broll: Broll, studio: Studio, ctx: Context) -> Assembly:
    film = f"{narration.audio.file} {[clip.query for clip in broll.clips]}".encode()
    video = await ctx.save_file(film, "film.mp4")
    return Assembly(video=video, seconds=narration.seconds, width=1920, height=1080, size=len(film))


def thumbnail(background: bytes, text: str, path: Path, palette: Any, layout: Any) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (8, 8), (len(text) % 256, 0, 0)).save(picture, "PNG")
    path.write_bytes(picture.getvalue())


def noting(asked: list[str], name: str, call: Any) -> Any:
    """The same method, which says first that it is called."""

    async def noted(*given: Any, **options: Any) -> Any:
        asked.append(name)
        return await call(*given, **options)

    return noted


@dataclass
class QuickHouse(House):
    studio: Studio

    @property
    def moods(self) -> dict[str, list[BaseException]]:
        assert isinstance(self.studio.writer, Moody)
        return self.studio.writer.moods

    async def run_of(self, video: str) -> Any:
        return await self.client.show(UUID(video))

    async def at(self, review: str, **given: Any) -> dict[str, Any]:
        """The checkpoint of this name, of a new video."""
        video = await self.order(**given)
        for _ in REVIEWS:
            checkpoint = await self.asked(video)
            if checkpoint["checkpoint_type"] == review:
                return checkpoint
            await self.approve(checkpoint)
        raise AssertionError(f"there is no {review}")

    async def approve(self, checkpoint: dict[str, Any], **given: Any) -> dict[str, Any]:
        chosen = THUMBNAIL if checkpoint["checkpoint_type"] == "final_review" else {}
        answer = await self.decide(checkpoint, "approved", **chosen, **given)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def finish(self, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """The video, once all that is left was approved and done."""
        while True:
            await self.approve(checkpoint)
            await self.work()
            shown = await self.show(checkpoint["video_id"])
            if shown["checkpoint"] is None:
                return shown
            checkpoint = await self.checkpoint(shown["checkpoint"]["id"])


@asynccontextmanager
async def a_quick_house(
    database: Database, folder: Path, patched: pytest.MonkeyPatch, **studio_with: Any
) -> AsyncIterator[QuickHouse]:
    patched.setattr(narrating, "narrated", narrated)
    patched.setattr(filming, "searched", searched)
    patched.setattr(filming, "assembled", assembled)
    patched.setattr(picturing, "thumbnail", thumbnail)
    studio = replace(small_studio(folder), **{"writer": Moody(), "images": Blank(), **studio_with})
    async with a_house(database, folder, studio) as house:
        yield QuickHouse(house.api, studio)
