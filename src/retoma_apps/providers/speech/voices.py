"""Voices by their public names, such as `azure_pt_br_antonio`."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from retoma_apps.providers.speech.errors import UnknownVoice


class Speaker(NamedTuple):
    """`voice` is the provider's own name; `language` is empty if the voice speaks the language of its text."""

    provider: str
    voice: str
    language: str

    def speaks(self, language: str) -> bool:
        return not self.language or _base(self.language) == _base(language)


KNOWN_VOICES = {
    "azure_pt_br_antonio": Speaker("azure", "pt-BR-AntonioNeural", "pt-BR"),
    "azure_pt_br_francisca": Speaker("azure", "pt-BR-FranciscaNeural", "pt-BR"),
    "azure_en_us_guy": Speaker("azure", "en-US-GuyNeural", "en-US"),
    "azure_en_us_jenny": Speaker("azure", "en-US-JennyNeural", "en-US"),
    "espeak_pt_br": Speaker("espeak", "pt-br", "pt-BR"),
    "espeak_en": Speaker("espeak", "en-us", "en-US"),
}
_AZURE = re.compile(r"azure_([a-z]{2,3})_([a-z]{2})_([a-z]{2,40})")
_ELEVENLABS = re.compile(r"elevenlabs_([A-Za-z0-9]{1,64})")
_ESPEAK = re.compile(r"espeak_([a-z]{2,3}(?:_[a-z0-9]{2,20}){0,3})")


def find_speaker(name: str) -> Speaker:
    """Return the speaker for a voice name. Only the form is checked; the provider may still not have the voice."""
    if name in KNOWN_VOICES:
        return KNOWN_VOICES[name]
    if found := _AZURE.fullmatch(name):
        language = f"{found[1]}-{found[2].upper()}"
        return Speaker("azure", f"{language}-{found[3].capitalize()}Neural", language)
    if found := _ELEVENLABS.fullmatch(name):
        return Speaker("elevenlabs", found[1], "")
    if found := _ESPEAK.fullmatch(name):
        voice = found[1].replace("_", "-")
        return Speaker("espeak", voice, voice)
    raise UnknownVoice(f"there is no voice {name[:80]!r}; there are {', '.join(KNOWN_VOICES)} and elevenlabs_<id>")


def default_voice(language: str, providers: Collection[str]) -> str:
    """Return the first known voice of these providers for a language, compared without its region: pt, en."""
    for name, known in KNOWN_VOICES.items():
        if known.provider in providers and known.speaks(language):
            return name
    raise UnknownVoice(
        f"{', '.join(providers)}: no default voice for {language[:40]!r}; choose one, such as elevenlabs_<id>"
    )


def _base(language: str) -> str:
    return language.lower().partition("-")[0]
