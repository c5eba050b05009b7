"""Azure speech: a thin client for its plain REST call, which returns no word timings."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from retoma import ProviderRejected
from retoma.outgoing import Guard, HttpClient, Response
from retoma_apps.providers.responses import format_provider_message
from retoma_apps.providers.speech.error_mapping import raise_error, translate_no_answer
from retoma_apps.providers.speech.errors import SpeechRefused
from retoma_apps.providers.speech.port import SpokenAudio
from retoma_apps.providers.speech.texts import clean_speech_text
from retoma_apps.providers.speech.wav import read_pcm, to_spoken_audio

FORMAT = "riff-24khz-16bit-mono-pcm"
LONGEST_SECONDS = 595.0
"""Azure truncates at ten minutes without an error, so audio near that length may be incomplete."""
_LARGEST_ANSWER = 32 * 1024**2
_REGION = re.compile(r"[a-z0-9]{2,40}")
_ACCOUNT_ERRORS = {
    401: "Azure rejected our key: set AZURE_SPEECH_KEY to one that is valid in AZURE_SPEECH_REGION",
    403: "the Azure key may not be used for speech: allow it at Azure, or set another AZURE_SPEECH_KEY",
    404: "Azure has no speech service at this address: set AZURE_SPEECH_REGION to the key's region",
}


class AzureSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="AZURE_SPEECH_", env_file=".env", extra="ignore")

    key: SecretStr = SecretStr("")
    region: str = Field("", description="For example brazilsouth.")
    base_url: str = Field("", description="Default: the region's own address.")
    timeout_seconds: float = Field(120.0, gt=0, description="Timeout for one answer.")


class Azure:
    """Create it where it is used: its connections belong to one event loop."""

    name = "azure"
    max_characters = 4_000

    def __init__(self, settings: AzureSettings | None = None, outgoing: HttpClient | None = None) -> None:
        self._settings = settings or AzureSettings()
        allowed = self._settings.base_url
        self._outgoing = outgoing or HttpClient(Guard().with_origin_of(allowed) if allowed else Guard())

    async def say(self, text: str, *, voice: str, language: str, rate: float = 1.0) -> SpokenAudio:
        url, body = self._url(), ssml(clean_speech_text(text, self.max_characters), voice, language, rate)
        answer = await translate_no_answer("Azure", self._post(url, body.encode()))
        if not answer.is_success:
            raise_error("Azure", answer, _ACCOUNT_ERRORS, format_provider_message(answer.text, self._key))
        return _check_complete(answer)

    async def close(self) -> None:
        await self._outgoing.close()

    @property
    def _key(self) -> str:
        return self._settings.key.get_secret_value()

    def _url(self) -> str:
        if not self._key:
            raise ProviderRejected("Azure speech needs a key: set AZURE_SPEECH_KEY and AZURE_SPEECH_REGION")
        base = self._settings.base_url.rstrip("/")
        if not base and not _REGION.fullmatch(self._settings.region):
            raise ProviderRejected("Azure speech needs a region: set AZURE_SPEECH_REGION, for example to brazilsouth")
        return f"{base or f'https://{self._settings.region}.tts.speech.microsoft.com'}/cognitiveservices/v1"

    async def _post(self, url: str, body: bytes) -> Response:
        headers = {
            "Ocp-Apim-Subscription-Key": self._key,
            "Content-Type": "application/ssml+xml",
            "X-Microsoft-OutputFormat": FORMAT,
        }
        return await self._outgoing.request(
            "POST",
            url,
            headers=headers,
            content=body,
            timeout=self._settings.timeout_seconds,
            limit=_LARGEST_ANSWER,
        )


def ssml(text: str, voice: str, language: str, rate: float) -> str:
    """Return SSML in which all arguments are escaped text. At rate 1 it has no prosody element, which is billed."""
    content, change = escape(text), round((rate - 1) * 100)
    if change:
        content = f"<prosody rate='{change:+d}%'>{content}</prosody>"
    return (
        "<speak version='1.0' xmlns='http://www.w3.org/2001/10/synthesis' "
        f"xml:lang={quoteattr(language)}><voice name={quoteattr(voice)}>{content}</voice></speak>"
    )


def _check_complete(answer: Response) -> SpokenAudio:
    if answer.is_cut:
        raise _too_long("more data than the size limit")
    audio = to_spoken_audio(read_pcm(answer.body))
    if audio.seconds >= LONGEST_SECONDS:
        raise _too_long(f"{audio.seconds:.0f} s")
    return audio


def _too_long(length: str) -> SpeechRefused:
    return SpeechRefused(
        f"Azure's audio has {length}, and Azure truncates silently at ten minutes: split the text", "SPEECH_TOO_LONG"
    )
