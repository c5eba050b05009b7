"""The port to whatever speaks: a service, its stand-in, or eSpeak on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Word:
    """A word with the marks that stand beside it, in seconds from the start of the audio."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class SpokenAudio:
    """`audio` is WAV: PCM of 16 bits, mono, 24,000 Hz. `words` are all of the text or, if nobody tells when, none."""

    audio: bytes
    seconds: float
    words: tuple[Word, ...] = ()


class Speech(Protocol):
    name: str
    max_characters: int

    async def say(self, text: str, *, voice: str, language: str, rate: float = 1.0) -> SpokenAudio:
        """One call, which may be paid for. `voice` is the provider's own name; a rate of 1.1 is ten per cent quicker.

        Text is spoken as it stands: nothing in it is a command. Raises RetryLater, RateLimited, ProviderDown or
        ProviderRefuses, which use up no attempt; GiveUp where no other try would help; or one of errors.py.
        """
