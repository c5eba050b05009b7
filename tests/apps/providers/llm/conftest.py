from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr

from retoma_apps.providers.llm import Message, quote_text, quoting_rule
from retoma_apps.providers.llm.openrouter import OpenRouter, OpenRouterSettings
from standins.llm import StandIn

KEY = "sk-or-CANARY1234567890"
TEXT = "Trata-se de uma sentença: julgo procedente o pedido. A sentença transita em julgado."


class Label(BaseModel):
    model_config = ConfigDict(extra="forbid")

    label: Literal["petição", "sentença", "ofício"]
    confidence: float


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
    for name in ("faults", "requests", "struck", "cost", "_generations", "_answer", "_ledger", "_random"):
        setattr(standin, name, getattr(fresh, name))
    return standin


@pytest.fixture
async def base_url(standin: StandIn, served_standin: tuple[StandIn, str]) -> str:
    return served_standin[1]


@pytest.fixture
async def llm(base_url: str) -> AsyncIterator[OpenRouter]:
    made = OpenRouter(settings_for(base_url))
    yield made
    await made.close()


def settings_for(base_url: str, **changed: Any) -> OpenRouterSettings:
    options: dict[str, Any] = {"api_key": SecretStr(KEY), "base_url": base_url} | changed
    return OpenRouterSettings(_env_file=None, **options)


def make_messages(text: str = TEXT) -> list[Message]:
    return [Message("system", f"Give the label of the document. {quoting_rule()}"), Message("user", quote_text(text))]


OPTIONS: dict[str, Any] = {"model": "test/model", "max_tokens": 100}
