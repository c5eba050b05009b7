"""Check which voices can speak for a video."""

from __future__ import annotations

from collections.abc import Mapping

from retoma.errors import InvalidInput
from retoma_apps.providers.speech import KNOWN_VOICES, UnknownVoice, find_speaker


def speaks(voice: str, language: str) -> bool:
    """Return whether there is such a voice and it speaks the language, with or without a key for it."""
    try:
        return find_speaker(voice).speaks(language)
    except UnknownVoice:
        return False


def can_speak(voice: str, language: str, voices: Mapping[str, object], current: str = "") -> bool:
    """Return whether a channel of this language may use the voice. The `current` one stays if its key is gone."""
    return not voice or (speaks(voice, language) and (voice == current or find_speaker(voice).provider in voices))


def check_voice(voice: str, language: str, voices: Mapping[str, object], current: str = "") -> None:
    """Raise InvalidInput with the available voices if this one cannot be used."""
    if not can_speak(voice, language, voices, current):
        available = ", ".join(name for name in KNOWN_VOICES if can_speak(name, language, voices))
        raise InvalidInput(
            f"voice: {voice!r} is unknown, has no key, or does not speak {language}; available: {available}"
        )
