"""How the runs of a tenant share workers: in rounds, with a quarter of the jobs for those that wait in later rounds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from uuid import UUID

import pytest
from pydantic import BaseModel

from retoma import Items, Pipeline, Pool
from retoma.engine.claim_protocol import Claim
from retoma.testing import ManualWorker, Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import RawChannel, open_channel, rows, run_claims, value

JOBS_OF_TWO_ROUNDS = 4 + 8
with_and_without_pool = pytest.mark.parametrize("slots", [None, 8], ids=["without pool", "pool of 8"])


class Story(BaseModel):
    scenes: int = 15


def stories(slots: int | None = None) -> Pipeline:
    """A script, an image of each scene and a video, all of them in one pool if it has slots."""
    pool = Pool("studio", capacity=slots) if slots else None
    pipeline = Pipeline("stories", inputs=Story)

    @pipeline.step(pool=pool)
    async def script(scenes: int) -> list[int]:
        return list(range(scenes))

    @pipeline.each(script, pool=pool)
    async def image(scene: int) -> int:
        return scene

    @pipeline.step(pool=pool)
    async def video(image: Items[int]) -> int:
        return len(image)

    return pipeline


@asynccontextmanager
async def open_stories(
    open_sandbox: OpenSandbox, slots: int | None = None
) -> AsyncIterator[tuple[Sandbox, ManualWorker]]:
    async with open_sandbox(stories(slots)) as sandbox, sandbox.manual_worker() as worker:
        yield sandbox, worker


async def start(sandbox: Sandbox, scenes: int, tenant: str = "default") -> UUID:
    """A run that is younger than all others."""
    await sandbox.clock.advance(timedelta(seconds=1))
    return (await sandbox.client.start("stories", Story(scenes=scenes), tenant=tenant)).id


async def start_and_list(sandbox: Sandbox, worker: ManualWorker, scenes: int) -> UUID:
    """A run with its script written and no image begun."""
    run = await start(sandbox, scenes)
    (script,) = await worker.claim(1)
    assert (script.run, script.step) == (run, "script")
    await run_claims(worker, [script])
    return run


async def work(worker: ManualWorker, slots: int, until: UUID) -> list[Claim]:
    """Run up to so many jobs at once until a run ends. Return the claims, in order."""
    held: list[Claim] = []
    claims: list[Claim] = []
    while True:
        new = await worker.claim(slots - len(held))
        held, claims = [*held, *new], [*claims, *new]
        first = held.pop(0)
        await run_claims(worker, [first])
        if (first.run, first.step) == (until, "video"):
            return claims


@pytest.mark.parametrize("room", [1, 4, 8])
async def test_five_stories_overlap(open_sandbox: OpenSandbox, room: int) -> None:
    async with open_stories(open_sandbox) as (sandbox, worker):
        runs = [await start(sandbox, 15) for _ in range(5)]
        claims = await work(worker, room, until=runs[0])
    assert {claim.run for claim in claims if claim.step == "image"} == set(runs)


@pytest.mark.parametrize("slots", [1, 4, 8])
async def test_five_stories_overlap_in_a_pool(open_sandbox: OpenSandbox, slots: int) -> None:
    async with open_stories(open_sandbox, slots) as (sandbox, worker):
        runs = [await start(sandbox, 15) for _ in range(5)]
        claims = await work(worker, slots, until=runs[0])
    assert {claim.run for claim in claims if claim.step == "image"} == set(runs)


async def test_lists_of_ten_items_in_a_pool_are_served_one_after_the_other(open_sandbox: OpenSandbox) -> None:
    async with open_stories(open_sandbox, slots=8) as (sandbox, worker):
        runs = [await start(sandbox, 10) for _ in range(3)]
        await run_claims(worker, await worker.claim(3))
        claims: list[Claim] = []
        for _ in range(10):
            (claim,) = await worker.claim(1)
            await run_claims(worker, [claim])
            claims.append(claim)
    assert [(claim.run, claim.step) for claim in claims] == [(runs[0], "image")] * 10


@with_and_without_pool
async def test_a_run_of_500_items_does_not_hold_up_a_later_one_of_5(
    open_sandbox: OpenSandbox, slots: int | None
) -> None:
    async with open_stories(open_sandbox, slots) as (sandbox, worker):
        await start_and_list(sandbox, worker, 500)
        for _ in range(20):
            await run_claims(worker, await worker.claim(1))
        later = await start(sandbox, 5)
        claims = await work(worker, 1, until=later)
    assert len(claims) <= 2 * len(["script", *range(5), "video"])


async def test_a_run_waits_for_no_more_rounds_than_it_has_itself(open_sandbox: OpenSandbox) -> None:
    async with open_stories(open_sandbox) as (sandbox, worker):
        await start_and_list(sandbox, worker, 500)
        later = await start(sandbox, JOBS_OF_TWO_ROUNDS)
        claims = await work(worker, 1, until=later)
    own = [claim for claim in claims if claim.run == later]
    assert len(own) == JOBS_OF_TWO_ROUNDS + 2
    # A quarter of the jobs is for the older run anyway.
    assert len(claims) - len(own) <= JOBS_OF_TWO_ROUNDS + (len(own) + JOBS_OF_TWO_ROUNDS) / 3 + 2


@with_and_without_pool
@pytest.mark.parametrize("limit", [1, 8])
async def test_the_oldest_run_gets_a_quarter_of_the_jobs(
    open_sandbox: OpenSandbox, slots: int | None, limit: int
) -> None:
    async with open_stories(open_sandbox, slots) as (sandbox, worker):
        oldest = await start_and_list(sandbox, worker, 200)
        for _ in range(2):
            await run_claims(worker, await worker.claim(5))
        await sandbox.clock.advance(timedelta(seconds=1))
        await sandbox.client.start_many("stories", [Story(scenes=1)] * 80)
        claims: list[Claim] = []
        for _ in range(40 // limit):
            new = await worker.claim(limit)
            await run_claims(worker, new)
            claims += new
    assert len(claims) == 40
    assert len([claim for claim in claims if claim.run == oldest]) == 10


@with_and_without_pool
async def test_every_waiting_run_has_a_share(open_sandbox: OpenSandbox, slots: int | None) -> None:
    """The oldest, and those between it and the runs that keep starting."""
    async with open_stories(open_sandbox, slots) as (sandbox, worker):
        waiting = [await start(sandbox, 200) for _ in range(3)]
        for _ in range(12):
            await run_claims(worker, await worker.claim(4))
        await sandbox.clock.advance(timedelta(seconds=1))
        await sandbox.client.start_many("stories", [Story(scenes=1)] * 200)
        claims: list[Claim] = []
        for _ in range(160):
            new = await worker.claim(1)
            await run_claims(worker, new)
            claims += new
    shares = [len([claim for claim in claims if claim.run == run]) for run in waiting]
    assert sum(shares) == 40
    assert shares[0] > shares[1] > shares[2] > 0


async def test_36_waiting_runs_have_a_share(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(stories()) as sandbox:
        found = await rows(
            sandbox,
            "select retoma.waiting_run_of_call(n) as place, count(*) * 512 / 100000.0 as share"
            " from generate_series(1, 100000) n group by 1 order by 1",
        )
    shares = {row["place"]: float(row["share"]) for row in found}
    assert shares == pytest.approx({1: 256, 2: 128, 3: 64, 4: 32} | dict.fromkeys(range(5, 37), 1), rel=0.3)


@with_and_without_pool
async def test_runs_of_the_same_size_end_in_the_order_of_their_start(
    open_sandbox: OpenSandbox, slots: int | None
) -> None:
    async with open_stories(open_sandbox, slots) as (sandbox, worker):
        runs = [await start(sandbox, 20) for _ in range(3)]
        await work(worker, 4, until=runs[-1])
        ended = await rows(sandbox, "select run from retoma.events where kind = 'end' order by id")
    assert [row["run"] for row in ended] == runs


@with_and_without_pool
async def test_a_claim_is_full_while_jobs_are_ready(open_sandbox: OpenSandbox, slots: int | None) -> None:
    random = Random(7)
    async with open_stories(open_sandbox, slots and 1000) as (sandbox, worker):
        for tenant in ("one", "one", "other", "one", "other"):
            await start(sandbox, random.choice([3, 30, 60]), tenant)
        while ready := await value(sandbox, "select count(*) from retoma.jobs where state = 'ready'"):
            limit = random.randint(1, 12)
            claims = await worker.claim(limit)
            assert len(claims) == min(limit, ready)
            await run_claims(worker, claims)


@with_and_without_pool
async def test_the_oldest_run_gets_more_than_its_share_if_other_runs_have_few_jobs(
    open_sandbox: OpenSandbox, slots: int | None
) -> None:
    async with open_stories(open_sandbox, slots) as (sandbox, worker):
        await start_and_list(sandbox, worker, 30)
        for _ in range(2):
            await run_claims(worker, await worker.claim(5))
        await start(sandbox, 1)
        assert [claim.step for claim in await worker.claim(8)].count("image") == 7


async def test_a_claim_takes_other_jobs_while_those_of_the_oldest_run_are_locked(open_sandbox: OpenSandbox) -> None:
    async with open_stories(open_sandbox) as (sandbox, worker):
        await leave_one_item_of_a_later_round(sandbox, worker)
        await start(sandbox, 1)
        channel = await open_channel(sandbox)
        async with sandbox.database.connection() as other, other.transaction():
            await other.execute("select from retoma.jobs where state = 'ready' and step = 'image' for update")
            await skip_to_a_call_for_the_oldest_run(channel)
            assert [claim.step for claim in await channel.call(limit=1)] == ["script"]


async def test_a_claim_takes_other_jobs_while_that_of_the_oldest_run_needs_too_many_slots(
    open_sandbox: OpenSandbox,
) -> None:
    async with open_stories(open_sandbox, slots=4) as (sandbox, worker):
        await leave_one_item_of_a_later_round(sandbox, worker)
        await start(sandbox, 1)
        await rows(sandbox, "update retoma.pools set per_tenant = 2")
        await rows(sandbox, "update retoma.steps set slots = 3 where step = 'image'")
        channel = await open_channel(sandbox)
        await skip_to_a_call_for_the_oldest_run(channel)
        assert [claim.step for claim in await channel.call(limit=1)] == ["script"]


async def leave_one_item_of_a_later_round(sandbox: Sandbox, worker: ManualWorker) -> None:
    await start_and_list(sandbox, worker, 11)
    for _ in range(10):
        await run_claims(worker, await worker.claim(1))


async def skip_to_a_call_for_the_oldest_run(channel: RawChannel) -> None:
    """Make calls that claim nothing, so the next one claims for the oldest run: the third of every link."""
    for _ in range(2):
        await channel.call()


async def test_jobs_created_before_there_were_rounds_are_claimed_first(open_sandbox: OpenSandbox) -> None:
    async with open_stories(open_sandbox) as (sandbox, worker):
        before = await start_and_list(sandbox, worker, 20)
        await rows(sandbox, "update retoma.jobs set rank = retoma.age_in_rank(rank) where state = 'ready'")
        await start(sandbox, 20)
        claims = [claim for _ in range(20) for claim in await worker.claim(1)]
    assert {claim.run for claim in claims} == {before}


@pytest.mark.parametrize("pooled_items", [None, 11])
async def test_each_round_has_twice_as_many_items_as_the_one_before(
    open_sandbox: OpenSandbox, pooled_items: int | None
) -> None:
    async with open_sandbox(stories()) as sandbox:
        found = await rows(
            sandbox,
            "select retoma.round_of_item(index, $1) as round, count(*) as items"
            " from generate_series(0, 4 * 1023 - 1) index group by 1 order by 1",
            pooled_items,
        )
        last = await value(sandbox, "select retoma.round_of_item(1000000000, $1)", pooled_items)
    assert [(row["round"], row["items"]) for row in found] == [(number, 4 * 2**number) for number in range(10)]
    assert last == 15


@pytest.mark.parametrize("stride", [1, 2, 3, 8, 10])
async def test_the_share_of_the_oldest_run_does_not_depend_on_which_calls_claim(
    open_sandbox: OpenSandbox, stride: int
) -> None:
    async with open_sandbox(stories()) as sandbox:
        shares = await value(
            sandbox, "select sum(retoma.jobs_for_waiting_runs(1, n * $1::int)) from generate_series(1, 200) n", stride
        )
    assert 45 <= shares <= 55


async def test_items_of_several_lists_in_one_call_each_begin_with_the_first_round(open_sandbox: OpenSandbox) -> None:
    async with open_stories(open_sandbox) as (sandbox, worker):
        for _ in range(3):
            await start(sandbox, 10)
        await run_claims(worker, await worker.claim(3))
        found = await rows(
            sandbox,
            "select run, rank >= retoma.start_of_round(1) as later, count(*) as jobs from retoma.jobs"
            " where step = 'image' group by 1, 2",
        )
    assert sorted((row["later"], row["jobs"]) for row in found) == [(False, 4)] * 3 + [(True, 6)] * 3
