"""Errors of speech synthesis.

SpeechError                   may be retried
├── SpeechUnavailable         no answer in time, or the voice failed (SPEECH_TIMEOUT, SPEECH_UNAVAILABLE)
├── InvalidAudio              an answer that is not the requested audio, or is silent (SPEECH_INVALID_AUDIO)
└── ImplausibleLength         audio far too short or too long for its text (SPEECH_IMPLAUSIBLE_LENGTH)
SpeechRefused (GiveUp)        a retry would not help; the message says what would
└── UnknownVoice              also a ValueError, for display in forms (SPEECH_NO_SUCH_VOICE)

If the whole provider fails or rejects our account, no text is at fault: the engine's RetryLater, RateLimited,
ProviderDown and ProviderRejected decide what waits, and no attempt is used up.
"""

from __future__ import annotations

from retoma import GiveUp


class SpeechError(Exception):
    code = "SPEECH_ERROR"


class SpeechUnavailable(SpeechError):
    """After SPEECH_TIMEOUT the call may have been paid for."""

    def __init__(self, message: str, code: str = "SPEECH_UNAVAILABLE") -> None:
        super().__init__(message)
        self.code = code


class InvalidAudio(SpeechError):
    code = "SPEECH_INVALID_AUDIO"


class ImplausibleLength(SpeechError):
    code = "SPEECH_IMPLAUSIBLE_LENGTH"


class SpeechRefused(GiveUp):
    """`code` is one of SPEECH_BAD_REQUEST, SPEECH_EMPTY, SPEECH_TOO_LONG and SPEECH_NO_SUCH_VOICE."""


class UnknownVoice(SpeechRefused, ValueError):
    def __init__(self, message: str) -> None:
        super().__init__(message, "SPEECH_NO_SUCH_VOICE")
