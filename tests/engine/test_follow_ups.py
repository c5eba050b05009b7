"""The run that follows a rejection: it starts in the transaction that ends the rejected run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from pydantic import BaseModel

from retoma import NeedsReview, Pipeline, hours, minutes
from retoma.records import Run
from retoma.reviews import Decision, Rejection
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import pass_heartbeat_timeout, rows, state, value
from tests.engine.test_leases import killed_worker

REJECT = Decision("reject", by="ana", notes="too short")


class Topic(BaseModel):
    topic: str = "tea"


def make_cleanup() -> Pipeline:
    cleanup = Pipeline("cleanup", Rejection)

    @cleanup.step
    def report(run: UUID, run_input: Any, step: str, by: str | None, notes: str) -> list[Any]:
        return [str(run), run_input, step, by, notes]

    return cleanup


def make_article(on_rejected: Pipeline | None, *, asks: bool = False, **review: Any) -> Pipeline:
    """An article that a person reviews, and a picture that does not wait for that."""
    article = Pipeline("article", Topic, title="About {topic}", on_rejected=on_rejected)

    @article.step
    def text(topic: str) -> str:
        if asks:
            raise NeedsReview("is this right?")
        return f"about {topic}"

    article.review("approved", of=text, **review)

    @article.step
    def picture(topic: str) -> str:
        return f"picture of {topic}"

    return article


async def start_until_review(sandbox: Sandbox) -> tuple[UUID, UUID]:
    """A run that waits for a person, and its review."""
    run = (await sandbox.client.start("article", tenant="saude")).id
    await sandbox.work(advance_clock=False)
    (review,) = await sandbox.client.reviews.list(run=run)
    return run, review.id


async def list_follow_ups(sandbox: Sandbox) -> list[Run]:
    found: list[Run] = await sandbox.client.runs.list(pipeline="cleanup")
    return found


async def get_report(sandbox: Sandbox) -> Any:
    (follow_up,) = await list_follow_ups(sandbox)
    return (await sandbox.client.runs.get_results(follow_up.id))["report"]


async def test_a_rejection_starts_a_run_that_knows_who_rejected_what_and_why(open_sandbox: OpenSandbox) -> None:
    cleanup = make_cleanup()
    async with open_sandbox(make_article(cleanup), cleanup) as sandbox:
        run, review = await start_until_review(sandbox)
        await sandbox.client.reviews.decide(review, REJECT)
        (follow_up,) = await list_follow_ups(sandbox)
        assert (follow_up.tenant, follow_up.title, follow_up.id.version) == ("saude", "About tea", 7)
        await sandbox.work(advance_clock=False)
        assert await state(sandbox, follow_up.id) == "completed"
        assert await get_report(sandbox) == [str(run), {"topic": "tea"}, "approved", "ana", "too short"]


async def test_a_review_that_expires_starts_it_too(open_sandbox: OpenSandbox) -> None:
    cleanup = make_cleanup()
    async with open_sandbox(make_article(cleanup, expires=hours(1)), cleanup) as sandbox:
        run, _ = await start_until_review(sandbox)
        await sandbox.clock.advance(hours(1))
        await sandbox.work(advance_clock=False)
        assert await get_report(sandbox) == [str(run), {"topic": "tea"}, "approved", None, ""]


async def test_the_rejection_of_what_a_step_asked_starts_it_too(open_sandbox: OpenSandbox) -> None:
    cleanup = make_cleanup()
    async with open_sandbox(make_article(cleanup, asks=True), cleanup) as sandbox:
        run, review = await start_until_review(sandbox)
        await sandbox.client.reviews.decide(review, REJECT)
        await sandbox.work(advance_clock=False)
        assert await get_report(sandbox) == [str(run), {"topic": "tea"}, "text", "ana", "too short"]


async def test_a_rejection_that_can_be_undone_starts_it_when_it_takes_effect(open_sandbox: OpenSandbox) -> None:
    cleanup = make_cleanup()
    async with open_sandbox(make_article(cleanup), cleanup) as sandbox:
        _, review = await start_until_review(sandbox)
        await sandbox.client.reviews.decide(review, Decision("reject", by="ana", notes="no", undo=minutes(1)))
        assert await list_follow_ups(sandbox) == []
        await sandbox.clock.advance(minutes(1))
        await sandbox.work(advance_clock=False)
        assert len(await list_follow_ups(sandbox)) == 1


async def test_no_other_end_of_a_run_starts_it(open_sandbox: OpenSandbox) -> None:
    cleanup = make_cleanup()
    async with open_sandbox(make_article(cleanup), cleanup) as sandbox:
        _, review = await start_until_review(sandbox)
        await sandbox.client.reviews.decide(review, Decision("approve", by="ana"))
        run, _ = await start_until_review(sandbox)
        await sandbox.client.runs.cancel(run)
        await sandbox.work(advance_clock=False)
        assert await list_follow_ups(sandbox) == []


async def test_the_death_of_the_last_worker_of_a_rejected_run_starts_it_once(open_sandbox: OpenSandbox) -> None:
    cleanup = make_cleanup()
    async with open_sandbox(make_article(cleanup), cleanup) as sandbox:
        run = (await sandbox.client.start("article")).id
        async with killed_worker(sandbox) as worker:
            claims = await worker.claim(2)
            await worker.record_outcomes(await worker.attempt([each for each in claims if each.step == "text"]))
            await worker.record_outcomes(await worker.attempt(await worker.claim(1)))
            (review,) = await sandbox.client.reviews.list(run=run)
            await sandbox.client.reviews.decide(review.id, REJECT)
            assert await list_follow_ups(sandbox) == []  # the picture is still being made
        await pass_heartbeat_timeout(sandbox)
        await sandbox.work(advance_clock=False)
        assert await state(sandbox, run) == "rejected"
        await sandbox.work(advance_clock=False)  # the first call may have stopped when the run had ended
        assert await get_report(sandbox) == [str(run), {"topic": "tea"}, "approved", "ana", "too short"]


async def test_a_run_is_not_rejected_without_the_run_that_follows(open_sandbox: OpenSandbox) -> None:
    cleanup = make_cleanup()
    async with open_sandbox(make_article(cleanup), cleanup) as sandbox:
        run, review = await start_until_review(sandbox)
        async with failing_starts(sandbox):
            with pytest.raises(asyncpg.RaiseError, match="planted"):
                await sandbox.client.reviews.decide(review, REJECT)
        assert await state(sandbox, run) == "paused"
        await sandbox.client.reviews.decide(review, REJECT)
        assert (await state(sandbox, run), len(await list_follow_ups(sandbox))) == ("rejected", 1)


async def test_a_run_from_before_a_deploy_is_followed_by_what_the_new_code_names(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_article(None)) as sandbox:
        _, review = await start_until_review(sandbox)
    cleanup = make_cleanup()
    article = make_article(cleanup)

    @article.step
    def summary(approved: str) -> str:
        return approved

    async with open_sandbox(article, cleanup) as sandbox:
        await sandbox.work(advance_clock=False)
        await sandbox.client.reviews.decide(review, REJECT)
        assert len(await list_follow_ups(sandbox)) == 1


async def test_a_pipeline_that_names_none_any_more_starts_none(open_sandbox: OpenSandbox) -> None:
    cleanup = make_cleanup()
    async with open_sandbox(make_article(cleanup), cleanup) as sandbox:
        _, review = await start_until_review(sandbox)
    async with open_sandbox(make_article(None), cleanup) as sandbox:
        await sandbox.work(advance_clock=False)
        await sandbox.client.reviews.decide(review, REJECT)
        assert await list_follow_ups(sandbox) == []


@asynccontextmanager
async def failing_starts(sandbox: Sandbox) -> AsyncIterator[None]:
    """The database fails to start runs that follow a rejection, as if it went down then."""
    original = await value(sandbox, "select pg_get_functiondef('retoma.new_run_id()'::regprocedure)")
    await rows(
        sandbox,
        "create or replace function retoma.new_run_id() returns uuid language plpgsql as "
        "$$ begin raise exception 'planted'; end $$",
    )
    try:
        yield
    finally:
        await rows(sandbox, original)
