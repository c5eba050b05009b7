from __future__ import annotations

import asyncio
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from retoma import minutes
from retoma.outgoing import HttpClient
from tests.apps.classifier.classifier_app import ClassifierApp
from tests.apps.classifier.conftest import OpenClassifierApp


async def test_a_rate_limit_waits_as_long_as_requested_and_uses_no_attempt(classifier_app: ClassifierApp) -> None:
    classifier_app.standin.faults.rate_limited, classifier_app.standin.faults.retry_after = 20, 1_800
    execution = await classifier_app.begin(await classifier_app.project(max_retries_documento=0))
    await classifier_app.work(advance_clock=False)
    (pool,) = await classifier_app.client.pools.list("llm")
    assert pool.paused_until == await classifier_app.client.now() + minutes(30)
    requested = classifier_app.standin.struck["rate_limited"]
    await classifier_app.run_watchdog(minutes(29))
    await classifier_app.work(advance_clock=False)
    assert classifier_app.standin.struck["rate_limited"] == requested <= 8
    assert (await classifier_app.status(execution))["status"] == "EM_ANDAMENTO"
    await classifier_app.work()
    assert {each["tentativas"] for each in (await classifier_app.documents(execution)).values()} == {1}
    assert (await classifier_app.status(execution))["status"] == "CONCLUIDO"
    assert "stuck" not in await classifier_app.get_event_kinds(execution)


async def test_a_provider_outage_pauses_calls_and_fails_no_document(classifier_app: ClassifierApp) -> None:
    classifier_app.standin.faults.broken = 12
    texts = {f"{number}.txt": f"SENTENÇA {number}" for number in range(12)}
    execution = await classifier_app.begin(await classifier_app.project(max_retries_documento=0), texts)
    await classifier_app.work(advance_clock=False)
    (pool,) = await classifier_app.client.pools.list("llm")
    assert pool.problem == "PROVIDER_DOWN"
    assert 1 <= classifier_app.standin.struck["broken"] <= 8  # the pool's capacity
    await classifier_app.work()
    shown = await classifier_app.status(execution)
    assert (shown["status"], shown["contagem"]["CONCLUIDO"]) == ("CONCLUIDO", 12)


async def test_a_model_that_fails_is_replaced_by_the_next_one(open_classifier_app: OpenClassifierApp) -> None:
    async with open_classifier_app(fallback_models=["acme/second"]) as classifier_app:
        classifier_app.standin.faults.broken = 2  # the attempt with the project's model, and its only retry
        project = await classifier_app.project(max_retries_documento=1)
        execution = await classifier_app.begin(project, {"a.txt": "SENTENÇA. Julgo procedente."})
        await classifier_app.work()
        assert (await classifier_app.status(execution))["status"] == "CONCLUIDO"
        labels = (await classifier_app.client.runs.get_results(UUID(execution)))["label"]
        assert [each["modelo"] for each in labels.values()] == ["acme/second"]
        failures = await classifier_app.client.runs.list_events(UUID(execution), kinds=["retry"])
        assert [each.data.get("next_provider") for each in failures] == [None, "openrouter-acme-second"]


async def test_an_unresponsive_provider_fails_only_the_attempt_of_that_document(
    open_classifier_app: OpenClassifierApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, requested, is_over = HttpClient.request, count(), asyncio.Event()

    async def one_before_the_others(outgoing: HttpClient, *given: Any, timeout: float, **options: Any) -> Any:
        if next(requested):
            await is_over.wait()
            return await request(outgoing, *given, timeout=timeout, **options)
        try:
            return await request(outgoing, *given, timeout=1, **options)  # long enough to send it
        finally:
            classifier_app.standin.faults.hangs = 0
            is_over.set()

    monkeypatch.setattr(HttpClient, "request", one_before_the_others)
    async with open_classifier_app() as classifier_app:
        classifier_app.standin.faults.hangs = 1
        execution = await classifier_app.run_execution(max_retries_documento=0)
        found = (await classifier_app.documents(execution)).values()
        assert sorted(each["status"] for each in found) == ["CONCLUIDO", "CONCLUIDO", "ERRO"]
        assert {each["erro_codigo"] for each in found} == {None, "LLM_TIMEOUT"}
