"""The page tells whoever writes a handler for RunPod what is sent and what is read: both are those of the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from retoma.store.database import Database
from retoma_apps.gpu.states import run_id
from tests.apps.gpu.gpu_app import running_gpu_app
from tests.conftest import empty_database

PAGE = Path(__file__).resolve().parents[2] / "docs" / "applications" / "gpu.md"
RUN = "0198c0de-0000-7000-8000-000000000001"
SENT_BY_CALLERS: dict[str, dict[str, Any]] = {
    "img2vid": {
        "images": [
            {"id": "1", "image_url": "https://example.com/1.png", "duracao": 5.32},
            {"id": "2", "image_url": "https://example.com/2.png", "duracao": 4},
        ]
    },
    "caption": {
        "video_url": "https://example.com/film.mp4",
        "subtitles": [{"start": 0, "end": 2.5, "text": "Olá!"}],
    },
    "addaudio": {"video_url": "https://example.com/film.mp4", "audio_url": "https://example.com/narration.mp3"},
}


def blocks(kind: str, run: str = RUN) -> list[dict[str, Any]]:
    found = re.findall(rf"```json {kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [json.loads(text.replace(RUN, run)) for text in found]


@pytest.mark.parametrize("operation", SENT_BY_CALLERS)
async def test_a_handler_is_sent_the_order_of_the_page_and_its_answer_is_read(
    database: Database, tmp_path: Path, operation: str
) -> None:
    await empty_database(database)
    clips, video = blocks("answer")
    answer = clips if operation == "img2vid" else video
    async with running_gpu_app(database, tmp_path) as studio:
        studio.standin.fleet.outcome = lambda _: ("COMPLETED", answer, None)
        job = await studio.submit(SENT_BY_CALLERS[operation], operation)
        await studio.work([job])
        told = (await studio.show(job))["result"]
    (order,) = (order for order in blocks("order", str(run_id(job))) if order["operation"] == operation)
    assert [sent.input for sent in studio.standin.jobs] == [order]
    assert {name: told[name] for name in answer} == answer
