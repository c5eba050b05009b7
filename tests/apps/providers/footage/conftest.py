from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from retoma_apps.providers.footage.offline import Frames, OfflineFootage
from retoma_apps.providers.footage.pexels import Pexels, PexelsSettings
from standins.footage import StandIn

KEY = "pexels-CANARY1234567890"
TINY = Frames(64, 36, 10)


def tiny(seconds: float = 0.5) -> OfflineFootage:
    return OfflineFootage(TINY, longest=seconds)


@pytest.fixture(scope="session")
async def served_standin() -> AsyncIterator[tuple[StandIn, str]]:
    standin = StandIn(key=KEY, footage=tiny())
    async with standin.serving() as base_url:
        yield standin, base_url


@pytest.fixture
async def standin(served_standin: tuple[StandIn, str]) -> StandIn:
    """Reset the one server that all tests share."""
    standin, _ = served_standin
    fresh = StandIn(key=KEY)
    for name in ("faults", "requests", "file_headers", "struck", "_clips"):
        setattr(standin, name, getattr(fresh, name))
    return standin


@pytest.fixture
async def base_url(standin: StandIn, served_standin: tuple[StandIn, str]) -> str:
    return served_standin[1]


@pytest.fixture(autouse=True)
def _links_may_lead_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETOMA_ALLOW_HOSTS", "127.0.0.1")


@pytest.fixture
async def pexels(base_url: str) -> AsyncIterator[Pexels]:
    made = Pexels(settings_for(base_url))
    yield made
    await made.close()


def settings_for(base_url: str, **changed: Any) -> PexelsSettings:
    options: dict[str, Any] = {"api_key": SecretStr(KEY), "base_url": base_url} | changed
    return PexelsSettings(_env_file=None, **options)


SEARCH: dict[str, Any] = {"language": "pt-BR", "seconds": 5.0}


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())
