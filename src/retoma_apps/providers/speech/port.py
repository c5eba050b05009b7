"""The port for speech synthesis: a service, its stand-in, or eSpeak on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from retoma_apps.providers.provider import EnvironmentProvider
from retoma_apps.providers.speech.voices import Speaker


@dataclass(frozen=True)
class Word:
    """A word with its adjacent punctuation; times are seconds from the start of the audio."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class SpokenAudio:
    """`audio` is WAV: 16-bit PCM, mono, 24,000 Hz. `words` covers the whole text, or is empty without timings."""

    audio: bytes
    seconds: float
    words: tuple[Word, ...] = ()


class Speech(Protocol):
    """`max_characters` is the longest text of one call. `is_offline` if it runs on this machine, without a service."""

    name: str
    max_characters: int
    has_word_times: bool
    is_offline: bool

    async def say(self, text: str, *, voice: str, language: str, rate: float = 1.0) -> SpokenAudio:
        """Make one call, which may be paid. `voice` is the provider's own name; a rate of 1.1 is ten per cent faster.

        Text is spoken literally: nothing in it is a command. Raise RetryLater, RateLimited, ProviderDown or
        ProviderRejected, which use up no attempt; GiveUp if a retry would not help; or an error from errors.py.
        """


class SpeechProvider(Speech, EnvironmentProvider, Protocol):
    """What a class needs to be registered. `voices` are the voices to choose from by public name, the default of a
    language first; `voice_form` shows how others are named."""

    voices: Mapping[str, Speaker]
    voice_form: str

    @staticmethod
    def parse_voice(name: str) -> Speaker | None:
        """Return the voice with this public name, or None if no voice of this provider can have it."""
