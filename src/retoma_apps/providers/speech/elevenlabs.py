"""ElevenLabs: a thin client for its speech with timestamps."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby, pairwise
from typing import Any, NoReturn
from urllib.parse import quote

from pydantic_settings import SettingsConfigDict

from retoma import RetryLater
from retoma.connections import ConnectionType
from retoma.errors import ProviderRejected
from retoma.outgoing import Response
from retoma_apps.providers.connection_fields import API_KEY
from retoma_apps.providers.http_service import ServiceSettings
from retoma_apps.providers.responses import format_provider_message, parse_json_object
from retoma_apps.providers.speech.errors import InvalidAudio, SpeechRefused
from retoma_apps.providers.speech.port import SpokenAudio, Word
from retoma_apps.providers.speech.service import SpeechService
from retoma_apps.providers.speech.texts import clean_speech_text
from retoma_apps.providers.speech.voices import Speaker
from retoma_apps.providers.speech.wav import to_spoken_audio

BUSY_RETRY_DELAY = timedelta(seconds=1)
"""Delay if only our own calls are in the way: they end one by one, so a longer wait would be idle."""
MIN_RATE, MAX_RATE = 0.7, 1.2
_VOICE = re.compile(r"elevenlabs_([A-Za-z0-9]{1,64})")
# Other models detect the language and reject a request that names one.
_MODELS_WITH_LANGUAGE = ("eleven_turbo_v2_5", "eleven_flash_v2_5")
_TOO_LONG = ("max_character_limit_exceeded", "text_too_long")
_NO_CREDIT = "the ElevenLabs account has no characters left: add credit"


class ElevenLabsSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="ELEVENLABS_")

    base_url: str = "https://api.elevenlabs.io"
    model: str = "eleven_multilingual_v2"


class ElevenLabs(SpeechService[ElevenLabsSettings]):
    """Rates are limited to 0.7 to 1.2, the range of the service."""

    name = "elevenlabs"
    max_characters = 2_500
    has_word_times = True
    variables: tuple[str, ...] = ("ELEVENLABS_API_KEY",)
    voices: Mapping[str, Speaker] = {}
    voice_form = "elevenlabs_<id>"
    label = "ElevenLabs"
    no_key = "ElevenLabs needs an API key: set ELEVENLABS_API_KEY"
    settings_type = ElevenLabsSettings
    account_errors: Mapping[int, str] = {
        401: "ElevenLabs rejected our key: set ELEVENLABS_API_KEY to a valid one",
        402: "the ElevenLabs account's plan does not cover this: add credit, or use another voice",
        403: "the ElevenLabs key may not use this voice: allow it at ElevenLabs, or use another voice",
    }
    largest_answer = 64 * 1024**2

    @staticmethod
    def parse_voice(name: str) -> Speaker | None:
        found = _VOICE.fullmatch(name)
        return None if found is None else Speaker("elevenlabs", found[1], "")

    async def say(self, text: str, *, voice: str, language: str, rate: float = 1.0) -> SpokenAudio:
        body = self._body(clean_speech_text(text, self.max_characters), language, rate)
        path = f"/v1/text-to-speech/{quote(voice, safe='')}/with-timestamps?output_format=pcm_24000"
        answer = await self._request("POST", path, {"xi-api-key": self._key}, json=body)
        if not answer.is_success:
            self._raise_own_error(answer)
        return _parse_audio(answer)

    async def check_account(self) -> str:
        """A key that is restricted to speech may not read the account, which shows that it is valid."""
        answer = await self._request("GET", "/v1/user", {"xi-api-key": self._key})
        if not answer.is_success and _error_detail(answer)[0] != "missing_permissions":
            self._raise_own_error(answer)
        return "ElevenLabs accepts the key"

    def _body(self, text: str, language: str, rate: float) -> dict[str, Any]:
        model = self._settings.model
        speed = min(max(rate, MIN_RATE), MAX_RATE)
        body: dict[str, Any] = {"text": text, "model_id": model, "voice_settings": {"speed": speed}}
        if language and model in _MODELS_WITH_LANGUAGE:
            body["language_code"] = language.partition("-")[0].lower()
        return body

    def _raise_own_error(self, answer: Response) -> NoReturn:
        """Raise by ElevenLabs' own error code if it has one, else by the status."""
        word, message = _error_detail(answer)
        why = format_provider_message(message, self._key)
        if word in _TOO_LONG:
            raise SpeechRefused(f"the text is too long for ElevenLabs: split it{why}", "SPEECH_TOO_LONG")
        if word == "voice_not_found" or answer.status == 404:
            raise SpeechRefused(f"ElevenLabs has no such voice: use another{why}", "SPEECH_NO_SUCH_VOICE")
        if word == "quota_exceeded":
            raise ProviderRejected(f"{_NO_CREDIT}{why}")
        if word == "too_many_concurrent_requests":
            raise RetryLater(BUSY_RETRY_DELAY, f"ElevenLabs is busy with our other requests: this one is retried{why}")
        self._raise_error(answer, why)


def _error_detail(answer: Response) -> tuple[str, str]:
    detail = (parse_json_object(answer) or {}).get("detail")
    if not isinstance(detail, dict):
        return "", detail if isinstance(detail, str) else ""
    return str(detail.get("status") or detail.get("code") or ""), str(detail.get("message") or "")


def _parse_audio(answer: Response) -> SpokenAudio:
    body = parse_json_object(answer) or {}
    try:
        pcm = base64.b64decode(body["audio_base64"], validate=True)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidAudio("ElevenLabs' answer contains no audio, or is too long") from error
    return to_spoken_audio(pcm, _parse_words(body.get("alignment")))


def _parse_words(alignment: Any) -> tuple[Word, ...]:
    """Return no timings instead of wrong ones: the audio, which was paid for, is usable without them."""
    times = alignment if isinstance(alignment, dict) else {}
    characters = times.get("characters")
    starts: Any = times.get("character_start_times_seconds")
    ends: Any = times.get("character_end_times_seconds")
    if not isinstance(characters, list) or not _are_times(starts, characters) or not _are_times(ends, characters):
        return ()
    timed = list(zip(map(str, characters), starts, ends, strict=True))
    return tuple(
        _word(list(letters)) for is_space, letters in groupby(timed, lambda each: each[0].isspace()) if not is_space
    )


def _word(letters: list[tuple[str, float, float]]) -> Word:
    return Word("".join(letter for letter, _, _ in letters), float(letters[0][1]), float(letters[-1][2]))


def _are_times(times: Any, characters: Sequence[Any]) -> bool:
    if not isinstance(times, list) or len(times) != len(characters):
        return False
    if not all(isinstance(each, int | float) and math.isfinite(each) and each >= 0 for each in times):
        return False
    return all(before <= after for before, after in pairwise(times))


CONNECTION = ConnectionType(
    ElevenLabs.name, "ElevenLabs", (API_KEY,), ElevenLabs.try_connection, variables=ElevenLabs.variables
)
