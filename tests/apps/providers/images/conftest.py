from __future__ import annotations

from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any

import pytest
from PIL import Image
from pydantic import SecretStr

from retoma_apps.providers.images.openai import OpenAiImages, OpenAiImagesSettings
from standins.images import StandIn

KEY = "sk-images-CANARY1234567890"
SIZE: dict[str, Any] = {"width": 64, "height": 36}


@pytest.fixture(scope="session")
async def served_standin() -> AsyncIterator[tuple[StandIn, str]]:
    standin = StandIn(key=KEY)
    async with standin.serving() as base_url:
        yield standin, base_url


@pytest.fixture
async def standin(served_standin: tuple[StandIn, str]) -> StandIn:
    """Reset the one server that all tests share."""
    standin, _ = served_standin
    fresh = StandIn(key=KEY)
    for name in ("faults", "requests", "file_headers", "struck", "_made"):
        setattr(standin, name, getattr(fresh, name))
    return standin


@pytest.fixture
async def base_url(standin: StandIn, served_standin: tuple[StandIn, str]) -> str:
    return served_standin[1]


@pytest.fixture(autouse=True)
def _links_may_lead_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETOMA_ALLOW_HOSTS", "127.0.0.1")


@pytest.fixture
async def images(base_url: str) -> AsyncIterator[OpenAiImages]:
    made = OpenAiImages(settings_for(base_url))
    yield made
    await made.close()


def settings_for(base_url: str, **changed: Any) -> OpenAiImagesSettings:
    """Use small pictures, which the stand-in draws faster."""
    options: dict[str, Any] = {"api_key": SecretStr(KEY), "base_url": base_url, "sizes": "60x60,96x60,60x96"} | changed
    return OpenAiImagesSettings(_env_file=None, **options)


def open_picture(picture: bytes) -> Image.Image:
    return Image.open(BytesIO(picture))
