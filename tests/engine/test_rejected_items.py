"""The rejection of one item of an `each` step: the item fails, and the others continue."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from pydantic import BaseModel

from retoma import GiveUp, Items, NeedsReview, Pipeline, Retry, all_finished, hours, minutes
from retoma.errors import AlreadyDecided, Conflict
from retoma.records import Review
from retoma.reviews import Decision
from retoma.states import ReviewState
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import codes, run_next, state, states, value

APPROVE = Decision("approve", by="ana")
REJECT = Decision("reject", by="ana", notes="blurred")


class Brief(BaseModel):
    topic: str = "tea"


def album(*, proceed_when: Any = None, **options: Any) -> Pipeline:
    """Pictures that a person reviews one by one, their frames, and a page of those that are good."""
    pipeline = Pipeline("album", Brief, retry=Retry(0))

    @pipeline.step
    def words(topic: str) -> list[str]:
        return ["a", "b"]

    @pipeline.each(words)
    def picture(word: str) -> str:
        return f"picture {word}"

    pipeline.review("good", of=picture, **options)

    @pipeline.each(words)
    def framed(good: str) -> str:
        return f"framed {good}"

    @pipeline.step(**({} if proceed_when is None else {"proceed_when": proceed_when}))
    def page(framed: Items[str], good: Items[str]) -> str:
        return f"{list(framed)} without {[(each.key, each.code) for each in good.failures]}"

    return pipeline


async def start_until_reviews(sandbox: Sandbox) -> tuple[UUID, Review, Review]:
    """A run that has come to its two reviews, of the items a and b."""
    run = (await sandbox.client.start("album")).id
    await sandbox.work(advance_clock=False)
    of_a, of_b = await list_reviews(sandbox, run)
    return run, of_a, of_b


async def list_reviews(sandbox: Sandbox, run: UUID, *states: ReviewState) -> list[Review]:
    found = await sandbox.client.reviews.list(run=run, states=states or [ReviewState.OPEN])
    return sorted(found, key=lambda review: (review.item, review.revision))


async def decide(sandbox: Sandbox, review: Review, decision: Decision) -> None:
    """Decide a review, and let the workers do what follows from it."""
    await sandbox.client.reviews.decide(review.id, decision)
    await sandbox.work(advance_clock=False)


async def reject_a(sandbox: Sandbox) -> UUID:
    """A run that has ended, in which the item a was rejected and b was approved."""
    run, of_a, of_b = await start_until_reviews(sandbox)
    await decide(sandbox, of_a, REJECT)
    await decide(sandbox, of_b, APPROVE)
    return run


@pytest.mark.parametrize("options", [{}, {"when": lambda picture: True}], ids=["planned", "doubtful"])
async def test_a_rejected_item_fails_alone(open_sandbox: OpenSandbox, options: dict[str, Any]) -> None:
    async with open_sandbox(album(**options)) as sandbox:
        run, of_a, of_b = await start_until_reviews(sandbox)
        await decide(sandbox, of_a, REJECT)
        assert await state(sandbox, run) == "paused"
        assert (await codes(sandbox, run))["good:a"] == "REJECTED"
        await decide(sandbox, of_b, APPROVE)
        assert await state(sandbox, run) == "completed_with_errors"
        found = await states(sandbox, run)
        assert {name: found[name] for name in ("good:a", "framed:a", "good:b", "framed:b")} == {
            "good:a": "failed",
            "framed:a": "skipped",
            "good:b": "succeeded",
            "framed:b": "succeeded",
        }
        results = await sandbox.client.runs.get_results(run)
        assert results["page"] == "['framed picture b'] without [('a', 'REJECTED')]"


async def test_a_rejected_item_shows_who_rejected_it_and_why(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album()) as sandbox:
        run = await reject_a(sandbox)
        error = (await sandbox.client.runs.get_errors(run))["good", "a"]
        assert (error["code"], error["message"]) == ("REJECTED", "rejected by ana: blurred")
        (item, _) = await sandbox.client.runs.list_items(run, "words")
        assert (item.state, item.step, item.code) == ("failed", "good", "REJECTED")
        assert await sandbox.client.runs.list_waits(run) == []


async def test_an_item_that_nobody_decides_is_rejected_alone(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album(expires=hours(1))) as sandbox:
        run, of_a, of_b = await start_until_reviews(sandbox)
        await decide(sandbox, of_b, APPROVE)
        await sandbox.clock.advance(hours(1))
        await sandbox.work(advance_clock=False)
        assert (await sandbox.client.reviews.get(of_a.id)).state is ReviewState.EXPIRED
        assert await state(sandbox, run) == "completed_with_errors"
        error = (await sandbox.client.runs.get_errors(run))["good", "a"]
        assert error["code"] == "REJECTED"
        assert error["message"] == "rejected because nobody decided before the review expired"
        with pytest.raises(AlreadyDecided):
            await sandbox.client.reviews.decide(of_a.id, APPROVE)


async def test_a_review_may_say_that_a_rejected_item_ends_the_run(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album(rejection_ends_run=True)) as sandbox:
        run, of_a, of_b = await start_until_reviews(sandbox)
        await decide(sandbox, of_a, REJECT)
        assert await state(sandbox, run) == "rejected"
        assert (await sandbox.client.reviews.get(of_b.id)).state is ReviewState.WITHDRAWN


async def test_a_join_decides_whether_it_proceeds_without_a_rejected_item(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album(proceed_when=all_finished(allow_failed=0))) as sandbox:
        run = await reject_a(sandbox)
        assert await state(sandbox, run) == "failed"
        assert (await codes(sandbox, run))["page"] == "TOO_MANY_FAILED"


@pytest.mark.parametrize("options", [{}, {"when": lambda picture: True}], ids=["planned", "doubtful"])
async def test_a_rerun_asks_again_about_a_rejected_item(open_sandbox: OpenSandbox, options: dict[str, Any]) -> None:
    async with open_sandbox(album(**options)) as sandbox:
        run = await reject_a(sandbox)
        await sandbox.client.runs.rerun_failed(run)
        await sandbox.work(advance_clock=False)
        assert await state(sandbox, run) == "paused"
        (again,) = await list_reviews(sandbox, run)
        assert (again.item, again.revision) == ("a", 2)
        await decide(sandbox, again, APPROVE)
        assert await state(sandbox, run) == "completed"
        assert (await sandbox.client.runs.get_results(run))[
            "page"
        ] == "['framed picture a', 'framed picture b'] without []"


async def test_an_item_can_be_rejected_again(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album()) as sandbox:
        run = await reject_a(sandbox)
        await sandbox.client.runs.rerun_failed(run)
        (again,) = await list_reviews(sandbox, run)
        await decide(sandbox, again, Decision("reject", by="rui", notes="still blurred"))
        assert await state(sandbox, run) == "completed_with_errors"
        error = (await sandbox.client.runs.get_errors(run))["good", "a"]
        assert error["message"] == "rejected by rui: still blurred"


async def test_a_rerun_without_dependents_can_reject_an_item_of_an_ended_run(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album()) as sandbox:
        run, *reviews = await start_until_reviews(sandbox)
        for review in reviews:
            await decide(sandbox, review, APPROVE)
        await sandbox.client.runs.rerun(run, "good", items=["a"], downstream=False)
        (again,) = await list_reviews(sandbox, run)
        await decide(sandbox, again, REJECT)
        assert await state(sandbox, run) == "completed_with_errors"
        assert (await states(sandbox, run))["framed:a"] == "succeeded"


async def test_an_edited_subject_is_reviewed_again_after_a_rejection(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album()) as sandbox:
        run = await reject_a(sandbox)
        await sandbox.client.runs.edit(run, "picture", "mine", item="a", by="ana")
        await sandbox.work(advance_clock=False)
        (again,) = await list_reviews(sandbox, run)
        assert (await sandbox.client.reviews.get_subjects(again))["picture"].value == "mine"
        await decide(sandbox, again, APPROVE)
        assert await state(sandbox, run) == "completed"


async def test_a_fork_does_not_share_the_rejection_if_its_picture_changes(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album()) as sandbox:
        run = await reject_a(sandbox)
        same = (await sandbox.client.runs.fork(run, by="ana")).id
        await sandbox.work(advance_clock=False)
        assert await state(sandbox, same) == "completed_with_errors"
        assert (await codes(sandbox, same))["good:a"] == "REJECTED"
        other = (await sandbox.client.runs.fork(run, {"topic": "coffee"}, by="ana")).id
        await sandbox.work(advance_clock=False)
        (again,) = await list_reviews(sandbox, other)
        assert again.item == "a"
        await decide(sandbox, again, APPROVE)
        assert await state(sandbox, other) == "completed"


async def test_a_rejection_of_an_item_can_be_undone_until_it_takes_effect(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album()) as sandbox:
        run, of_a, of_b = await start_until_reviews(sandbox)
        later = Decision("reject", by="ana", notes="blurred", undo=minutes(1))
        await decide(sandbox, of_a, later)
        assert await state(sandbox, run) == "paused"
        await sandbox.client.reviews.undo(of_a.id, by="ana")
        await decide(sandbox, of_a, APPROVE)
        await decide(sandbox, of_b, later)
        await sandbox.clock.advance(minutes(2))
        await sandbox.work(advance_clock=False)
        assert await state(sandbox, run) == "completed_with_errors"
        with pytest.raises(Conflict):
            await sandbox.client.reviews.undo(of_b.id, by="ana")
        found = await states(sandbox, run)
        assert (found["good:a"], found["good:b"]) == ("succeeded", "failed")


@pytest.mark.parametrize(("undo", "expected"), [(minutes(1), "withdrawn"), (minutes(0), "rejected")])
async def test_a_cancelled_run_fails_no_item_afterwards(open_sandbox: OpenSandbox, undo: Any, expected: str) -> None:
    async with open_sandbox(album()) as sandbox:
        run, of_a, _ = await start_until_reviews(sandbox)
        await sandbox.client.reviews.decide(of_a.id, Decision("reject", by="ana", notes="blurred", undo=undo))
        await sandbox.client.runs.cancel(run)
        await sandbox.clock.advance(minutes(2))
        await sandbox.work(advance_clock=False)
        assert await state(sandbox, run) == "cancelled"
        assert (await sandbox.client.reviews.get(of_a.id)).state == expected
        assert (await codes(sandbox, run))["good:a"] == "RUN_STOPPED"


async def test_a_batch_rejects_each_item(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album()) as sandbox:
        run, of_a, of_b = await start_until_reviews(sandbox)
        results = await sandbox.client.reviews.decide_many({of_a.id: REJECT, of_b.id: REJECT})
        assert [result.current and result.current.state for result in results] == [ReviewState.REJECTED] * 2
        await sandbox.work(advance_clock=False)
        assert await state(sandbox, run) == "completed_with_errors"
        assert (await sandbox.client.runs.get_results(run))[
            "page"
        ] == "[] without [('a', 'REJECTED'), ('b', 'REJECTED')]"


async def test_items_can_be_rejected_and_approved_at_the_same_time(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album()) as sandbox:
        run, of_a, of_b = await start_until_reviews(sandbox)
        rejections = [Decision("reject", by=f"person {number}", notes="blurred") for number in range(4)]
        answers = await asyncio.gather(
            *(sandbox.client.reviews.decide(of_a.id, each) for each in rejections),
            sandbox.client.reviews.decide(of_b.id, APPROVE),
            return_exceptions=True,
        )
        assert sum(isinstance(answer, AlreadyDecided) for answer in answers) == 3
        await sandbox.work(advance_clock=False)
        assert await state(sandbox, run) == "completed_with_errors"


async def test_a_rejected_item_that_no_worker_claims_is_found_by_the_watchdog(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album()) as sandbox:
        run, of_a, of_b = await start_until_reviews(sandbox)
        await decide(sandbox, of_b, APPROVE)
        await sandbox.client.reviews.decide(of_a.id, REJECT)
        assert await state(sandbox, run) == "running"
        await sandbox.clock.advance(minutes(6))
        await sandbox.run_watchdog()
        assert await state(sandbox, run) == "stuck"
        (wait,) = await sandbox.client.runs.list_waits(run)
        assert (wait.step, wait.item, wait.reason) == ("good", "a", "no_worker")
        await sandbox.work()
        assert await state(sandbox, run) == "completed_with_errors"


async def test_a_run_with_a_rejected_item_and_an_open_review_is_not_stuck(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album()) as sandbox:
        run, of_a, _ = await start_until_reviews(sandbox)
        await decide(sandbox, of_a, REJECT)
        await sandbox.clock.advance(hours(5))
        await sandbox.run_watchdog()
        assert await state(sandbox, run) == "paused"


def prices(called: list[str], error: Exception, **options: Any) -> Pipeline:
    """Prices of two items, of which the step asks for help with one."""
    pipeline = Pipeline("prices", retry=Retry(0))

    @pipeline.step
    def items() -> list[str]:
        return ["a", "b"]

    @pipeline.each(items, **options)
    def price(item: str) -> int:
        called.append(item)
        if item == "a":
            raise error
        return 1

    @pipeline.step
    def total(price: Items[int]) -> int:
        return sum(price)

    return pipeline


@pytest.mark.parametrize(
    ("error", "options", "expected"),
    [
        (NeedsReview("too high?", value=900), {}, "completed_with_errors"),
        (GiveUp("no price"), {"on_failure": "review"}, "completed_with_errors"),
        (NeedsReview("too high?", value=900), {"on_failure": "stop"}, "rejected"),
    ],
    ids=["asks", "fails", "stops"],
)
async def test_a_rejection_of_an_item_whose_step_asked_for_help(
    open_sandbox: OpenSandbox, error: Exception, options: dict[str, Any], expected: str
) -> None:
    called: list[str] = []
    async with open_sandbox(prices(called, error, **options)) as sandbox:
        run = (await sandbox.client.start("prices")).id
        await sandbox.work(advance_clock=False)
        (review,) = await sandbox.client.reviews.list(run=run)
        assert review.rejection_ends_run == (expected == "rejected")
        await decide(sandbox, review, REJECT)
        assert await state(sandbox, run) == expected
        assert sorted(called) == ["a", "b"]
        assert (await sandbox.client.runs.get_results(run)).get("total") == (None if expected == "rejected" else 1)
        assert await sandbox.client.reviews.list(run=run) == []


async def test_a_rejected_call_for_help_is_made_again_by_a_rerun(open_sandbox: OpenSandbox) -> None:
    called: list[str] = []
    async with open_sandbox(prices(called, GiveUp("no price"), on_failure="review")) as sandbox:
        run = (await sandbox.client.start("prices")).id
        await sandbox.work(advance_clock=False)
        (review,) = await sandbox.client.reviews.list(run=run)
        await decide(sandbox, review, REJECT)
        await sandbox.client.runs.rerun_failed(run)
        await sandbox.work(advance_clock=False)
        (again,) = await sandbox.client.reviews.list(run=run)
        await decide(sandbox, again, Decision("approve", by="ana", value=5))
        assert await state(sandbox, run) == "completed"
        assert (await sandbox.client.runs.get_results(run))["total"] == 6


async def test_a_worker_of_the_first_release_does_not_approve_a_rejected_item(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album()) as sandbox:
        run, of_a, of_b = await start_until_reviews(sandbox)
        await sandbox.client.reviews.decide(of_a.id, REJECT)
        await sandbox.client.reviews.decide(of_b.id, APPROVE)
        read = "select o_decision from retoma.previous_work($1, 'good', $2, 1)"
        assert await value(sandbox, read, run, "b") == "approved"
        with pytest.raises(asyncpg.RaiseError, match="a person rejected this item"):
            await value(sandbox, read, run, "a")


@pytest.mark.parametrize("options", [{}, {"rejection_ends_run": True}])
async def test_a_review_says_beforehand_what_a_rejection_does(
    open_sandbox: OpenSandbox, options: dict[str, Any]
) -> None:
    async with open_sandbox(album(**options)) as sandbox:
        _, of_a, _ = await start_until_reviews(sandbox)
        assert of_a.rejection_ends_run == bool(options)
        expected = "Ends the run." if options else "Rejects this item; the other items continue."
        assert of_a.rejection_effect == expected


async def test_a_worker_that_dies_with_a_rejected_item_leaves_it_to_another(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(album()) as sandbox:
        run, of_a, of_b = await start_until_reviews(sandbox)
        await sandbox.client.reviews.decide(of_a.id, REJECT)
        async with sandbox.manual_worker() as worker:
            await worker.claim(10)
        async with sandbox.manual_worker() as worker:
            assert await run_next(worker) == ["good:a"]
        await decide(sandbox, of_b, APPROVE)
        assert (await codes(sandbox, run))["good:a"] == "REJECTED"
