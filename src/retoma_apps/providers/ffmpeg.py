"""Run ffmpeg as a restricted child process: it reads only its input files and dies with its parent."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import resource
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from retoma import GiveUp
from retoma.checks import Finding
from retoma.privileges import die_with_parent, drop_privileges
from retoma_apps.providers.processes import kill_process

Progress = Callable[[int], None]
"""Receives the number of frames rendered so far."""

ENVIRONMENT: dict[str, str] = {}
_MEMORY = 6 * 1024**3
_LARGEST_FILE = 8 * 1024**3
_MOST_PIXELS = 100_000_000
_TAIL = 4_000
_PIPE_BYTES = 1024**2  # fewer wake-ups than with 64 KB, for frames of several megabytes
_VERSION_TIMEOUT_SECONDS = 20
_PROGRESS_ARGUMENTS = ("-progress", "pipe:1", "-stats_period", "0.1", "-nostats")

# The format is detected from the first bytes and then forced on ffmpeg. Otherwise it could open a file as a playlist,
# which could name other files on this machine.
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", 0, "png_pipe"),
    (b"\xff\xd8\xff", 0, "jpeg_pipe"),
    (b"WEBP", 8, "webp_pipe"),
    (b"GIF8", 0, "gif_pipe"),
    (b"BM", 0, "bmp_pipe"),
)
_MEDIA = (
    (b"ftyp", 4, "mov"),
    (b"\x1aE\xdf\xa3", 0, "matroska"),
    (b"WAVE", 8, "wav"),
    (b"AVI ", 8, "avi"),
    (b"ID3", 0, "mp3"),
    (b"OggS", 0, "ogg"),
    (b"fLaC", 0, "flac"),
    (b"\xff\xf1", 0, "aac"),
    (b"\xff\xf9", 0, "aac"),
    (b"\xff", 0, "mp3"),
)


class FfmpegFailed(Exception):
    """ffmpeg rejected its input or was killed. The message is the first line of its log."""


@dataclass(frozen=True)
class Probe:
    """The contents of a media file. `seconds` is exact to a hundredth; codecs and sizes are of the first streams."""

    seconds: float | None
    video_codec: str | None
    width: int | None
    height: int | None
    audio_codec: str | None

    @property
    def has_video(self) -> bool:
        return self.video_codec is not None

    @property
    def has_audio(self) -> bool:
        return self.audio_codec is not None


def image_input(path: Path) -> list[str]:
    return [*_safe_input(_detect_format(path, _IMAGES, "an image (PNG, JPEG, WebP, GIF or BMP)")), "-i", path.name]


def media_input(path: Path) -> list[str]:
    return [*_safe_input(media_kind(path)), "-i", path.name]


def media_kind(path: Path) -> str:
    return _detect_format(path, _MEDIA, "a video or audio file (MP4, MOV, WebM, Matroska, WAV, MP3, Ogg, FLAC or AAC)")


async def run(
    arguments: Sequence[str], folder: Path, progress: Progress | None = None, *, frames: Iterator[bytes] | None = None
) -> None:
    """Run ffmpeg in `folder`. Cancelling this call kills it. `frames` is what it reads from `pipe:0`, if anything; they
    are drawn in a thread."""
    code, log = await _run_process(
        [*arguments[:-1], *_PROGRESS_ARGUMENTS, "-y", arguments[-1]], folder, "error", progress, frames
    )
    if code:
        raise FfmpegFailed(_first_line(log) or f"ffmpeg exited with {code}")


async def run_and_get_log(arguments: Sequence[str], folder: Path) -> str:
    """Return the end of ffmpeg's log for these arguments, whether or not it succeeds."""
    return (await _run_process(["-hide_banner", *arguments], folder, "info"))[1]


async def probe(path: Path) -> Probe:
    """Read a file's contents from ffmpeg's log."""
    log = await run_and_get_log(media_input(path), path.parent)
    found = re.search(r"Duration: (\d+):(\d+):([\d.]+)", log)
    seconds = int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3]) if found else None
    video, audio = _stream("Video", log), _stream("Audio", log)
    size = re.search(r", (\d+)x(\d+)", video[2]) if video else None
    return Probe(
        seconds,
        video[1] if video else None,
        int(size[1]) if size else None,
        int(size[2]) if size else None,
        audio[1] if audio else None,
    )


