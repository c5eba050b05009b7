from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retoma import App, Context, Pipeline
from retoma.client import Client
from retoma.errors import Conflict, InvalidInput, NotFound
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox


def nothing() -> Pipeline:
    pipeline = Pipeline("nothing")

    @pipeline.step
    def nought() -> int:
        return 0

    return pipeline


async def test_a_tenant_profile_is_stored(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(nothing()) as sandbox:
        made = await sandbox.client.tenants.set_profile("blog", {"tone": "calmo"})
        assert (made.tenant, made.value, made.revision) == ("blog", {"tone": "calmo"}, 1)
        assert made.created_at == made.changed_at == await sandbox.clock.now()
        assert await sandbox.client.tenants.get_profile("blog") == made
        await sandbox.client.tenants.set_profile("atlas", [1])
        assert [each.tenant for each in await sandbox.client.tenants.list_profiles()] == ["atlas", "blog"]


async def test_a_step_reads_the_current_profile_of_its_tenant(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("reading")

    @pipeline.step
    async def known(*, ctx: Context) -> Any:
        return await ctx.profile()

    async with open_sandbox(pipeline) as sandbox:
        for tone in ("calmo", "vivo"):
            await sandbox.client.tenants.set_profile("blog", {"tone": tone})
            assert (await sandbox.run(pipeline, tenant="blog")).results == {"known": {"tone": tone}}
        assert (await sandbox.run(pipeline, tenant="atlas")).results == {"known": None}


async def test_a_profile_change_applies_only_to_the_version_that_was_read(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(nothing()) as sandbox:
        client = sandbox.client
        await client.tenants.set_profile("blog", 1, revision=0)
        assert (await client.tenants.set_profile("blog", 2, revision=1)).revision == 2
        for revision in (0, 1, 3):
            with pytest.raises(Conflict, match="changed by somebody else"):
                await client.tenants.set_profile("blog", 3, revision=revision)
        with pytest.raises(Conflict):
            await client.tenants.set_profile("other", 3, revision=1)
        assert (await client.tenants.set_profile("blog", 4)).revision == 3


async def test_one_of_many_concurrent_changes_to_the_same_profile_succeeds(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(nothing()) as sandbox:

        async def change(number: int, revision: int) -> Any:
            try:
                return (await sandbox.client.tenants.set_profile("blog", number, revision=revision)).value
            except Conflict:
                return None

        for revision in (0, 1):
            answers = await asyncio.gather(*(change(number, revision) for number in range(10)))
            assert len([answer for answer in answers if answer is not None]) == 1
        assert (await sandbox.client.tenants.get_profile("blog")).revision == 2


async def test_a_deleted_profile_is_gone_and_the_tenants_runs_are_kept(open_sandbox: OpenSandbox) -> None:
    pipeline = nothing()
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.tenants.set_profile("blog", 1)
        run = await sandbox.run(pipeline, tenant="blog")
        await sandbox.client.tenants.delete_profile("blog")
        for act in (sandbox.client.tenants.get_profile, sandbox.client.tenants.delete_profile):
            with pytest.raises(NotFound, match="there is no profile of 'blog'"):
                await act("blog")
        assert (await sandbox.client.runs.get(run.id)).tenant == "blog"
        assert (await sandbox.client.tenants.set_profile("blog", 2, revision=0)).revision == 1


async def test_applications_do_not_see_each_others_profiles(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(nothing()) as sandbox:
        await sandbox.client.tenants.set_profile("blog", "mine")
        other = another(sandbox, "other")
        assert await other.tenants.list_profiles() == []
        await other.tenants.set_profile("blog", "theirs", revision=0)
        await other.tenants.delete_profile("blog")
        assert (await sandbox.client.tenants.get_profile("blog")).value == "mine"
        await other.close()


async def test_a_profile_is_json_of_a_tenant_with_a_name(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(nothing()) as sandbox:
        with pytest.raises(InvalidInput, match="cannot be JSON"):
            await sandbox.client.tenants.set_profile("blog", float("nan"))
        with pytest.raises(InvalidInput, match="a tenant is a text of 1 to 500 characters"):
            await sandbox.client.tenants.set_profile("", 1)
        nobody = Client(None, sandbox.database)
        with pytest.raises(NotFound, match="has no application"):
            await nobody.tenants.list_profiles()
        await nobody.close()


def another(sandbox: Sandbox, name: str) -> Client:
    return Client(App(name, pipelines=[nothing()]), sandbox.database)
