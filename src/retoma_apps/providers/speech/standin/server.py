"""The routes of both services, with faults to order."""

from __future__ import annotations

import asyncio
import base64
import hmac
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, fields
from random import Random
from typing import Any
from xml.etree import ElementTree

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.types import Receive, Scope, Send

from retoma_apps.providers.gpu.standin.server import served
from retoma_apps.providers.speech.azure import FORMAT
from retoma_apps.providers.speech.standin.tones import alignment, seconds_for, silence, tone
from retoma_apps.providers.speech.wav import wrapped

PAGE = "<!doctype html><title>502</title><h1>Bad gateway</h1>"
TEN_MINUTES = 600.0
_SSML = "{http://www.w3.org/2001/10/synthesis}"
_RATE = re.compile(r"([+-]\d{1,3})%")
_COUNTED = ("rate_limited", "too_many", "broken", "hangs", "html", "cut", "silent", "ten_minutes", "lost_replies")

Failure = Callable[[int, str, str], Response]


@dataclass
class Faults:
    """Counts are of the next requests and run down; shares are of all requests, from 0 to 1."""

    rate_limited: int = 0
    """A 429; ElevenLabs calls it system_busy."""
    too_many: int = 0
    """A 429 of ElevenLabs' other kind: too many requests of this account at the same time."""
    retry_after: float | None = 2
    broken: int = 0
    """A 503 that names no time."""
    hangs: int = 0
    """Requests that get no answer until `release` is called or their caller leaves."""
    html: int = 0
    """A 200 with a page of some proxy."""
    cut: int = 0
    """Audio that is good, and a quarter of what it should be. Paid for, as all that follow."""
    silent: int = 0
    ten_minutes: int = 0
    """Audio that fills the ten minutes at which Azure cuts."""
    lost_replies: int = 0
    """Taken, but the connection breaks off."""
    out_of_credit: bool = False
    shares: dict[str, float] = field(default_factory=dict)
    """How often one of the counts above strikes without being ordered, such as {"broken": 0.1}."""
    latency: float = 0.0
    """Seconds that each answer takes."""


@dataclass(frozen=True)
class Said:
    """One order that was not refused."""

    service: str
    text: str
    voice: str
    language: str
    rate: float


class StandIn:
    def __init__(self, *, key: str | None = None, seed: int = 0) -> None:
        self.faults = Faults()
        self.said: list[Said] = []
        self.struck: Counter[str] = Counter()
        self._key = key
        self._random = Random(seed)  # noqa: S311, faults need no secrecy
        self._released = asyncio.Event()
        self.app = self._routes()

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """The base URL of both services while they are served from this event loop."""
        async with served(self.app, host, port) as origin:
            try:
                yield origin
            finally:
                self.release()

    def release(self) -> None:
        """Let all that hangs be answered."""
        self._released.set()
        self._released = asyncio.Event()

    def tally(self) -> dict[str, Any]:
        characters = sum(len(each.text) for each in self.said)
        return {"requests": len(self.said), "characters": characters, "struck": dict(self.struck)}

    def _routes(self) -> FastAPI:
        app = FastAPI(openapi_url=None)
        app.add_api_route("/cognitiveservices/v1", self._azure, methods=["POST"])
        app.add_api_route("/v1/text-to-speech/{voice}/with-timestamps", self._elevenlabs, methods=["POST"])
        app.add_api_route("/standin/tally", self._show_tally, methods=["GET"])
        app.add_api_route("/standin/faults", self._set_faults, methods=["PUT"])
        return app

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
        return await self._answered(said, lambda pcm, _: Response(wrapped(pcm), media_type="audio/x-wav"))

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
        return await self._answered(said, _with_timestamps)

    async def _refusal(self, given: str, failure: Failure) -> Response | None:
        if self._key is not None and not hmac.compare_digest(given.encode(), self._key.encode()):
            return failure(401, "invalid_api_key", "Invalid API key")
        if self.faults.out_of_credit:
            return failure(401, "quota_exceeded", "This request exceeds your quota.")
        if self._strikes("too_many"):
            return failure(429, "too_many_concurrent_requests", "Too many concurrent requests.")
        if self._strikes("rate_limited"):
            return self._later(failure(429, "system_busy", "The system is busy."))
        if self._strikes("broken"):
            return failure(503, "unavailable", "Service unavailable")
        if self._strikes("hangs"):
            await self._released.wait()
        return HTMLResponse(PAGE) if self._strikes("html") else None

    def _later(self, answer: Response) -> Response:
        if self.faults.retry_after is not None:
            answer.headers["Retry-After"] = f"{self.faults.retry_after:g}"
        return answer

    async def _answered(self, said: Said, answer: Callable[[bytes, Said], Response]) -> Response:
        self.said.append(said)
        if self.faults.latency:
            await asyncio.sleep(self.faults.latency)
        made = answer(self._audio(said), said)
        return _BreaksOff() if self._strikes("lost_replies") else made

    def _audio(self, said: Said) -> bytes:
        seconds = seconds_for(said.text, said.rate)
        if self._strikes("silent"):
            return silence(seconds)
        if self._strikes("ten_minutes"):
            return tone(TEN_MINUTES)
        return tone(seconds / 4 if self._strikes("cut") else seconds)

    def _strikes(self, fault: str) -> bool:
        left = getattr(self.faults, fault)
        if left > 0:
            setattr(self.faults, fault, left - 1)
        strikes = left > 0 or self._random.random() < self.faults.shares.get(fault, 0.0)
        self.struck[fault] += strikes
        return bool(strikes)

    async def _show_tally(self) -> Response:
        return JSONResponse(self.tally())

    async def _set_faults(self, request: Request) -> Response:
        known = {each.name for each in fields(Faults)}
        given = await request.json()
        if odd := [*sorted(given.keys() - known), *sorted(given.get("shares", {}).keys() - set(_COUNTED))]:
            return JSONResponse({"error": f"there is no fault {odd[0]!r}; there are {sorted(known)}"}, 400)
        for name, value in given.items():
            setattr(self.faults, name, value)
        return JSONResponse(asdict(self.faults))


class _BreaksOff(Response):
    """Promises a body and closes the connection before it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"64")]})


def _read_ssml(body: bytes) -> Said:
    """As strict as the service: one voice, with one prosody, that has only text in it."""
    speak = ElementTree.fromstring(body)  # noqa: S314, a stand-in meets only its own users
    [voice] = speak
    [prosody] = voice
    rate = _RATE.fullmatch(prosody.attrib.get("rate", ""))
    tags = (speak.tag, voice.tag, prosody.tag)
    if tags != (f"{_SSML}speak", f"{_SSML}voice", f"{_SSML}prosody") or len(prosody) or rate is None:
        raise ValueError("not one voice with one prosody")
    language = speak.attrib["{http://www.w3.org/XML/1998/namespace}lang"]
    return Said("azure", prosody.text or "", voice.attrib["name"], language, 1 + int(rate[1]) / 100)


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
