"""The DataForSEO client against its stand-in, and the offline implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from retoma.errors import ProviderDown, ProviderRejected, RateLimited
from retoma_apps.providers.keywords import (
    DataForSeo,
    DataForSeoSettings,
    KeywordsError,
    KeywordsRefused,
    OfflineKeywords,
    Suggestion,
    Suggestions,
)
from standins.keywords import StandIn


@pytest.fixture
async def standin() -> StandIn:
    return StandIn(login="me", password="secret")


@pytest.fixture
async def client(standin: StandIn) -> AsyncIterator[DataForSeo]:
    async with standin.serving() as base_url:
        settings = DataForSeoSettings(base_url=base_url, login="me", password=SecretStr("secret"), timeout_seconds=0.5)
        opened = DataForSeo(settings)
        yield opened
        await opened.close()


async def suggest(client: DataForSeo) -> Suggestions:
    return await client.suggest("café", language="pt-BR", limit=2)


async def test_it_returns_the_most_searched_keywords_and_the_cost_of_the_call(
    client: DataForSeo, standin: StandIn
) -> None:
    found = await suggest(client)
    assert found == Suggestions((Suggestion("café", 1000), Suggestion("café benefícios", 500)), 75_000)
    assert standin.requests == [
        {"keywords": ["café"], "language_code": "pt", "location_code": 2076, "sort_by": "search_volume"}
    ]


async def test_a_long_theme_is_cut_to_the_limits_of_the_service(client: DataForSeo, standin: StandIn) -> None:
    await client.suggest("palavra " * 30, language="pt-BR", limit=2)
    assert standin.requests[0]["keywords"] == [" ".join(["palavra"] * 10)]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("busy", RateLimited),
        ("rate_limited", RateLimited),
        ("no_credit", ProviderRejected),
        ("broken", ProviderDown),
        ("failed", KeywordsError),
        ("html", KeywordsError),
        ("truncated_body", KeywordsError),
        ("hangs", KeywordsError),
        ("lost_replies", ProviderDown),
    ],
)
async def test_each_fault_raises_the_error_that_says_what_to_do(
    client: DataForSeo, standin: StandIn, fault: str, error: type[Exception]
) -> None:
    setattr(standin.faults, fault, 1)
    with pytest.raises(error):
        await suggest(client)
    standin.release()
    assert len((await suggest(client)).found) == 2


async def test_a_timeout_has_its_own_code(client: DataForSeo, standin: StandIn) -> None:
    standin.faults.hangs = 1
    with pytest.raises(KeywordsError) as raised:
        await suggest(client)
    assert raised.value.code == "KEYWORDS_TIMEOUT"


async def test_a_rejected_request_is_not_retried(client: DataForSeo) -> None:
    with pytest.raises(KeywordsRefused):
        await client.suggest("", language="pt-BR", limit=2)


async def test_no_keywords_are_no_error(client: DataForSeo, standin: StandIn) -> None:
    standin.faults.empty = 1
    assert (await suggest(client)).found == ()


async def test_wrong_credentials_pause_the_pool_without_being_shown(standin: StandIn) -> None:
    async with standin.serving() as base_url:
        client = DataForSeo(DataForSeoSettings(base_url=base_url, login="me", password=SecretStr("wrong")))
        with pytest.raises(ProviderRejected) as raised:
            await suggest(client)
        await client.close()
    assert "DATAFORSEO_PASSWORD" in str(raised.value)
    assert "wrong" not in str(raised.value)


async def test_without_credentials_it_is_not_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFORSEO_LOGIN", "me")
    assert DataForSeo.from_environment() is None


async def test_the_offline_keywords_are_the_words_of_the_theme() -> None:
    found = await OfflineKeywords().suggest("Café e Cafeína", language="pt-BR", limit=3)
    assert [each.text for each in found.found] == ["café e cafeína", "café", "cafeína"]
    assert {each.volume for each in found.found} == {None}
