"""Speech synthesis: Azure, ElevenLabs, their stand-in, and eSpeak on this machine, behind one port."""

from retoma_apps.providers.speech.chunks import Piece, split_into_pieces, split_sentences, verify_length
from retoma_apps.providers.speech.errors import InvalidAudio, UnknownVoice
from retoma_apps.providers.speech.port import Speech, SpokenAudio, Word
from retoma_apps.providers.speech.registry import (
    KNOWN_VOICES,
    PROVIDERS,
    VOICE_FORMS,
    configured_providers,
    default_voice,
    find_speaker,
)
