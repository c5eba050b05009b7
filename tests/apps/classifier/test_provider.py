from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from retoma import minutes
from retoma.outgoing import Outgoing
from tests.apps.classifier.conftest import OpenOffice
from tests.apps.classifier.office import Office


async def test_a_rate_limit_waits_as_long_as_it_asks_and_uses_up_no_attempt(office: Office) -> None:
    office.standin.faults.rate_limited, office.standin.faults.retry_after = 20, 1_800
    execution = await office.begin(await office.project(max_retries_documento=0))
    await office.work(until_later=False)
    (pool,) = await office.client.pools("llm")
    assert pool.paused_until == await office.client.now() + minutes(30)
    asked = office.standin.struck["rate_limited"]
    await office.watch(minutes(29))
    await office.work(until_later=False)
    assert office.standin.struck["rate_limited"] == asked <= 8
    assert (await office.status(execution))["status"] == "EM_ANDAMENTO"
    await office.work()
    assert {each["tentativas"] for each in (await office.documents(execution)).values()} == {1}
    assert (await office.status(execution))["status"] == "CONCLUIDO"
    assert "stuck" not in await office.kinds(execution)


async def test_an_outage_of_the_provider_pauses_the_calls_and_fails_no_document(office: Office) -> None:
    office.standin.faults.broken = 12
    texts = {f"{number}.txt": f"SENTENÇA {number}" for number in range(12)}
    execution = await office.begin(await office.project(max_retries_documento=0), texts)
    await office.work(until_later=False)
    (pool,) = await office.client.pools("llm")
    assert pool.trouble == "PROVIDER_DOWN"
    assert office.standin.struck["broken"] == 8  # as many as the pool lets begin at once
    await office.work()
    shown = await office.status(execution)
    assert (shown["status"], shown["contagem"]["CONCLUIDO"]) == ("CONCLUIDO", 12)


async def test_a_provider_that_does_not_answer_fails_the_attempt_of_that_document_only(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, asked, is_over = Outgoing.request, count(), asyncio.Event()

    async def one_before_the_others(outgoing: Outgoing, *given: Any, timeout: float, **options: Any) -> Any:
        if next(asked):
            await is_over.wait()
            return await request(outgoing, *given, timeout=timeout, **options)
        try:
            return await request(outgoing, *given, timeout=1, **options)  # in which it is surely sent
        finally:
            office.standin.faults.hangs = 0
            is_over.set()

    monkeypatch.setattr(Outgoing, "request", one_before_the_others)
    async with open_office() as office:
        office.standin.faults.hangs = 1
        execution = await office.done(max_retries_documento=0)
        found = (await office.documents(execution)).values()
        assert sorted(each["status"] for each in found) == ["CONCLUIDO", "CONCLUIDO", "ERRO"]
        assert {each["erro_codigo"] for each in found} == {None, "LLM_TIMEOUT"}
