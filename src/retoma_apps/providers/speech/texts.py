"""What of a text can be said."""

from __future__ import annotations

import re

from retoma_apps.providers.speech.errors import SpeechRefused

# Neither XML nor eSpeak may meet these: the one refuses them, and to the other they are commands.
_UNSPEAKABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean_speech_text(text: str, max_characters: int) -> str:
    """The text without control characters. Raises SpeechRefused if nothing is left to say, or too much."""
    text = _UNSPEAKABLE.sub(" ", text).strip()
    if not has_words(text):
        raise SpeechRefused("there is nothing to say in this text: it has neither letters nor digits", "SPEECH_EMPTY")
    if len(text) > max_characters:
        raise SpeechRefused(
            f"this text has {len(text)} characters, and at most {max_characters} are said at once: split it",
            "SPEECH_TOO_LONG",
        )
    return text


def has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)
