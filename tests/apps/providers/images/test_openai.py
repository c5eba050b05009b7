"""The client for OpenAI-compatible image services against the stand-in."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from retoma import GiveUp
from retoma.errors import ProviderDown, ProviderRejected, RateLimited
from retoma.outgoing import Response
from retoma_apps.providers.images.errors import ImageRefused, ImageUnavailable, InvalidImage
from retoma_apps.providers.images.openai import OpenAiImages, nearest_size
from standins.images import StandIn
from tests.apps.providers.images.conftest import KEY, SIZE, open_picture, settings_for


@pytest.mark.parametrize("links", [False, True])
async def test_an_image_has_the_requested_size_whether_inline_or_linked(
    standin: StandIn, images: OpenAiImages, links: bool
) -> None:
    standin.faults.links = links
    picture = open_picture(await images.make("um vulcão", width=65, height=37))
    assert (picture.format, picture.size) == ("JPEG", (65, 37))
    [body] = standin.requests
    assert body == {"model": "gpt-image-1", "prompt": "um vulcão", "n": 1, "size": "96x60"}


async def test_a_link_is_called_without_the_key(standin: StandIn, images: OpenAiImages) -> None:
    standin.faults.links = True
    await images.make("x", **SIZE)
    assert len(standin.file_headers) == 1
    assert KEY not in json.dumps(standin.file_headers)


@pytest.mark.parametrize(
    ("width", "height", "size"), [(1280, 720, "1536x1024"), (720, 1280, "1024x1536"), (9, 10, "1024x1024")]
)
def test_the_nearest_supported_size_is_requested(width: int, height: int, size: str) -> None:
    assert nearest_size(["1024x1024", "1536x1024", "1024x1536"], width, height) == size


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("broken", ProviderDown),
        ("no_credit", ProviderRejected),
        ("html", InvalidImage),
        ("empty", InvalidImage),
        ("not_picture", InvalidImage),
        ("private_link", InvalidImage),
        ("filtered", ImageRefused),
    ],
)
async def test_each_fault_has_its_own_error(
    standin: StandIn, images: OpenAiImages, fault: str, error: type[Exception]
) -> None:
    setattr(standin.faults, fault, 1)
    with pytest.raises(error):
        await images.make("x", **SIZE)
    assert await images.make("x", **SIZE)


async def test_a_link_to_a_private_address_is_never_called(standin: StandIn, images: OpenAiImages) -> None:
    standin.faults.private_link = 1
    with pytest.raises(InvalidImage, match="is not a public address"):
        await images.make("x", **SIZE)


async def test_a_prompt_that_violates_the_services_policy_fails_permanently(
    standin: StandIn, images: OpenAiImages
) -> None:
    standin.faults.filtered = 1
    with pytest.raises(GiveUp) as raised:
        await images.make("x", **SIZE)
    assert raised.value.code == "IMAGE_CONTENT_FILTERED"


async def test_429_pauses_as_long_as_requested(standin: StandIn, images: OpenAiImages) -> None:
    standin.faults.rate_limited, standin.faults.retry_after = 2, 7
    with pytest.raises(RateLimited) as raised:
        await images.make("x", **SIZE)
    assert raised.value.delay == timedelta(seconds=7)
    standin.faults.retry_after = None
    with pytest.raises(RateLimited) as raised:
        await images.make("x", **SIZE)
    assert raised.value.delay == timedelta(seconds=20)


async def test_an_image_that_does_not_arrive_in_time_may_be_requested_again(standin: StandIn, base_url: str) -> None:
    hasty = OpenAiImages(settings_for(base_url, timeout_seconds=1))
    standin.faults.hangs = 1
    with pytest.raises(ImageUnavailable) as raised:
        await hasty.make("x", **SIZE)
    assert raised.value.code == "IMAGE_TIMEOUT"
    await hasty.close()
    standin.release()


async def test_a_wrong_key_pauses_the_pool_and_is_never_shown(base_url: str) -> None:
    wrong = OpenAiImages(settings_for(base_url, api_key="SECRET-of-another"))
    with pytest.raises(ProviderRejected, match="IMAGES_API_KEY") as raised:
        await wrong.make("x", **SIZE)
    assert "SECRET" not in str(raised.value)
    await wrong.close()


async def test_without_a_key_nothing_is_sent(standin: StandIn, base_url: str) -> None:
    keyless = OpenAiImages(settings_for(base_url, api_key=""))
    with pytest.raises(ProviderRejected, match="IMAGES_API_KEY"):
        await keyless.make("x", **SIZE)
    assert standin.requests == []


async def test_an_unreachable_service_counts_as_down() -> None:
    away = OpenAiImages(settings_for("http://127.0.0.1:9/v1"))
    with pytest.raises(ProviderDown):
        await away.make("x", **SIZE)
    await away.close()


async def test_an_empty_prompt_fails_permanently(images: OpenAiImages) -> None:
    with pytest.raises(ImageRefused) as raised:
        await images.make("", **SIZE)
    assert raised.value.code == "IMAGE_BAD_REQUEST"


@pytest.mark.parametrize(
    "reported",
    [None, [], {"data": {}}, {"data": [1]}, {"data": [{}]}, {"data": [{"b64_json": "é?"}]}, {"data": [{"url": 1}]}],
)
async def test_an_answer_without_an_image_is_an_error(
    images: OpenAiImages, monkeypatch: pytest.MonkeyPatch, reported: Any
) -> None:
    async def request(*_: Any, **__: Any) -> Response:
        return Response(200, {}, json.dumps(reported).encode())

    monkeypatch.setattr(images._outgoing, "request", request)
    with pytest.raises(InvalidImage):
        await images.make("x", **SIZE)
