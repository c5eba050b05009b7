"""`python -m bench.videos`: the time to assemble a minute of 1080p video, and where it goes.

The clips are slightly grainy, as real footage is, and have the size of the video; the narration is a generated tone.
The CPU seconds of a stage are those of ffmpeg with it minus those without it; all stages run at the same time.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import math
import os
import resource
import struct
import time
import wave
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from retoma_apps.media.assembly import Shot, assemble
from retoma_apps.media.models import Line
from retoma_apps.media.narration import RATE, Joined, join
from retoma_apps.media.subtitle_lines import build_subtitle_lines
from retoma_apps.providers import ffmpeg

SHOTS = 8
GRAIN = "noise=alls=5:allf=t,format=yuv420p"
QUICK = ("-preset", "ultrafast", "-crf", "23")
SENTENCE = "Ação, coração e pão: às três da manhã, ninguém à vista."


async def clips(folder: Path, seconds: float, size: tuple[int, int]) -> list[Path]:
    made = []
    for number in range(SHOTS):
        path = folder / f"clip-{number}.mp4"
        drawn = f"gradients=s={size[0]}x{size[1]}:r=30:d={seconds}:seed={number + 1}:speed=0.02:nb_colors=6"
        await ffmpeg.run(
            ["-f", "lavfi", "-i", drawn, "-vf", GRAIN, "-c:v", "libx264", *QUICK, "-f", "mp4", path.name], folder
        )
        made.append(path)
    return made


def tone(seconds: float) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, RATE, 0, "NONE", ""))
        one = b"".join(struct.pack("<h", round(9000 * math.sin(at / RATE * math.tau * 220))) for at in range(RATE))
        sound.writeframes((one * math.ceil(seconds))[: round(seconds * RATE) * 2])
    return file.getvalue()


async def narration(folder: Path, seconds: float) -> tuple[Path, list[Line]]:
    pieces = 12
    each = (seconds - 0.35 * (pieces - 1)) / pieces
    joined: Joined = await join([tone(each)] * pieces, folder / "narration.wav")
    return folder / "narration.wav", build_subtitle_lines([SENTENCE] * pieces, [()] * pieces, joined)


async def measure_time(what: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Return wall-clock and CPU seconds."""
    began, used = time.perf_counter(), processor()
    await what()
    return time.perf_counter() - began, processor() - used


def processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def measure_stages(folder: Path, seconds: float, size: tuple[int, int]) -> dict[str, float]:
    """Return the CPU seconds of decoding, and of scaling the picture."""
    wide, high = size
    fill = f"fps=30,scale={wide}:{high}:force_original_aspect_ratio=increase:out_range=tv,crop={wide}:{high}"
    decoding = await decode_clips(folder, seconds / SHOTS, "null")
    return {"decoding": decoding, "filling the picture": await decode_clips(folder, seconds / SHOTS, fill) - decoding}


async def decode_clips(folder: Path, seconds: float, filters: str) -> float:
    """Return the CPU seconds to decode so much of each clip, without encoding."""
    used = processor()
    for number in range(SHOTS):
        given = ["-stream_loop", "-1", "-an", *ffmpeg.media_input(folder / f"clip-{number}.mp4")]
        await ffmpeg.run([*given, "-t", str(seconds), "-vf", filters, "-f", "null", "-"], folder)
    return processor() - used


async def _main(arguments: argparse.Namespace) -> None:
    size = (arguments.height * 16 // 9, arguments.height)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}")
    with TemporaryDirectory(prefix="retoma-bench-") as name:
        await _measure_and_print(Path(arguments.keep or name), arguments.seconds, size)


async def _measure_and_print(folder: Path, seconds: float, size: tuple[int, int]) -> None:
    length = min(seconds / SHOTS, 6)
    paths = await clips(folder, length, size)
    rate = sum(path.stat().st_size for path in paths) * 8 / SHOTS / length / 1e6
    print(f"{seconds:g} s at {size[0]}x{size[1]} from {SHOTS} clips of {rate:.1f} Mbit/s")
    clock, used = await measure_time(lambda: narration(folder, seconds))
    print(f"narration: {clock:.1f} s, {used:.1f} s of processor")
    for what, part in (await measure_stages(folder, seconds, size)).items():
        print(f"  {what}: {part:.1f} s of processor", flush=True)
    sound, shown = await narration(folder, seconds)
    shots = [Shot(path, seconds / SHOTS) for path in paths]
    await _measure_assembly("without subtitles", shots, sound, [], size)
    await _measure_assembly("whole", shots, sound, shown, size)


async def _measure_assembly(
    label: str, shots: list[Shot], sound: Path, shown: list[Line], size: tuple[int, int]
) -> None:
    film = sound.with_name("film.mp4")
    clock, used = await measure_time(lambda: assemble(shots, sound, shown, film, size=size))
    ratio = sum(shot.seconds for shot in shots) / clock
    megabytes = film.stat().st_size / 1e6
    print(f"assembly {label}: {clock:.1f} s, {used:.1f} s of processor, {ratio:.2f}x real time, {megabytes:.1f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.videos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--height", type=int, default=1080)
    parser.add_argument("--keep", help="a folder in which all files stay")
    asyncio.run(_main(parser.parse_args()))
