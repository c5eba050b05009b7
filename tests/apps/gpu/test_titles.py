"""Titles of jobs."""

from __future__ import annotations

from typing import Any

import pytest

from retoma_apps.gpu.models import AddAudioRun, CaptionRun, Img2VidRun
from retoma_apps.gpu.pipeline import addaudio, caption, img2vid

MEDIA = "https://media.example.com/films"
IMAGES = {"images": [{"id": "1", "image_url": f"{MEDIA}/sea%20side.jpg?token=secret#part", "duracao": 5}]}


@pytest.mark.parametrize(
    ("values", "title"),
    [
        ({"id_roteiro": 34, "path": "intro"}, "34 · intro"),
        ({"path": "intro"}, "intro"),
        ({"id_roteiro": 34}, "34 · sea side.jpg"),
        ({"id_roteiro": 0}, "0 · sea side.jpg"),
        ({}, "sea side.jpg"),
    ],
)
def test_the_title_of_a_job_is_its_project_and_label_or_first_file(values: dict[str, Any], title: str) -> None:
    job = Img2VidRun.model_validate(IMAGES | {"zoom_types": ["zoomin"]} | values)
    assert img2vid.format_title(job) == title


def test_the_title_of_a_job_of_one_video_is_its_file() -> None:
    video = {"video_url": f"{MEDIA}/film.mp4?token=secret"}
    assert caption.format_title(CaptionRun.model_validate(video | {"text": "Olá!"})) == "film.mp4"
    audio = {"audio_url": f"{MEDIA}/song.mp3", "volume": 0.4}
    assert addaudio.format_title(AddAudioRun.model_validate(video | audio)) == "film.mp4"


def test_a_url_without_a_file_name_has_no_title() -> None:
    job = CaptionRun.model_validate({"video_url": "https://media.example.com/?token=secret", "text": "Olá!"})
    assert caption.format_title(job) is None
