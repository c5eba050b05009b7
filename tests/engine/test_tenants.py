"""Tenants: they take turns, and none sees another's runs."""

from __future__ import annotations

from collections import Counter

import pytest

from retoma import Context, Pipeline
from retoma.errors import NotFound
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import open_channel


async def test_tenants_take_turns_one_job_each(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox:
        names = await start_for(sandbox, pipeline, large=6, middle=6, small=2)
        channel = await open_channel(sandbox)
        served, after = [], 0
        for _ in range(14):
            (claim,) = await channel.call(limit=1, after=after)
            after = claim.tenant
            served.append(names[claim.tenant])
    assert served == ["large", "middle", "small"] * 2 + ["large", "middle"] * 4


async def test_a_tenant_with_a_hundred_jobs_does_not_starve_another(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox:
        names = await start_for(sandbox, pipeline, large=100, small=3)
        channel = await open_channel(sandbox)
        claims = await channel.call(limit=8)
    assert Counter(names[claim.tenant] for claim in claims) == {"large": 5, "small": 3}


async def test_room_that_a_tenant_cannot_fill_is_shared_by_the_others(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox:
        names = await start_for(sandbox, pipeline, one=1, two=2, many=50)
        channel = await open_channel(sandbox)
        claims = await channel.call(limit=20)
    assert Counter(names[claim.tenant] for claim in claims) == {"one": 1, "two": 2, "many": 17}


async def test_more_tenants_than_room_are_all_served_in_the_end(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox:
        names = await start_for(sandbox, pipeline, **{f"tenant{number}": 5 for number in range(10)})
        channel = await open_channel(sandbox)
        served: Counter[str] = Counter()
        after = 0
        for _ in range(8):
            claims = await channel.call(limit=3, after=after)
            after = claims[-1].tenant
            served.update(names[claim.tenant] for claim in claims)
    assert len(served) == 10


async def test_a_high_priority_does_not_let_a_tenant_jump_its_turn(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline, tenant="first")
        await sandbox.client.start(pipeline, tenant="second", priority=9)
        channel = await open_channel(sandbox)
        (one,) = await channel.call(limit=1)
        (two,) = await channel.call(limit=1, after=one.tenant)
        assert one.tenant < two.tenant


async def test_a_step_knows_its_tenant(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("context")

    @pipeline.step
    async def whose(*, ctx: Context) -> str:
        return ctx.tenant

    async with open_sandbox(pipeline) as sandbox:
        runs = [await sandbox.run(pipeline, tenant=tenant) for tenant in ("channel", "blog")]
    assert [run.results["whose"] for run in runs] == ["channel", "blog"]


async def test_a_tenant_sees_its_own_runs_only(open_sandbox: OpenSandbox) -> None:
    pipeline = one_step()
    async with open_sandbox(pipeline) as sandbox:
        ours = await sandbox.client.start(pipeline, tenant="ours")
        theirs = await sandbox.client.start(pipeline, tenant="theirs")
        assert [run.id for run in await sandbox.client.runs.list(tenant="ours")] == [ours.id]
        assert (await sandbox.client.runs.get(ours.id, tenant="ours")).id == ours.id
        with pytest.raises(NotFound):
            await sandbox.client.runs.get(theirs.id, tenant="ours")


async def start_for(sandbox: Sandbox, pipeline: Pipeline, **runs: int) -> dict[int, str]:
    """Start so many runs for each tenant; return the tenants' names by number."""
    for tenant, count in runs.items():
        await sandbox.client.start_many(pipeline, [None] * count, tenant=tenant)
    async with sandbox.database.connection() as connection, connection.transaction():
        return {row["id"]: row["name"] for row in await connection.fetch("select id, name from retoma.tenants")}


def one_step() -> Pipeline:
    pipeline = Pipeline("one")

    @pipeline.step
    async def answer() -> int:
        return 42

    return pipeline
