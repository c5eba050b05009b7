"""People and workers at once: whoever commits first, no run hangs, and no deadlock reaches a caller."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from retoma import Decision, Items, Pipeline, Retry, hours
from retoma.engine.exchange import Claim, Result, SetBack
from retoma.errors import AlreadyDecided, AtWork, Conflict
from retoma.records import Review
from retoma.states import ReviewState
from retoma.store import workers
from retoma.testing import Hands, Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import a_lane, rows, state, value
from tests.engine.test_races import is_blocked, many_hands, not_yet_committed, until

TIMES = int(os.environ.get("RACE_TIMES", "2"))
APPROVE = Decision("approve", by="ana")
BACK = Decision("send_back", by="rui", notes="again")
REJECT = Decision("reject", by="eva", notes="no")
REFUSED = (AlreadyDecided, AtWork, Conflict)


class Brief(BaseModel):
    topic: str = "tea"


def article() -> Pipeline:
    """A text that a person approves, pictures beside it, and a page of both."""
    pipeline = Pipeline("article", Brief, retry=Retry(0))

    @pipeline.step
    async def text(topic: str) -> str:
        return topic

    pipeline.review("approved", of=text, expires=hours(1), on_expiry="approved", most_revisions=50)

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


async def at_the_review(sandbox: Sandbox, hands: Hands) -> tuple[UUID, Review]:
    """A run whose text is done, and its list, and whose pictures are ready."""
    run = (await sandbox.client.start("article")).id
    await hands.give_back(await hands.attempt(await hands.claim(2)))
    (review,) = await sandbox.client.reviews(run=run)
    return run, review


async def at_once(*acts: Awaitable[Any]) -> list[Any]:
    """What came of each: no other error may reach a caller."""
    ended = await asyncio.gather(*acts, return_exceptions=True)
    for one in ended:
        if isinstance(one, BaseException) and not isinstance(one, REFUSED):
            raise one
    return ended


async def do_all(hands: Hands) -> None:
    """Work as one of many: claim one at a time until nothing is left just now."""
    claims = await hands.claim(1)
    while claims:
        claims = await hands.give_back(await hands.attempt(claims), room=1)


async def ends_well(sandbox: Sandbox, run: UUID) -> str:
    """Work and approve whatever is asked, until the run is over; it must be, and nothing may live in it."""
    for _ in range(12):
        await sandbox.clock.advance(hours(0.001))
        await sandbox.work(until_later=False)
        await check(sandbox, run)
        for review in await sandbox.client.reviews(run=run):
            await sandbox.client.decide(review.id, APPROVE)
        if (await sandbox.client.show(run)).is_over:
            break
    await sandbox.work(until_later=False)
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
    """A run that is not over, and in which nothing can go on, waits for a person."""
    shown = await sandbox.client.show(run)
    asked = await sandbox.client.reviews(run=run)
    assert shown.is_over or str(shown.state) == "paused", shown.state
    assert shown.is_over or asked
    assert len({(one.step, one.item) for one in asked}) == len(asked)
    if not shown.is_over:
        assert await value(sandbox, "select open_sinks from retoma.runs where id = $1", run) == 1


Act = Callable[[Sandbox, UUID, Review], Awaitable[Any]]


async def approves(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await sandbox.client.decide(review.id, APPROVE)


async def sends_back(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await sandbox.client.decide(review.id, BACK)


async def rejects(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await sandbox.client.decide(review.id, REJECT)


async def cancels(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await sandbox.client.cancel(run)


async def reruns_text(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await sandbox.client.rerun(run, "text")


async def reruns_pictures(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await sandbox.client.rerun(run, "picture", items=["b"])


async def reruns_words(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await sandbox.client.rerun(run, "words")


async def ticks(sandbox: Sandbox, run: UUID, review: Review) -> Any:
    return await workers.promote(sandbox.database, 100)


async def raced(open_sandbox: OpenSandbox, *acts: Act, late: bool = False) -> list[str]:
    """These acts while three workers make the pictures, again and again; gives how the runs ended."""
    ends = []
    async with open_sandbox(article()) as sandbox, many_hands(sandbox, 3) as hands:
        for _ in range(TIMES):
            run, review = await at_the_review(sandbox, hands[0])
            if late:
                await sandbox.clock.advance(hours(1.01))
            await at_once(*(act(sandbox, run, review) for act in acts), *map(do_all, hands))
            ends.append(await ends_well(sandbox, run))
    return ends


async def test_a_decision_and_a_cancel_at_once_leave_nothing_alive(open_sandbox: OpenSandbox) -> None:
    for decides in (approves, sends_back):
        ends = await raced(open_sandbox, decides, cancels)
        assert set(ends) <= {"completed", "cancelled"}


async def test_a_rejection_and_a_cancel_at_once_have_one_winner(open_sandbox: OpenSandbox) -> None:
    assert set(await raced(open_sandbox, rejects, cancels)) <= {"rejected", "cancelled"}


async def test_a_decision_and_a_rerun_at_once_let_the_run_go_on(open_sandbox: OpenSandbox) -> None:
    for decides in (approves, sends_back):
        for reruns in (reruns_text, reruns_pictures, reruns_words):
            assert set(await raced(open_sandbox, decides, reruns)) == {"completed"}


async def test_a_decision_and_the_expiry_at_once_have_one_effect(open_sandbox: OpenSandbox) -> None:
    for decides in (approves, sends_back):
        assert set(await raced(open_sandbox, decides, ticks, ticks, late=True)) == {"completed"}


async def test_many_decisions_at_once_have_one_effect(open_sandbox: OpenSandbox) -> None:
    assert set(await raced(open_sandbox, approves, sends_back, approves, sends_back)) == {"completed"}


async def test_reruns_at_once_let_the_run_go_on(open_sandbox: OpenSandbox) -> None:
    assert set(await raced(open_sandbox, reruns_text, reruns_text, reruns_words, reruns_pictures)) == {"completed"}


async def test_what_ends_just_as_a_review_opens_lets_the_run_stand_still_by_the_next_look(
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
        lane, other = await a_lane(sandbox), await a_lane(sandbox)
        run = (await sandbox.client.start("article")).id
        (mine,), (theirs,) = await lane.call(room=1, queues=["default"]), await other.call(room=1, queues=["other"])
        async with not_yet_committed(sandbox, lane, [result(mine)]) as commit:
            await other.call([result(theirs)])
            await commit()
        await sandbox.clock.advance(hours(0.001))
        await workers.promote(sandbox.database, 100)
        assert await state(sandbox, run) == "paused"


async def test_the_last_two_that_end_beside_a_review_let_the_run_stand_still(open_sandbox: OpenSandbox) -> None:
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
        lane, other = await a_lane(sandbox), await a_lane(sandbox)
        run = (await sandbox.client.start("article")).id
        claims = {claim.step: claim for claim in await lane.call(room=3)}
        await lane.call([result(claims.pop("text")), SetBack(claims.pop("right"), "back")])
        (theirs,) = await other.call(room=1)
        async with not_yet_committed(sandbox, lane, [result(claims["left"])]) as commit:
            ending = asyncio.create_task(other.call([result(theirs)]))
            await until(lambda: is_blocked(sandbox, "exchange"))
            await commit()
            await ending
        assert await state(sandbox, run) == "paused"


async def test_a_decision_waits_for_what_ends_just_now_and_the_run_goes_on(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(article()) as sandbox, many_hands(sandbox, 1) as (hands,):
        run, review = await at_the_review(sandbox, hands)
        lane = await a_lane(sandbox)
        claims = await lane.call(room=3)
        async with not_yet_committed(sandbox, lane, [result(claim) for claim in claims]) as commit:
            deciding = asyncio.create_task(sandbox.client.decide(review.id, APPROVE))
            await until(lambda: is_blocked(sandbox, "decide_review"))
            await commit()
            assert (await deciding).state is ReviewState.APPROVED
        assert await state(sandbox, run) == "running"
        assert await ends_well(sandbox, run) == "completed"


def result(claim: Claim) -> Result:
    return Result(claim, '"done"')
