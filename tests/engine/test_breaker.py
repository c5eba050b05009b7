"""A provider that fails is left alone for a while, by all workers, and nothing is lost by it."""

from __future__ import annotations

from uuid import UUID

import pytest

from retoma import Context, Items, Pipeline, PollResult, Pool, Retry, minutes, records, seconds
from retoma.errors import ProviderDown, ProviderRejected
from retoma.records import WaitReason
from retoma.testing import ManualWorker, Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import rows, run_claims, states

POOL = Pool("llm", capacity=8)


class Provider:
    """Raises the configured error and counts its calls."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls = 0

    def ask(self) -> int:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.calls


def labels(provider: Provider, count: int = 20) -> Pipeline:
    pipeline = Pipeline("labels", retry=Retry(0))

    @pipeline.step
    def texts() -> list[int]:
        return list(range(count))

    @pipeline.each(texts, pool=POOL)
    def label(text: int) -> int:
        return provider.ask()

    @pipeline.step
    def report(label: Items[int]) -> int:
        return len(label)

    return pipeline


async def report_running(_: int) -> PollResult:
    return PollResult("running")


async def start_and_claim(sandbox: Sandbox, worker: ManualWorker) -> UUID:
    run = (await sandbox.client.start("labels")).id
    await run_claims(worker, await worker.claim(1), "texts")
    return run


async def pool_of(sandbox: Sandbox) -> records.Pool:
    (pool,) = await sandbox.client.pools.list("llm")
    return pool


async def reasons(sandbox: Sandbox, run: UUID) -> set[WaitReason]:
    sandbox.client._core.heartbeat_timeout = minutes(9)
    return {wait.reason for wait in await sandbox.client.runs.list_waits(run)}


async def test_the_fifth_failure_in_a_row_stops_all_starts(open_sandbox: OpenSandbox) -> None:
    provider = Provider(ProviderDown("503"))
    async with (
        open_sandbox(labels(provider)) as sandbox,
        sandbox.manual_worker() as worker,
        sandbox.manual_worker() as others,
    ):
        run = await start_and_claim(sandbox, worker)
        await run_claims(worker, await worker.claim(4))
        assert (await pool_of(sandbox)).problem is None
        await run_claims(worker, await worker.claim(1))
        pool = await pool_of(sandbox)
        assert (pool.failures, pool.problem) == (5, "PROVIDER_DOWN")
        assert pool.open_until == await sandbox.clock.now() + seconds(15)
        assert await worker.claim(100) == []
        assert await others.claim(100) == []
        assert WaitReason.PROVIDER_DOWN in await reasons(sandbox, run)


async def test_after_the_wait_one_probe_job_starts_and_its_success_releases_all(open_sandbox: OpenSandbox) -> None:
    provider = Provider(ProviderDown())
    async with open_sandbox(labels(provider)) as sandbox, sandbox.manual_worker() as worker:
        await start_and_claim(sandbox, worker)
        await run_claims(worker, await worker.claim(5))
        await sandbox.clock.advance(seconds(15))
        probe = await worker.claim(100)
        assert len(probe) == 1
        assert await worker.claim(100) == []
        provider.error = None
        await run_claims(worker, probe)
        assert (await pool_of(sandbox)).failures == 0
        assert len(await worker.claim(100)) == 8


async def test_accepted_external_work_closes_the_breaker_while_it_still_runs(open_sandbox: OpenSandbox) -> None:
    provider = Provider(ProviderRejected())
    pipeline = Pipeline("film", retry=Retry(0))

    @pipeline.step(pool=POOL)
    async def clip(*, ctx: Context) -> str:
        return str(await ctx.external(provider.ask, poll=report_running))

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        for _ in range(4):
            await sandbox.client.start(pipeline)
        await run_claims(worker, await worker.claim(1))
        await sandbox.clock.advance(minutes(10))
        provider.error = None
        await run_claims(worker, await worker.claim(100))
        assert (await pool_of(sandbox)).problem is None
        assert len(await worker.claim(100)) == 2


async def test_a_failed_probe_job_lengthens_the_wait(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(labels(Provider(ProviderDown()))) as sandbox, sandbox.manual_worker() as worker:
        await start_and_claim(sandbox, worker)
        await run_claims(worker, await worker.claim(5))
        waits = []
        for _ in range(6):
            open_until = (await pool_of(sandbox)).open_until
            assert open_until is not None
            waits.append((open_until - await sandbox.clock.now()).total_seconds())
            await sandbox.clock.set(open_until)
            await run_claims(worker, await worker.claim(100))
        assert waits == [15, 30, 60, 120, 240, 300]


async def test_failures_of_jobs_started_before_the_breaker_opened_do_not_lengthen_the_wait(
    open_sandbox: OpenSandbox,
) -> None:
    async with open_sandbox(labels(Provider(ProviderDown()))) as sandbox, sandbox.manual_worker() as worker:
        await start_and_claim(sandbox, worker)
        claims = await worker.claim(8)
        await worker.record_outcomes(await worker.attempt(claims[:5]))
        opened = await pool_of(sandbox)
        await worker.record_outcomes(await worker.attempt(claims[5:]))
        later = await pool_of(sandbox)
        assert (later.failures, later.open_until) == (opened.failures, opened.open_until)


async def test_a_probe_without_an_outcome_is_followed_by_another(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(labels(Provider(ProviderDown()))) as sandbox, sandbox.manual_worker() as worker:
        await start_and_claim(sandbox, worker)
        await run_claims(worker, await worker.claim(5))
        await sandbox.clock.advance(seconds(15))
        assert len(await worker.claim(100)) == 1
        await sandbox.clock.advance(seconds(60))
        assert len(await worker.claim(100)) == 1


async def test_a_success_between_failures_resets_the_count(open_sandbox: OpenSandbox) -> None:
    provider = Provider(ProviderDown())
    async with open_sandbox(labels(provider)) as sandbox, sandbox.manual_worker() as worker:
        await start_and_claim(sandbox, worker)
        await run_claims(worker, await worker.claim(4))
        provider.error = None
        await run_claims(worker, await worker.claim(1))
        provider.error = ProviderDown()
        await run_claims(worker, await worker.claim(4))
        assert ((await pool_of(sandbox)).failures, (await pool_of(sandbox)).open_until) == (4, None)


@pytest.mark.parametrize("error", [ProviderDown(), ProviderRejected("the key is not valid")])
async def test_an_outage_fails_nothing_and_uses_no_attempt(open_sandbox: OpenSandbox, error: Exception) -> None:
    provider = Provider(error)
    async with open_sandbox(labels(provider)) as sandbox, sandbox.manual_worker() as worker:
        run = await start_and_claim(sandbox, worker)
        for _ in range(10):
            await run_claims(worker, await worker.claim(100))
            await sandbox.work(advance_clock=False)
            await sandbox.clock.advance(seconds(30))
        assert provider.calls < 30
        provider.error = None
        await sandbox.work()
        assert set((await states(sandbox, run)).values()) == {"succeeded"}
        attempts = await rows(sandbox, "select distinct attempt from retoma.jobs")
        assert [row["attempt"] for row in attempts] == [1]


async def test_a_rejected_key_pauses_all_jobs_at_once_and_says_what_to_do(open_sandbox: OpenSandbox) -> None:
    provider = Provider(ProviderRejected("402: no money left"))
    async with open_sandbox(labels(provider)) as sandbox, sandbox.manual_worker() as worker:
        run = await start_and_claim(sandbox, worker)
        await run_claims(worker, await worker.claim(1))
        pool = await pool_of(sandbox)
        assert (pool.problem, pool.open_until) == ("PROVIDER_REJECTED", await sandbox.clock.now() + minutes(10))
        assert await worker.claim(100) == []
        messages = [
            wait.explanation
            for wait in await sandbox.client.runs.list_waits(run)
            if wait.reason is WaitReason.PROVIDER_REJECTED
        ]
        assert "retoma pools update llm --resume" in messages[0]
        assert (await sandbox.client.pools.update("llm", resume=True)).problem is None
        assert len(await worker.claim(100)) == 8


async def test_a_step_without_a_pool_waits_alone(open_sandbox: OpenSandbox) -> None:
    provider = Provider(ProviderDown(delay=5))
    pipeline = Pipeline("alone", retry=Retry(0))

    @pipeline.step
    def label() -> int:
        return provider.ask()

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await sandbox.work(advance_clock=False)
        (job,) = await sandbox.client.runs.list_jobs(run)
        assert (job.state, job.code, job.ready_at) == ("ready", "PROVIDER_DOWN", await sandbox.clock.now() + seconds(5))
        provider.error = None
        await sandbox.work()
        assert await states(sandbox, run) == {"label": "succeeded"}
