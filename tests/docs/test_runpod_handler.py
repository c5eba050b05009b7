"""The page for authors of RunPod handlers documents the request and the answer: both match the code."""

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
async def test_a_handler_receives_the_documented_request_and_its_answer_is_parsed(
    database: Database, tmp_path: Path, operation: str
) -> None:
    await empty_database(database)
    clips, video = blocks("answer")
    answer = clips if operation == "img2vid" else video
    async with running_gpu_app(database, tmp_path) as services:
        services.standin.fleet.outcome = lambda _: ("COMPLETED", answer, None)
        job = await services.submit(SENT_BY_CALLERS[operation], operation)
        await services.work([job])
        reported = (await services.show(job))["result"]
    (order,) = (order for order in blocks("order", str(run_id(job))) if order["operation"] == operation)
    assert [sent.input for sent in services.standin.jobs] == [order]
    assert {name: reported[name] for name in answer} == answer
