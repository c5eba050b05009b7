from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, ValidationInfo, create_model, field_validator

from retoma import App, Context, GiveUp, Items, NeedsReview, Pipeline, Retry, hours, minutes
from retoma.client import Client
from retoma.errors import AlreadyDecided, Conflict, DefinitionError, FeedbackNotSupported, InvalidInput, KeyReused
from retoma.records import Review
from retoma.reviews import Comment, Decision, Feedback
from retoma.states import ReviewState, RunState
from retoma.store import workers
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import rows, value

APPROVE = Decision("approve", by="ana")
Opened = Callable[[Pipeline], Awaitable[Sandbox]]


@pytest.fixture
async def open_lasting_sandbox(open_sandbox: OpenSandbox) -> AsyncIterator[Opened]:
    """Opens a sandbox that stays open until the test has ended."""
    async with AsyncExitStack() as stack:
        yield lambda pipeline: stack.enter_async_context(open_sandbox(pipeline))


class Brief(BaseModel):
    topic: str = "café"


class Choice(BaseModel):
    thumbnail: int
    title: str = "as it is"


class FeedbackForm(BaseModel):
    """A tone, which only an outline has."""

    tone: str = ""

    @field_validator("tone")
    @classmethod
    def _has_one(cls, tone: str, info: ValidationInfo) -> str:
        about = info.context or {}
        if about["to"] != "outline":
            raise ValueError(f"{about['to']} of {about['review'].tenant} have none")
        return tone