async def _run_process(
    arguments: Sequence[str],
    folder: Path,
    level: str,
    progress: Progress | None = None,
    frames: Iterator[bytes] | None = None,
) -> tuple[int, str]:
    source, sink = os.pipe()
    try:
        process = await _start(arguments, folder, level, asyncio.subprocess.DEVNULL if frames is None else source)
    except BaseException:
        os.close(sink)
        raise
    finally:
        os.close(source)
    try:
        _, log, _ = await asyncio.gather(
            _follow(process.stdout, progress),
            _tail(process.stderr),
            asyncio.to_thread(_write_frames, frames or iter(()), sink),
        )
        return await process.wait(), log
    finally:
        await kill_process(process)


def _stream(kind: str, log: str) -> re.Match[str] | None:
    """Return the first stream of a kind: its codec, and the rest of ffmpeg's description."""
    return re.search(rf"^\s+Stream #0:\d+.*?: {kind}: (\w+)(.*)", log, re.MULTILINE)


def _safe_input(kind: str) -> list[str]:
    return ["-protocol_whitelist", "file", "-max_pixels", str(_MOST_PIXELS), "-f", kind]


def _detect_format(path: Path, known: Sequence[tuple[bytes, int, str]], expected: str) -> str:
    with path.open("rb") as file:
        head = file.read(16)
    for magic, at, kind in known:
        if head[at : at + len(magic)] == magic:
            return kind
    raise FfmpegFailed(f"this is not {expected}")


async def _start(
    arguments: Sequence[str], folder: Path, level: str, stdin: int = asyncio.subprocess.DEVNULL
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        find_ffmpeg(),
        "-nostdin",
        "-loglevel",
        level,
        *arguments,
        cwd=folder,
        env=ENVIRONMENT,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=_limit_resources,
    )


def find_ffmpeg() -> str:
    """Return the path of ffmpeg. Raise GiveUp if it is not installed."""
    try:
        import imageio_ffmpeg  # type: ignore[import-untyped]  # optional: needed only to render on this machine
    except ImportError as error:
        raise GiveUp(
            "ffmpeg is not installed: install the extra `media`, for example pip install -e '.[media]'", "NOT_INSTALLED"
        ) from error
    return str(imageio_ffmpeg.get_ffmpeg_exe())


def check_ffmpeg() -> Finding:
    version = find_ffmpeg_version()
    if version is None:
        return Finding("warning", "ffmpeg", "not installed, or it does not run")
    return Finding("ok", "ffmpeg", version)


def find_ffmpeg_version() -> str | None:
    """Return the version that ffmpeg prints, or None if it is not installed or does not run."""
    try:
        result = subprocess.run(  # noqa: S603
            [find_ffmpeg(), "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_SECONDS, check=True
        )
    except (GiveUp, RuntimeError, OSError, subprocess.SubprocessError):
        return None
    return " ".join(result.stdout.split()[:3])


def _limit_resources() -> None:
    drop_privileges()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    die_with_parent()


async def _follow(stdout: asyncio.StreamReader | None, progress: Progress | None) -> None:
    assert stdout is not None
    async for line in stdout:
        name, _, value = line.decode(errors="replace").strip().partition("=")
        if progress is not None and name == "frame" and value.isdigit():
            progress(int(value))


def _write_frames(frames: Iterator[bytes], sink: int) -> None:
    """Draw and send the frames. If ffmpeg ends early, its log says why."""
    with suppress(BrokenPipeError), open(sink, "wb") as pipe:
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        pipe.writelines(frames)


async def _tail(stderr: asyncio.StreamReader | None) -> str:
    assert stderr is not None
    kept = b""
    while chunk := await stderr.read(65536):
        kept = (kept + chunk)[-_TAIL:]
    return kept.decode(errors="replace")


def _first_line(log: str) -> str:
    """Return the first error, without memory addresses. The lines after it are consequences."""
    lines = [re.sub(r"\[[^]]* @ 0x[0-9a-f]+\]\s*", "", line).strip() for line in log.splitlines()]
    return next((line[:300] for line in lines if line), "")
