"""The stand-in itself: its checks, counts and faults."""

from __future__ import annotations

import pytest

from retoma.outgoing import LOOPBACK, Guard, HttpClient, Response
from retoma_apps.providers.speech import verify_length
from retoma_apps.providers.speech.azure import Azure
from retoma_apps.providers.speech.elevenlabs import ElevenLabs
from retoma_apps.providers.speech.errors import ImplausibleLength
from standins.speech import StandIn
from tests.apps.providers.speech.conftest import IN_AZURE, IN_ELEVENLABS, KEY, TEXT

AZURE_HEADERS = {
    "ocp-apim-subscription-key": KEY,
    "content-type": "application/ssml+xml",
    "x-microsoft-outputformat": "riff-24khz-16bit-mono-pcm",
}


async def call(
    url: str, method: str, path: str, *, headers: dict[str, str] | None = None, **values: object
) -> Response:
    async with HttpClient(Guard.from_hosts(LOOPBACK)) as outgoing:
        return await outgoing.request(method, f"{url}/{path}", headers=headers, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [b"", b"<speak", b"<speak/>", b"<speak><voice><b/></voice></speak>"])
async def test_ssml_with_an_invalid_structure_is_refused(base_url: str, body: bytes) -> None:
    answer = await call(base_url, "POST", "cognitiveservices/v1", headers=AZURE_HEADERS, content=body)
    assert answer.status == 400


async def test_another_format_or_type_is_refused_as_azure_does(base_url: str) -> None:
    for changed, status in (({"x-microsoft-outputformat": "mp3"}, 400), ({"content-type": "text/plain"}, 415)):
        headers = AZURE_HEADERS | changed
        answer = await call(base_url, "POST", "cognitiveservices/v1", headers=headers, content=b"<speak/>")
        assert answer.status == status


async def test_a_body_without_text_is_refused_as_elevenlabs_does(base_url: str) -> None:
    path = "v1/text-to-speech/abc/with-timestamps?output_format=pcm_24000"
    answer = await call(base_url, "POST", path, headers={"xi-api-key": KEY}, json={"model_id": "m"})
    assert answer.status == 422


async def test_truncated_audio_is_detected_by_its_length(standin: StandIn, azure: Azure) -> None:
    text = f"{TEXT} " * 5
    standin.faults.cut = 1
    speech = await azure.say(text, **IN_AZURE)
    with pytest.raises(ImplausibleLength, match="truncated"):
        verify_length(text, speech.seconds, "pt-BR")
    verify_length(text, (await azure.say(text, **IN_AZURE)).seconds, "pt-BR")


async def test_the_stand_in_counts_the_requests_to_both_services(
    standin: StandIn, azure: Azure, elevenlabs: ElevenLabs
) -> None:
    await azure.say(TEXT, **IN_AZURE)
    await elevenlabs.say(TEXT, **IN_ELEVENLABS)
    assert standin.tally()["requests"] == 2
    assert standin.tally()["characters"] == 2 * len(TEXT)
    assert [each.service for each in standin.said] == ["azure", "elevenlabs"]


async def test_faults_can_be_configured_over_http(standin: StandIn, base_url: str) -> None:
    body = await call(base_url, "PUT", "standin/faults", json={"rate_limited": 3, "shares": {"html": 0.5}})
    assert body.json()["rate_limited"] == 3
    assert standin.faults.shares == {"html": 0.5}
    assert (await call(base_url, "PUT", "standin/faults", json={"no_such": 1})).status == 400
    assert (await call(base_url, "PUT", "standin/faults", json={"shares": {"no_such": 1}})).status == 400
    assert (await call(base_url, "GET", "standin/tally")).json()["requests"] == 0
