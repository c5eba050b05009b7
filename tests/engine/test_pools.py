from __future__ import annotations

from uuid import UUID

import pytest

from retoma import Items, Pipeline, Pool, Retry, RetryLater, minutes, seconds
from retoma.errors import DefinitionError, InvalidInput, NotFound, RateLimited
from retoma.store import pools, workers
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import HEARTBEAT_TIMEOUT, names, pass_heartbeat_timeout, rows, run_claims, states, value
from tests.engine.test_leases import killed_worker


def clips(pool: Pool, count: int = 10, slots: int = 1) -> Pipeline:
    """A list of images, each made with slots of the pool."""
    pipeline = Pipeline("film", retry=Retry(1, delays=[5], jitter=0))

    @pipeline.step
    def images() -> list[int]:
        return list(range(count))

    @pipeline.each(images, pool=pool, slots=slots)
    def clip(image: int) -> int:
        return image

    @pipeline.step
    def film(clip: Items[int]) -> int:
        return len(clip)

    return pipeline


async def count_used_slots(sandbox: Sandbox, name: str = "gpu") -> int:
    (pool,) = await sandbox.client.pools.list(name)
    return pool.used


async def start(sandbox: Sandbox, pipeline: Pipeline, tenant: str = "default") -> UUID:
    """A run whose images are listed and not begun."""
    run = (await sandbox.client.start(pipeline, tenant=tenant)).id
    async with sandbox.manual_worker() as worker:
        await run_claims(worker, await worker.claim(1), "images")
    return run


async def test_no_more_jobs_run_than_the_pool_has_slots(open_sandbox: OpenSandbox) -> None:
    gpu = Pool("gpu", capacity=3)
    pipeline = clips(gpu)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker, sandbox.manual_worker() as others:
        await start(sandbox, pipeline)
        mine = await worker.claim(2)
        assert names(mine) == ["clip:0", "clip:1"]
        assert names(await others.claim(100)) == ["clip:2"]
        assert await others.claim(100) == []
        assert await count_used_slots(sandbox) == 3

        await run_claims(worker, mine, "clip:1")
        assert await count_used_slots(sandbox) == 2
        assert names(await others.claim(100)) == ["clip:3"]


async def test_a_run_with_a_pool_completes(open_sandbox: OpenSandbox) -> None:
    pipeline = clips(Pool("gpu", capacity=3), count=20)
    async with open_sandbox(pipeline) as sandbox:
        ended = await sandbox.run(pipeline)
        assert (ended.state, ended.results["film"]) == ("completed", 20)
        assert await count_used_slots(sandbox) == 0


async def test_a_dead_workers_slots_are_released(open_sandbox: OpenSandbox) -> None:
    pipeline = clips(Pool("gpu", capacity=3))
    async with open_sandbox(pipeline) as sandbox, killed_worker(sandbox) as dying:
        await start(sandbox, pipeline)
        assert len(await dying.claim(100)) == 3
        await sandbox.clock.advance(HEARTBEAT_TIMEOUT - seconds(2))
        assert (
            await workers.reap_dead_workers(sandbox.database, HEARTBEAT_TIMEOUT),
            await count_used_slots(sandbox),
        ) == ([], 3)
        assert await pass_heartbeat_timeout(sandbox) == [(dying.worker, 3)]
        assert await count_used_slots(sandbox) == 0
        async with sandbox.manual_worker() as worker:
            assert len(await worker.claim(100)) == 3


async def test_a_retried_job_holds_no_slot_while_it_waits(open_sandbox: OpenSandbox) -> None:
    gpu = Pool("gpu", capacity=1)
    pipeline = Pipeline("film", retry=Retry(1, delays=[5], jitter=0))
    failing = True

    @pipeline.step(pool=gpu)
    def clip() -> int:
        if failing:
            raise ValueError("no")
        return 1

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_claims(worker, await worker.claim(1))
        assert await count_used_slots(sandbox) == 0
        failing = False
        await sandbox.work()
        assert await states(sandbox, run) == {"clip": "succeeded"}


