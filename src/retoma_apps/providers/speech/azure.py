"""Azure speech: a thin client for its plain REST call, which returns no word timings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.sax.saxutils import escape, quoteattr

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from retoma.connections import ConnectionField, ConnectionType
from retoma.errors import ProviderRejected
from retoma.outgoing import Response
from retoma_apps.providers.connection_fields import API_KEY
from retoma_apps.providers.http_service import ServiceSettings
from retoma_apps.providers.responses import format_provider_message
from retoma_apps.providers.speech.errors import SpeechRefused
from retoma_apps.providers.speech.port import SpokenAudio
from retoma_apps.providers.speech.service import SpeechService
from retoma_apps.providers.speech.texts import clean_speech_text
from retoma_apps.providers.speech.voices import Speaker
from retoma_apps.providers.speech.wav import read_pcm, to_spoken_audio

FORMAT = "riff-24khz-16bit-mono-pcm"
LONGEST_SECONDS = 595.0
"""Azure truncates at ten minutes without an error, so audio near that length may be incomplete."""
_REGION = re.compile(r"[a-z0-9]{2,40}")
_VOICE = re.compile(r"azure_([a-z]{2,3})_([a-z]{2})_([a-z]{2,40})")


class AzureSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="AZURE_SPEECH_", populate_by_name=True)

    api_key: SecretStr = Field(SecretStr(""), validation_alias="AZURE_SPEECH_KEY")
    region: str = Field("", description="For example brazilsouth.")
    base_url: str = Field("", description="Default: the region's own address.")


class Azure(SpeechService[AzureSettings]):
    name = "azure"
    max_characters = 4_000
    has_word_times = False
    variables: tuple[str, ...] = ("AZURE_SPEECH_KEY",)
    voices: Mapping[str, Speaker] = {
        "azure_pt_br_antonio": Speaker("azure", "pt-BR-AntonioNeural", "pt-BR"),
        "azure_pt_br_francisca": Speaker("azure", "pt-BR-FranciscaNeural", "pt-BR"),
        "azure_en_us_guy": Speaker("azure", "en-US-GuyNeural", "en-US"),
        "azure_en_us_jenny": Speaker("azure", "en-US-JennyNeural", "en-US"),
    }
    voice_form = "azure_<language>_<country>_<name>"
    label = "Azure"
    no_key = "Azure speech needs a key: set AZURE_SPEECH_KEY and AZURE_SPEECH_REGION"
    settings_type = AzureSettings
    account_errors: Mapping[int, str] = {
        401: "Azure rejected our key: set AZURE_SPEECH_KEY to one that is valid in AZURE_SPEECH_REGION",
        403: "the Azure key may not be used for speech: allow it at Azure, or set another AZURE_SPEECH_KEY",
        404: "Azure has no speech service at this address: set AZURE_SPEECH_REGION to the key's region",
    }
    largest_answer = 32 * 1024**2

    @staticmethod
    def parse_voice(name: str) -> Speaker | None:
        if (found := _VOICE.fullmatch(name)) is None:
            return None
        language = f"{found[1]}-{found[2].upper()}"
        return Speaker("azure", f"{language}-{found[3].capitalize()}Neural", language)

    async def say(self, text: str, *, voice: str, language: str, rate: float = 1.0) -> SpokenAudio:
        body = ssml(clean_speech_text(text, self.max_characters), voice, language, rate)
        headers = {
            "Ocp-Apim-Subscription-Key": self._key,
            "Content-Type": "application/ssml+xml",
            "X-Microsoft-OutputFormat": FORMAT,
        }
        answer = await self._request("POST", "/cognitiveservices/v1", headers, content=body.encode())
        if not answer.is_success:
            self._raise_error(answer, format_provider_message(answer.text, self._key))
        return _check_complete(answer)

    async def check_account(self) -> str:
        await self._check_access("/cognitiveservices/voices/list", {"Ocp-Apim-Subscription-Key": self._key})
        return f"Azure accepts the key in {self._settings.region or 'the address that is set'}"

    @property
    def _origin(self) -> str:
        base = self._settings.base_url.rstrip("/")
        if not base and not _REGION.fullmatch(self._settings.region):
            raise ProviderRejected("Azure speech needs a region: set AZURE_SPEECH_REGION, for example to brazilsouth")
        return base or f"https://{self._settings.region}.tts.speech.microsoft.com"


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


CONNECTION = ConnectionType(
    Azure.name,
    "Azure speech",
    (API_KEY, ConnectionField("region", "Region", help="For example brazilsouth.")),
    Azure.try_connection,
    variables=(*Azure.variables, "AZURE_SPEECH_REGION"),
)
