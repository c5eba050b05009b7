"""Concurrent people and workers: in any order of commits, no run hangs, and no deadlock reaches a caller."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from retoma import Items, Pipeline, Retry, hours
from retoma.engine import outcomes
from retoma.engine.claim_protocol import Claim
from retoma.engine.outcomes import Success
from retoma.errors import AlreadyDecided, Conflict, RunBusy
from retoma.records import Review
from retoma.reviews import Decision
from retoma.states import ReviewState
from retoma.store import workers
from retoma.testing import ManualWorker, Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import open_channel, rows, state, value
from tests.engine.test_races import begin_uncommitted_call, is_blocked, open_workers, wait_until

TIMES = int(os.environ.get("RACE_TIMES", "2"))
APPROVE = Decision("approve", by="ana")
BACK = Decision("send_back", by="rui", notes="again")
REJECT = Decision("reject", by="eva", notes="no")
REFUSED = (AlreadyDecided, RunBusy, Conflict)


class Brief(BaseModel):
    topic: str = "tea"


def article() -> Pipeline:
    """A text that a person approves, pictures in parallel, and a page of both."""
    pipeline = Pipeline("article", Brief, retry=Retry(0))

    @pipeline.step
    async def text(topic: str) -> str:
        return topic

    pipeline.review("approved", of=text, expires=hours(1), on_expiry="approved", max_revisions=50)

    @pipeline.step
    async def words(topic: str) -> list[str]:
        return ["a", "b", "c"]

    @pipeline.each(words)
    async def picture(word: str) -> str:
        return word

    @pipeline.step
    async def page(approved: str, picture: Items[str]) -> str:
        return f"{approved} {len(picture)}"

    return pipeline


async def start_until_review(sandbox: Sandbox, worker: ManualWorker) -> tuple[UUID, Review]:
    """A run whose text is done, and its list, and whose pictures are ready."""
    run = (await sandbox.client.start("article")).id
    await worker.record_outcomes(await worker.attempt(await worker.claim(2)))
    (review,) = await sandbox.client.reviews.list(run=run)
    return run, review


async def run_at_once(*acts: Awaitable[Any]) -> list[Any]:
    """Return the outcome of each call: no other error may reach a caller."""
    ended = await asyncio.gather(*acts, return_exceptions=True)
    for one in ended:
        if isinstance(one, BaseException) and not isinstance(one, REFUSED):
            raise one
    return ended


async def do_all(worker: ManualWorker) -> None:
    """Work as one of many: claim one at a time until nothing is left just now."""
    claims = await worker.claim(1)
    while claims:
        claims = await worker.record_outcomes(await worker.attempt(claims), limit=1)


async def work_to_end(sandbox: Sandbox, run: UUID) -> str:
    """Work and approve every review until the run has ended; it must end without live jobs."""
    for _ in range(12):
        await sandbox.clock.advance(hours(0.001))
        await sandbox.work(advance_clock=False)
        await check(sandbox, run)
        for review in await sandbox.client.reviews.list(run=run):
            await sandbox.client.reviews.decide(review.id, APPROVE)
        if (await sandbox.client.runs.get(run)).is_over:
            break
    await sandbox.work(advance_clock=False)
    live = await rows(
        sandbox,
        "select step, item, revision, state from retoma.jobs where run = $1 "
        "and state in ('waiting', 'ready', 'running', 'parked')",
        run,
    )
    assert live == []
    assert await value(sandbox, "select count(*) from retoma.reviews where run = $1 and applied_at is null", run) == 0
    return await state(sandbox, run)


async def check(sandbox: Sandbox, run: UUID) -> None:
    """A run that is not over, and in which nothing can progress, waits for a person."""
    shown = await sandbox.client.runs.get(run)
    open_review = await sandbox.client.reviews.list(run=run)
    assert shown.is_over or str(shown.state) == "paused", shown.state
    assert shown.is_over or open_review
    assert len({(one.step, one.item) for one in open_review}) == len(open_review)
    if not shown.is_over:
        assert await value(sandbox, "select open_sinks from retoma.runs where id = $1", run) == 1


Action = Callable[[Sandbox, UUID, Review], Awaitable[Any]]


async def approve(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await sandbox.client.reviews.decide(review.id, APPROVE)


async def send_back(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await sandbox.client.reviews.decide(review.id, BACK)


async def reject(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await sandbox.client.reviews.decide(review.id, REJECT)


async def cancel(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await sandbox.client.runs.cancel(run)


async def rerun_text(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await sandbox.client.runs.rerun(run, "text")


async def rerun_pictures(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await sandbox.client.runs.rerun(run, "picture", items=["b"])


async def rerun_words(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await sandbox.client.runs.rerun(run, "words")


async def run_maintenance(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await workers.release_due_jobs(sandbox.database, 100)


async def race_actions(open_sandbox: OpenSandbox, *acts: Action, late: bool = False) -> list[str]:
    """Race these actions against three workers repeatedly; return the final states of the runs."""
    ends = []
    async with open_sandbox(article()) as sandbox, open_workers(sandbox, 3) as worker:
        for _ in range(TIMES):
            run, review = await start_until_review(sandbox, worker[0])
            if late:
                await sandbox.clock.advance(hours(1.01))
            await run_at_once(*(act(sandbox, run, review) for act in acts), *map(do_all, worker))
            ends.append(await work_to_end(sandbox, run))
    return ends


async def test_a_concurrent_decision_and_cancel_leave_no_live_job(open_sandbox: OpenSandbox) -> None:
    for decides in (approve, send_back):
        ends = await race_actions(open_sandbox, decides, cancel)
        assert set(ends) <= {"completed", "cancelled"}


async def test_a_concurrent_rejection_and_cancel_have_one_winner(open_sandbox: OpenSandbox) -> None:
    assert set(await race_actions(open_sandbox, reject, cancel)) <= {"rejected", "cancelled"}


async def test_a_concurrent_decision_and_rerun_let_the_run_continue(open_sandbox: OpenSandbox) -> None:
    for decides in (approve, send_back):
        for reruns in (rerun_text, rerun_pictures, rerun_words):
            assert set(await race_actions(open_sandbox, decides, reruns)) == {"completed"}


async def test_a_concurrent_decision_and_expiry_have_one_effect(open_sandbox: OpenSandbox) -> None:
    for decides in (approve, send_back):
        assert set(await race_actions(open_sandbox, decides, run_maintenance, run_maintenance, late=True)) == {
            "completed"
        }


async def test_concurrent_decisions_have_one_effect(open_sandbox: OpenSandbox) -> None:
    assert set(await race_actions(open_sandbox, approve, send_back, approve, send_back)) == {"completed"}


async def test_concurrent_reruns_let_the_run_continue(open_sandbox: OpenSandbox) -> None:
    assert set(await race_actions(open_sandbox, rerun_text, rerun_text, rerun_words, rerun_pictures)) == {"completed"}


async def test_a_run_whose_last_job_ends_as_a_review_opens_is_paused_by_the_next_check(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = Pipeline("article", Brief)

    @pipeline.step
    async def text(topic: str) -> str:
        return topic

    @pipeline.step(queue="other")
    async def picture(topic: str) -> str:
        return topic

    pipeline.review("approved", of=text)

    @pipeline.step
    async def page(approved: str, picture: str) -> str:
        return approved + picture

    async with open_sandbox(pipeline) as sandbox:
        link, other = await open_channel(sandbox), await open_channel(sandbox)
        run = (await sandbox.client.start("article")).id
        (mine,), (theirs,) = await link.call(limit=1, queues=["default"]), await other.call(limit=1, queues=["other"])
        async with begin_uncommitted_call(sandbox, link, [result(mine)]) as commit:
            await other.call([result(theirs)])
            await commit()
        await sandbox.clock.advance(hours(0.001))
        await workers.release_due_jobs(sandbox.database, 100)
        assert await state(sandbox, run) == "paused"


async def test_the_last_two_jobs_that_end_alongside_a_review_pause_the_run(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("article", Brief)

    @pipeline.step
    async def text(topic: str) -> str:
        return topic

    pipeline.review("approved", of=text)

    @pipeline.step
    async def left(topic: str) -> str:
        return topic

    @pipeline.step
    async def right(topic: str) -> str:
        return topic

    @pipeline.step
    async def page(approved: str, left: str) -> str:
        return approved + left

    @pipeline.step
    async def cover(approved: str, right: str) -> str:
        return approved + right

    async with open_sandbox(pipeline) as sandbox:
        link, other = await open_channel(sandbox), await open_channel(sandbox)
        run = (await sandbox.client.start("article")).id
        claims = {claim.step: claim for claim in await link.call(limit=3)}
        await link.call([result(claims.pop("text")), outcomes.Returned(claims.pop("right"))])
        (theirs,) = await other.call(limit=1)
        async with begin_uncommitted_call(sandbox, link, [result(claims["left"])]) as commit:
            ending = asyncio.create_task(other.call([result(theirs)]))
            await wait_until(lambda: is_blocked(sandbox, "finish_and_claim"))
            await commit()
            await ending
        assert await state(sandbox, run) == "paused"


async def test_a_decision_waits_for_jobs_that_are_ending_and_the_run_continues(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(article()) as sandbox, open_workers(sandbox, 1) as (worker,):
        run, review = await start_until_review(sandbox, worker)
        link = await open_channel(sandbox)
        claims = await link.call(limit=3)
        async with begin_uncommitted_call(sandbox, link, [result(claim) for claim in claims]) as commit:
            deciding = asyncio.create_task(sandbox.client.reviews.decide(review.id, APPROVE))
            await wait_until(lambda: is_blocked(sandbox, "decide_review"))
            await commit()
            assert (await deciding).state is ReviewState.APPROVED
        assert await state(sandbox, run) == "running"
        assert await work_to_end(sandbox, run) == "completed"


def result(claim: Claim) -> Success:
    return Success(claim, '"done"')