async def test_a_cancelled_run_releases_its_slots(open_sandbox: OpenSandbox) -> None:
    pipeline = clips(Pool("gpu", capacity=3))
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = await start(sandbox, pipeline)
        claims = await worker.claim(100)
        await sandbox.client.runs.cancel(run)
        await run_claims(worker, claims)
        assert await count_used_slots(sandbox) == 0


async def test_pool_holdings_are_the_running_and_parked_jobs(open_sandbox: OpenSandbox) -> None:
    pipeline = clips(Pool("gpu", capacity=5), slots=2)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await start(sandbox, pipeline)
        await worker.claim(100)
        held = await rows(sandbox, "select run, step, item, revision, slots from retoma.holdings order by 3")
        running = await rows(
            sandbox,
            "select run, step, item, revision, 2 from retoma.jobs"
            " where pool is not null and state in ('running', 'parked') order by 3",
        )
        assert [tuple(row) for row in held] == [tuple(row) for row in running]
        assert len(held) == 2


async def test_tenants_take_turns_at_a_pool_and_within_one_the_oldest_run_comes_first(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = clips(Pool("gpu", capacity=1), count=2)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        order = []
        runs = {}
        for name, tenant in (("a1", "a"), ("a2", "a"), ("b1", "b")):
            runs[await start(sandbox, pipeline, tenant)] = name
        for _ in range(6):
            claims = await worker.claim(100)
            order += [f"{runs[claim.run]}:{claim.item}" for claim in claims if claim.step == "clip"]
            await run_claims(worker, claims)
        assert order == ["a1:0", "b1:0", "a1:1", "b1:1", "a2:0", "a2:1"]


async def test_tenants_share_simultaneously_free_slots(open_sandbox: OpenSandbox) -> None:
    pipeline = clips(Pool("gpu", capacity=3), count=4)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        runs = {await start(sandbox, pipeline, tenant): tenant for tenant in "abc"}
        for _ in range(3):
            claims = await worker.claim(20)
            assert sorted(runs[claim.run] for claim in claims) == ["a", "b", "c"]
            await run_claims(worker, claims)


async def test_no_tenant_holds_more_than_its_share_of_a_pool(open_sandbox: OpenSandbox) -> None:
    pipeline = clips(Pool("gpu", capacity=5, per_tenant=2))
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        mine = await start(sandbox, pipeline, tenant="north")
        claims = await worker.claim(100)
        assert names(claims) == ["clip:0", "clip:1"]
        (wait,) = await sandbox.client.runs.list_waits(mine)
        assert "its tenant holds as many slots of pool 'gpu' as one tenant may" in wait.explanation
        theirs = await start(sandbox, pipeline, tenant="south")
        assert "as one tenant may" not in (await sandbox.client.runs.list_waits(theirs))[0].explanation
        assert names(await worker.claim(100)) == ["clip:0", "clip:1"]
        assert (await count_used_slots(sandbox), await worker.claim(100)) == (4, [])
        await run_claims(worker, claims, "clip:1")
        assert names(await worker.claim(100)) == ["clip:2"]
        await sandbox.client.pools.update("gpu", per_tenant=0)
        assert len(await worker.claim(100)) == 1


async def test_a_job_over_its_tenants_share_does_not_block_others(open_sandbox: OpenSandbox) -> None:
    pipeline = clips(Pool("gpu", capacity=4, per_tenant=3), slots=2)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await start(sandbox, pipeline, tenant="north")
        await start(sandbox, pipeline, tenant="south")
        claims = await worker.claim(100)
        assert [claim.item for claim in claims] == ["0", "0"]
        await run_claims(worker, [claims[1]], "clip:0")
        await sandbox.clock.advance(minutes(2))
        assert names(await worker.claim(100)) == ["clip:1"]


async def test_a_share_narrowed_below_a_job_is_reported(open_sandbox: OpenSandbox) -> None:
    pipeline = clips(Pool("gpu", capacity=4, per_tenant=2), slots=2)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.pools.update("gpu", per_tenant=1)
        run = await start(sandbox, pipeline)
        assert await worker.claim(100) == []
        assert "has fewer slots than the job needs" in (await sandbox.client.runs.list_waits(run))[0].explanation


async def test_operator_settings_survive_an_application_that_defines_shares(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = clips(Pool("gpu", capacity=3))
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline)
        await sandbox.client.pools.update("gpu", capacity=7)
        await rows(sandbox, "update retoma.pools set declared = (declared::jsonb - 'per_tenant')::json")
        await pools.declare_pools(sandbox.database, [Pool("gpu", capacity=3)])
        (pool,) = await sandbox.client.pools.list("gpu")
        assert pool.capacity == 7


async def test_a_share_too_small_for_any_job_is_an_error() -> None:
    with pytest.raises(DefinitionError, match="allows 1 per tenant: it can never run"):
        clips(Pool("gpu", capacity=4, per_tenant=1), slots=2)
    with pytest.raises(DefinitionError, match="per_tenant= is 0"):
        Pool("gpu", capacity=4, per_tenant=0)


async def test_the_items_of_one_run_end_before_those_of_the_next(open_sandbox: OpenSandbox) -> None:
    pipeline = clips(Pool("gpu", capacity=3), count=8)
    async with open_sandbox(pipeline) as sandbox:
        runs = [await start(sandbox, pipeline) for _ in range(4)]
        await sandbox.work()
        ended = await rows(sandbox, "select run from retoma.events where kind = 'end' order by id")
        assert [row["run"] for row in ended] == runs


def two_sizes(pool: Pool, queue: str = "default") -> Pipeline:
    pipeline = Pipeline("sizes")

    @pipeline.step(pool=pool, slots=3, priority=1, queue=queue)
    def large() -> int:
        return 3

    @pipeline.step
    def numbers() -> list[int]:
        return list(range(10))

    @pipeline.each(numbers, pool=pool)
    def small(number: int) -> int:
        return number

    return pipeline


async def test_smaller_jobs_overtake_one_that_does_not_fit_until_it_has_waited_for_a_minute(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = two_sizes(Pool("gpu", capacity=3))
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        claims = await worker.claim(100)
        assert names(claims) == ["large", "numbers"]
        await run_claims(worker, claims, "large")
        await run_claims(worker, claims, "numbers")
        held = await worker.claim(1)
        assert names(held) == ["small:0"]

        await sandbox.client.start(pipeline, priority=5)
        assert names(await worker.claim(2)) == ["numbers", "small:1"]
        await sandbox.clock.advance(seconds(59))
        assert names(await worker.claim(1)) == ["small:2"]
        await sandbox.clock.advance(seconds(1))
        await run_claims(worker, held)
        assert await worker.claim(100) == []


async def test_free_slots_are_not_reserved_for_a_job_that_no_live_worker_serves(open_sandbox: OpenSandbox) -> None:
    gpu = Pool("gpu", capacity=2)
    pipeline = Pipeline("sizes")

    @pipeline.step(pool=gpu, slots=2, queue="elsewhere", priority=1)
    def large() -> int:
        return 2

    @pipeline.step(pool=gpu)
    def one() -> int:
        return 1

    @pipeline.step(pool=gpu)
    def two() -> int:
        return 1

    @pipeline.step(pool=gpu)
    def three() -> int:
        return 1

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        first = await worker.claim(1, queues=["default"])
        assert await worker.claim(1) != []
        await rows(
            sandbox,
            "update retoma.pools set reserved_at = reserved_at - interval '1 hour' where reserved_job is not null",
        )
        await run_claims(worker, first)
        await rows(sandbox, "update retoma.workers set queues = '{default}'")
        assert len(await worker.claim(1, queues=["default"])) == 1


async def test_a_pool_can_be_widened_and_narrowed_while_it_is_in_use(open_sandbox: OpenSandbox) -> None:
    pipeline = clips(Pool("gpu", capacity=1))
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await start(sandbox, pipeline)
        claims = await worker.claim(100)
        assert len(claims) == 1
        assert (await sandbox.client.pools.update("gpu", capacity=3)).free == 2
        claims += await worker.claim(100)
        assert len(claims) == 3

        assert (await sandbox.client.pools.update("gpu", capacity=1)).free == 0
        await run_claims(worker, claims[:2])
        assert await worker.claim(100) == []
        await run_claims(worker, claims[2:])
        assert len(await worker.claim(100)) == 1


async def test_an_operators_setting_holds_until_the_application_declares_other_numbers(
    open_sandbox: OpenSandbox,
) -> None:
    async with open_sandbox(clips(Pool("gpu", capacity=1))) as sandbox, sandbox.manual_worker():
        await sandbox.client.pools.update("gpu", capacity=7)
    async with open_sandbox(clips(Pool("gpu", capacity=1))) as sandbox:
        async with sandbox.manual_worker():
            await sandbox.client.pools.update("gpu", capacity=7)
        async with sandbox.manual_worker():
            assert (await sandbox.client.pools.list("gpu"))[0].capacity == 7
        sandbox.app.pipelines["film"] = clips(Pool("gpu", capacity=2))
        async with sandbox.manual_worker():
            assert (await sandbox.client.pools.list("gpu"))[0].capacity == 2


async def test_a_missing_pool_cannot_be_changed(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(clips(Pool("gpu", capacity=1))) as sandbox:
        with pytest.raises(NotFound, match="no pool 'gpus'"):
            await sandbox.client.pools.update("gpus", capacity=1)
        with pytest.raises(InvalidInput, match="capacity"):
            await sandbox.client.pools.update("gpu", capacity=-1)
        with pytest.raises(InvalidInput, match=r"rate is 0 for no limit, or at least 0.000001, not 1e-07"):
            await sandbox.client.pools.update("gpu", rate=1e-7)


async def test_a_rate_limits_how_many_jobs_start_per_second(open_sandbox: OpenSandbox) -> None:
    pipeline = clips(Pool("gpu", capacity=100, rate=2, burst=3))
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await start(sandbox, pipeline)
        assert len(await worker.claim(100)) == 3
        assert await worker.claim(100) == []
        await sandbox.clock.advance(seconds(0.5))
        assert len(await worker.claim(100)) == 1
        await sandbox.clock.advance(minutes(1))
        assert len(await worker.claim(100)) == 3


@pytest.mark.parametrize("rate", ["1e-7", "5e-324"])
async def test_a_pool_with_a_very_low_rate_delays_no_other_work(open_sandbox: OpenSandbox, rate: str) -> None:
    pipeline = clips(Pool("gpu", capacity=100, rate=1))
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await start(sandbox, pipeline)
        await rows(sandbox, f"update retoma.pools set rate = {rate}")
        assert names(await worker.claim(100)) == ["clip:0"]
        await sandbox.clock.advance(seconds(0.5))
        await sandbox.client.start(pipeline)
        assert names(await worker.claim(100)) == ["images"]


async def test_a_clock_that_is_set_back_does_not_stop_a_rate_limited_pool(open_sandbox: OpenSandbox) -> None:
    pipeline = clips(Pool("gpu", capacity=100, rate=2))
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await start(sandbox, pipeline)
        assert len(await worker.claim(100)) == 1
        await sandbox.clock.advance(minutes(-10))
        assert await worker.claim(100) == []
        await sandbox.clock.advance(seconds(0.5))
        assert len(await worker.claim(100)) == 1


async def test_a_rate_limited_provider_pauses_its_pool_and_uses_no_attempt(
    open_sandbox: OpenSandbox,
) -> None:
    gpu = Pool("gpu", capacity=3)
    pipeline = Pipeline("film", retry=Retry(0))
    limited = True

    @pipeline.step
    def images() -> list[int]:
        return [1, 2, 3, 4]

    @pipeline.each(images, pool=gpu)
    def clip(image: int) -> int:
        if limited:
            raise RateLimited(30)
        return image

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = await start(sandbox, pipeline)
        await run_claims(worker, await worker.claim(1))
        assert await worker.claim(100) == []
        (pool,) = await sandbox.client.pools.list()
        assert pool.paused_until is not None
        limited = False
        await sandbox.work()
        assert set((await states(sandbox, run)).values()) == {"succeeded"}
        assert await value(sandbox, "select max(attempt) from retoma.jobs") == 1


async def test_a_step_that_only_asks_to_wait_delays_nobody(open_sandbox: OpenSandbox) -> None:
    gpu = Pool("gpu", capacity=1)
    pipeline = Pipeline("film")

    @pipeline.step(pool=gpu)
    def clip() -> int:
        raise RetryLater(30)

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        await run_claims(worker, await worker.claim(1))
        (pool,) = await sandbox.client.pools.list()
        assert pool.paused_until is None


def test_a_pool_is_validated_when_it_is_created() -> None:
    with pytest.raises(DefinitionError, match=r"pool 'gpu': capacity= is -1"):
        Pool("gpu", capacity=-1)
    for rate in (0, 1e-7):
        with pytest.raises(DefinitionError, match=r"rate= is .* per second, 0.000001 or more"):
            Pool("gpu", capacity=1, rate=rate)
    with pytest.raises(DefinitionError, match="it can never run"):
        clips(Pool("gpu", capacity=1), slots=2)
    with pytest.raises(DefinitionError, match="slots= needs pool="):
        Pipeline("film").step(slots=2)(_nothing)


def _nothing() -> int:
    return 0


async def test_a_job_that_can_never_fit_a_narrowed_pool_blocks_nobody(open_sandbox: OpenSandbox) -> None:
    pipeline = two_sizes(Pool("gpu", capacity=3), queue="large")
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        await run_claims(worker, await worker.claim(1, queues=["default"]))
        held = await worker.claim(1, queues=["default"])
        assert names(await worker.claim(1)) == ["small:1"]
        await sandbox.client.pools.update("gpu", capacity=2)
        await sandbox.clock.advance(minutes(1))
        await run_claims(worker, held)
        assert names(await worker.claim(1)) == ["small:2"]


def two_queues() -> tuple[Pipeline, Pipeline]:
    gpu = Pool("gpu", capacity=5)
    pipeline = Pipeline("queues")

    @pipeline.step(pool=gpu, queue="a")
    def one() -> int:
        return 1

    other = Pipeline("others")

    @other.step(pool=gpu, queue="b")
    def two() -> int:
        return 2

    return pipeline, other


async def test_a_tenant_with_jobs_of_another_queue_does_not_block_other_tenants(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline, other = two_queues()
    async with open_sandbox(pipeline, other) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline, tenant="first")
        await sandbox.client.start(other, tenant="second")
        assert names(await worker.claim(1, queues=["b"])) == ["two"]


async def test_a_thousand_tenants_with_jobs_of_another_queue_do_not_block_others(open_sandbox: OpenSandbox) -> None:
    pipeline, other = two_queues()
    async with open_sandbox(pipeline, other) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline, tenant="first")
        await sandbox.client.start(other, tenant="last")
        await rows(sandbox, "update retoma.jobs set tenant = tenant + 1000 where step = 'two'")
        await rows(
            sandbox,
            "insert into retoma.jobs (run, step, item, revision, version, tenant, queue, pool, rank, state, created_at)"
            " select run, step, number, revision, version, tenant + number, queue, pool, rank, state, created_at"
            " from retoma.jobs, generate_series(1, 1000) as number where step = 'one'",
        )
        assert names(await worker.claim(1, queues=["b"])) == ["two"]


async def test_a_reservation_that_no_worker_has_checked_for_long_blocks_nobody(open_sandbox: OpenSandbox) -> None:
    pipeline = two_sizes(Pool("gpu", capacity=3), queue="elsewhere")
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        await run_claims(worker, await worker.claim(1, queues=["default"]))
        first = await worker.claim(1, queues=["default"])
        assert names(await worker.claim(1)) == ["small:1"]  # passes `large`, which is now the head
        await sandbox.clock.advance(minutes(5))
        await run_claims(worker, first)
        assert names(await worker.claim(1, queues=["default"])) == ["small:2"]


async def test_the_wait_reason_says_that_the_pool_is_too_small(open_sandbox: OpenSandbox) -> None:
    pipeline = two_sizes(Pool("gpu", capacity=3))
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker():
        run = (await sandbox.client.start(pipeline)).id
        await sandbox.client.pools.update("gpu", capacity=2)
        (wait,) = [wait for wait in await sandbox.client.runs.list_waits(run) if wait.step == "large"]
        assert wait.reason == "pool_too_small"
        assert "retoma pools update gpu" in wait.explanation
