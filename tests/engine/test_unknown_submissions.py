"""Slots of jobs that may have submitted external work without a record of it."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from retoma import Context, Pipeline, PollResult, Pool, minutes, seconds
from retoma.define.external_work import ParkRequest
from retoma.engine.claim_protocol import Claim
from retoma.store import effects, workers
from retoma.testing import ManualWorker, Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import pass_heartbeat_timeout, run_claims, state
from tests.engine.test_external_work import EVERY, Host, UnsureHost, count_used_slots, film, poll
from tests.engine.test_leases import killed_worker


async def start_two(sandbox: Sandbox, pipeline: Pipeline) -> tuple[UUID, UUID]:
    """Two runs that compete for one slot, the older first."""
    first = (await sandbox.client.start(pipeline)).id
    await sandbox.clock.advance(seconds(1))
    return first, (await sandbox.client.start(pipeline)).id


async def begin_submission(sandbox: Sandbox, worker: ManualWorker, claim: Claim, find: str | None) -> None:
    effect = effects.LeasedEffect(claim.run, claim.step, claim.item, claim.revision, claim.fence, "external")
    request = ParkRequest("host.status", EVERY, None, None, minutes(60)).to_json()
    functions = effects.EffectFunctions(find, find and "scene", "host.cancel", request)
    await effects.begin_effect(sandbox.database, worker.worker, effect, functions, None, timedelta(days=1))


async def submit_and_die(sandbox: Sandbox, worker: ManualWorker, host: Host, claim: Claim) -> None:
    """Die after the submission, before its external id is written down."""
    await begin_submission(sandbox, worker, claim, find="host.find")
    await host.submit("scene")
    await pass_heartbeat_timeout(sandbox)


async def test_a_submission_of_a_dead_worker_keeps_its_slots_until_it_ends(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, killed_worker(sandbox) as dying:
        first, second = await start_two(sandbox, pipeline)
        (claim,) = await dying.claim(10)
        await submit_and_die(sandbox, dying, host, claim)
        assert await count_used_slots(sandbox) == 1
        async with sandbox.manual_worker() as worker:
            claims = await worker.claim(10)
            assert [again.run for again in claims] == [first]
            await run_claims(worker, claims)
            assert (host.submitted, await worker.claim(10)) == (["scene-1"], [])
        host.reports |= dict.fromkeys(("scene-1", "scene-2"), PollResult("succeeded", result="video"))
        await poll(sandbox)
        assert await count_used_slots(sandbox) == 0
        await sandbox.work()
        assert {await state(sandbox, run) for run in (first, second)} == {"completed"}
        assert await count_used_slots(sandbox) == 0


async def test_a_submission_whose_answer_was_lost_keeps_its_slots_while_it_waits(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.manual_worker() as worker:
        await start_two(sandbox, pipeline)
        await run_claims(worker, await worker.claim(10))
        assert (host.submitted, await count_used_slots(sandbox), await worker.claim(10)) == (["scene-1"], 1, [])
        host.reports |= dict.fromkeys(("scene-1", "scene-2"), PollResult("succeeded", result="video"))
        await sandbox.work()
        assert await count_used_slots(sandbox) == 0


async def test_a_job_that_waits_with_an_unknown_submission_keeps_its_slots(open_sandbox: OpenSandbox) -> None:
    """The work may be going on: another job in its slots would be more external work than slots."""
    host, pipeline = UnsureHost(), film(retry=0)
    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.manual_worker() as worker:
        first, _ = await start_two(sandbox, pipeline)
        await run_claims(worker, await worker.claim(10))
        assert (host.submitted, await count_used_slots(sandbox), await worker.claim(10)) == (["scene-1"], 1, [])
        await sandbox.clock.advance(seconds(10))
        await workers.release_due_jobs(sandbox.database, 10)
        claims = await worker.claim(10)
        assert [again.run for again in claims] == [first]
        await run_claims(worker, claims)
        assert (host.submitted, await count_used_slots(sandbox), await worker.claim(10)) == (["scene-1"], 1, [])
        host.reports |= dict.fromkeys(("scene-1", "scene-2"), PollResult("succeeded", result="video"))
        await sandbox.work()
        assert await count_used_slots(sandbox) == 0


async def test_slots_are_released_once_nothing_is_found(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(retry=1)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, killed_worker(sandbox) as dying:
        first, second = await start_two(sandbox, pipeline)
        (claim,) = await dying.claim(10)
        await submit_and_die(sandbox, dying, host, claim)
        host.submitted.clear()  # it never arrived
        host.refuses = True
        async with sandbox.manual_worker() as worker:
            await run_claims(worker, await worker.claim(10))
            assert await count_used_slots(sandbox) == 0
            host.refuses = False
            assert [waiting.run for waiting in await worker.claim(10)] == [second]
        assert await state(sandbox, first) == "running"


class Oracle:
    def find(self, key: str) -> None:
        """It was never asked."""


async def test_a_call_of_a_dead_worker_that_can_be_found_keeps_its_slots_until_the_next_attempt_ends(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = Pipeline("answers")

    @pipeline.step(pool=Pool("gpu", capacity=1))
    async def answer(*, oracle: Oracle, ctx: Context) -> str:
        return str(await ctx.once("ask", lambda: "42", find=oracle.find))

    async with open_sandbox(pipeline, resources={"oracle": Oracle()}) as sandbox, killed_worker(sandbox) as dying:
        first, second = await start_two(sandbox, pipeline)
        (claim,) = await dying.claim(10)
        effect = effects.LeasedEffect(claim.run, claim.step, claim.item, claim.revision, claim.fence, "ask")
        functions = effects.EffectFunctions("oracle.find", "question")
        await effects.begin_effect(sandbox.database, dying.worker, effect, functions, None, minutes(1))
        await pass_heartbeat_timeout(sandbox)
        async with sandbox.manual_worker() as hands:
            claims = await hands.claim(10)
            assert ([again.run for again in claims], await count_used_slots(sandbox)) == ([first], 1)
            await run_claims(hands, claims)
            assert await count_used_slots(sandbox) == 0
            assert [waiting.run for waiting in await hands.claim(10)] == [second]


async def test_a_paid_call_of_a_dead_worker_keeps_no_slots(open_sandbox: OpenSandbox) -> None:
    """It is over with its worker: none of it continues at a provider."""
    pipeline = Pipeline("answers")

    @pipeline.step(pool=Pool("gpu", capacity=1))
    async def answer(*, ctx: Context) -> str:
        return str(await ctx.once("ask", lambda: "42"))

    async with open_sandbox(pipeline) as sandbox, killed_worker(sandbox) as dying:
        await sandbox.client.start(pipeline)
        (claim,) = await dying.claim(10)
        effect = effects.LeasedEffect(claim.run, claim.step, claim.item, claim.revision, claim.fence, "ask")
        await effects.begin_effect(sandbox.database, dying.worker, effect, effects.EffectFunctions(), None, minutes(1))
        await pass_heartbeat_timeout(sandbox)
        assert await count_used_slots(sandbox) == 0


async def test_a_cancelled_run_keeps_the_slots_of_a_possible_submission_until_it_is_cancelled(
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


async def test_a_cancelled_run_releases_the_slots_of_work_that_cannot_be_found(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(finds=False)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, killed_worker(sandbox) as dying:
        run = (await sandbox.client.start(pipeline)).id
        (claim,) = await dying.claim(10)
        await begin_submission(sandbox, dying, claim, find=None)
        await pass_heartbeat_timeout(sandbox)
        assert await count_used_slots(sandbox) == 1
        await sandbox.client.runs.cancel(run)
        assert (await count_used_slots(sandbox), await state(sandbox, run)) == (0, "cancelled")


async def test_a_rerun_releases_the_slots_of_superseded_work(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, killed_worker(sandbox) as dying:
        run = (await sandbox.client.start(pipeline)).id
        (claim,) = await dying.claim(10)
        await submit_and_die(sandbox, dying, host, claim)
        await sandbox.client.runs.rerun(run, "clip")
        assert await count_used_slots(sandbox) == 0
