"""Specific to Azure: SSML, truncation at ten minutes, and the address of a region."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from retoma.errors import ProviderRejected
from retoma.outgoing import Response
from retoma_apps.providers.speech import InvalidAudio
from retoma_apps.providers.speech.azure import Azure, ssml
from retoma_apps.providers.speech.errors import SpeechRefused
from retoma_apps.providers.speech.wav import to_wav
from standins.speech import StandIn
from standins.speech.tones import tone
from tests.apps.providers.speech.conftest import IN_AZURE, KEY, TEXT, answers, azure_settings

HOSTILE = """</prosody></voice><voice name='x'>&amp; "R$ 5" ]]> <!-- é\x00\x01\x1b\ud800\ufffe <break time='9s'/>"""


async def test_text_that_looks_like_ssml_is_spoken_and_not_executed(standin: StandIn, azure: Azure) -> None:
    await azure.say(HOSTILE, **IN_AZURE)
    [message] = standin.said
    assert message.text.startswith("""</prosody></voice><voice name='x'>&amp; "R$ 5" ]]> <!-- é""")
    assert message.text.endswith("<break time='9s'/>")
    assert (message.voice, message.language, message.rate) == ("pt-BR-AntonioNeural", "pt-BR", 1.0)


@pytest.mark.parametrize(("rate", "sent"), [(1.0, "Oi."), (1.1, "<prosody rate='+10%'>Oi.</prosody>")])
def test_text_at_normal_speed_has_no_billed_markup(rate: float, sent: str) -> None:
    assert f'<voice name="x">{sent}</voice>' in ssml("Oi.", "x", "pt-BR", rate)


async def test_a_voice_or_a_language_cannot_escape_its_attribute(standin: StandIn, azure: Azure) -> None:
    await azure.say(TEXT, voice="""x'><audio src="y"/>""", language="pt' z='\"")
    [message] = standin.said
    assert (message.voice, message.language) == ("""x'><audio src="y"/>""", "pt' z='\"")


async def test_audio_that_fills_the_ten_minutes_is_rejected_as_truncated(standin: StandIn, azure: Azure) -> None:
    standin.faults.ten_minutes = 1
    with pytest.raises(SpeechRefused, match="split") as raised:
        await azure.say(TEXT, **IN_AZURE)
    assert raised.value.code == "SPEECH_TOO_LONG"


@pytest.mark.parametrize(("seconds", "is_whole"), [(594.9, True), (595.0, False)])
async def test_audio_is_rejected_from_nine_minutes_and_fifty_five_seconds(
    azure: Azure, monkeypatch: pytest.MonkeyPatch, seconds: float, is_whole: bool
) -> None:
    answers(monkeypatch, azure, Response(200, {}, to_wav(tone(seconds))))
    if is_whole:
        assert (await azure.say(TEXT, **IN_AZURE)).seconds == pytest.approx(seconds)
    else:
        with pytest.raises(SpeechRefused):
            await azure.say(TEXT, **IN_AZURE)


@pytest.mark.parametrize("size", [0, 0x7FFFFFFF, 0xFFFFFFFF])
async def test_streamed_wav_without_a_known_length_is_read_completely(
    azure: Azure, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    audio = bytearray(to_wav(tone(1.0)))
    struct.pack_into("<I", audio, 40, size)
    answers(monkeypatch, azure, Response(200, {}, bytes(audio)))
    assert (await azure.say(TEXT, **IN_AZURE)).audio == to_wav(tone(1.0))


async def test_wav_shorter_than_its_declared_length_is_rejected(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, azure, Response(200, {}, to_wav(tone(1.0))[:-1000]))
    with pytest.raises(InvalidAudio, match="truncated"):
        await azure.say(TEXT, **IN_AZURE)


async def test_wav_in_another_format_is_rejected(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    audio = bytearray(to_wav(tone(1.0)))
    struct.pack_into("<I", audio, 24, 16_000)
    answers(monkeypatch, azure, Response(200, {}, bytes(audio)))
    with pytest.raises(InvalidAudio, match="not WAV with 16-bit PCM"):
        await azure.say(TEXT, **IN_AZURE)


@pytest.mark.parametrize("region", ["", "evil.example/x?", "Brazil South"])
async def test_an_invalid_region_is_reported_before_anything_is_sent(region: str) -> None:
    lost = Azure(azure_settings("", region=region))
    with pytest.raises(ProviderRejected, match="AZURE_SPEECH_REGION"):
        await lost.say(TEXT, **IN_AZURE)
    await lost.close()


async def test_the_region_determines_the_service_url(monkeypatch: pytest.MonkeyPatch) -> None:
    azure = Azure(azure_settings("", region="brazilsouth"))
    met: list[Any] = []

    async def request(_: str, url: str, *, headers: dict[str, str], **__: object) -> Response:
        met.extend((url, headers))
        return Response(200, {}, to_wav(tone(1.0)))

    monkeypatch.setattr(azure._outgoing, "request", request)
    await azure.say(TEXT, **IN_AZURE)
    assert met[0] == "https://brazilsouth.tts.speech.microsoft.com/cognitiveservices/v1"
    assert met[1]["Ocp-Apim-Subscription-Key"] == KEY
    await azure.close()
