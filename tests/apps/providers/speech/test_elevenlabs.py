"""Specific to ElevenLabs: word timings, two kinds of 429, and its error codes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from retoma import RetryLater
from retoma.errors import ProviderRejected, RateLimited
from retoma.outgoing import Response
from retoma_apps.providers.speech import Word
from retoma_apps.providers.speech.elevenlabs import BUSY_RETRY_DELAY, ElevenLabs
from retoma_apps.providers.speech.errors import SpeechRefused
from standins.speech import StandIn
from standins.speech.tones import tone
from tests.apps.providers.speech.conftest import IN_ELEVENLABS, KEY, TEXT, answers, elevenlabs_settings


async def test_every_word_of_the_text_has_a_timing(elevenlabs: ElevenLabs) -> None:
    speech = await elevenlabs.say(TEXT, **IN_ELEVENLABS)
    assert " ".join(word.text for word in speech.words) == TEXT
    assert speech.words[0].start == 0
    assert speech.words[-1].end == pytest.approx(speech.seconds)
    assert all(before.end <= after.start for before, after in zip(speech.words, speech.words[1:], strict=False))


async def test_a_word_lasts_from_its_first_letter_to_its_last(
    elevenlabs: ElevenLabs, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, elevenlabs, make_alignment(list("Oi, é"), [0, 0.1, 0.3, 0.4, 0.6], [0.1, 0.3, 0.4, 0.6, 0.9]))
    speech = await elevenlabs.say("Oi, é", **IN_ELEVENLABS)
    assert speech.words == (Word("Oi,", 0.0, 0.4), Word("é", 0.6, 0.9))


@pytest.mark.parametrize(
    ("starts", "ends"),
    [
        ([0, 0.1], [0.1]),
        ([0.5, 0.1], [0.6, 0.7]),
        ([-1, 0], [0.1, 0.2]),
        ([0, "1"], [0.1, 0.2]),
        ([0, float("nan")], [0.1, 0.2]),
        (None, None),
        (7, 7),
    ],
)
async def test_impossible_timings_are_omitted_and_the_audio_is_kept(
    elevenlabs: ElevenLabs, monkeypatch: pytest.MonkeyPatch, starts: Any, ends: Any
) -> None:
    answers(monkeypatch, elevenlabs, make_alignment(list("Oi"), starts, ends))
    speech = await elevenlabs.say("Oi", **IN_ELEVENLABS)
    assert (speech.words, speech.seconds) == ((), 1.0)


async def test_a_request_limited_by_our_own_concurrency_retries_soon_and_pauses_nobody(
    standin: StandIn, elevenlabs: ElevenLabs
) -> None:
    standin.faults.too_many = 3
    for _ in range(3):
        with pytest.raises(RetryLater) as raised:
            await elevenlabs.say(TEXT, **IN_ELEVENLABS)
        assert type(raised.value) is RetryLater
        assert raised.value.delay == BUSY_RETRY_DELAY
    assert (await elevenlabs.say(TEXT, **IN_ELEVENLABS)).words


async def test_an_account_without_characters_pauses_the_pool(standin: StandIn, elevenlabs: ElevenLabs) -> None:
    standin.faults.out_of_credit = True
    with pytest.raises(ProviderRejected, match="add credit"):
        await elevenlabs.say(TEXT, **IN_ELEVENLABS)


@pytest.mark.parametrize(
    ("status", "word", "error", "code"),
    [
        (400, "max_character_limit_exceeded", SpeechRefused, "SPEECH_TOO_LONG"),
        (400, "voice_not_found", SpeechRefused, "SPEECH_NO_SUCH_VOICE"),
        (404, "a word of tomorrow", SpeechRefused, "SPEECH_NO_SUCH_VOICE"),
        (401, "invalid_api_key", ProviderRejected, None),
        (402, "payment_required", ProviderRejected, None),
        (429, "system_busy", RateLimited, None),
    ],
)
async def test_the_services_own_error_code_decides(
    elevenlabs: ElevenLabs,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    word: str,
    error: type[Exception],
    code: str | None,
) -> None:
    error_body = {"detail": {"status": word, "message": f"{'x' * 190} {KEY}"}}
    answers(monkeypatch, elevenlabs, Response(status, {}, json.dumps(error_body).encode()))
    with pytest.raises(error) as raised:
        await elevenlabs.say(TEXT, **IN_ELEVENLABS)
    assert type(raised.value) is error
    assert getattr(raised.value, "code", None) == code
    assert "CANARY" not in str(raised.value)


async def test_a_voice_cannot_escape_its_place_in_the_url(
    elevenlabs: ElevenLabs, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[str] = []

    async def request(_: str, url: str, **__: object) -> Response:
        met.append(url)
        return make_alignment([], [], [])

    monkeypatch.setattr(elevenlabs._outgoing, "request", request)
    await elevenlabs.say(TEXT, voice="../user?x=#", language="")
    assert met[0].endswith("/v1/text-to-speech/..%2Fuser%3Fx%3D%23/with-timestamps?output_format=pcm_24000")


@pytest.mark.parametrize(("requested", "reported"), [(0.2, 0.7), (1.1, 1.1), (3.0, 1.2)])
async def test_an_unsupported_rate_becomes_the_nearest_supported_one(
    standin: StandIn, elevenlabs: ElevenLabs, requested: float, reported: float
) -> None:
    await elevenlabs.say(TEXT, rate=requested, **IN_ELEVENLABS)
    assert standin.said[0].rate == reported


@pytest.mark.parametrize(("model", "language"), [("eleven_multilingual_v2", ""), ("eleven_flash_v2_5", "pt")])
async def test_only_models_that_accept_a_language_receive_it(
    standin: StandIn, base_url: str, model: str, language: str
) -> None:
    client = ElevenLabs(elevenlabs_settings(base_url, model=model))
    await client.say(TEXT, **IN_ELEVENLABS)
    assert standin.said[0].language == language
    await client.close()


def make_alignment(characters: list[str], starts: Any, ends: Any) -> Response:
    times = {"characters": characters, "character_start_times_seconds": starts, "character_end_times_seconds": ends}
    reported = {"audio_base64": base64.b64encode(tone(1.0)).decode(), "alignment": times}
    return Response(200, {}, json.dumps(reported).encode())
