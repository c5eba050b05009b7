"""The audio format of the port: WAV with 16-bit PCM, mono, 24,000 Hz."""

from __future__ import annotations

import io
import struct
import wave
from collections.abc import Iterator, Sequence

from retoma_apps.providers.speech.errors import InvalidAudio
from retoma_apps.providers.speech.port import SpokenAudio, Word

HERTZ = 24_000
_FORMAT = (1, 1, HERTZ, HERTZ * 2, 2, 16)
"""PCM, channels, samples per second, bytes per second, bytes per sample, bits per sample."""
_UNKNOWN_SIZES = (0, 0x7FFFFFFF, 0xFFFFFFFF)
"""Written by servers that start sending before they know the size."""
_SILENT = 100
_SAMPLE_STEP = 7
"""Checking every seventh sample is enough to detect silence."""


def to_spoken_audio(pcm: bytes, words: Sequence[Word] = ()) -> SpokenAudio:
    """Raise InvalidAudio if the audio is empty or silent."""
    if not pcm or len(pcm) % 2:
        raise InvalidAudio(f"the audio is broken: it has {len(pcm)} bytes, which is not a whole number of samples")
    samples = memoryview(pcm).cast("h")[::_SAMPLE_STEP]
    if max(max(samples), -min(samples)) < _SILENT:
        raise InvalidAudio(f"the audio is silent for all of its {seconds_of(pcm):.1f} s")
    return SpokenAudio(to_wav(pcm), seconds_of(pcm), tuple(words))


def seconds_of(pcm: bytes) -> float:
    return len(pcm) / 2 / HERTZ


def to_wav(pcm: bytes) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(HERTZ)
        out.writeframes(pcm)
    return file.getvalue()


def read_pcm(audio: bytes) -> bytes:
    """Return the samples of a WAV file. Raise InvalidAudio if it has another format or is truncated."""
    if audio[:4] != b"RIFF" or audio[8:12] != b"WAVE":
        raise InvalidAudio("the answer is not a WAV file")
    found = dict(_chunks(audio))
    head = found.get(b"fmt ", b"")[:16]
    if len(head) < 16 or struct.unpack("<HHIIHH", head) != _FORMAT:
        raise InvalidAudio("the answer is not WAV with 16-bit PCM, mono, 24,000 Hz")
    return found.get(b"data", b"")


def _chunks(audio: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 12
    while at + 8 <= len(audio):
        name, size = struct.unpack_from("<4sI", audio, at)
        left = len(audio) - at - 8
        if name == b"data" and size in _UNKNOWN_SIZES:
            size = left
        if size > left:
            raise InvalidAudio(f"the audio is truncated: {left} of {size} bytes")
        yield name, audio[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
