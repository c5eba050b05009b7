"""The one kind of audio that passes through the port: WAV with PCM of 16 bits, mono, 24,000 Hz."""

from __future__ import annotations

import io
import struct
import wave
from collections.abc import Iterator, Sequence

from retoma_apps.providers.speech.errors import InvalidAudio
from retoma_apps.providers.speech.port import SpokenAudio, Word

HERTZ = 24_000
_FORMAT = (1, 1, HERTZ, HERTZ * 2, 2, 16)
"""PCM, channels, samples a second, bytes a second, bytes a sample, bits a sample."""
_UNKNOWN_SIZES = (0, 0x7FFFFFFF, 0xFFFFFFFF)
"""What a server writes that sends before it knows how much it will be."""
_SILENT = 100
_SAMPLE_STEP = 7
"""Looking at so few of the samples is enough to hear whether there is anything."""


def to_spoken_audio(pcm: bytes, words: Sequence[Word] = ()) -> SpokenAudio:
    """Raises InvalidAudio if there is nothing to hear."""
    if not pcm or len(pcm) % 2:
        raise InvalidAudio(f"the audio is broken: it has {len(pcm)} bytes, which are no whole samples")
    heard = memoryview(pcm).cast("h")[::_SAMPLE_STEP]
    if max(max(heard), -min(heard)) < _SILENT:
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
    """The samples of a WAV file. Raises InvalidAudio if it is another kind, or ends before it says."""
    if audio[:4] != b"RIFF" or audio[8:12] != b"WAVE":
        raise InvalidAudio("the answer is no WAV file")
    found = dict(_chunks(audio))
    head = found.get(b"fmt ", b"")[:16]
    if len(head) < 16 or struct.unpack("<HHIIHH", head) != _FORMAT:
        raise InvalidAudio("the answer is WAV of another kind than PCM of 16 bits, mono, 24,000 Hz")
    return found.get(b"data", b"")


def _chunks(audio: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 12
    while at + 8 <= len(audio):
        name, size = struct.unpack_from("<4sI", audio, at)
        left = len(audio) - at - 8
        if name == b"data" and size in _UNKNOWN_SIZES:
            size = left
        if size > left:
            raise InvalidAudio(f"the audio is cut: {size} bytes were promised, and {left} came")
        yield name, audio[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
