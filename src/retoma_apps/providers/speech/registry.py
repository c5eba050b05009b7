"""The speech providers, and their voices by public name, such as `azure_pt_br_antonio`."""

from __future__ import annotations

from collections.abc import Collection

from retoma.connections import TenantConnections
from retoma_apps.providers.speech.azure import Azure
from retoma_apps.providers.speech.elevenlabs import ElevenLabs
from retoma_apps.providers.speech.errors import UnknownVoice
from retoma_apps.providers.speech.espeak import Espeak
from retoma_apps.providers.speech.port import Speech, SpeechProvider
from retoma_apps.providers.speech.voices import Speaker

PROVIDERS: tuple[type[SpeechProvider], ...] = (Azure, ElevenLabs, Espeak)
"""In order of preference: a language's default voice is that of the first configured provider that has one."""
KNOWN_VOICES = {name: speaker for each in PROVIDERS for name, speaker in each.voices.items()}
VOICE_FORMS = {each.name: each.voice_form for each in PROVIDERS}
"""How the other voices of each provider are named."""


def configured_providers(connections: TenantConnections | None = None) -> list[Speech]:
    """Return the configured providers, in order of preference."""
    found = connections or TenantConnections()
    return [provider for each in PROVIDERS if (provider := each.for_tenant(found)) is not None]


def find_speaker(name: str) -> Speaker:
    """Return the speaker for a voice name. Only the form is checked; the provider may still not have the voice."""
    if name in KNOWN_VOICES:
        return KNOWN_VOICES[name]
    for each in PROVIDERS:
        if (speaker := each.parse_voice(name)) is not None:
            return speaker
    known = ", ".join(KNOWN_VOICES)
    raise UnknownVoice(f"there is no voice {name[:80]!r}; there are {known}, and others named {_list_voice_forms()}")


def default_voice(language: str, providers: Collection[str]) -> str:
    """Return the first known voice of these providers for a language, compared without its region: pt, en."""
    for name, known in KNOWN_VOICES.items():
        if known.provider in providers and known.speaks(language):
            return name
    raise UnknownVoice(
        f"{', '.join(providers)}: no default voice for {language[:40]!r}; choose one named {_list_voice_forms()}"
    )


def _list_voice_forms() -> str:
    return " or ".join(VOICE_FORMS.values())
