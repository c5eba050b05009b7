"""In which order ready jobs are claimed."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from pydantic import BaseModel

from retoma import Items, Pipeline, Retry
from retoma.engine.claim_protocol import Claim
from retoma.store import workers
from retoma.testing import ManualWorker
from tests.conftest import OpenSandbox
from tests.engine.builders import names, open_channel, run_claims, run_next


class Order(BaseModel):
    name: str = ""


async def test_the_oldest_run_is_served_first(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        runs = []
        for _ in range(5):
            runs.append((await sandbox.client.start(pipeline)).id)
            await sandbox.clock.advance(timedelta(seconds=1))
        assert await claimed_in_turn(worker, 5) == runs


async def test_a_run_that_started_earlier_comes_before_runs_that_wait_for_their_first_step(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = Pipeline("chain")

    @pipeline.step
    async def first() -> int:
        return 1

    @pipeline.step
    async def second(first: int) -> int:
        return 2

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        old = (await sandbox.client.start(pipeline)).id
        await run_claims(worker, await worker.claim(1))
        await sandbox.clock.advance(timedelta(minutes=1))
        await sandbox.client.start(pipeline)
        (claim,) = await worker.claim(1)
        assert (claim.run, claim.step) == (old, "second")


async def test_a_higher_priority_goes_first(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        low = (await sandbox.client.start(pipeline, priority=-1)).id
        normal = (await sandbox.client.start(pipeline)).id
        high = (await sandbox.client.start(pipeline, priority=2)).id
        assert await claimed_in_turn(worker, 3) == [high, normal, low]


async def test_work_that_has_waited_long_comes_before_newer_work_of_a_higher_priority(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        waited = (await sandbox.client.start(pipeline)).id
        await sandbox.clock.advance(timedelta(minutes=19))
        soon = (await sandbox.client.start(pipeline, priority=2)).id
        await sandbox.clock.advance(timedelta(minutes=2))
        late = (await sandbox.client.start(pipeline, priority=2)).id
        # Two levels are worth twenty minutes.
        assert await claimed_in_turn(worker, 3) == [soon, waited, late]


async def test_the_priority_of_a_step_puts_it_before_others_of_its_run(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("steps")

    @pipeline.step
    async def first() -> list[int]:
        return [1, 2]

    @pipeline.step(priority=-1)
    async def later(first: list[int]) -> int:
        return 1

    @pipeline.each(first, priority=1)
    async def sooner(number: int) -> int:
        return number

    @pipeline.step
    async def between(first: list[int]) -> int:
        return 1

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        await run_next(worker, "first")
        order = [(await worker.claim(1))[0].step for _ in range(4)]
    assert order == ["sooner", "sooner", "between", "later"]


async def test_the_priority_of_a_run_applies_to_all_its_steps(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("chain")

    @pipeline.step(priority=3)
    async def first() -> list[int]:
        return [1]

    @pipeline.each(first)
    async def second(number: int) -> int:
        return number

    @pipeline.step
    async def third(second: Items[int]) -> int:
        return len(second)

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        high = (await sandbox.client.start(pipeline, priority=1)).id
        (first_claim,) = await worker.claim(1)
        assert first_claim.run == high
        await run_claims(worker, [first_claim])
        await run_claims(worker, await worker.claim(1))  # the other run's first step has the priority of that step
        for step in ("second", "third"):
            (claim,) = await worker.claim(1)
            assert (claim.run, claim.step) == (high, step)
            await run_claims(worker, [claim])


async def test_a_retry_keeps_the_position_of_its_run(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("flaky")

    @pipeline.step(retry=Retry(1, delays=[60], jitter=0))
    async def answer() -> int:
        raise OSError("away")

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        old = (await sandbox.client.start(pipeline)).id
        await run_claims(worker, await worker.claim(1))
        await sandbox.clock.advance(timedelta(seconds=1))
        await sandbox.client.start(pipeline)
        await sandbox.clock.advance(timedelta(minutes=1))
        await workers.release_due_jobs(sandbox.database, 10)
        assert await claimed_in_turn(worker, 1) == [old]


async def test_a_claim_takes_no_more_jobs_than_requested(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start_many(pipeline, [None] * 10)
        assert len(await worker.claim(4)) == 4
        assert len(await worker.claim(100)) == 6


async def test_a_job_is_claimed_by_one_worker_only(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as one, sandbox.manual_worker() as other:
        await sandbox.client.start_many(pipeline, [None] * 10)
        claims = [*await one.claim(6), *await other.claim(6)]
    assert len(claims) == len({claim.run for claim in claims}) == 10


async def test_a_worker_claims_only_from_the_queues_it_serves(open_sandbox: OpenSandbox) -> None:
    pipeline = two_queues()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        assert names(await worker.claim(10, queues=["image"])) == ["image"]
        assert await worker.claim(10, queues=["image"]) == []
        assert names(await worker.claim(10, queues=["audio", "image"])) == ["voice"]


async def test_a_successor_in_a_queue_the_worker_does_not_serve_is_not_kept_by_it(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = Pipeline("queues")

    @pipeline.step
    async def script() -> str:
        return "script"

    @pipeline.step(queue="audio")
    async def voice(script: str) -> str:
        return script

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        outcomes = await worker.attempt(await worker.claim(1))
        channel = await open_channel(sandbox)
        assert await channel.call(queues=["default"], limit=5) == []
        assert await worker.record_outcomes(outcomes) == []
        assert await channel.call(queues=["default"], limit=5) == []
        assert names(await channel.call(queues=["audio"], limit=5)) == ["voice"]


async def test_a_worker_of_two_queues_starves_neither(open_sandbox: OpenSandbox) -> None:
    pipeline = two_queues()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start_many(pipeline, [None] * 20)
        steps = [(await worker.claim(1, queues=["audio", "image"]))[0].step for _ in range(10)]
    assert {"voice", "image"} == set(steps)


async def test_a_worker_that_keeps_successors_leaves_room_for_older_runs(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("endless")

    @pipeline.step
    async def numbers() -> list[int]:
        return list(range(100))

    @pipeline.each(numbers)
    async def square(number: int) -> int:
        return number

    @pipeline.each(numbers)
    async def cube(square: int) -> int:
        return square

    other = one_step()
    async with open_sandbox(pipeline, other) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        claims = await worker.claim(1)
        waiting = (await sandbox.client.start(other, priority=1)).id
        for _ in range(9):
            claims = await worker.record_outcomes(await worker.attempt(claims), limit=4)
            if waiting in {claim.run for claim in claims}:
                break
        assert waiting in {claim.run for claim in claims}
        assert len(claims) <= 4


async def test_part_of_every_large_claim_is_not_for_successors(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("wide")

    @pipeline.step
    async def numbers() -> list[int]:
        return list(range(100))

    @pipeline.each(numbers)
    async def square(number: int) -> int:
        return number

    @pipeline.step
    async def report(numbers: list[int]) -> int:
        return 1

    other = one_step()
    async with open_sandbox(pipeline, other) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        outcomes = await worker.attempt(await worker.claim(1))
        await sandbox.client.start_many(other, [None] * 10, priority=1)
        claims = await worker.record_outcomes(outcomes, limit=16)
        # The successors of both kinds together leave an eighth.
        assert [claim.step for claim in claims].count("answer") == 2
        assert len(claims) == 16


async def test_unserved_work_does_not_hide_work_the_worker_can_serve(open_sandbox: OpenSandbox) -> None:
    ours, theirs = one_step("ours"), one_step("theirs")
    async with open_sandbox(ours, theirs) as sandbox:
        # Tenants take turns by number, and the first has only work of the other application.
        await sandbox.client.start_many(theirs, [None] * 3, tenant="first")
        run = (await sandbox.client.start(ours, tenant="second")).id
        channel = await open_channel(sandbox)
        (version,) = {(await sandbox.client.runs.get(run)).version}
        channel.served = [version]
        assert [claim.run for claim in await channel.call(limit=1)] == [run]


async def claimed_in_turn(worker: ManualWorker, count: int) -> list[UUID]:
    claims: list[Claim] = []
    for _ in range(count):
        claims += await worker.claim(1)
    return [claim.run for claim in claims]


def one_step(name: str = "one") -> Pipeline:
    pipeline = Pipeline(name)

    @pipeline.step
    async def answer() -> int:
        return 42

    return pipeline


def two_queues() -> Pipeline:
    pipeline = Pipeline("queues")

    @pipeline.step(queue="image")
    async def image() -> str:
        return "image"

    @pipeline.step(queue="audio")
    async def voice() -> str:
        return "voice"

    return pipeline
