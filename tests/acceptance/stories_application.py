"""Stories in processes of their own, without rendering. A picture of scene 1 waits for the file `go`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from retoma_apps.stories.application import make_app
from tests.apps.stories.story_app import Painter, make_services, patch_media


class PatientPainter(Painter):
    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        await asyncio.to_thread(_note, f"{os.getpid()}\n")
        while prompt.startswith("picture 1.") and not await asyncio.to_thread(Path("go").exists):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return await super().make(prompt, width=width, height=height)


def _note(line: str) -> None:
    with Path("began").open("a") as file:
        file.write(line)


patch_media(pytest.MonkeyPatch())
app = make_app(make_services(Path.cwd(), images=PatientPainter()))
