"""The stand-in itself: its checks, counts and faults."""

from __future__ import annotations

import pytest

from retoma.outgoing import LOOPBACK, Guard, HttpClient, Response
from retoma_apps.providers.speech import Azure, ElevenLabs, ImplausibleLength, verify_length
from retoma_apps.providers.speech.standin import StandIn
from tests.apps.providers.speech.conftest import IN_AZURE, IN_ELEVENLABS, KEY, TEXT

AZURE_HEADERS = {
    "ocp-apim-subscription-key": KEY,
    "content-type": "application/ssml+xml",
    "x-microsoft-outputformat": "riff-24khz-16bit-mono-pcm",
}


async def call(url: str, method: str, path: str, *, headers: dict[str, str] | None = None, **given: object) -> Response:
    async with HttpClient(Guard.from_hosts(LOOPBACK)) as outgoing:
        return await outgoing.request(method, f"{url}/{path}", headers=headers, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [b"", b"<speak", b"<speak/>", b"<speak><voice><b/></voice></speak>"])
async def test_ssml_of_another_shape_is_refused(base_url: str, body: bytes) -> None:
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


async def test_cut_audio_is_found_by_its_length(standin: StandIn, azure: Azure) -> None:
    text = f"{TEXT} " * 5
    standin.faults.cut = 1
    said = await azure.say(text, **IN_AZURE)
    with pytest.raises(ImplausibleLength, match="truncated"):
        verify_length(text, said.seconds, "pt-BR")
    verify_length(text, (await azure.say(text, **IN_AZURE)).seconds, "pt-BR")


async def test_it_counts_what_both_services_were_asked_for(
    standin: StandIn, azure: Azure, elevenlabs: ElevenLabs
) -> None:
    await azure.say(TEXT, **IN_AZURE)
    await elevenlabs.say(TEXT, **IN_ELEVENLABS)
    assert standin.tally()["requests"] == 2
    assert standin.tally()["characters"] == 2 * len(TEXT)
    assert [each.service for each in standin.said] == ["azure", "elevenlabs"]


async def test_faults_are_ordered_over_http_too(standin: StandIn, base_url: str) -> None:
    told = await call(base_url, "PUT", "standin/faults", json={"rate_limited": 3, "shares": {"html": 0.5}})
    assert told.json()["rate_limited"] == 3
    assert standin.faults.shares == {"html": 0.5}
    assert (await call(base_url, "PUT", "standin/faults", json={"no_such": 1})).status == 400
    assert (await call(base_url, "PUT", "standin/faults", json={"shares": {"no_such": 1}})).status == 400
    assert (await call(base_url, "GET", "standin/tally")).json()["requests"] == 0
