"""Small pictures, videos and sounds for the tests, and measurements of a video."""

from __future__ import annotations

import io
import math
import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import av
import imageio_ffmpeg  # type: ignore[import-untyped]
from PIL import Image

RATE = 48_000


def picture(shade: Callable[[float, float], float], size: tuple[int, int] = (96, 54), kind: str = "PNG") -> bytes:
    """Return a grey picture; `shade` returns its brightness from 0 to 1 for x and y from 0 to 1."""
    wide, high = size
    image = Image.new("L", size)
    image.putdata([round(255 * shade(x / (wide - 1), y / (high - 1))) for y in range(high) for x in range(wide)])
    file = io.BytesIO()
    image.convert("RGB").save(file, kind)
    return file.getvalue()


def white(size: tuple[int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("1", size, 1).save(file, "PNG")
    return file.getvalue()


@cache
def plain_picture() -> bytes:
    return picture(lambda x, y: (x + y) / 2)


@cache
def video(sound: int | None = None, seconds: float = 0.4, kind: str = "mp4") -> bytes:
    """Return a black video, silent or with a tone of this frequency."""
    inputs = ["-f", "lavfi", "-i", f"color=black:s=64x36:r=25:d={seconds}"]
    if sound is not None:
        inputs += ["-f", "lavfi", "-i", f"sine=frequency={sound}:sample_rate={RATE}:duration={seconds}", "-c:a", "aac"]
    return _run_ffmpeg([*inputs, "-pix_fmt", "yuv420p"], kind)


@cache
def odd_video() -> bytes:
    """Return a video 63 wide and 47 high."""
    return _run_ffmpeg(["-f", "lavfi", "-i", "color=black:s=64x48:r=25:d=0.4,format=yuv444p,crop=63:47"], "mkv")


@cache
def tone(frequency: int, seconds: float) -> bytes:
    return _run_ffmpeg(
        ["-f", "lavfi", "-i", f"sine=frequency={frequency}:sample_rate={RATE}:duration={seconds}"], "wav"
    )


@dataclass(frozen=True)
class VideoContent:
    width: int
    height: int
    frames: list[bytes]
    """The brightness of every pixel of every frame."""
    seconds: float
    samples: list[float]

    @property
    def brightness(self) -> list[float]:
        return [sum(frame) / len(frame) for frame in self.frames]

    def loudness(self, frequency: int) -> float:
        """Return the amplitude of one frequency, by Goertzel's method."""
        turn = 2 * math.cos(2 * math.pi * frequency / RATE)
        last = before = 0.0
        for sample in self.samples:
            last, before = sample + turn * last - before, last
        power = max(last * last + before * before - turn * last * before, 0.0)
        return 2 * math.sqrt(power) / max(len(self.samples), 1)


def read_video(path: Path) -> VideoContent:
    with av.open(str(path)) as container:
        picture = container.streams.video[0]
        frames = [_brightness(frame) for frame in container.decode(picture)]
        seconds = float(container.duration or 0) / av.time_base
        width, height = picture.width, picture.height
    return VideoContent(width, height, frames, seconds, _samples(path))


def _brightness(frame: av.VideoFrame) -> bytes:
    plane = frame.reformat(format="gray").planes[0]
    rows = bytes(plane)
    return b"".join(rows[at : at + plane.width] for at in range(0, plane.line_size * plane.height, plane.line_size))


def _samples(path: Path) -> list[float]:
    with av.open(str(path)) as container:
        if not container.streams.audio:
            return []
        resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE)
        samples: list[float] = []
        for frame in container.decode(audio=0):
            for plain in resampler.resample(frame):
                samples += struct.unpack(f"<{plain.samples}f", bytes(plain.planes[0])[: 4 * plain.samples])
        return samples


def _run_ffmpeg(arguments: list[str], kind: str) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"made.{kind}"
        program = imageio_ffmpeg.get_ffmpeg_exe()
        subprocess.run([program, "-v", "error", *arguments, str(path)], check=True, stdin=subprocess.DEVNULL)
        return path.read_bytes()
