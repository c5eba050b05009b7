"""Slots of jobs that may have submitted external work without a record of it."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from retoma import Context, Pipeline, Pool, Report, minutes, seconds
from retoma.engine.exchange import Claim
from retoma.store import outside
from retoma.testing import Hands, Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import do, fall_silent, state
from tests.engine.test_leases import dying_hands
from tests.engine.test_outside import Host, film, look, used


async def start_two(sandbox: Sandbox, pipeline: Pipeline) -> tuple[UUID, UUID]:
    """Two runs that compete for one slot, the older first."""
    first = (await sandbox.client.start(pipeline)).id
    await sandbox.clock.advance(seconds(1))
    return first, (await sandbox.client.start(pipeline)).id


async def submit_and_die(sandbox: Sandbox, hands: Hands, host: Host, claim: Claim) -> None:
    """Die after the submission, before its external id is written down."""
    part = outside.Part(claim.run, claim.step, claim.item, claim.revision, claim.fence, "submit")
    await outside.begin(sandbox.database, hands.worker, part, None, timedelta(days=1), findable=True)
    await host.submit("scene")
    await fall_silent(sandbox)


async def test_a_submission_of_a_dead_worker_keeps_its_slots_until_it_ends(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, dying_hands(sandbox) as dying:
        first, second = await start_two(sandbox, pipeline)
        (claim,) = await dying.claim(10)
        await submit_and_die(sandbox, dying, host, claim)
        assert await used(sandbox) == 1
        async with sandbox.hands() as hands:
            claims = await hands.claim(10)
            assert [again.run for again in claims] == [first]
            await do(hands, claims)
            assert (host.submitted, await hands.claim(10)) == (["scene-1"], [])
        host.reports |= dict.fromkeys(("scene-1", "scene-2"), Report("succeeded", result="video"))
        await look(sandbox)
        assert await used(sandbox) == 0
        await sandbox.work()
        assert {await state(sandbox, run) for run in (first, second)} == {"completed"}
        assert await used(sandbox) == 0


async def test_a_submission_whose_answer_was_lost_keeps_its_slots_while_it_waits(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.hands() as hands:
        await start_two(sandbox, pipeline)
        await do(hands, await hands.claim(10))
        assert (host.submitted, await used(sandbox), await hands.claim(10)) == (["scene-1"], 1, [])
        host.reports |= dict.fromkeys(("scene-1", "scene-2"), Report("succeeded", result="video"))
        await sandbox.work()
        assert await used(sandbox) == 0


async def test_slots_are_free_once_nothing_is_found(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(retry=1)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, dying_hands(sandbox) as dying:
        first, second = await start_two(sandbox, pipeline)
        (claim,) = await dying.claim(10)
        await submit_and_die(sandbox, dying, host, claim)
        host.submitted.clear()  # it never arrived
        host.refuses = True
        async with sandbox.hands() as hands:
            await do(hands, await hands.claim(10))
            assert await used(sandbox) == 0
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

    async with open_sandbox(pipeline) as sandbox, dying_hands(sandbox) as dying:
        first, second = await start_two(sandbox, pipeline)
        (claim,) = await dying.claim(10)
        part = outside.Part(claim.run, claim.step, claim.item, claim.revision, claim.fence, "ask")
        await outside.begin(sandbox.database, dying.worker, part, None, minutes(1))
        await fall_silent(sandbox)
        async with sandbox.hands() as hands:
            claims = await hands.claim(10)
            assert ([again.run for again in claims], await used(sandbox)) == ([first], 1)
            await do(hands, claims)
            assert await used(sandbox) == 0
            assert [waiting.run for waiting in await hands.claim(10)] == [second]


async def test_a_cancelled_run_keeps_the_slots_of_what_may_be_submitted_until_it_is_cancelled_there(
    open_sandbox: OpenSandbox,
) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, dying_hands(sandbox) as dying:
        first, _ = await start_two(sandbox, pipeline)
        (claim,) = await dying.claim(10)
        await submit_and_die(sandbox, dying, host, claim)
        await sandbox.client.cancel(first)
        assert await used(sandbox) == 1
        host.reports["scene-2"] = Report("succeeded", result="video")
        await sandbox.work()
        assert (host.cancelled, await state(sandbox, first), await used(sandbox)) == (["scene-1"], "cancelled", 0)


async def test_a_cancelled_run_gives_back_the_slots_of_what_cannot_be_found(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(reconciles=False)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, dying_hands(sandbox) as dying:
        run = (await sandbox.client.start(pipeline)).id
        (claim,) = await dying.claim(10)
        part = outside.Part(claim.run, claim.step, claim.item, claim.revision, claim.fence, "submit")
        await outside.begin(sandbox.database, dying.worker, part, None, minutes(1))
        await fall_silent(sandbox)
        assert await used(sandbox) == 1
        await sandbox.client.cancel(run)
        assert (await used(sandbox), await state(sandbox, run)) == (0, "cancelled")


async def test_a_rerun_gives_back_the_slots_of_what_it_supersedes(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, dying_hands(sandbox) as dying:
        run = (await sandbox.client.start(pipeline)).id
        (claim,) = await dying.claim(10)
        await submit_and_die(sandbox, dying, host, claim)
        await sandbox.client.rerun(run, "clip")
        assert await used(sandbox) == 0
