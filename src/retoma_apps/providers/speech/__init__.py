"""Speech synthesis: Azure, ElevenLabs, their stand-in, and eSpeak on this machine, behind one port."""

from retoma_apps.providers.speech.azure import Azure, AzureSettings
from retoma_apps.providers.speech.chunks import Piece, split_into_pieces, split_sentences, verify_length
from retoma_apps.providers.speech.elevenlabs import ElevenLabs, ElevenLabsSettings
from retoma_apps.providers.speech.errors import (
    ImplausibleLength,
    InvalidAudio,
    SpeechError,
    SpeechRefused,
    SpeechUnavailable,
    UnknownVoice,
)
from retoma_apps.providers.speech.espeak import Espeak
from retoma_apps.providers.speech.port import Speech, SpokenAudio, Word
from retoma_apps.providers.speech.voices import KNOWN_VOICES, Speaker, default_voice, find_speaker

__all__ = [
    "KNOWN_VOICES",
    "Azure",
    "AzureSettings",
    "ElevenLabs",
    "ElevenLabsSettings",
    "Espeak",
    "ImplausibleLength",
    "InvalidAudio",
    "Piece",
    "Speaker",
    "Speech",
    "SpeechError",
    "SpeechRefused",
    "SpeechUnavailable",
    "SpokenAudio",
    "UnknownVoice",
    "Word",
    "default_voice",
    "find_speaker",
    "split_into_pieces",
    "split_sentences",
    "verify_length",
]
