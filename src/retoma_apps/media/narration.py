"""Join spoken pieces into one narration at standard loudness."""

from __future__ import annotations

import asyncio
import io
import json
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from retoma_apps.media.atomic_write import write_atomically
from retoma_apps.providers import ffmpeg

RATE = 24_000
_BYTES = 2
_LOUDNESS = "loudnorm=I=-16:TP=-1.5:LRA=20:dual_mono=true"
_MEASURED = {
    "measured_I": "input_i",
    "measured_TP": "input_tp",
    "measured_LRA": "input_lra",
    "measured_thresh": "input_thresh",
    "offset": "target_offset",
}


@dataclass(frozen=True)
class Joined:
    """The start and end of each piece in seconds, exact to the sample."""

    seconds: float
    starts: tuple[float, ...]
    ends: tuple[float, ...]


async def join(
    pieces: Sequence[Path | bytes],
    to: Path,
    *,
    scenes: Sequence[int] | None = None,
    gap: float = 0.35,
    scene_gap: float = 0.7,
    ending: float = 0.0,
) -> Joined:
    """Write one WAV of 24 kHz mono at -16 LUFS, with `gap` seconds of silence between pieces, `scene_gap` between
    scenes and `ending` after the last one.

    The pieces are 16-bit WAV, 24 kHz, mono; `scenes` has the scene number of each piece.
    """
    if not pieces:
        raise ValueError("there is nothing to join: no pieces")
    with write_atomically(to, "level.wav") as folder:
        pauses = _pause_lengths(scenes or [0] * len(pieces), gap, scene_gap)
        after = round(ending * RATE)
        spans = await asyncio.to_thread(_write_joined, pieces, pauses, after, folder / "plain.wav")
        length = spans[-1][1] + after
        await _normalize_loudness(folder, length)
        await asyncio.to_thread(_verify_length, folder / "level.wav", length)
    starts, ends = zip(*spans, strict=True)
    return Joined(length / RATE, tuple(at / RATE for at in starts), tuple(at / RATE for at in ends))


def pad_sound(sound: Path, seconds: float) -> bytes:
    """Return a piece as WAV with silence after it, so that it lasts exactly that long. A longer one is cut."""
    samples, padded = _read_samples(sound, 1), io.BytesIO()
    with wave.open(padded, "wb") as written:
        written.setparams((1, _BYTES, RATE, 0, "NONE", ""))
        written.writeframes(samples.ljust(round(seconds * RATE) * _BYTES, b"\0")[: round(seconds * RATE) * _BYTES])
    return padded.getvalue()


def _pause_lengths(scenes: Sequence[int], gap: float, scene_gap: float) -> list[int]:
    """Return the samples of silence before each piece."""
    changes = [before != after for before, after in pairwise(scenes)]
    return [0, *(round((scene_gap if changed else gap) * RATE) for changed in changes)]


def _write_joined(pieces: Sequence[Path | bytes], pauses: Sequence[int], after: int, to: Path) -> list[tuple[int, int]]:
    """Return the first sample of each piece and the one after its last."""
    spans, at = [], 0
    with wave.open(str(to), "wb") as joined:
        joined.setparams((1, _BYTES, RATE, 0, "NONE", ""))
        for number, (piece, pause) in enumerate(zip(pieces, pauses, strict=True), 1):
            sound = _read_samples(piece, number)
            joined.writeframes(bytes(pause * _BYTES) + sound)
            spans.append((at + pause, at + pause + len(sound) // _BYTES))
            at = spans[-1][1]
        joined.writeframes(bytes(after * _BYTES))
    return spans


def _read_samples(piece: Path | bytes, number: int) -> bytes:
    try:
        with wave.open(io.BytesIO(piece) if isinstance(piece, bytes) else str(piece), "rb") as spoken:
            shape = (spoken.getnchannels(), spoken.getsampwidth(), spoken.getframerate())
            sound = spoken.readframes(spoken.getnframes())
    except (wave.Error, EOFError) as error:
        raise ValueError(f"piece {number} of the narration is not WAV: {error}") from error
    if shape != (1, _BYTES, RATE):
        raise ValueError(f"piece {number} of the narration has {shape[2]} Hz, {shape[0]} channels, {shape[1]} bytes")
    if len(sound) < _BYTES:
        raise ValueError(f"piece {number} of the narration is empty")
    return sound[: len(sound) // _BYTES * _BYTES]


async def _normalize_loudness(folder: Path, length: int) -> None:
    """Normalise in two passes, so one gain applies to all. Silence stays silence."""
    source = ffmpeg.media_input(folder / "plain.wav")
    log = await ffmpeg.run_and_get_log([*source, "-af", f"{_LOUDNESS}:print_format=json", "-f", "null", "-"], folder)
    same = f"aresample={RATE},apad=whole_len={length},atrim=end_sample={length}"
    level = _loudness_filter(log)
    await ffmpeg.run(
        [*source, "-af", f"{level},{same}" if level else same, "-c:a", "pcm_s16le", "-f", "wav", "level.wav"], folder
    )


def _loudness_filter(ffmpeg_output: str) -> str | None:
    found = (
        json.loads(ffmpeg_output[ffmpeg_output.rindex("{") : ffmpeg_output.rindex("}") + 1])
        if "{" in ffmpeg_output
        else {}
    )
    if not found or "inf" in found["input_i"]:
        return None
    return ":".join([_LOUDNESS, "linear=true", *(f"{ours}={found[theirs]}" for ours, theirs in _MEASURED.items())])


def _verify_length(path: Path, length: int) -> None:
    with wave.open(str(path), "rb") as sound:
        samples = len(sound.readframes(sound.getnframes())) // _BYTES
    if samples != length:
        raise ffmpeg.FfmpegFailed(
            f"the narration has {samples} samples instead of {length} after loudness normalisation"
        )
