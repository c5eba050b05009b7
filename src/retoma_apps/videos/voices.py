"""Which voices can speak for a video."""

from __future__ import annotations

from collections.abc import Mapping

from retoma.errors import InvalidInput
from retoma_apps.providers.speech import KNOWN_VOICES, UnknownVoice, find_speaker


def speaks(voice: str, language: str) -> bool:
    """Whether there is such a voice and it speaks the language, be there a key for it or not."""
    try:
        return find_speaker(voice).speaks(language)
    except UnknownVoice:
        return False


def can_speak(voice: str, language: str, voices: Mapping[str, object], current: str = "") -> bool:
    """Whether a channel of this language may have the voice. The one that is `kept` stays if its key is gone."""
    return not voice or (speaks(voice, language) and (voice == current or find_speaker(voice).provider in voices))


def check_voice(voice: str, language: str, voices: Mapping[str, object], current: str = "") -> None:
    """Raises InvalidInput with the voices that there are, if this one cannot speak here."""
    if not can_speak(voice, language, voices, current):
        there = ", ".join(name for name in KNOWN_VOICES if can_speak(name, language, voices))
        raise InvalidInput(f"voice: {voice!r} is not known, has no key, or does not speak {language}; there is {there}")
