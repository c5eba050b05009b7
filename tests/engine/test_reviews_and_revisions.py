"""Interactions of reviews, lists and revisions: what a person requests while work is in progress."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from retoma import Context, GiveUp, Items, Pipeline, Retry, minutes
from retoma.errors import InvalidInput, RunBusy
from retoma.reviews import Decision
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import names, rows, run_next, state, states

APPROVE = Decision("approve", by="ana")


class Brief(BaseModel):
    topic: str = "tea"


class Word(BaseModel):
    key: str
    text: str


class World:
    def __init__(self) -> None:
        self.called: list[str] = []
        self.words = {"a": "first", "b": "second"}


def album(world: World) -> Pipeline:
    pipeline = Pipeline("album", Brief, retry=Retry(0))

    @pipeline.step
    def words(topic: str) -> list[Word]:
        world.called.append("words")
        return [Word(key=key, text=text) for key, text in world.words.items()]

    @pipeline.each(words, key=lambda word: word.key)
    def picture(word: Word) -> str:
        world.called.append(f"picture {word.key}")
        return f"picture of {word.text}"

    @pipeline.step
    def page(picture: Items[str]) -> str:
        return ", ".join(picture)

    return pipeline


def article() -> Pipeline:
    pipeline = Pipeline("article", Brief, retry=Retry(0))

    @pipeline.step
    def text(topic: str) -> str:
        return topic

    pipeline.review("approved", of=text)

    @pipeline.step(queue="slow")
    def picture(topic: str) -> str:
        return "picture"

    @pipeline.step
    def page(approved: str, picture: str) -> str:
        return f"{approved} with {picture}"

    return pipeline


async def run_to_completion(sandbox: Sandbox, world: World) -> Any:
    run = await sandbox.run("album")
    assert run.state == "completed"
    world.called.clear()
    return run.id


async def test_a_worker_cannot_claim_a_job_that_waits_for_a_person(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(article()) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start("article")
        claims = await worker.claim(1, queues=["default"])
        kept = await worker.record_outcomes(await worker.attempt(claims), limit=5)
        assert names(kept) == ["picture"]


async def test_a_run_is_running_again_as_soon_as_its_last_review_is_decided(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(article()) as sandbox:
        run = (await sandbox.client.start("article")).id
        await sandbox.work(advance_clock=False)
        assert await state(sandbox, run) == "paused"
        (review,) = await sandbox.client.reviews.list(run=run)
        await sandbox.client.reviews.decide(review.id, APPROVE)
        assert await state(sandbox, run) == "running"


async def test_a_rerun_waits_for_dependencies_that_are_still_running(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(article()) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start("article")).id
        held = await worker.claim(5, queues=["slow"])
        await run_next(worker, "text")
        (review,) = await sandbox.client.reviews.list(run=run)
        await sandbox.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="again"))
        await run_next(worker, "text")
        (again,) = await sandbox.client.reviews.list(run=run)
        await sandbox.client.reviews.decide(again.id, APPROVE)
        await run_next(worker, "approved")
        assert (await states(sandbox, run))["page"] == "waiting"
        await worker.record_outcomes(await worker.attempt(held))
        await run_next(worker, "page")
        assert await state(sandbox, run) == "completed"


async def test_an_item_whose_content_has_changed_is_rerun(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(album(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        world.words["b"] = "third"
        await sandbox.client.runs.rerun(run, "words")
        await sandbox.work()
        assert world.called == ["words", "picture b"]
        assert (await sandbox.client.runs.get_results(run))["page"] == "picture of first, picture of third"


async def test_a_list_and_its_items_may_be_rerun_by_one_action(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(album(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        world.words = {"b": "second", "c": "third"}
        await sandbox.client.runs.rerun(run, "words", "picture")
        await sandbox.work()
        assert sorted(world.called) == ["picture b", "picture c", "words"]
        assert await state(sandbox, run) == "completed"
        assert (await sandbox.client.runs.get_results(run))["page"] == "picture of second, picture of third"


@pytest.mark.parametrize("act", ["edit", "rerun"])
async def test_an_item_is_left_alone_while_its_list_reruns(open_sandbox: OpenSandbox, act: str) -> None:
    world = World()
    async with open_sandbox(album(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        await sandbox.client.runs.rerun(run, "words")
        edits = sandbox.client.runs.edit(run, "picture", "mine", item="a")
        reruns = sandbox.client.runs.rerun(run, "picture", items=["a"])
        chosen, other = (edits, reruns) if act == "edit" else (reruns, edits)
        other.close()
        with pytest.raises(RunBusy, match="is working on picture"):
            await chosen
        await sandbox.work()
        assert await state(sandbox, run) == "completed"


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_person_cannot_replace_a_list_whose_items_exist(open_sandbox: OpenSandbox, goes_on: bool) -> None:
    world = World()
    async with open_sandbox(album(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        with pytest.raises(RunBusy, match="rerun the step that returns the list"):
            await sandbox.client.runs.edit(run, "words", [{"key": "z", "text": "z"}], downstream=goes_on)
        assert (await sandbox.client.runs.get_results(run))["page"] == "picture of first, picture of second"


async def test_a_review_is_not_asked_again_about_an_identical_edited_result(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(article()) as sandbox:
        run = (await sandbox.client.start("article")).id
        await sandbox.work(advance_clock=False)
        (review,) = await sandbox.client.reviews.list(run=run)
        await sandbox.client.reviews.decide(review.id, APPROVE)
        await sandbox.work()
        await sandbox.client.runs.edit(run, "text", "tea", by="rui")
        assert await sandbox.client.reviews.list(run=run) == []
        await sandbox.work()
        assert await state(sandbox, run) == "completed"


async def test_a_run_that_reruns_only_one_review_waits_for_its_person(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(article()) as sandbox:
        run = (await sandbox.client.start("article")).id
        for expected in ("paused", "completed"):
            await sandbox.work(advance_clock=False)
            assert await state(sandbox, run) == expected
            for review in await sandbox.client.reviews.list(run=run):
                await sandbox.client.reviews.decide(review.id, APPROVE)
        await sandbox.client.runs.rerun(run, "approved", downstream=False)
        assert await state(sandbox, run) == "paused"
        (again,) = await sandbox.client.reviews.list(run=run)
        await sandbox.client.reviews.decide(again.id, APPROVE)
        await sandbox.work()
        assert await state(sandbox, run) == "completed"


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_run_whose_only_failure_a_person_resolves_is_completed(
    open_sandbox: OpenSandbox, goes_on: bool
) -> None:
    works: list[bool] = [False]
    pipeline = Pipeline("single", retry=Retry(0))

    @pipeline.step(on_failure="continue")
    def only() -> str:
        if not works[0]:
            raise GiveUp("no", code="NO")
        return "made"

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run("single")
        assert run.state == "completed_with_errors"
        await sandbox.client.runs.edit(run.id, "only", "mine", downstream=goes_on)
        assert await state(sandbox, run.id) == "completed"
        await sandbox.client.runs.rerun(run.id, "only", downstream=False)
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed_with_errors"
        works[0] = True
        await sandbox.client.runs.rerun(run.id, "only", downstream=False)
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed"


def shown_album(world: World, *, every_picture: bool) -> Pipeline:
    """Pictures that a person reviews one by one, or all at once."""
    pipeline = album(world)
    pipeline.review("good", of="picture" if every_picture else "page", send_back_to="picture")
    return pipeline


@pytest.mark.parametrize("items", [["nope"], [], ["a", "nope"]])
async def test_missing_items_cannot_be_sent_back(open_sandbox: OpenSandbox, items: list[str]) -> None:
    async with open_sandbox(shown_album(World(), every_picture=False)) as sandbox:
        await sandbox.client.start("album")
        await sandbox.work(advance_clock=False)
        (review,) = await sandbox.client.reviews.list()
        with pytest.raises(InvalidInput, match="'picture'"):
            await sandbox.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="x", items=items))
        assert (await sandbox.client.reviews.get(review.id)).is_open


async def test_the_review_of_an_item_cannot_send_back_another_item(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(shown_album(World(), every_picture=True)) as sandbox:
        await sandbox.client.start("album")
        await sandbox.work(advance_clock=False)
        of_a, _ = sorted(await sandbox.client.reviews.list(), key=lambda review: review.item)
        with pytest.raises(InvalidInput, match="would not lead back to 'good'"):
            await sandbox.client.reviews.decide(of_a.id, Decision("send_back", by="ana", notes="x", items=["b"]))
        await sandbox.client.reviews.decide(of_a.id, Decision("send_back", by="ana", notes="x", items=["a"]))
        await sandbox.work(advance_clock=False)
        assert {review.item for review in await sandbox.client.reviews.list()} == {"a", "b"}


async def test_a_step_without_items_cannot_send_items_back(open_sandbox: OpenSandbox) -> None:
    world = World()
    world.words.clear()
    async with open_sandbox(shown_album(world, every_picture=False)) as sandbox:
        await sandbox.client.start("album")
        await sandbox.work(advance_clock=False)
        (review,) = await sandbox.client.reviews.list()
        with pytest.raises(InvalidInput, match="would not lead back to 'good'"):
            await sandbox.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="x"))


async def test_a_review_reopens_if_the_work_to_send_back_is_gone(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(shown_album(world, every_picture=False)) as sandbox:
        run = (await sandbox.client.start("album")).id
        await sandbox.work(advance_clock=False)
        (review,) = await sandbox.client.reviews.list()
        later = Decision("send_back", by="ana", notes="x", items=["a"], undo=minutes(1))
        await sandbox.client.reviews.decide(review.id, later)
        await rows(sandbox, "update retoma.reviews set back_items = array['z']")  # as a new list would have it
        await sandbox.clock.advance(minutes(2))
        await sandbox.work(advance_clock=False)
        assert (await sandbox.client.reviews.get(review.id)).is_open
        assert await state(sandbox, run) == "paused"


@pytest.mark.parametrize("again", ["resume", "rerun_failed", "rerun"])
async def test_feedback_applies_until_the_work_has_a_result(open_sandbox: OpenSandbox, again: str) -> None:
    reported: list[str | None] = []
    pipeline = Pipeline("article", Brief, retry=Retry(0))

    @pipeline.step
    def text(topic: str, *, ctx: Context) -> str:
        reported.append(ctx.feedback.notes if ctx.feedback else None)
        if len(reported) == 2:
            raise GiveUp("not now")
        return f"{topic} {len(reported)}"

    pipeline.review("approved", of=text)
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start("article")).id
        await sandbox.work(advance_clock=False)
        (review,) = await sandbox.client.reviews.list()
        await sandbox.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="shorter"))
        await sandbox.work(advance_clock=False)
        assert await state(sandbox, run) == "failed"
        act = getattr(sandbox.client.runs, again)
        await (act(run, "text") if again == "rerun" else act(run))
        await sandbox.work(advance_clock=False)
        (review,) = await sandbox.client.reviews.list()
        await sandbox.client.reviews.decide(review.id, APPROVE)
        await sandbox.work()
        await sandbox.client.runs.rerun(run, "text")
        await sandbox.work(advance_clock=False)
    assert reported == [None, "shorter", "shorter", None]
