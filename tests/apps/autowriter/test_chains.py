"""Chains of providers: what happens to an article if language models, images or keywords fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retoma import ProviderChain, hours
from retoma.define.connections import get_default
from retoma.errors import ProviderDown, ProviderRejected
from retoma.providers import SingleProvider
from retoma.store.database import Database
from retoma_apps.autowriter.application import from_environment
from retoma_apps.providers.chains import chain_providers, get_first_provider
from retoma_apps.providers.images.errors import ImageUnavailable
from retoma_apps.providers.keywords import KeywordsError, OfflineKeywords
from retoma_apps.providers.llm import LanguageModel, Usage
from retoma_apps.providers.llm.errors import InvalidJson, LlmUnavailable
from tests.apps.autowriter.writer_app import Pictures, Writer, WriterApp, open_writer_app
from tests.conftest import empty_database

TIMEOUT = LlmUnavailable("no answer", "LLM_TIMEOUT")
FIRST, SECOND = "writer-first", "writer-second"
OpenApp = Callable[..., AbstractAsyncContextManager[WriterApp]]


@pytest.fixture
async def open_app(database: Database, tmp_path: Path) -> OpenApp:
    """AutoWriter on an empty database, with other providers."""
    await empty_database(database)
    return lambda **providers: open_writer_app(database, tmp_path, **providers)


def make_models(*writers: Writer) -> list[LanguageModel]:
    return [LanguageModel(writer, name) for writer, name in zip(writers, ("first", "second"), strict=False)]


def find_step(shown: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in shown["steps"] if each["step"] == name)
    return found


async def test_the_next_model_writes_120_seconds_after_the_second_retry_failed(open_app: OpenApp) -> None:
    first, second = Writer(), Writer()
    first.errors = [TIMEOUT] * 3
    async with open_app(llm=chain_providers(make_models(first, second))) as app:
        began = await app.api.sandbox.clock.now()
        run = await app.write()
        assert await app.get_state(run.id) == "done"
        assert await app.api.sandbox.clock.now() - began == timedelta(seconds=10 + 30 + 120)
        assert first.calls[:3] == ["BriefDraft"] * 3
        assert second.calls == ["BriefDraft"]  # the other steps succeed with the first model


async def test_every_attempt_says_which_provider_it_used_and_why_it_moved_on(open_app: OpenApp) -> None:
    first, second = Writer(), Writer()
    first.errors = [TIMEOUT] * 3
    async with open_app(llm=chain_providers(make_models(first, second))) as app:
        run = await app.write()
        step = find_step(await app.show(run.id), "brief_created")
        assert [(each["provider"], each["next_provider"], each["code"]) for each in step["failed_attempts"]] == [
            (FIRST, None, "LLM_TIMEOUT"),
            (FIRST, None, "LLM_TIMEOUT"),
            (FIRST, SECOND, "LLM_TIMEOUT"),
        ]
        (succeeded,) = step["successful_attempts"]
        assert (succeeded["attempt"], succeeded["revision"], succeeded["provider"]) == (4, 1, SECOND)
        assert (step["providers"], step["models"]) == (["writer"], ["second"])


async def test_the_attempts_of_a_single_model_name_it_and_wait_while_it_is_down(open_app: OpenApp) -> None:
    only = Writer()
    only.errors = [TIMEOUT, *[ProviderDown("down", delay=60)] * 3]
    async with open_app(llm=chain_providers(make_models(only))) as app:
        run = await app.write()
        assert await app.get_state(run.id) == "done"
        step = find_step(await app.show(run.id), "brief_created")
        assert [(each["code"], each["provider"]) for each in step["failed_attempts"]] == [
            ("LLM_TIMEOUT", FIRST),
            *[("PROVIDER_DOWN", FIRST)] * 3,
        ]
        assert [(each["attempt"], each["provider"]) for each in step["successful_attempts"]] == [(2, FIRST)]


async def test_a_model_that_rejects_our_key_is_left_at_once(open_app: OpenApp) -> None:
    first, second = Writer(), Writer()
    first.errors = [ProviderRejected("no credit")]
    async with open_app(llm=chain_providers(make_models(first, second))) as app:
        run = await app.write()
        assert (run.state, run.ended_at) == ("completed", run.created_at)
        (failure,) = find_step(await app.show(run.id), "brief_created")["failed_attempts"]
        assert (failure["provider"], failure["next_provider"]) == (FIRST, SECOND)


async def test_an_article_fails_once_all_models_have_used_up_their_retries(open_app: OpenApp) -> None:
    first, second = Writer(), Writer()
    first.errors, second.errors = [TIMEOUT] * 3, [TIMEOUT] * 3
    async with open_app(llm=chain_providers(make_models(first, second))) as app:
        run = await app.write()
        shown = await app.show(run.id)
        assert (shown["state"], shown["error"]["code"]) == ("failed", "LLM_TIMEOUT")
        assert (len(first.calls), len(second.calls)) == (3, 3)


async def test_an_image_that_one_provider_fails_to_make_is_made_by_the_next(open_app: OpenApp) -> None:
    first, second = Pictures(), Pictures("spare")
    first.errors["larga"] = [ImageUnavailable("no answer")] * 3
    async with open_app(images=chain_providers([first, second])) as app:
        run = await app.write()
        shown = await app.show(run.id)
        assert (shown["state"], shown["outputs"]["payload_ready"]["missing_images"]) == ("done", [])
        made = shown["outputs"]["images_resolved"]
        assert {name: image["provider"] for name, image in made.items()} == {
            "featured": "spare",
            "inline-planta": "pictures",
        }
        failures = find_step(shown, "images_resolved")["failed_attempts"]
        assert [(each["item"], each["next_provider"]) for each in failures] == [
            ("featured", None),
            ("featured", None),
            ("featured", "spare"),
        ]


async def test_keywords_that_the_api_fails_to_find_are_the_words_of_the_theme(open_app: OpenApp) -> None:
    api = PaidKeywords([KeywordsError("failed")] * 3)
    async with open_app(keywords=chain_providers([api, OfflineKeywords()])) as app:
        run = await app.write()
        shown = await app.show(run.id)
        found = shown["outputs"]["keywords_resolved"]
        assert (shown["state"], found["provider"], found["focus"]) == ("done", "offline", "café e cafeína")
        failures = find_step(shown, "keywords_resolved")["failed_attempts"]
        assert [(each["code"], each["next_provider"]) for each in failures] == [
            ("KEYWORDS_API_FAIL", None),
            ("KEYWORDS_API_FAIL", None),
            ("KEYWORDS_API_FAIL", "offline"),
        ]


@pytest.mark.parametrize(
    ("errors", "switch_delay", "code"),
    [
        ([InvalidJson("not JSON", "oops", usage=Usage(100, 50, 400_000))] * 6, 120, "COST_LIMIT"),  # 0.80 dollars each
        ([TIMEOUT] * 3, hours(2), "TOTAL_TIMEOUT"),
    ],
)
async def test_a_chain_stops_at_the_limit_of_its_step_that_comes_first(
    open_app: OpenApp, errors: list[Exception], switch_delay: Any, code: str
) -> None:
    first, second = Writer(), Writer()
    first.errors = list(errors)
    async with open_app(llm=ProviderChain(make_models(first, second), switch_delay=switch_delay)) as app:
        shown = await app.show((await app.write()).id)
        assert (shown["state"], shown["error"]["code"], shown["error"]["actor"]) == ("failed", code, "operator")
        assert (len(first.calls), second.calls) == (len(errors), [])


async def test_retries_and_a_change_of_provider_repeat_no_finished_step(open_app: OpenApp) -> None:
    first, second = Writer(), Writer()
    async with open_app(llm=chain_providers(make_models(first, second))) as app:
        run = await app.start()
        async with app.api.sandbox.manual_worker() as worker:
            await worker.record_outcomes(await worker.attempt(await worker.claim(1)))  # the brief
        first.errors = [TIMEOUT] * 3
        await app.work()
        assert await app.get_state(run) == "done"
        assert sorted(first.calls + second.calls).count("BriefDraft") == 1
        assert len(second.calls) == 1
        assert len(await app.list_drafts()) == 1


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENROUTER_API_KEY", "secret")
    monkeypatch.setenv("IMAGES_API_KEY", "secret")
    monkeypatch.setenv("DATAFORSEO_LOGIN", "us")
    monkeypatch.setenv("DATAFORSEO_PASSWORD", "secret")
    return monkeypatch


def test_the_variables_name_the_providers_of_each_chain(configured: pytest.MonkeyPatch) -> None:
    configured.setenv("AUTOWRITER_MODEL", "openai/gpt-5-mini")
    configured.setenv("AUTOWRITER_FALLBACK_MODELS", "anthropic/claude-haiku-4.5, google/gemini-3-flash:free")
    configured.setenv("IMAGES_FALLBACK_API_KEY", "secret")
    chains = {name: get_default(each) for name, each in from_environment().resources.items()}
    assert {name: chains[name].names for name in ("llm", "images", "keywords")} == {
        "llm": (
            "openrouter-openai-gpt-5-mini",
            "openrouter-anthropic-claude-haiku-4.5",
            "openrouter-google-gemini-3-flash-free",
        ),
        "images": ("openai", "openai-fallback"),
        "keywords": ("dataforseo", "offline"),
    }
    assert {chains[name].switch_delay for name in ("llm", "images", "keywords")} == {timedelta(seconds=120)}


def test_nothing_offline_replaces_a_model_or_an_image_service(configured: pytest.MonkeyPatch) -> None:
    resources = {name: get_default(each) for name, each in from_environment().resources.items()}
    assert (resources["llm"], resources["images"]) == (
        SingleProvider("openrouter-openai-gpt-5-mini", get_first_provider(resources["llm"])),
        SingleProvider("openai", get_first_provider(resources["images"])),
    )


class PaidKeywords(OfflineKeywords):
    name = "api"
    is_offline = False

    def __init__(self, errors: list[Exception]) -> None:
        self._errors = errors

    async def suggest(self, seed: str, *, language: str, limit: int) -> Any:
        if self._errors:
            raise self._errors.pop(0)
        return await super().suggest(seed, language=language, limit=limit)
