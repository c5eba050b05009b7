"""The routes of both services, with injectable faults."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from retoma_apps.providers.speech.azure import FORMAT
from retoma_apps.providers.speech.wav import to_wav
from standins.faults import Faults as CommonFaults
from standins.server import Routes, StandInServer
from standins.speech.tones import alignment, seconds_for, silence, tone

TEN_MINUTES = 600.0
_SSML = "{http://www.w3.org/2001/10/synthesis}"
_RATE = re.compile(r"([+-]\d{1,3})%")

Failure = Callable[[int, str, str], Response]


@dataclass
class Faults(CommonFaults):
    too_many: int = 0
    """A 429 of ElevenLabs' other kind: too many requests of this account at the same time."""
    cut: int = 0
    """Valid audio of a quarter of the right length. Paid for, as all that follow."""
    silent: int = 0
    ten_minutes: int = 0
    """Audio that fills the ten minutes at which Azure truncates."""
    out_of_credit: bool = False
    restricted: int = 0
    """Requests for the account with a key that is restricted to speech."""


@dataclass(frozen=True)
class Said:
    """One accepted request."""

    service: str
    text: str
    voice: str
    language: str
    rate: float


class StandIn(StandInServer[Faults]):
    def __init__(self, *, key: str | None = None, seed: int = 0) -> None:
        super().__init__(Faults(), key=key, seed=seed)
        self.said: list[Said] = []

    def variables(self, base_url: str) -> dict[str, str]:
        return {"AZURE_SPEECH_BASE_URL": base_url, "ELEVENLABS_BASE_URL": base_url}

    def tally(self) -> dict[str, Any]:
        characters = sum(len(each.text) for each in self.said)
        return {"requests": len(self.said), "characters": characters, **super().tally()}

    def _routes(self) -> Routes:
        yield "POST", "/cognitiveservices/v1", self._azure
        yield "GET", "/cognitiveservices/voices/list", self._list_azure_voices
        yield "GET", "/v1/user", self._show_elevenlabs_user
        yield "POST", "/v1/text-to-speech/{voice}/with-timestamps", self._elevenlabs

    async def _azure(self, request: Request) -> Response:
        given = request.headers.get("ocp-apim-subscription-key", "")
        if (refusal := await self._refusal(given, _azure_failure)) is not None:
            return refusal
        if request.headers.get("x-microsoft-outputformat") != FORMAT:
            return Response("unsupported output format", 400)
        if request.headers.get("content-type") != "application/ssml+xml":
            return Response("", 415)
        try:
            said = _read_ssml(await request.body())
        except (ElementTree.ParseError, ValueError, AttributeError) as error:
            return Response(f"bad SSML: {error}", 400)
        return await self._respond(said, lambda pcm, _: Response(to_wav(pcm), media_type="audio/x-wav"))

    async def _elevenlabs(self, voice: str, request: Request) -> Response:
        given = request.headers.get("xi-api-key", "")
        if (refusal := await self._refusal(given, _elevenlabs_failure)) is not None:
            return refusal
        if request.query_params.get("output_format") != "pcm_24000":
            return _elevenlabs_failure(400, "output_format_not_allowed", "take pcm_24000")
        if not voice.isalnum():
            return _elevenlabs_failure(404, "voice_not_found", "A voice with this id was not found.")
        try:
            said = _read_json(voice, await request.json())
        except (ValueError, KeyError, TypeError, AttributeError):
            return JSONResponse({"detail": [{"loc": ["body", "text"], "msg": "field required"}]}, 422)
        return await self._respond(said, _with_timestamps)

    async def _list_azure_voices(self, request: Request) -> Response:
        given = request.headers.get("ocp-apim-subscription-key", "")
        return await self._refusal(given, _azure_failure) or JSONResponse([{"ShortName": "pt-BR-AntonioNeural"}])

    async def _show_elevenlabs_user(self, request: Request) -> Response:
        """A key may be restricted to speech."""
        refusal = await self._refusal(request.headers.get("xi-api-key", ""), _elevenlabs_failure)
        if refusal is None and self._strikes("restricted"):
            refusal = _elevenlabs_failure(401, "missing_permissions", "The API key is missing the permission user_read")
        return refusal or JSONResponse({"subscription": {"tier": "creator"}})

    async def _refusal(self, given: str, failure: Failure) -> Response | None:
        if not self._accepts(given):
            return failure(401, "invalid_api_key", "Invalid API key")
        if self.faults.out_of_credit:
            return failure(401, "quota_exceeded", "This request exceeds your quota.")
        if self._strikes("too_many"):
            return failure(429, "too_many_concurrent_requests", "Too many concurrent requests.")
        return await self._refuse(
            failure(429, "system_busy", "The system is busy."), failure(503, "unavailable", "Service unavailable")
        )

    async def _respond(self, said: Said, answer: Callable[[bytes, Said], Response]) -> Response:
        self.said.append(said)
        return await self._deliver(answer(self._audio(said), said))

    def _audio(self, said: Said) -> bytes:
        seconds = seconds_for(said.text, said.rate)
        if self._strikes("silent"):
            return silence(seconds)
        if self._strikes("ten_minutes"):
            return tone(TEN_MINUTES)
        return tone(seconds / 4 if self._strikes("cut") else seconds)


def _read_ssml(body: bytes) -> Said:
    """Be as strict as the service: one voice, with one prosody or none, that contains only text."""
    speak = ElementTree.fromstring(body)  # noqa: S314, a stand-in meets only its own users
    [voice] = speak
    [prosody] = voice if len(voice) else [ElementTree.Element(f"{_SSML}prosody", rate="+0%")]
    rate = _RATE.fullmatch(prosody.attrib.get("rate", ""))
    tags = (speak.tag, voice.tag, prosody.tag)
    if tags != (f"{_SSML}speak", f"{_SSML}voice", f"{_SSML}prosody") or len(prosody) or rate is None:
        raise ValueError("not one voice with one prosody")
    language = speak.attrib["{http://www.w3.org/XML/1998/namespace}lang"]
    text = (prosody if len(voice) else voice).text or ""
    return Said("azure", text, voice.attrib["name"], language, 1 + int(rate[1]) / 100)


def _read_json(voice: str, body: Any) -> Said:
    if not isinstance(body["text"], str) or not body["text"] or not isinstance(body["model_id"], str):
        raise ValueError("`text` is missing")
    return Said("elevenlabs", body["text"], voice, body.get("language_code", ""), body["voice_settings"]["speed"])


def _with_timestamps(pcm: bytes, said: Said) -> Response:
    times = alignment(said.text, seconds_for(said.text, said.rate))
    audio = base64.b64encode(pcm).decode()
    return JSONResponse({"audio_base64": audio, "alignment": times, "normalized_alignment": times})


def _azure_failure(status: int, _: str, message: str) -> Response:
    return Response(message, status, media_type="text/plain")


def _elevenlabs_failure(status: int, word: str, message: str) -> Response:
    return JSONResponse({"detail": {"status": word, "message": message}}, status)
