"""A run of one tenant cannot start, or pass itself off as, a run of another one."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from retoma import Context, Pipeline
from retoma.errors import DefinitionError, InvalidInput
from retoma.records import ALL_TENANTS, Scope
from tests.conftest import OpenSandbox
from tests.engine.builders import codes


class Order(BaseModel):
    blog: str = "tea"
    topic: str = "oolong"


article = Pipeline("article", Order, tenant_field="blog")


@article.step
def text(topic: str) -> str:
    return topic


def make_batch() -> Pipeline:
    """A pipeline that starts an article of the blog that its input names."""
    batch = Pipeline("batch", Order)

    @batch.step
    async def child(blog: str, *, ctx: Context) -> str:
        return str((await ctx.run_child(article, {"blog": blog}, tenant=blog))["text"])

    return batch


async def test_a_run_starts_no_run_of_another_tenant(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(article, make_batch()) as sandbox:
        run = await sandbox.run("batch", {"blog": "tea"}, tenant="coffee")
        assert (run.state, await codes(sandbox, run.id)) == ("failed", {"child": "OTHER_TENANT"})
        assert await sandbox.client.runs.list(tenant="tea") == []


@pytest.mark.parametrize("tenant", ["tea", ALL_TENANTS])
async def test_a_run_starts_runs_of_its_own_tenant_and_one_for_all_tenants_of_any(
    open_sandbox: OpenSandbox, tenant: str
) -> None:
    async with open_sandbox(article, make_batch()) as sandbox:
        assert (await sandbox.run("batch", {"blog": "tea"}, tenant=tenant)).state == "completed"
        assert [run.pipeline for run in await sandbox.client.runs.list(tenant="tea", pipeline="article")] == ["article"]


async def test_a_run_whose_input_names_another_tenant_is_refused(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(article) as sandbox:
        client = sandbox.client
        run = await sandbox.run(article, {"blog": "tea"}, tenant="tea")
        with pytest.raises(InvalidInput, match="its blog is 'tea', and the tenant of the run 'coffee'"):
            await client.start(article, {"blog": "tea"}, tenant="coffee")
        with pytest.raises(InvalidInput, match="another tenant"):
            await client.start_many(article, [{"blog": "coffee"}, {"blog": "tea"}], tenant="coffee")
        with pytest.raises(InvalidInput, match="another tenant"):
            await client.runs.fork(run.id, {"blog": "coffee"})
        assert [each.id for each in await client.runs.list()] == [run.id]


async def test_no_key_is_limited_to_the_tenant_of_runs_for_all_tenants(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(article) as sandbox:
        with pytest.raises(InvalidInput, match="omit the tenant"):
            await sandbox.client.api_keys.create("batches", [Scope.RUNS_WRITE], tenant=ALL_TENANTS)


def test_a_tenant_field_that_the_input_does_not_have_is_refused_at_import() -> None:
    with pytest.raises(DefinitionError, match=r"tenant_field= is 'blogs', which is not an input; .*'blog'"):
        Pipeline("article", Order, tenant_field="blogs")
