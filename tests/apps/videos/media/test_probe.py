"""The properties of a file, read with ffmpeg as a separate program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import av
import pytest

from retoma_apps.providers.ffmpeg import Probe, probe
from tests.apps.videos.media.material import clip, tone

WITHOUT_AV = """
import asyncio, pathlib, sys
sys.modules["av"] = None
from retoma_apps.providers.ffmpeg import probe
from retoma_apps.providers.speech.espeak import Espeak
from retoma_apps.media.narration import join

async def narrate(to):
    said = await Espeak().say("Renda fixa.", voice="pt-br", language="pt-BR")
    await join([said.audio], to)
    return await probe(to)

print(asyncio.run(narrate(pathlib.Path(sys.argv[1]))).audio_codec)
"""


async def test_the_properties_of_a_video_match_another_reader(tmp_path: Path) -> None:
    path = clip(tmp_path / "film.mp4", "red", seconds=1.5, size="162x90")
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        size, seconds = (stream.width, stream.height), (container.duration or 0) / av.time_base
    found = await probe(path)
    assert found == Probe(found.seconds, "h264", *size, None)
    assert found.seconds == pytest.approx(seconds, abs=0.005)


async def test_an_audio_file_has_no_frame_size(tmp_path: Path) -> None:
    path = tmp_path / "sound.wav"
    path.write_bytes(tone(0.75))
    assert await probe(path) == Probe(0.75, None, None, None, "pcm_s16le")


def test_narrations_are_joined_without_av(tmp_path: Path) -> None:
    """Its wheels would load GPL libraries into the worker."""
    command = [sys.executable, "-c", WITHOUT_AV, str(tmp_path / "narration.wav")]
    output = subprocess.run(command, capture_output=True, text=True)
    assert (output.stdout, output.stderr) == ("pcm_s16le\n", "")
