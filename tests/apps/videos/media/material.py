"""Small clips and sounds, generated once."""

from __future__ import annotations

import io
import math
import struct
import subprocess
import wave
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import av
import imageio_ffmpeg  # type: ignore[import-untyped]
from PIL import Image

from retoma_apps.media.narration import RATE

SMALL = (160, 90)


@cache
def tone(seconds: float, loudness: float = 0.1) -> bytes:
    count = round(seconds * RATE)
    return wav([round(32767 * loudness * math.sin(at / RATE * math.tau * 440)) for at in range(count)])


def wav(samples: Sequence[int], rate: int = RATE, channels: int = 1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((channels, 2, rate, 0, "NONE", ""))
        sound.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    return file.getvalue()


def samples(path: Path) -> tuple[int, ...]:
    with wave.open(str(path), "rb") as sound:
        return struct.unpack(f"<{sound.getnframes()}h", sound.readframes(sound.getnframes()))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@cache
def _clip(source: str, codec: str) -> bytes:
    program = imageio_ffmpeg.get_ffmpeg_exe()
    shape = ["-pix_fmt", "yuv420p", "-movflags", "frag_keyframe+empty_moov", "-f", "mp4", "-"]
    made = subprocess.run(
        [program, "-v", "error", "-f", "lavfi", "-i", source, "-c:v", codec, *shape],
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    return made.stdout


def clip(to: Path, colour: str, *, seconds: float = 1.0, size: str = "160x90", rate: int = 25) -> Path:
    to.write_bytes(_clip(f"color={colour}:s={size}:r={rate}:d={seconds}", "libx264"))
    return to


def pixels(path: Path) -> list[tuple[int, int, int]]:
    """Return the colour of every frame at a point without subtitles: a quarter from the left and from the top."""
    found = []
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            image = frame.to_image()  # type: ignore[no-untyped-call]
            found.append(image.getpixel((image.width // 4, image.height // 4)))
    return found


def frame(path: Path, at: float) -> Image.Image:
    """Return the picture at this second; after the end, the last one."""
    with av.open(str(path)) as container:
        container.seek(max(0, int(at * av.time_base)))
        shown = None
        for picture in container.decode(video=0):
            if shown is not None and picture.time is not None and picture.time > at:
                break
            shown = picture
    assert shown is not None
    return shown.to_image()  # type: ignore[no-untyped-call, no-any-return]


def mean_volume(path: Path) -> float:
    """Return the mean volume relative to full scale, in decibels."""
    power, count = 0, 0
    resampler = av.AudioResampler(format="s16", layout="mono", rate=16_000)
    with av.open(str(path)) as container:
        for packed in container.decode(audio=0):
            for plain in resampler.resample(packed):
                audio = struct.unpack(f"<{plain.samples}h", bytes(plain.planes[0])[: 2 * plain.samples])
                power += sum(sample * sample for sample in audio)
                count += len(audio)
    return 10 * math.log10(max(power, 1) / count / 32768**2)
