"""Revisions: jobs of two revisions of a run coexist and do not mix."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from retoma import Items, Pipeline
from retoma.engine.outcomes import Success
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import find_claim, names, rows, run_claims, run_next, states


async def test_a_result_of_one_revision_does_not_end_the_job_of_another(open_sandbox: OpenSandbox) -> None:
    pipeline = labels()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await insert_revision(sandbox, run, "documents", "")
        claims = await worker.claim(10)
        assert sorted((claim.step, claim.revision, claim.fence) for claim in claims) == [
            ("documents", 1, 1),
            ("documents", 2, 1),
            ("taxonomy", 1, 1),
        ]
        old = next(claim for claim in claims if (claim.step, claim.revision) == ("documents", 1))
        await worker.record_outcomes([Success(old, "[]")])
        found = await rows(sandbox, "select revision, state::text from retoma.jobs where step = 'documents'")
        assert {tuple(row) for row in found} == {(1, "succeeded"), (2, "running")}
        await worker.record_outcomes([Success(replace(old, revision=3), "[]")])
        assert worker.rejected_outcomes == 1


async def test_a_step_reads_the_latest_result_of_its_dependency(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("chain")

    @pipeline.step
    async def outline() -> str:
        return "first"

    @pipeline.step
    async def draft(outline: str) -> str:
        return f"draft of {outline}"

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "outline")
        await insert_revision(sandbox, run, "outline", "", output='"second"')
        await run_next(worker, "draft")
        assert await sandbox.client.runs.get_results(run) == {"outline": "second", "draft": "draft of second"}


async def test_a_join_sees_each_item_once_at_its_latest_revision(open_sandbox: OpenSandbox) -> None:
    pipeline = labels()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "documents", "taxonomy")
        await run_next(worker, "label:a", "label:b")
        await insert_revision(sandbox, run, "label", "a", output='"A again"')
        await run_next(worker, "report")
        assert (await sandbox.client.runs.get_results(run))["report"] == ["A again", "b tax"]


async def test_an_item_has_the_value_of_the_latest_revision_of_its_list(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("values")

    @pipeline.step
    async def documents() -> list[dict[str, str]]:
        return [{"key": "a", "text": "old"}]

    @pipeline.each(documents, key="key")
    async def first(document: dict[str, str]) -> str:
        return document["text"]

    @pipeline.each(documents)
    async def second(first: str, document: dict[str, str]) -> str:
        return f"{first} {document['text']}"

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "documents")
        await run_next(worker, "first:a")
        await insert_revision(sandbox, run, "first", "a", output='"new"', value='{"key": "a", "text": "new"}')
        await run_next(worker, "second:a")
        (job,) = (job for job in await sandbox.client.runs.list_jobs(run) if job.step == "second")
        assert job.output == "new new"


async def test_a_shared_dependency_counts_once_though_it_was_rerun(open_sandbox: OpenSandbox) -> None:
    pipeline = labels()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(10)
        await run_claims(worker, claims, "taxonomy")
        await insert_revision(sandbox, run, "taxonomy", "", output='"new tax"')
        await run_claims(worker, claims, "documents")
        labelled = await worker.claim(10)
        assert names(labelled) == ["label:a", "label:b"]
        await run_claims(worker, labelled)
        (job,) = (job for job in await sandbox.client.runs.list_jobs(run) if (job.step, job.item) == ("label", "a"))
        assert job.output == "a new tax"


async def test_items_wait_for_a_shared_dependency_that_is_rerunning(open_sandbox: OpenSandbox) -> None:
    pipeline = labels()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(10)
        await run_claims(worker, claims, "taxonomy")
        await insert_revision(sandbox, run, "taxonomy", "")
        await run_claims(worker, claims, "documents")
        assert (await states(sandbox, run))["label:a"] == "waiting"
        await run_claims(worker, [find_claim(await worker.claim(10), "taxonomy")])
        assert (await states(sandbox, run))["label:a"] == "ready"


async def test_the_current_job_is_the_one_of_the_latest_revision(open_sandbox: OpenSandbox) -> None:
    pipeline = labels()
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        await insert_revision(sandbox, run.id, "taxonomy", "", output='"new tax"')
        (job,) = (job for job in await sandbox.client.runs.list_jobs(run.id) if job.step == "taxonomy")
        assert (job.revision, job.output) == (2, "new tax")
        assert (await sandbox.client.runs.get_results(run.id))["taxonomy"] == "new tax"
        (kept,) = await rows(sandbox, "select output::text from retoma.jobs where step = 'taxonomy' and revision = 1")
        assert kept["output"] == '"tax"'


async def insert_revision(
    sandbox: Sandbox, run: UUID, step: str, item: str, *, output: str | None = None, value: str | None = None
) -> None:
    """A job of revision 2 as an act of a person will make it: ready, or with the output of an edit."""
    await rows(
        sandbox,
        """
        insert into retoma.jobs (run, step, item, revision, version, tenant, queue, rank, position, state, worker,
                                 created_at, ended_at, input, output)
        select run, step, item, 2, version, tenant, queue, rank, position,
               case when $4::json is null then 'ready' else 'succeeded' end::retoma.job_state,
               case when $4::json is not null then 0 end, retoma.now(), retoma.now(), coalesce($5::json, input), $4
          from retoma.jobs
         where run = $1 and step = $2 and item = $3
        """,
        run,
        step,
        item,
        output,
        value,
    )


def labels() -> Pipeline:
    pipeline = Pipeline("labels")

    @pipeline.step
    async def documents() -> list[str]:
        return ["a", "b"]

    @pipeline.step
    async def taxonomy() -> str:
        return "tax"

    @pipeline.each(documents)
    async def label(document: str, taxonomy: str) -> str:
        return f"{document} {taxonomy}"

    @pipeline.step
    async def report(label: Items[str]) -> list[str]:
        return list(label)

    return pipeline
