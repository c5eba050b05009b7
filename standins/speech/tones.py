"""Audio in place of speech: a tone as long as the words would take."""

from __future__ import annotations

import math
from array import array

from retoma_apps.providers.speech.wav import HERTZ

SECONDS_PER_WORD = 0.4
_PITCH = 220
_LOUDNESS = 8_000
_ONE_SECOND = array("h", (round(_LOUDNESS * math.sin(2 * math.pi * _PITCH * at / HERTZ)) for at in range(HERTZ)))


def tone(seconds: float) -> bytes:
    whole = _ONE_SECOND.tobytes() * math.ceil(seconds)
    return whole[: round(seconds * HERTZ) * 2]


def silence(seconds: float) -> bytes:
    return bytes(round(seconds * HERTZ) * 2)


def seconds_for(text: str, rate: float) -> float:
    return len(text.split()) * SECONDS_PER_WORD / rate


def alignment(text: str, seconds: float) -> dict[str, list[str] | list[float]]:
    """Each character takes the same time."""
    each = seconds / len(text)
    return {
        "characters": list(text),
        "character_start_times_seconds": [round(at * each, 4) for at in range(len(text))],
        "character_end_times_seconds": [round((at + 1) * each, 4) for at in range(len(text))],
    }
