"""Prepare text for speech."""

from __future__ import annotations

import re

from retoma_apps.providers.speech.errors import SpeechRefused

# XML forbids these characters, and eSpeak treats some as commands.
_UNSPEAKABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean_speech_text(text: str, max_characters: int) -> str:
    """Return the text without control characters. Raise SpeechRefused if it is empty or too long."""
    text = _UNSPEAKABLE.sub(" ", text).strip()
    if not has_words(text):
        raise SpeechRefused("this text has nothing to speak: it contains neither letters nor digits", "SPEECH_EMPTY")
    if len(text) > max_characters:
        raise SpeechRefused(
            f"this text has {len(text)} characters, over the limit of {max_characters}: split it",
            "SPEECH_TOO_LONG",
        )
    return text


def has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)
