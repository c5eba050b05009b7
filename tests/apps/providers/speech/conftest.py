from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr

from retoma.outgoing import Response
from retoma_apps.providers.speech.azure import Azure, AzureSettings
from retoma_apps.providers.speech.elevenlabs import ElevenLabs, ElevenLabsSettings
from standins.speech import StandIn

KEY = "CANARY1234567890"
TEXT = "A renda fixa rende mais, Sr. João?"
IN_AZURE: dict[str, Any] = {"voice": "pt-BR-AntonioNeural", "language": "pt-BR"}
IN_ELEVENLABS: dict[str, Any] = {"voice": "pNInz6obpgDQGcFmaJgB", "language": "pt-BR"}


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
    for name in ("faults", "said", "struck", "_random"):
        setattr(standin, name, getattr(fresh, name))
    return standin


@pytest.fixture
async def base_url(standin: StandIn, served_standin: tuple[StandIn, str]) -> str:
    return served_standin[1]


@pytest.fixture
async def azure(base_url: str) -> AsyncIterator[Azure]:
    made = Azure(azure_settings(base_url))
    yield made
    await made.close()


@pytest.fixture
async def elevenlabs(base_url: str) -> AsyncIterator[ElevenLabs]:
    made = ElevenLabs(elevenlabs_settings(base_url))
    yield made
    await made.close()


def azure_settings(base_url: str, **changed: Any) -> AzureSettings:
    options: dict[str, Any] = {"api_key": SecretStr(KEY), "base_url": base_url} | changed
    return AzureSettings(_env_file=None, **options)


def elevenlabs_settings(base_url: str, **changed: Any) -> ElevenLabsSettings:
    options: dict[str, Any] = {"api_key": SecretStr(KEY), "base_url": base_url} | changed
    return ElevenLabsSettings(_env_file=None, **options)


def answers(monkeypatch: pytest.MonkeyPatch, client: Azure | ElevenLabs, answer: Response) -> None:
    async def request(*_: object, **__: object) -> Response:
        return answer

    monkeypatch.setattr(client._outgoing, "request", request)
