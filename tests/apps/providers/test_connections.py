"""The connections of providers: each is tried against its stand-in, and used in place of the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from retoma import Pipeline
from retoma.connections import ConnectionType, PerTenant, TenantConnections
from retoma.errors import ProviderRejected, UnsafeUrl
from retoma_apps.providers import images, llm, speech, wordpress, youtube
from retoma_apps.providers.footage import pexels
from retoma_apps.providers.images import openai
from retoma_apps.providers.keywords import dataforseo
from retoma_apps.providers.llm import openrouter
from retoma_apps.providers.llm.openrouter import OpenRouter
from retoma_apps.providers.llm.port import Llm, Message
from retoma_apps.providers.speech import azure, elevenlabs
from standins.footage import StandIn as PexelsStandIn
from standins.images import StandIn as ImagesStandIn
from standins.keywords import StandIn as KeywordsStandIn
from standins.llm import StandIn as LlmStandIn
from standins.speech import StandIn as SpeechStandIn
from tests.conftest import OpenSandbox

KEY = "CANARY-key-of-a-tenant"
CASES = [
    (openrouter.CONNECTION, LlmStandIn, {"api_key": KEY}, "OpenRouter accepts the key"),
    (pexels.CONNECTION, PexelsStandIn, {"api_key": KEY}, "Pexels accepts the key"),
    (openai.CONNECTION, ImagesStandIn, {"api_key": KEY}, "the image service accepts the key"),
    (
        azure.CONNECTION,
        SpeechStandIn,
        {"api_key": KEY, "region": "brazilsouth"},
        "Azure accepts the key in brazilsouth",
    ),
    (elevenlabs.CONNECTION, SpeechStandIn, {"api_key": KEY}, "ElevenLabs accepts the key"),
]


@pytest.mark.parametrize(("kind", "standin", "values", "message"), CASES, ids=lambda each: getattr(each, "service", ""))
async def test_a_test_says_whether_the_service_accepts_the_key(
    kind: ConnectionType, standin: Any, values: Mapping[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = standin(key=KEY)
    async with service.serving() as base_url:
        for name, value in service.variables(base_url).items():
            monkeypatch.setenv(name, value)
        assert (await kind.test(values)).startswith(message)
        with pytest.raises(ProviderRejected) as raised:
            await kind.test({**values, "api_key": "CANARY-wrong"})
        assert "CANARY" not in str(raised.value)


async def test_a_key_that_is_restricted_to_speech_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    service = SpeechStandIn(key=KEY)
    service.faults.restricted = 1
    async with service.serving() as base_url:
        monkeypatch.setenv("ELEVENLABS_BASE_URL", base_url)
        assert await elevenlabs.CONNECTION.test({"api_key": KEY}) == "ElevenLabs accepts the key"


async def test_the_login_of_a_keyword_service_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    service = KeywordsStandIn()
    async with service.serving() as base_url:
        monkeypatch.setenv("DATAFORSEO_BASE_URL", base_url)
        assert (await dataforseo.CONNECTION.test({"login": "us", "password": KEY})).startswith("DataForSEO accepts")


async def test_two_tenants_are_seen_with_their_own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "key-of-the-environment")
    seen = []
    for found in (TenantConnections(own={("openrouter", ""): {"api_key": KEY}}), TenantConnections()):
        (provider,) = llm.configured_providers(found)
        seen.append(provider._key)  # type: ignore[attr-defined]
    assert seen == [KEY, "key-of-the-environment"]


async def test_the_key_of_the_environment_is_not_sent_to_the_address_of_a_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("IMAGES_API_KEY", "AZURE_SPEECH_KEY", "WORDPRESS_SECRET", "YOUTUBE_REFRESH_TOKEN"):
        monkeypatch.setenv(name, "secret-of-the-environment")
    own = {
        ("openai", ""): {"base_url": "https://attacker.example"},
        ("azure", ""): {"region": "attacker", "api_key": KEY},
        ("wordpress", ""): {"base_url": "https://attacker.example"},
        ("youtube", ""): {"client_id": "attacker"},
    }
    found = TenantConnections(own=own)
    assert images.configured_providers(found)[0]._key == ""  # type: ignore[attr-defined]
    assert speech.configured_providers(found)[0]._key == KEY  # type: ignore[attr-defined]
    with pytest.raises(ProviderRejected):
        _ = wordpress.configured_providers(tmp_path, found)[0]("")._key  # type: ignore[attr-defined]
    channel: Any = youtube.configured_providers(tmp_path, "", found)[0]("")
    assert channel._settings.refresh_token.get_secret_value() == ""


async def test_the_address_of_a_connection_must_be_public() -> None:
    found = TenantConnections(own={("openai", ""): {"api_key": KEY, "base_url": "http://127.0.0.1:1"}})
    with pytest.raises(UnsafeUrl):
        await images.configured_providers(found)[0].make("a picture", width=10, height=10)


async def test_a_text_is_written_with_the_key_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    service = LlmStandIn(key=KEY)
    async with service.serving() as base_url:
        monkeypatch.setenv("OPENROUTER_BASE_URL", base_url)
        monkeypatch.setenv("OPENROUTER_API_KEY", "wrong")
        (provider,) = llm.configured_providers(TenantConnections(shared={("openrouter", ""): {"api_key": KEY}}))
        assert isinstance(provider, OpenRouter)
        await provider.ask([Message("user", "hello")], model="openai/gpt-5-mini", max_tokens=10)
        await provider.close()


def test_each_service_needs_its_secret() -> None:
    for kind in (openrouter, pexels, openai, azure, elevenlabs, dataforseo):
        assert kind.CONNECTION.list_missing({}), kind
    assert wordpress.CONNECTION.list_missing({"base_url": "https://x"}) == ["secret"]


class ListeningStandIn(LlmStandIn):
    """Accepts every key, and keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []

    def _accepts(self, key: str) -> bool:
        self.keys.append(key)
        return True


async def test_runs_of_two_tenants_reach_the_service_with_their_own_keys(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service = ListeningStandIn()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RETOMA_HOME", str(tmp_path))
    async with service.serving() as base_url:
        monkeypatch.setenv("OPENROUTER_BASE_URL", base_url)
        greeting = Pipeline("greeting")

        @greeting.step
        async def text(*, llm: Llm) -> str:
            return (await llm.ask([Message("user", "hello")], model="openai/gpt-5-mini", max_tokens=10)).text

        built: list[Any] = []

        def build(found: TenantConnections) -> Any:
            built.extend(llm.configured_providers(found)[:1])
            return built[-1] if built else None

        resources = {"llm": PerTenant(build)}
        async with open_sandbox(greeting, resources=resources, connections=[openrouter.CONNECTION]) as sandbox:
            for tenant in ("ana", "bia"):
                await sandbox.client.connections.set("openrouter", {"api_key": f"key-of-{tenant}"}, tenant=tenant)
                assert (await sandbox.run(greeting, tenant=tenant)).state == "completed"
        for provider in built:
            await provider.close()
    assert service.keys == ["key-of-ana", "key-of-bia"]
