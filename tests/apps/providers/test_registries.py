"""Common to the registries of all capabilities."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import retoma_apps
from retoma import Settings
from retoma.connections import TenantConnections
from retoma.files import FileSettings
from retoma_apps.providers import footage, gpu, images, keywords, llm, speech, wordpress, youtube

REGISTRIES: list[Any] = [footage, gpu, images, keywords, llm, speech, wordpress, youtube]
CLASSES = [pytest.param(each, one, id=one.__name__) for each in REGISTRIES for one in each.PROVIDERS]


def list_arguments(registry: Any, folder: Path) -> tuple[Any, ...]:
    if registry is gpu:
        return Settings(home=folder), FileSettings(home=folder)
    if registry is youtube:
        return folder, "/channel/{id}"
    return (folder,) if registry is wordpress else ()


def set_variable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "https://example.com" if name.endswith("_URL") else "secret")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (name for each in REGISTRIES for one in each.PROVIDERS for name in one.variables):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("registry", "provider"), CLASSES)
def test_its_variables_configure_a_provider(
    registry: Any, provider: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = list_arguments(registry, tmp_path)
    assert (configure(registry, provider, arguments) is None) == bool(provider.variables)
    for name in provider.variables:
        set_variable(monkeypatch, name)
    assert configure(registry, provider, arguments) is not None


def configure(registry: Any, provider: Any, arguments: tuple[Any, ...]) -> Any:
    """GPU hosts, which all tenants share, have no connections."""
    if registry is gpu:
        return provider.from_environment(*arguments)
    return provider.for_tenant(TenantConnections(), *arguments)


@pytest.mark.parametrize("registry", REGISTRIES)
def test_configured_providers_come_in_the_order_of_the_registry(
    registry: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = list_arguments(registry, tmp_path)
    free = [one for one in registry.PROVIDERS if not one.variables]
    assert len(registry.configured_providers(*arguments)) == len(free)
    for name in (name for one in registry.PROVIDERS for name in one.variables):
        set_variable(monkeypatch, name)
    made = registry.configured_providers(*arguments)
    if registry in (youtube, wordpress):
        made = [open_account("") for open_account in made]
    assert [type(each) for each in made] == list(registry.PROVIDERS)


@pytest.mark.parametrize(("registry", "provider"), CLASSES)
def test_a_provider_without_variables_is_offline(registry: Any, provider: Any) -> None:
    assert provider.is_offline == (not provider.variables)


def test_applications_ask_for_a_capability_and_never_for_a_name() -> None:
    sources = Path(retoma_apps.__file__).parent.rglob("*.py")
    named = re.compile(r"\.name\s*(?:==|!=|in|not in)\s*\(?\w*(?:Offline|Bundled)\w*")
    assert [str(path) for path in sources if named.search(path.read_text())] == []


@pytest.mark.parametrize("provider", speech.PROVIDERS)
def test_the_voices_of_a_speech_provider_are_found_by_their_names(provider: Any) -> None:
    for name, speaker in provider.voices.items():
        assert speech.find_speaker(name) == speaker
        assert speaker.provider == provider.name
    assert provider.voice_form.startswith(f"{provider.name}_")
