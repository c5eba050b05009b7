"""Slots of jobs that may have submitted external work without a record of it."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from retoma import Context, Pipeline, PollResult, Pool, minutes, seconds
from retoma.engine.claim_protocol import Claim
from retoma.store import external_work
from retoma.testing import ManualWorker, Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import pass_heartbeat_timeout, run_claims, state
from tests.engine.test_external_work import Host, count_used_slots, film, poll
from tests.engine.test_leases import killed_worker


async def start_two(sandbox: Sandbox, pipeline: Pipeline) -> tuple[UUID, UUID]:
    """Two runs that compete for one slot, the older first."""
    first = (await sandbox.client.start(pipeline)).id
    await sandbox.clock.advance(seconds(1))
    return first, (await sandbox.client.start(pipeline)).id


async def submit_and_die(sandbox: Sandbox, worker: ManualWorker, host: Host, claim: Claim) -> None:
    """Die after the submission, before its external id is written down."""
    part = external_work.LeasedEffect(claim.run, claim.step, claim.item, claim.revision, claim.fence, "submit")
    await external_work.begin_effect(sandbox.database, worker.worker, part, None, timedelta(days=1), findable=True)
    await host.submit("scene")
    await pass_heartbeat_timeout(sandbox)


async def test_a_submission_of_a_dead_worker_keeps_its_slots_until_it_ends(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, killed_worker(sandbox) as dying:
        first, second = await start_two(sandbox, pipeline)
        (claim,) = await dying.claim(10)
        await submit_and_die(sandbox, dying, host, claim)
        assert await count_used_slots(sandbox) == 1
        async with sandbox.manual_worker() as hands:
            claims = await hands.claim(10)
            assert [again.run for again in claims] == [first]
            await run_claims(hands, claims)
            assert (host.submitted, await hands.claim(10)) == (["scene-1"], [])
        host.reports |= dict.fromkeys(("scene-1", "scene-2"), PollResult("succeeded", result="video"))
        await poll(sandbox)
        assert await count_used_slots(sandbox) == 0
        await sandbox.work()
        assert {await state(sandbox, run) for run in (first, second)} == {"completed"}
        assert await count_used_slots(sandbox) == 0


async def test_a_submission_whose_answer_was_lost_keeps_its_slots_while_it_waits(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.manual_worker() as hands:
        await start_two(sandbox, pipeline)
        await run_claims(hands, await hands.claim(10))
        assert (host.submitted, await count_used_slots(sandbox), await hands.claim(10)) == (["scene-1"], 1, [])
        host.reports |= dict.fromkeys(("scene-1", "scene-2"), PollResult("succeeded", result="video"))
        await sandbox.work()
        assert await count_used_slots(sandbox) == 0


async def test_slots_are_free_once_nothing_is_found(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(retry=1)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, killed_worker(sandbox) as dying:
        first, second = await start_two(sandbox, pipeline)
        (claim,) = await dying.claim(10)
        await submit_and_die(sandbox, dying, host, claim)
        host.submitted.clear()  # it never arrived
        host.refuses = True
        async with sandbox.manual_worker() as hands:
            await run_claims(hands, await hands.claim(10))
            assert await count_used_slots(sandbox) == 0
            host.refuses = False
            assert [waiting.run for waiting in await hands.claim(10)] == [second]
        assert await state(sandbox, first) == "running"


async def test_a_paid_call_of_a_dead_worker_keeps_its_slots_until_the_next_attempt_ends(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = Pipeline("answers")

    @pipeline.step(pool=Pool("gpu", capacity=1))
    async def answer(*, ctx: Context) -> str:
        return str(await ctx.once("ask", lambda: "42"))

    async with open_sandbox(pipeline) as sandbox, killed_worker(sandbox) as dying:
        first, second = await start_two(sandbox, pipeline)
        (claim,) = await dying.claim(10)
        part = external_work.LeasedEffect(claim.run, claim.step, claim.item, claim.revision, claim.fence, "ask")
        await external_work.begin_effect(sandbox.database, dying.worker, part, None, minutes(1))
        await pass_heartbeat_timeout(sandbox)
        async with sandbox.manual_worker() as hands:
            claims = await hands.claim(10)
            assert ([again.run for again in claims], await count_used_slots(sandbox)) == ([first], 1)
            await run_claims(hands, claims)
            assert await count_used_slots(sandbox) == 0
            assert [waiting.run for waiting in await hands.claim(10)] == [second]


async def test_a_cancelled_run_keeps_the_slots_of_what_may_be_submitted_until_it_is_cancelled_there(
    open_sandbox: OpenSandbox,
) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, killed_worker(sandbox) as dying:
        first, _ = await start_two(sandbox, pipeline)
        (claim,) = await dying.claim(10)
        await submit_and_die(sandbox, dying, host, claim)
        await sandbox.client.runs.cancel(first)
        assert await count_used_slots(sandbox) == 1
        host.reports["scene-2"] = PollResult("succeeded", result="video")
        await sandbox.work()
        assert (host.cancelled, await state(sandbox, first), await count_used_slots(sandbox)) == (
            ["scene-1"],
            "cancelled",
            0,
        )


async def test_a_cancelled_run_gives_back_the_slots_of_what_cannot_be_found(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(reconciles=False)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, killed_worker(sandbox) as dying:
        run = (await sandbox.client.start(pipeline)).id
        (claim,) = await dying.claim(10)
        part = external_work.LeasedEffect(claim.run, claim.step, claim.item, claim.revision, claim.fence, "submit")
        await external_work.begin_effect(sandbox.database, dying.worker, part, None, minutes(1))
        await pass_heartbeat_timeout(sandbox)
        assert await count_used_slots(sandbox) == 1
        await sandbox.client.runs.cancel(run)
        assert (await count_used_slots(sandbox), await state(sandbox, run)) == (0, "cancelled")


async def test_a_rerun_gives_back_the_slots_of_what_it_supersedes(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, killed_worker(sandbox) as dying:
        run = (await sandbox.client.start(pipeline)).id
        (claim,) = await dying.claim(10)
        await submit_and_die(sandbox, dying, host, claim)
        await sandbox.client.runs.rerun(run, "clip")
        assert await count_used_slots(sandbox) == 0
