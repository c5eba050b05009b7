"""What a worker knows of the breakers of its providers, and what it reports about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from retoma import Pipeline, ProviderChain, Retry, Settings
from retoma.engine import outcomes
from retoma.engine.claim_protocol import Claim
from retoma.errors import DatabaseUnavailable, ProviderRejected
from retoma.store import provider_breakers
from retoma.testing import Sandbox
from retoma.worker.chain_provider import ChainProvider
from retoma.worker.provider_breakers import Permit, ProviderBreakers, Wait
from retoma.worker.worker import Worker
from tests.conftest import OpenSandbox, RowsRead
from tests.engine.test_races import is_blocked, wait_until
from tests.wait_timeout import WAIT_TIMEOUT

CHAIN = ProviderChain({"first": object(), "second": object()})
NAMES = CHAIN.names


class Model:
    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name = name
        self.error = error

    async def write(self) -> str:
        if self.error is not None:
            raise self.error
        return f"written by {self.name}"


def articles() -> Pipeline:
    pipeline = Pipeline("articles", retry=Retry(0))

    @pipeline.step
    async def body(*, llm: Model) -> str:
        return await llm.write()

    return pipeline


async def declare(sandbox: Sandbox, max_age: float = 0) -> ProviderBreakers:
    await provider_breakers.declare_provider_pools(sandbox.database, NAMES)
    return ProviderBreakers(sandbox.database, NAMES, max_age)


def report_rejected(breakers: ProviderBreakers, position: int, claim: Claim) -> None:
    provider = ChainProvider(CHAIN, position)
    provider.set_report("rejected", timedelta(seconds=60))
    breakers.add_report(provider, outcomes.Postponed(claim, outcomes.AttemptError("PROVIDER_REJECTED")))


@pytest.fixture
async def sandbox(open_sandbox: OpenSandbox) -> AsyncIterator[Sandbox]:
    async with open_sandbox(articles(), resources={"llm": ProviderChain([Model("first")])}) as opened:
        yield opened


@pytest.fixture
async def claim(sandbox: Sandbox) -> Claim:
    await sandbox.client.start("articles")
    async with sandbox.manual_worker() as worker:
        (claimed,) = await worker.claim()
    return claimed


async def test_breakers_are_read_once_for_many_attempts(sandbox: Sandbox, rows_read: RowsRead) -> None:
    breakers = await declare(sandbox, max_age=60)
    for _ in range(5):
        assert await breakers.acquire(NAMES, fresh=False) == Permit("first", is_troubled=False)
    assert len(rows_read["list_breakers"]) == len(NAMES)


async def test_a_worker_skips_a_provider_at_once_after_its_own_report(sandbox: Sandbox, claim: Claim) -> None:
    breakers = await declare(sandbox, max_age=60)
    await breakers.acquire(NAMES, fresh=False)
    report_rejected(breakers, 0, claim)
    await breakers.flush()
    assert await breakers.acquire(NAMES, fresh=False) == Permit("second", is_troubled=False)


async def test_a_job_that_moves_on_does_not_trust_what_its_worker_read_before(sandbox: Sandbox, claim: Claim) -> None:
    breakers, others = await declare(sandbox, max_age=60), await declare(sandbox)
    await breakers.acquire(NAMES, fresh=False)
    report_rejected(others, 0, claim)
    await others.flush()
    assert await breakers.acquire(NAMES, fresh=True) == Permit("second", is_troubled=False)


async def test_a_worker_makes_sure_that_all_breakers_are_open_before_a_job_waits(
    sandbox: Sandbox, claim: Claim
) -> None:
    breakers = await declare(sandbox, max_age=60)
    for position in range(len(NAMES)):
        report_rejected(breakers, position, claim)
    await breakers.flush()
    assert await breakers.acquire(NAMES, fresh=False) == Wait(timedelta(seconds=60))
    await sandbox.client.pools.update("second", resume=True)
    assert await breakers.acquire(NAMES, fresh=False) == Permit("second", is_troubled=False)


async def test_reports_are_kept_until_the_database_is_reachable(
    sandbox: Sandbox, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    breakers = await declare(sandbox)
    report_rejected(breakers, 0, claim)

    async def fail(*_: object) -> None:
        raise DatabaseUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(provider_breakers, "record_reports", fail)
        await breakers.flush()
    assert breakers.has_reports
    await breakers.flush()
    assert not breakers.has_reports
    assert (await breakers.acquire(NAMES[:1], fresh=True)) == Wait(timedelta(seconds=60))


async def test_only_one_of_two_workers_probes_a_provider_at_once(sandbox: Sandbox, claim: Claim) -> None:
    breakers = await declare(sandbox)
    report_rejected(breakers, 0, claim)
    await breakers.flush()
    await sandbox.clock.advance(timedelta(seconds=60))
    async with sandbox.database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        assert await connection.fetchval("select retoma.claim_probe('first')") is not None
        other = asyncio.create_task(breakers.acquire(NAMES[:1], fresh=True))
        await wait_until(lambda: is_blocked(sandbox, "claim_probe"))
        await transaction.commit()
        assert isinstance(await other, Wait)


async def test_while_a_job_probes_a_provider_others_check_again_soon(sandbox: Sandbox, claim: Claim) -> None:
    breakers = await declare(sandbox)
    report_rejected(breakers, 0, claim)
    await breakers.flush()
    await sandbox.clock.advance(timedelta(seconds=60))
    probe = await breakers.acquire(NAMES[:1], fresh=True)
    assert isinstance(probe, Permit)
    assert probe.probed_at == await sandbox.clock.now()
    assert await breakers.acquire(NAMES[:1], fresh=True) == Wait(timedelta(seconds=15))


async def test_a_worker_moves_a_job_on_to_the_next_provider(open_sandbox: OpenSandbox) -> None:
    models = ProviderChain([Model("first", ProviderRejected()), Model("second")])
    async with open_sandbox(articles(), resources={"llm": models}) as opened:
        run = (await opened.client.start("articles")).id
        worker = Worker(opened.app, opened.database, Settings())
        working = asyncio.create_task(worker.run())
        await opened.client.wait(run, timedelta(seconds=WAIT_TIMEOUT))
        worker.stop()
        await working
        assert await opened.client.runs.get_results(run) == {"body": "written by second"}


async def test_a_step_without_a_chain_reads_nothing_about_providers(
    open_sandbox: OpenSandbox, rows_read: RowsRead
) -> None:
    pipeline, failures = Pipeline("plain", retry=Retry(1, delays=[1])), [OSError()]

    @pipeline.step
    def plain() -> str:
        if failures:
            raise failures.pop()
        return "done"

    async with open_sandbox(pipeline, resources={"llm": CHAIN}) as opened:
        assert (await opened.run(pipeline)).state == "completed"
    read = {"list_breakers", "list_provider_effects", "record_reports", "get_job_cost"}
    assert read & rows_read.keys() == set()
