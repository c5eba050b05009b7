"""Common to Azure and ElevenLabs: the handling of each fault."""

from __future__ import annotations

import wave
from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest

from retoma import GiveUp
from retoma.errors import ProviderDown, ProviderRejected, RateLimited
from retoma.outgoing import Response
from retoma_apps.providers.speech import InvalidAudio, Speech
from retoma_apps.providers.speech.azure import Azure
from retoma_apps.providers.speech.elevenlabs import ElevenLabs
from retoma_apps.providers.speech.errors import SpeechError, SpeechRefused, SpeechUnavailable
from standins.speech import StandIn
from tests.apps.providers.speech.conftest import (
    IN_AZURE,
    IN_ELEVENLABS,
    KEY,
    TEXT,
    answers,
    azure_settings,
    elevenlabs_settings,
)


@pytest.fixture(params=["azure", "elevenlabs"])
def service(request: pytest.FixtureRequest, azure: Azure, elevenlabs: ElevenLabs) -> Azure | ElevenLabs:
    return azure if request.param == "azure" else elevenlabs


def make_request(service: Speech) -> dict[str, Any]:
    return IN_AZURE if service.name == "azure" else IN_ELEVENLABS


def make_client(service: Speech, base_url: str, **changed: Any) -> Azure | ElevenLabs:
    if service.name == "azure":
        return Azure(azure_settings(base_url, **changed))
    return ElevenLabs(elevenlabs_settings(base_url, **changed))


async def test_speech_is_returned_as_24_khz_wav(service: Azure | ElevenLabs) -> None:
    speech = await service.say(TEXT, **make_request(service))
    with wave.open(BytesIO(speech.audio)) as audio:
        assert (audio.getnchannels(), audio.getsampwidth(), audio.getframerate()) == (1, 2, 24_000)
        assert audio.getnframes() / 24_000 == speech.seconds == pytest.approx(7 * 0.4)


async def test_a_higher_rate_speaks_faster(service: Azure | ElevenLabs) -> None:
    assert (await service.say(TEXT, rate=1.1, **make_request(service))).seconds == pytest.approx(
        7 * 0.4 / 1.1, abs=0.001
    )


@pytest.mark.parametrize(
    ("fault", "error", "code"),
    [
        ("html", InvalidAudio, "SPEECH_INVALID_AUDIO"),
        ("silent", InvalidAudio, "SPEECH_INVALID_AUDIO"),
        ("broken", ProviderDown, None),
        ("lost_replies", ProviderDown, None),
        ("rate_limited", RateLimited, None),
    ],
)
async def test_each_fault_has_its_own_error_and_is_temporary(
    standin: StandIn, service: Azure | ElevenLabs, fault: str, error: type[Exception], code: str | None
) -> None:
    setattr(standin.faults, fault, 1)
    with pytest.raises(error) as raised:
        await service.say(TEXT, **make_request(service))
    assert type(raised.value) is error
    assert getattr(raised.value, "code", None) == code
    assert (await service.say(TEXT, **make_request(service))).seconds > 1


async def test_a_busy_service_is_not_called_for_as_long_as_it_says(
    standin: StandIn, service: Azure | ElevenLabs
) -> None:
    standin.faults.rate_limited, standin.faults.retry_after = 1, 7
    with pytest.raises(RateLimited) as raised:
        await service.say(TEXT, **make_request(service))
    assert raised.value.delay == timedelta(seconds=7)


async def test_an_answer_that_does_not_arrive_in_time_may_be_requested_again(
    standin: StandIn, service: Azure | ElevenLabs, base_url: str
) -> None:
    hasty = make_client(service, base_url, timeout_seconds=1)
    standin.faults.hangs = 1
    with pytest.raises(SpeechUnavailable) as raised:
        await hasty.say(TEXT, **make_request(service))
    assert raised.value.code == "SPEECH_TIMEOUT"
    await hasty.close()
    standin.release()


async def test_an_unreachable_service_counts_as_down(service: Azure | ElevenLabs) -> None:
    away = make_client(service, "http://127.0.0.1:9")
    with pytest.raises(ProviderDown):
        await away.say(TEXT, **make_request(service))
    await away.close()


async def test_without_a_key_nothing_is_sent(standin: StandIn, service: Azure | ElevenLabs, base_url: str) -> None:
    keyless = make_client(service, base_url, api_key="")
    with pytest.raises(ProviderRejected, match="_KEY"):
        await keyless.say(TEXT, **make_request(service))
    assert standin.tally()["struck"] == {}
    await keyless.close()


async def test_a_wrong_key_pauses_the_pool_and_is_never_shown(service: Azure | ElevenLabs, base_url: str) -> None:
    unauthorised = make_client(service, base_url, api_key="WRONGCANARY")
    with pytest.raises(ProviderRejected, match="_KEY") as raised:
        await unauthorised.say(TEXT, **make_request(service))
    assert "CANARY" not in repr(raised.value) + repr(unauthorised._settings)
    await unauthorised.close()


@pytest.mark.parametrize(
    ("text", "code"), [("", "SPEECH_EMPTY"), (" \x00… — !", "SPEECH_EMPTY"), ("a " * 5_000, "SPEECH_TOO_LONG")]
)
async def test_text_that_cannot_be_spoken_is_not_sent(
    standin: StandIn, service: Azure | ElevenLabs, text: str, code: str
) -> None:
    with pytest.raises(SpeechRefused) as raised:
        await service.say(text, **make_request(service))
    assert raised.value.code == code
    assert standin.tally()["struck"] == {}


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, SpeechRefused, "SPEECH_BAD_REQUEST"),
        (401, ProviderRejected, None),
        (403, ProviderRejected, None),
        (408, SpeechUnavailable, "SPEECH_TIMEOUT"),
        (413, SpeechRefused, "SPEECH_TOO_LONG"),
        (415, SpeechRefused, "SPEECH_BAD_REQUEST"),
        (429, RateLimited, None),
        (500, ProviderDown, None),
        (502, ProviderDown, None),
        (503, ProviderDown, None),
        (504, SpeechUnavailable, "SPEECH_TIMEOUT"),
    ],
)
async def test_each_status_means_the_same_for_both_services(
    service: Azure | ElevenLabs,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    error: type[Exception],
    code: str | None,
) -> None:
    answers(monkeypatch, service, Response(status, {}, f'{{"detail": "key {KEY} no"}}'.encode()))
    with pytest.raises(error) as raised:
        await service.say(TEXT, **make_request(service))
    assert type(raised.value) is error
    assert getattr(raised.value, "code", None) == code
    assert "(" in str(raised.value)
    assert "CANARY" not in str(raised.value)


async def test_an_overloaded_service_is_not_called_until_the_time_it_names(
    service: Azure | ElevenLabs, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, service, Response(503, {"retry-after": "30"}, b""))
    with pytest.raises(RateLimited) as raised:
        await service.say(TEXT, **make_request(service))
    assert raised.value.delay == timedelta(seconds=30)


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"[" * 100_000, b'{"audio_base64": 7}', b"RIFF....WAVE"])
async def test_an_answer_with_an_unexpected_structure_is_a_retryable_error(
    service: Azure | ElevenLabs, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    answers(monkeypatch, service, Response(200, {}, body))
    with pytest.raises(InvalidAudio) as raised:
        await service.say(TEXT, **make_request(service))
    assert isinstance(raised.value, SpeechError)
    assert not isinstance(raised.value, GiveUp)