class World:
    """How often each step ran, and the feedback it received."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.feedback: dict[str, Any] = {}


def article(world: World, **options: Any) -> Pipeline:
    """An outline that a person approves, and a draft of it."""
    pipeline = Pipeline("article", Brief, retry=Retry(0))

    @pipeline.step
    def facts(topic: str) -> list[str]:
        world.called.append("facts")
        return [topic]

    @pipeline.step
    def outline(facts: list[str], *, ctx: Context) -> str:
        world.called.append("outline")
        world.feedback["outline"] = ctx.feedback
        return f"outline of {facts[0]} #{world.called.count('outline')}"

    pipeline.review("approved_outline", of=outline, **{"send_back_to": [outline, facts], **options})

    @pipeline.step
    def draft(approved_outline: str) -> str:
        world.called.append("draft")
        return f"draft of {approved_outline}"

    return pipeline


async def start_until_review(sandbox: Sandbox, inputs: Any = None) -> Review:
    """A run that has come to its review."""
    started = await sandbox.client.start("article", inputs)
    await sandbox.work(advance_clock=False)
    (review,) = await sandbox.client.reviews.list(run=started.id)
    return review


async def test_a_run_waits_for_a_person_without_a_worker_and_continues_when_approved(
    open_lasting_sandbox: Opened,
) -> None:
    world = World()
    sandbox = await open_lasting_sandbox(article(world))
    review = await start_until_review(sandbox)
    assert (await sandbox.client.runs.get(review.run)).state is RunState.PAUSED
    assert (review.step, review.state, review.planned) == ("approved_outline", ReviewState.OPEN, True)
    subjects = await sandbox.client.reviews.get_subjects(review)
    assert subjects["outline"].value == "outline of café #1"
    decided = await sandbox.client.reviews.decide(review.id, APPROVE)
    assert (decided.state, decided.decided_by) == (ReviewState.APPROVED, "ana")
    await sandbox.work()
    assert (await sandbox.client.runs.get(review.run)).state is RunState.COMPLETED
    assert (await sandbox.client.runs.get_results(review.run))["draft"] == "draft of outline of café #1"


async def test_a_review_opens_in_the_transaction_that_finishes_its_subject(open_lasting_sandbox: Opened) -> None:
    sandbox = await open_lasting_sandbox(article(World()))
    started = await sandbox.client.start("article")
    async with sandbox.manual_worker() as worker:
        for _ in range(2):
            await worker.record_outcomes(await worker.attempt(await worker.claim()))
    (review,) = await sandbox.client.reviews.list()
    assert review.run == started.id
    assert (await sandbox.client.runs.get(started.id)).state is RunState.PAUSED
    written = """
        select count(distinct xmin::text)
          from (select xmin from retoma.runs where id = $1
                union all select xmin from retoma.reviews where run = $1
                union all select xmin from retoma.jobs where run = $1 and step = 'outline') as rows
    """
    assert await value(sandbox, written, started.id) == 1


async def test_a_run_continues_with_the_edited_result(open_lasting_sandbox: Opened) -> None:
    sandbox = await open_lasting_sandbox(article(World()))
    review = await start_until_review(sandbox)
    await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana", value="my own"))
    await sandbox.work()
    results = await sandbox.client.runs.get_results(review.run)
    assert (results["approved_outline"], results["draft"]) == ("my own", "draft of my own")
    assert results["outline"] == "outline of café #1"


@pytest.mark.parametrize(
    "more",
    [
        {"comments": [Comment("a\x00")]},
        {"comments": [Comment("\ud800")]},
        {"comments": [Comment("x", at=float("nan"))]},
        {"comments": [Comment("x" * 1_000_001)]},
        {"extra": {"tone": "\x00"}},
    ],
    ids=["NUL", "half a character", "no number", "too large", "NUL in the form"],
)
async def test_invalid_feedback_is_rejected(open_lasting_sandbox: Opened, more: dict[str, Any]) -> None:
    sandbox = await open_lasting_sandbox(article(World(), feedback_form=create_model("Wishes", tone=(str, ""))))
    review = await start_until_review(sandbox)
    with pytest.raises(InvalidInput):
        await sandbox.client.reviews.decide(
            review.id, Decision("send_back", by="ana", notes="x", undo=minutes(1), **more)
        )
    with pytest.raises(InvalidInput):
        await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana", value="x" * 1_000_001))
    assert (await sandbox.client.reviews.get(review.id)).is_open
    kept = Decision("send_back", by="ana", notes="x", comments=[Comment("C:\\u0000")])
    assert (await sandbox.client.reviews.decide(review.id, kept)).state is ReviewState.SENT_BACK


async def test_a_decision_that_cannot_take_effect_does_not_block_others(open_lasting_sandbox: Opened) -> None:
    sandbox = await open_lasting_sandbox(article(World()))
    bad, good = await start_until_review(sandbox), await start_until_review(sandbox)
    await sandbox.client.reviews.decide(bad.id, Decision("send_back", by="ana", notes="x", undo=minutes(1)))
    await sandbox.client.reviews.decide(good.id, Decision("approve", by="ana", undo=minutes(1)))
    await rows(sandbox, 'update retoma.reviews set feedback = \'{"a": "\\u0000"}\' where id = $1', bad.id)
    await sandbox.clock.advance(minutes(2))
    await sandbox.work(advance_clock=False)
    assert (await sandbox.client.runs.get(good.run)).state is RunState.COMPLETED
    assert (await sandbox.client.reviews.get(bad.id)).applied_at is None
    await sandbox.client.reviews.undo(bad.id, by="ana")
    await sandbox.client.reviews.decide(bad.id, APPROVE)
    await sandbox.work()
    assert (await sandbox.client.runs.get(bad.run)).state is RunState.COMPLETED


async def test_a_reminder_that_became_due_during_an_undo_window_is_sent_later(open_lasting_sandbox: Opened) -> None:
    sandbox = await open_lasting_sandbox(article(World(), remind=hours(1), escalate=hours(2), escalate_to="bea"))
    review = await start_until_review(sandbox)
    await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana", undo=hours(1)))
    await sandbox.clock.advance(minutes(59))
    await sandbox.client.reviews.undo(review.id, by="ana")
    await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana", undo=hours(1)))
    await sandbox.clock.advance(minutes(59))
    await sandbox.client.reviews.undo(review.id, by="ana")
    await sandbox.work(advance_clock=False)
    events = await sandbox.client.runs.list_job_events(review.run, "approved_outline", "")
    assert [event.data["what"] for event in reversed(events)][-1] == "reminded"
    await sandbox.clock.advance(minutes(5))
    await sandbox.work(advance_clock=False)
    assert (await sandbox.client.reviews.get(review.id)).assignee == "bea"


async def test_an_edit_of_the_wrong_type_is_rejected_and_the_review_stays_open(open_lasting_sandbox: Opened) -> None:
    sandbox = await open_lasting_sandbox(article(World()))
    review = await start_until_review(sandbox)
    with pytest.raises(InvalidInput, match="approved_outline"):
        await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana", value=["no text"]))
    assert (await sandbox.client.reviews.get(review.id)).is_open


@pytest.mark.parametrize("parallel", [(), ("languages",)])
async def test_a_list_that_cannot_be_fanned_out_is_rejected_and_the_review_stays_open(
    open_lasting_sandbox: Opened, parallel: tuple[str, ...]
) -> None:
    pipeline = Pipeline("article")

    @pipeline.step
    def dishes() -> list[str]:
        return ["arroz", "feijão"]

    @pipeline.step
    def languages() -> list[str]:
        return ["pt"]

    pipeline.review("good_dishes", of=dishes)
    if parallel:

        @pipeline.each("good_dishes", "languages")
        def recipe(good_dish: str, language: str) -> str:
            return good_dish
    else:

        @pipeline.each("good_dishes")
        def photo(good_dish: str) -> str:
            return good_dish

    sandbox = await open_lasting_sandbox(pipeline)
    review = await start_until_review(sandbox)
    with pytest.raises(InvalidInput, match="have the key 'arroz'"):
        await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana", value=["arroz", "arroz"]))
    assert (await sandbox.client.reviews.get(review.id)).is_open


async def test_a_feedback_form_knows_the_target_step(open_lasting_sandbox: Opened) -> None:
    sandbox = await open_lasting_sandbox(article(World(), feedback_form=FeedbackForm))
    review = await start_until_review(sandbox)
    calm = Decision("send_back", by="ana", extra={"tone": "calm"})
    with pytest.raises(InvalidInput, match=r"not valid feedback for .*: tone: facts of default have none$"):
        await sandbox.client.reviews.decide(review.id, replace(calm, to="facts"))
    assert (await sandbox.client.reviews.decide(review.id, calm)).back_to == "outline"


async def test_work_that_is_sent_back_is_rerun_with_the_feedback(open_lasting_sandbox: Opened) -> None:
    world = World()
    sandbox = await open_lasting_sandbox(article(world))
    review = await start_until_review(sandbox)
    await sandbox.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="shorter"))
    await sandbox.work(advance_clock=False)
    assert world.called == ["facts", "outline", "outline"]
    assert (world.feedback["outline"].notes, world.feedback["outline"].by) == ("shorter", "ana")
    (again,) = await sandbox.client.reviews.list(run=review.run)
    assert (again.revision, again.times_sent_back) == (2, 1)
    assert (await sandbox.client.reviews.get_subjects(again))["outline"].value == "outline of café #2"
    await sandbox.client.reviews.decide(again.id, APPROVE)
    await sandbox.work()
    assert (await sandbox.client.runs.get_results(review.run))["draft"] == "draft of outline of café #2"
    assert [made.output for made in await sandbox.client.runs.get_step_history(review.run, "outline")] == [
        "outline of café #2",
        "outline of café #1",
    ]


async def test_work_may_be_sent_back_to_an_earlier_step_and_unchanged_results_are_reused(
    open_lasting_sandbox: Opened,
) -> None:
    world = World()
    sandbox = await open_lasting_sandbox(article(world))
    review = await start_until_review(sandbox)
    await sandbox.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="check", to="facts"))
    await sandbox.work(advance_clock=False)
    assert world.called == ["facts", "outline", "facts"]
    assert await sandbox.client.reviews.list(run=review.run, states=[ReviewState.OPEN])
    (kept, _) = await sandbox.client.runs.get_step_history(review.run, "outline")
    assert (kept.revision, kept.reused_from) == (2, 1)


async def test_a_review_may_only_send_back_to_the_steps_of_its_pipeline_definition(
    open_lasting_sandbox: Opened,
) -> None:
    sandbox = await open_lasting_sandbox(article(World()))
    review = await start_until_review(sandbox)
    with pytest.raises(InvalidInput, match="can be sent back to 'outline', 'facts', not to"):
        await sandbox.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="x", to="draft"))


async def test_a_review_without_steps_to_send_back_to_can_only_be_approved_or_rejected(
    open_lasting_sandbox: Opened,
) -> None:
    sandbox = await open_lasting_sandbox(article(World(), send_back_to=None))
    review = await start_until_review(sandbox)
    assert review.can_send_back_to == ()
    for step in (None, "outline"):
        with pytest.raises(InvalidInput, match="'approved_outline' cannot be sent back: approve or reject it"):
            await sandbox.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="x", to=step))
    await sandbox.client.reviews.decide(review.id, APPROVE)


async def test_the_number_of_send_backs_is_limited(open_lasting_sandbox: Opened) -> None:
    sandbox = await open_lasting_sandbox(article(World(), max_revisions=1))
    review = await start_until_review(sandbox)
    await sandbox.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="again"))
    await sandbox.work(advance_clock=False)
    (again,) = await sandbox.client.reviews.list(run=review.run)
    with pytest.raises(Conflict, match="which is its limit: approve it"):
        await sandbox.client.reviews.decide(again.id, Decision("send_back", by="ana", notes="again"))
    await sandbox.client.reviews.decide(again.id, APPROVE)


async def test_a_rejected_run_ends_as_rejected_and_not_as_failed(open_lasting_sandbox: Opened) -> None:
    world = World()
    sandbox = await open_lasting_sandbox(article(world))
    review = await start_until_review(sandbox)
    await sandbox.client.reviews.decide(review.id, Decision("reject", by="ana", notes="off topic"))
    await sandbox.work()
    assert (await sandbox.client.runs.get(review.run)).state is RunState.REJECTED
    assert "draft" not in world.called


@pytest.mark.parametrize("action", ["reject", "send_back"])
async def test_a_rejection_or_send_back_needs_a_reason(open_lasting_sandbox: Opened, action: str) -> None:
    sandbox = await open_lasting_sandbox(article(World()))
    review = await start_until_review(sandbox)
    with pytest.raises(InvalidInput, match="notes"):
        await sandbox.client.reviews.decide(review.id, Decision(action, by="ana"))


async def test_fifty_concurrent_decisions_have_one_winner_that_all_others_see(open_lasting_sandbox: Opened) -> None:
    world = World()
    sandbox = await open_lasting_sandbox(article(world))
    review = await start_until_review(sandbox)
    actions = [
        Decision(("approve", "reject", "send_back")[n % 3], by=f"person {n}", notes="because", key=str(n))
        for n in range(50)
    ]
    ended = await asyncio.gather(
        *(sandbox.client.reviews.decide(review.id, decision) for decision in actions), return_exceptions=True
    )
    winners = [one for one in ended if isinstance(one, Review)]
    assert len(winners) == 1
    losers = [one for one in ended if isinstance(one, AlreadyDecided)]
    assert len(losers) == 49
    assert {one.winner.decided_by for one in losers} == {winners[0].decided_by}


async def test_a_repeated_decision_gets_the_same_answer(open_lasting_sandbox: Opened) -> None:
    sandbox = await open_lasting_sandbox(article(World()))
    review = await start_until_review(sandbox)
    decision = Decision("approve", by="ana", key="k")
    first = await sandbox.client.reviews.decide(review.id, decision)
    again = await sandbox.client.reviews.decide(review.id, decision)
    assert (first.decided_at, first.state) == (again.decided_at, again.state)
    with pytest.raises(AlreadyDecided):
        await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana", key="other"))


async def test_a_key_is_for_one_decision(open_lasting_sandbox: Opened) -> None:
    sandbox = await open_lasting_sandbox(article(World(), feedback_form=create_model("Wishes", tone=(str, ""))))
    edited, returned = await start_until_review(sandbox), await start_until_review(sandbox)
    edit = Decision("approve", by="ana", key="k", value="mine")
    back = Decision("send_back", by="ana", key="k", notes="shorter", extra={"tone": "calm"})
    await sandbox.client.reviews.decide(edited.id, edit)
    await sandbox.client.reviews.decide(returned.id, back)
    for review, other in [
        (edited, replace(edit, value="other")),
        (edited, replace(edit, notes="good")),
        (edited, Decision("reject", by="ana", key="k", notes="bad")),
        (returned, replace(back, to="facts")),
        (returned, replace(back, extra={"tone": "loud"})),
        (returned, replace(back, items=["a"])),
    ]:
        with pytest.raises(KeyReused):
            await sandbox.client.reviews.decide(review.id, other)
    with pytest.raises(AlreadyDecided):
        await sandbox.client.reviews.decide(edited.id, replace(edit, by="bea"))
    assert (await sandbox.client.reviews.decide(edited.id, edit)).value == "mine"
    assert (await sandbox.client.reviews.decide(returned.id, replace(back, to="outline"))).back_to == "outline"


async def test_a_decision_on_another_revision_than_the_one_seen_is_rejected(open_lasting_sandbox: Opened) -> None:
    sandbox = await open_lasting_sandbox(article(World()))
    review = await start_until_review(sandbox)
    with pytest.raises(Conflict, match="look at it again"):
        await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana", seen=7))


async def test_a_decision_can_be_undone_until_it_takes_effect(open_lasting_sandbox: Opened) -> None:
    world = World()
    sandbox = await open_lasting_sandbox(article(world))
    review = await start_until_review(sandbox)
    later = Decision("approve", by="ana", undo=timedelta(seconds=10))
    await sandbox.client.reviews.decide(review.id, later)
    await sandbox.work(advance_clock=False)
    assert "draft" not in world.called
    for _ in range(2):  # the second time because the first answer was lost
        assert (await sandbox.client.reviews.undo(review.id, by="ana")).is_open
    await sandbox.client.reviews.decide(review.id, later)
    await sandbox.clock.advance(timedelta(seconds=11))
    await sandbox.work(advance_clock=False)
    assert "draft" in world.called
    with pytest.raises(Conflict, match="cannot be undone"):
        await sandbox.client.reviews.undo(review.id, by="ana")


async def test_an_undone_decision_repeated_with_its_key_is_not_applied_again(open_lasting_sandbox: Opened) -> None:
    sandbox = await open_lasting_sandbox(article(World()))
    review = await start_until_review(sandbox)
    decision = Decision("approve", by="ana", key="k", undo=timedelta(minutes=1))
    await sandbox.client.reviews.decide(review.id, decision)
    await sandbox.client.reviews.undo(review.id, by="ana")
    assert (await sandbox.client.reviews.decide(review.id, decision)).is_open
    with pytest.raises(KeyReused):
        await sandbox.client.reviews.decide(review.id, replace(decision, value="mine"))
    with pytest.raises(KeyReused):
        await sandbox.client.reviews.decide(review.id, replace(decision, by="bea"))
    other = await sandbox.client.reviews.decide(review.id, Decision("reject", by="bea", key="b", notes="bad"))
    assert await sandbox.client.reviews.decide(review.id, decision) == other


async def test_a_cancelled_run_withdraws_its_reviews_and_voids_pending_decisions(
    open_lasting_sandbox: Opened,
) -> None:
    sandbox = await open_lasting_sandbox(article(World()))
    open_one, decided = await start_until_review(sandbox), None
    decided = await start_until_review(sandbox, {"topic": "chá"})
    await sandbox.client.reviews.decide(decided.id, Decision("approve", by="ana", undo=timedelta(seconds=10)))
    for review in (open_one, decided):
        assert await sandbox.client.runs.cancel(review.run) is RunState.CANCELLED
        assert (await sandbox.client.reviews.get(review.id)).state is ReviewState.WITHDRAWN
    with pytest.raises(AlreadyDecided):
        await sandbox.client.reviews.decide(open_one.id, APPROVE)


async def test_a_form_produces_the_result_and_an_incomplete_form_is_rejected(open_lasting_sandbox: Opened) -> None:
    pipeline = Pipeline("article", Brief)

    @pipeline.step
    def video(topic: str) -> str:
        return f"video of {topic}"

    @pipeline.step
    def thumbnails(topic: str) -> list[str]:
        return ["one", "two"]

    pipeline.review("final", of=[video, thumbnails], form=Choice)

    @pipeline.step
    def upload(video: str, thumbnails: list[str], final: Choice) -> str:
        return f"{video} with {thumbnails[final.thumbnail]}"

    sandbox = await open_lasting_sandbox(pipeline)
    review = await start_until_review(sandbox)
    with pytest.raises(InvalidInput, match=r"not a valid result for 'final': thumbnail: Field required$"):
        await sandbox.client.reviews.decide(review.id, APPROVE)
    await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana", value={"thumbnail": 1}))
    await sandbox.work()
    assert (await sandbox.client.runs.get_results(review.run))["upload"] == "video of café with two"
    with pytest.raises(InvalidInput, match=r"for 'final': thumbnail: Input should be a valid integer$"):
        await sandbox.client.runs.edit(review.run, "final", {"thumbnail": None})


async def test_a_value_is_rejected_if_its_type_is_unknown(open_lasting_sandbox: Opened) -> None:
    sandbox = await open_lasting_sandbox(article(World()))
    review = await start_until_review(sandbox)
    edited = Decision("approve", by="ana", value="mine")
    with pytest.raises(InvalidInput, match="no application that defines pipeline 'article'"):
        await Client(None, sandbox.database).reviews.decide(review.id, edited)
    changed = Pipeline("article", Brief)

    @changed.step
    def facts(topic: str) -> list[str]:
        return [topic]

    with pytest.raises(InvalidInput, match=f"'article' no longer has a step '{review.step}'"):
        await Client(App("changed", pipelines=[changed]), sandbox.database).reviews.decide(review.id, edited)
    assert (await sandbox.client.reviews.get(review.id)).is_open


async def test_only_doubtful_items_are_reviewed_individually(open_lasting_sandbox: Opened) -> None:
    made: list[str] = []
    pipeline = Pipeline("article", Brief)

    @pipeline.step
    def documents(topic: str) -> list[str]:
        return ["a", "b", "c"]

    @pipeline.each(documents)
    def label(document: str) -> str:
        made.append(document)
        return f"{document}{made.count(document)}"

    pipeline.review("sure", of=label, when=lambda label: label != "a1")

    @pipeline.step
    def report(sure: Items[str]) -> list[str]:
        return list(sure)

    sandbox = await open_lasting_sandbox(pipeline)
    started = await sandbox.client.start("article")
    await sandbox.work(advance_clock=False)
    first, second = await sandbox.client.reviews.list(run=started.id)
    assert sorted((first.item, second.item)) == ["b", "c"]
    await sandbox.client.reviews.decide(first.id, Decision("send_back", by="ana", notes="again"))
    await sandbox.client.reviews.decide(second.id, Decision("approve", by="ana", value="mine"))
    await sandbox.work(advance_clock=False)
    assert sorted(made) == sorted(["a", "b", "c", first.item])
    (again,) = await sandbox.client.reviews.list(run=started.id)
    await sandbox.client.reviews.decide(again.id, APPROVE)
    await sandbox.work()
    assert (await sandbox.client.runs.get(started.id)).state is RunState.COMPLETED
    expected = {"a": "a1", first.item: f"{first.item}2", second.item: "mine"}
    assert (await sandbox.client.runs.get_results(started.id))["report"] == [expected[key] for key in "abc"]


async def test_a_step_may_ask_for_help_and_a_person_accepts_its_result(open_lasting_sandbox: Opened) -> None:
    pipeline = Pipeline("article", Brief)

    @pipeline.step
    def price(topic: str) -> int:
        raise NeedsReview("this looks too high", value=900, code="HIGH")

    @pipeline.step
    def offer(price: int) -> str:
        return f"for {price}"

    sandbox = await open_lasting_sandbox(pipeline)
    review = await start_until_review(sandbox)
    assert (await sandbox.client.runs.get(review.run)).state is RunState.NEEDS_REVIEW
    assert (review.planned, review.reason["code"], review.reason["message"]) == (False, "HIGH", "this looks too high")
    await sandbox.client.reviews.decide(review.id, APPROVE)
    await sandbox.work()
    assert (await sandbox.client.runs.get_results(review.run))["offer"] == "for 900"


@pytest.mark.parametrize("action", ["approve", "send_back", "reject"])
async def test_a_failure_may_ask_a_person_instead_of_stopping_the_run(
    open_lasting_sandbox: Opened, action: str
) -> None:
    calls: list[str] = []
    pipeline = Pipeline("article", Brief, retry=Retry(0))

    @pipeline.step(on_failure="review")
    def picture(topic: str) -> str:
        calls.append("picture")
        if len(calls) == 1:
            raise GiveUp("no picture", code="NO_PICTURE")
        return "picture"

    @pipeline.step
    def page(topic: str, picture: str = "none") -> str:
        return f"page with {picture}"

    sandbox = await open_lasting_sandbox(pipeline)
    review = await start_until_review(sandbox)
    assert review.reason["code"] == "NO_PICTURE"
    await sandbox.client.reviews.decide(review.id, Decision(action, by="ana", notes="so"))
    await sandbox.work()
    run = await sandbox.client.runs.get(review.run)
    expected = {
        "approve": (RunState.COMPLETED, "page with none"),
        "send_back": (RunState.COMPLETED, "page with picture"),
        "reject": (RunState.REJECTED, None),
    }
    assert (run.state, (await sandbox.client.runs.get_results(run.id)).get("page")) == expected[action]


async def test_a_review_reminds_then_is_escalated_then_expires_with_its_default(open_lasting_sandbox: Opened) -> None:
    world = World()
    pipeline = article(
        world,
        due=hours(2),
        remind=hours(1),
        escalate=hours(3),
        escalate_to="chief",
        expires=hours(4),
        on_expiry="approved",
        assignee="ana",
    )
    sandbox = await open_lasting_sandbox(pipeline)
    review = await start_until_review(sandbox)
    assert review.due_at == review.opened_at + timedelta(hours=2)
    await sandbox.clock.advance(timedelta(hours=3, minutes=1))
    await sandbox.work(advance_clock=False)
    assert (await sandbox.client.reviews.get(review.id)).assignee == "chief"
    await sandbox.clock.advance(timedelta(hours=1))
    await sandbox.work(advance_clock=False)
    assert (await sandbox.client.reviews.get(review.id)).state is ReviewState.EXPIRED
    assert (await sandbox.client.runs.get(review.run)).state is RunState.COMPLETED
    events = await sandbox.client.runs.list_events(review.run, kinds=["review"])
    assert [event.data["what"] for event in events] == ["opened", "escalated", "reminded", "expired"]


async def test_an_expired_review_stays_approved_if_its_policy_changes_before_a_worker_continues(
    open_lasting_sandbox: Opened,
) -> None:
    sandbox = await open_lasting_sandbox(article(World(), expires=hours(1), on_expiry="approved"))
    review = await start_until_review(sandbox)
    async with sandbox.manual_worker() as worker:
        await sandbox.clock.advance(hours(1))
        await workers.release_due_jobs(sandbox.database, 100)
        claims = await worker.claim(1)
        changed = """update retoma.steps set review = jsonb_set(review::jsonb, '{on_expiry}', '"rejected"')::json
                      where review is not null"""
        await rows(sandbox, changed)
        await worker.record_outcomes(await worker.attempt(claims))
    await sandbox.work()
    assert (await sandbox.client.runs.get(review.run)).state is RunState.COMPLETED


async def test_a_run_is_not_paused_while_another_branch_can_proceed(open_lasting_sandbox: Opened) -> None:
    pipeline = Pipeline("article", Brief)

    @pipeline.step
    def text(topic: str) -> str:
        return "text"

    @pipeline.step(queue="slow")
    def pictures(topic: str) -> str:
        return "pictures"

    pipeline.review("approved", of=text)

    @pipeline.step
    def page(approved: str, pictures: str) -> str:
        return approved + pictures

    sandbox = await open_lasting_sandbox(pipeline)
    started = await sandbox.client.start("article")
    async with sandbox.manual_worker() as worker:
        await worker.record_outcomes(await worker.attempt(await worker.claim(queues=["default"])))
        assert (await sandbox.client.runs.get(started.id)).state is RunState.RUNNING
        await worker.record_outcomes(await worker.attempt(await worker.claim(queues=["slow"])))
    assert (await sandbox.client.runs.get(started.id)).state is RunState.PAUSED


async def test_a_batch_of_decisions_reports_each_outcome(open_lasting_sandbox: Opened) -> None:
    sandbox = await open_lasting_sandbox(article(World()))
    first, second = await start_until_review(sandbox), await start_until_review(sandbox, {"topic": "chá"})
    await sandbox.client.reviews.decide(second.id, Decision("reject", by="rui", notes="no"))
    one, other = await sandbox.client.reviews.decide_many({first.id: APPROVE, second.id: APPROVE})
    assert one.current is not None
    assert one.current.state is ReviewState.APPROVED
    assert isinstance(other.error, AlreadyDecided)


async def test_others_see_who_is_viewing_a_review_and_may_still_decide_it(open_lasting_sandbox: Opened) -> None:
    sandbox = await open_lasting_sandbox(article(World()))
    review = await start_until_review(sandbox)
    assert await sandbox.client.reviews.claim(review.id, by="ana", duration=minutes(5)) == "ana"
    assert await sandbox.client.reviews.claim(review.id, by="rui", duration=minutes(5)) == "ana"
    assert (await sandbox.client.reviews.get(review.id)).claimed_by == "ana"
    await sandbox.clock.advance(minutes(6))
    assert await sandbox.client.reviews.claim(review.id, by="rui", duration=minutes(5)) == "rui"
    assert (await sandbox.client.reviews.decide(review.id, APPROVE)).decided_by == "ana"


class Consent(BaseModel):
    sure: bool = False


@pytest.mark.parametrize("doubtful", [True, False])
async def test_a_form_that_nobody_fills_in_uses_its_defaults(open_lasting_sandbox: Opened, doubtful: bool) -> None:
    pipeline = Pipeline("article", Brief)

    @pipeline.step
    def text(topic: str) -> str:
        return topic

    pipeline.review(
        "consent", of=text, form=Consent, when=lambda text: doubtful, expires=hours(1), on_expiry="approved"
    )

    @pipeline.step
    def page(text: str, consent: Consent) -> str:
        return f"{text} {consent.sure}"

    sandbox = await open_lasting_sandbox(pipeline)
    run = await sandbox.run("article")
    assert (run.state, run.results["page"]) == (RunState.COMPLETED, "café False")


async def test_a_form_without_complete_defaults_needs_a_person(open_lasting_sandbox: Opened) -> None:
    pipeline = Pipeline("article", Brief)

    @pipeline.step
    def text(topic: str) -> str:
        return topic

    with pytest.raises(DefinitionError, match="its feedback_form requires 'thumbnail'"):
        article(World(), feedback_form=Choice)
    with pytest.raises(DefinitionError, match="feedback already has 'notes'"):
        article(World(), feedback_form=create_model("Wishes", notes=(str, "")))
    with pytest.raises(DefinitionError, match="its form requires 'thumbnail'"):
        pipeline.review("final", of=text, form=Choice, expires=hours(1), on_expiry="approved")


def test_a_condition_takes_only_the_subject_of_the_review() -> None:
    pipeline = Pipeline("article", Brief)

    @pipeline.step
    def text(topic: str) -> str:
        return topic

    with pytest.raises(DefinitionError, match=r"when= takes 'texts'.* did you mean 'text'"):
        pipeline.review("sure", of=text, when=lambda texts: True)


async def test_feedback_is_rejected_before_it_is_recorded_if_its_step_cannot_follow_it(
    open_sandbox: OpenSandbox,
) -> None:
    def only_shorter(feedback: Feedback, facts: list[str], *, words: list[str]) -> None:
        if feedback.notes not in words:
            raise FeedbackNotSupported(f"with {len(facts)} facts it can be made {words}")

    pipeline = Pipeline("followed")

    @pipeline.step
    def facts() -> list[str]:
        return ["a", "b"]

    @pipeline.step(feedback=only_shorter)
    def text(facts: list[str]) -> str:
        return "text"

    pipeline.review("check", of=text)
    async with open_sandbox(pipeline, resources={"words": ["shorter"]}) as sandbox:
        run = await sandbox.run(pipeline)
        (review,) = await sandbox.client.reviews.list(run=run.id)
        with pytest.raises(FeedbackNotSupported, match=r"with 2 facts it can be made \['shorter'\]"):
            await sandbox.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="funnier"))
        assert (await sandbox.client.reviews.get(review.id)).is_open
        back = Decision("send_back", by="ana", notes="shorter", key="1")
        decided = await sandbox.client.reviews.decide(review.id, back)
        sandbox.app.resources[
            "words"
        ] = []  # the same decision again is answered as before, whatever can be followed now
        assert await sandbox.client.reviews.decide(review.id, back) == decided


def test_a_feedback_check_that_reads_a_missing_parameter_is_an_error() -> None:
    pipeline = Pipeline("wrong")
    with pytest.raises(DefinitionError, match="feedback= takes 'fact', which is neither an input nor a plain step"):

        @pipeline.step(feedback=lambda feedback, fact: None)
        def text() -> str:
            return "text"
