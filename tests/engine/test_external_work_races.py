"""Two connections at once, where slots, external work and callbacks meet claims and cancels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from retoma import Pipeline, Pool, Retry
from retoma.define.external_work import ParkRequest
from retoma.engine import outcomes
from retoma.engine.claim_protocol import Claim
from retoma.engine.outcomes import AttemptError, Outcome
from retoma.store import effects, external_work
from retoma.store.effects import EffectFunctions, LeasedEffect
from retoma.store.external_work import DuePoll, DueRequest
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import RawChannel, names, rows, state, states, value
from tests.engine.test_races import begin_uncommitted_call, is_blocked, open_two_channels, wait_until

HOUR = timedelta(hours=1)
TOKEN = sha256(b"token").digest()


def make_pooled_pipeline(capacity: int, *, jobs: int = 1) -> Pipeline:
    pipeline = Pipeline("film")
    for number in range(jobs):
        pipeline.step(pool=Pool("gpu", capacity=capacity))(_named(f"clip{number}"))
    return pipeline


def _named(name: str) -> Callable[[], int]:
    def step() -> int:
        return 1

    step.__name__ = step.__qualname__ = name
    return step


SUBMISSION = EffectFunctions(
    find="nobody.finds",
    find_key="key",
    cancel="nobody.cancels",
    request=ParkRequest("nobody.asks", HOUR, None, None, HOUR * 2).to_json(),
)


async def submit(sandbox: Sandbox, link: RawChannel, claims: list[Claim]) -> list[Outcome]:
    """Submit external work as these jobs, and give the outcomes that park them."""
    for claim in claims:
        await effects.begin_effect(sandbox.database, link.worker, part(claim), SUBMISSION, TOKEN, HOUR)
        await effects.end_effect(sandbox.database, part(claim), '"handle"')
    return [outcomes.Parked(claim, "submit") for claim in claims]


async def count_used_slots(sandbox: Sandbox) -> int:
    return int(await value(sandbox, "select coalesce(sum(slots), 0) from retoma.holdings"))


async def make_due(sandbox: Sandbox) -> list[DuePoll]:
    async with sandbox.manual_worker() as worker:
        return await external_work.poll_due(
            sandbox.database, DueRequest(worker._served_versions.version_numbers, 10, timedelta(seconds=90))
        )


async def test_two_concurrent_claims_take_no_more_slots_than_there_are(open_sandbox: OpenSandbox) -> None:
    pipeline = make_pooled_pipeline(1, jobs=2)
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (first, second):
        await sandbox.client.start(pipeline)
        async with begin_uncommitted_call(sandbox, first, limit=1) as commit:
            claiming = asyncio.create_task(second.call(limit=1))
            await wait_until(lambda: wait_until_done_or_blocked(sandbox, claiming))
            await commit()
            assert await claiming == []
        assert await count_used_slots(sandbox) == 1


async def wait_until_done_or_blocked(sandbox: Sandbox, task: asyncio.Task[Any]) -> bool:
    return task.done() or await is_blocked(sandbox, "finish_and_claim")


async def test_a_slot_released_during_another_claim_is_used_by_one_job(open_sandbox: OpenSandbox) -> None:
    pipeline = make_pooled_pipeline(1, jobs=3)
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (first, second):
        await sandbox.client.start(pipeline)
        (claim,) = await first.call(limit=5)
        async with begin_uncommitted_call(
            sandbox, first, [outcomes.Failure(claim, AttemptError("ERROR"))], limit=5
        ) as commit:
            claiming = asyncio.create_task(second.call(limit=5))
            await wait_until(lambda: wait_until_done_or_blocked(sandbox, claiming))
            await commit()
            await claiming
        assert await count_used_slots(sandbox) <= 1


async def test_a_cancel_concurrent_with_parking_reaches_the_external_work(open_sandbox: OpenSandbox) -> None:
    pipeline = make_pooled_pipeline(1)
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, _):
        run = (await sandbox.client.start(pipeline)).id
        claims = await link.call(limit=1)
        async with begin_uncommitted_call(sandbox, link, await submit(sandbox, link, claims)) as commit:
            cancel = asyncio.create_task(sandbox.client.runs.cancel(run))
            await wait_until(lambda: is_blocked(sandbox, "cancel_run"))
            await commit()
            assert await cancel == "cancelling"
        (probe,) = await make_due(sandbox)
        assert (probe.stop, await count_used_slots(sandbox)) == ("RUN_STOPPED", 1)


@pytest.mark.parametrize("first", ["cancel", "report"])
async def test_a_cancel_concurrent_with_the_end_frees_slots_and_ends_once(
    open_sandbox: OpenSandbox, first: str
) -> None:
    pipeline = make_pooled_pipeline(1)
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, _):
        run = await start_parked(sandbox, link, pipeline)
        (poll,) = await claim_polls(sandbox)
        cancel = "select retoma.cancel_run($1, null, 'test')", run
        record = (
            "select retoma.record_poll($1, $2, '', 1, $3, 'succeeded', null, '1', null, false, false)",
            run,
            poll.step,
            poll.polls,
        )
        one, other = (cancel, record) if first == "cancel" else (record, cancel)
        async with open_transaction(sandbox, *one) as commit:
            meeting = asyncio.create_task(rows(sandbox, *other))
            await wait_until(lambda: is_blocked(sandbox, "cancel_run" if first == "report" else "record_poll"))
            await commit()
            await meeting
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("cancelled", 0)
        assert await states(sandbox, run) == {"clip0": "cancelled"}


async def claim_polls(sandbox: Sandbox) -> list[DuePoll]:
    await rows(sandbox, "update retoma.external_work set next_at = retoma.now()")
    return await make_due(sandbox)


async def start_parked(sandbox: Sandbox, link: RawChannel, pipeline: Pipeline) -> UUID:
    run = (await sandbox.client.start(pipeline)).id
    await link.call(await submit(sandbox, link, await link.call(limit=1)))
    return run


@asynccontextmanager
async def open_transaction(sandbox: Sandbox, sql: str, *values: Any) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    connection = await sandbox.database.connect()
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.fetch(sql, *values)
        yield transaction.commit
    finally:
        await connection.close()


@pytest.mark.parametrize("first", ["call", "park"])
async def test_a_callback_concurrent_with_parking_is_seen(open_sandbox: OpenSandbox, first: str) -> None:
    """Whichever commits first, the external work is polled now."""
    pipeline = make_pooled_pipeline(1)
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, _):
        await sandbox.client.start(pipeline)
        (claim,) = await link.call(limit=1)
        parked = await submit(sandbox, link, [claim])
        if first == "call":
            async with open_transaction(sandbox, "select retoma.record_callback($1, '{}')", TOKEN) as commit:
                parks = asyncio.create_task(link.call(parked))
                await wait_until(lambda: wait_until_done_or_blocked(sandbox, parks))
                await commit()
                await parks
        else:
            async with begin_uncommitted_call(sandbox, link, parked) as commit:
                calls = asyncio.create_task(external_work.record_callback(sandbox.database, TOKEN, "{}"))
                await wait_until(lambda: is_blocked(sandbox, "record_callback"))
                await commit()
                assert (await calls).answer == "taken"
        (probe,) = await make_due(sandbox)
        assert probe.callback_received


async def begin(sandbox: Sandbox, link: RawChannel, claim: Claim, token: bytes | None) -> tuple[str, str | None]:
    return await effects.begin_effect(sandbox.database, link.worker, part(claim), EffectFunctions(), token, HOUR)


def part(claim: Claim) -> LeasedEffect:
    return LeasedEffect(claim.run, claim.step, claim.item, claim.revision, claim.fence, "submit")


async def test_an_effects_result_is_recorded_once_and_returned_again_if_the_answer_was_lost(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = make_pooled_pipeline(1)
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, _):
        await sandbox.client.start(pipeline)
        (claim,) = await link.call(limit=1)
        assert await effects.begin_effect(
            sandbox.database, link.worker, part(claim), EffectFunctions(), None, HOUR
        ) == ("new", None)
        assert await effects.end_effect(sandbox.database, part(claim), '"paid"')
        assert await effects.end_effect(sandbox.database, part(claim), '"paid again"')
        assert await effects.begin_effect(
            sandbox.database, link.worker, part(claim), EffectFunctions(), None, HOUR
        ) == (
            "done",
            '"paid"',
        )


async def test_an_attempt_that_lost_its_lease_starts_nothing(open_sandbox: OpenSandbox) -> None:
    pipeline = make_pooled_pipeline(1)
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (first, second):
        await sandbox.client.start(pipeline)
        (stale,) = await first.call(limit=1)
        await first.call([outcomes.Returned(stale)])
        (claim,) = await second.call(limit=1)
        assert await effects.begin_effect(
            sandbox.database, first.worker, part(stale), EffectFunctions(), TOKEN, HOUR
        ) == (
            "lost",
            None,
        )
        assert await effects.begin_effect(
            sandbox.database, first.worker, part(claim), EffectFunctions(), TOKEN, HOUR
        ) == (
            "lost",
            None,
        )
        assert (await external_work.record_callback(sandbox.database, TOKEN, "{}")).answer == "unknown"
        assert await effects.begin_effect(
            sandbox.database, second.worker, part(claim), EffectFunctions(), TOKEN, HOUR
        ) == (
            "new",
            None,
        )


async def test_ended_external_work_takes_no_further_poll_result(open_sandbox: OpenSandbox) -> None:
    pipeline = make_pooled_pipeline(1)
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, _):
        run = await start_parked(sandbox, link, pipeline)
        (poll,) = await claim_polls(sandbox)
        assert await external_work.record_poll(sandbox.database, poll, state="succeeded", result="1")
        assert not await external_work.record_poll(sandbox.database, poll, state="failed")
        (found,) = await sandbox.client.external_work.list(run)
        assert found.state == "succeeded"


async def test_a_job_that_needs_slots_never_stays_with_its_worker_without_them(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("film")

    @pipeline.step
    def images() -> int:
        return 1

    @pipeline.step(pool=Pool("gpu", capacity=1))
    def clip(images: int) -> int:
        return 1

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        for _ in range(2):
            await sandbox.client.start(pipeline)
        claims = await worker.claim(2)
        assert names(claims) == ["images", "images"]
        more = await worker.record_outcomes(await worker.attempt(claims), limit=2)
        assert names(more) == ["clip"]
        assert await count_used_slots(sandbox) == 1


async def test_pool_writers_lock_all_pools_in_one_order(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("two", retry=Retry(0))
    for name in ("a", "b"):
        pipeline.step(pool=Pool(name, capacity=1))(_named(name))
    async with open_sandbox(pipeline) as sandbox, open_two_channels(sandbox) as (link, _):
        await sandbox.client.start(pipeline)
        claim = next(claim for claim in await link.call(limit=2) if claim.step == "b")
        async with open_transaction(sandbox, "select from retoma.pools where name = 'a' for update") as commit:
            body = asyncio.create_task(link.call([outcomes.Postponed(claim, AttemptError("RATE_LIMITED"), HOUR)]))
            await wait_until(lambda: is_blocked(sandbox, "finish_and_claim"))
            assert await rows(sandbox, "select name from retoma.pools where name = 'b' for update skip locked")
            await commit()
            await body
        assert await value(sandbox, "select count(*) from retoma.pools where paused_until is not null") == 1
