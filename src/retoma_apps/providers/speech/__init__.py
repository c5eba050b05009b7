"""Speech: Azure, ElevenLabs, their stand-in, and eSpeak on this machine; one port for all."""

from retoma_apps.providers.speech.azure import Azure, AzureSettings
from retoma_apps.providers.speech.chunks import Piece, pieces, sentences, verify
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
from retoma_apps.providers.speech.port import Speech, Spoken, Word
from retoma_apps.providers.speech.voices import KNOWN, Speaker, speaker, usual_voice

__all__ = [
    "KNOWN",
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
    "Spoken",
    "UnknownVoice",
    "Word",
    "pieces",
    "sentences",
    "speaker",
    "usual_voice",
    "verify",
]
