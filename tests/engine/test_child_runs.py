"""Child runs: a job starts a run of another pipeline and waits for it without holding a worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from retoma import Context, GiveUp, Items, Pipeline, Retry, minutes, seconds
from retoma.define.external_work import PollResult
from retoma.engine.claim_protocol import Claim
from retoma.errors import ChildRunFailed
from retoma.records import ALL_TENANTS, Run
from retoma.reviews import Decision
from retoma.states import RunState
from retoma.store.database import Database, DedicatedConnection
from retoma.store.statements import Statement
from retoma.testing import ManualWorker, Sandbox
from retoma.worker import child_runs
from retoma.worker.child_runs import MAX_DEPTH, Child, ChildRuns, FoundChild
from tests.conftest import OpenSandbox
from tests.engine.builders import (
    kinds,
    lose_answer,
    pass_heartbeat_timeout,
    rows,
    run_claims,
    run_next,
    send_heartbeat,
    state,
    value,
)
from tests.engine.test_leases import killed_worker


class Topic(BaseModel):
    topic: str = "tea"


class Topics(BaseModel):
    topics: list[str] = ["tea", "coffee"]


class Writing:
    """Two pipelines: `article` writes about a topic, and `batch` has an article written for each of its topics.

    Topics in `failing` fail. `attempts` counts how often each article was written.
    """

    def __init__(self, *, key: str | None = None, review: bool = False) -> None:
        self.failing: set[str] = set()
        self.attempts: list[str] = []
        self.article = article = Pipeline("article", inputs=Topic)
        self.batch = batch = Pipeline("batch", inputs=Topics)

        @article.step
        async def text(topic: str) -> str:
            self.attempts.append(topic)
            if topic in self.failing:
                raise GiveUp(f"nothing to say about {topic}", "NO_IDEA")
            return f"about {topic}"

        if review:
            article.review("approved", of=text)

        @article.step
        async def published(text: str) -> str:
            return f"published {text}"

        @batch.each("topics")
        async def written(topic: str, *, ctx: Context) -> str:
            results = await ctx.run_child(article, {"topic": topic}, key=key and f"{key} {topic}")
            return str(results["published"])

        @batch.step
        async def all_written(written: Items[str]) -> list[str]:
            return list(written)

    @asynccontextmanager
    async def open(self, open_sandbox: OpenSandbox) -> AsyncIterator[Sandbox]:
        async with open_sandbox(self.article, self.batch) as sandbox:
            yield sandbox


async def list_children(sandbox: Sandbox, parent: UUID) -> list[Run]:
    found = await sandbox.client.runs.list(parent=parent)
    return sorted(found, key=lambda run: (str(run.input), run.id))


async def test_a_job_returns_the_results_of_its_childs_last_steps(open_sandbox: OpenSandbox) -> None:
    writing = Writing()
    async with writing.open(open_sandbox) as sandbox:
        run = await sandbox.run(writing.batch)
        assert (run.state, run.results["all_written"]) == (
            "completed",
            ["published about tea", "published about coffee"],
        )
        children = await list_children(sandbox, run.id)
        assert [(child.input, child.state, child.tenant) for child in children] == [
            ({"topic": "coffee"}, "completed", "default"),
            ({"topic": "tea"}, "completed", "default"),
        ]


async def test_a_job_that_waits_for_its_child_holds_no_worker(open_sandbox: OpenSandbox) -> None:
    writing = Writing()
    async with writing.open(open_sandbox) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(writing.batch, {"topics": ["tea"]})).id
        await run_claims(worker, await worker.claim(1), "topics")
        claims = [claim for claim in await worker.claim(5) if claim.step == "written"]
        await worker.record_outcomes(await worker.attempt(claims))
        assert await value(sandbox, "select state::text from retoma.jobs where step = 'written'") == "parked"
        assert await state(sandbox, run) == "running"


async def test_a_parent_whose_child_waits_for_a_person_is_not_stuck(open_sandbox: OpenSandbox) -> None:
    writing = Writing(review=True)
    async with writing.open(open_sandbox) as sandbox:
        run = await sandbox.run(writing.batch, {"topics": ["tea"]})
        async with sandbox.manual_worker() as worker:
            await sandbox.clock.advance(timedelta(days=400))
            await send_heartbeat(sandbox.database, worker.worker)
            assert await sandbox.run_watchdog() > 0
        assert await state(sandbox, run.id) == "running"
        (review,) = await sandbox.client.reviews.list()
        await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana"))
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed"


async def test_a_child_that_fails_fails_its_job_without_a_retry(open_sandbox: OpenSandbox) -> None:
    writing = Writing()
    writing.failing = {"tea"}
    async with writing.open(open_sandbox) as sandbox:
        run = await sandbox.run(writing.batch)
        assert (run.state, run.results["all_written"]) == ("completed_with_errors", ["published about coffee"])
        (error,) = (await sandbox.client.runs.get_errors(run.id)).values()
        assert error["code"] == "CHILD_FAILED"
        assert "nothing to say about tea" in error["message"]
        assert writing.attempts.count("tea") == 1


async def test_rerunning_a_failed_job_lets_its_child_continue(open_sandbox: OpenSandbox) -> None:
    writing = Writing()
    writing.failing = {"tea"}
    async with writing.open(open_sandbox) as sandbox:
        run = await sandbox.run(writing.batch)
        children = await list_children(sandbox, run.id)
        writing.failing = set()
        await sandbox.client.runs.rerun_failed(run.id)
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed"
        assert [child.id for child in await list_children(sandbox, run.id)] == [child.id for child in children]
        assert sorted(writing.attempts) == ["coffee", "tea", "tea"]


async def test_rerunning_a_job_with_the_same_input_starts_no_other_child(open_sandbox: OpenSandbox) -> None:
    writing = Writing()
    async with writing.open(open_sandbox) as sandbox:
        run = await sandbox.run(writing.batch)
        await sandbox.client.runs.rerun(run.id, "written")
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed"
        assert len(await list_children(sandbox, run.id)) == 2


async def test_a_rerun_after_a_person_cancelled_the_child_starts_another(open_sandbox: OpenSandbox) -> None:
    writing = Writing(review=True)
    async with writing.open(open_sandbox) as sandbox:
        run = await sandbox.run(writing.batch, {"topics": ["tea"]})
        (child,) = await list_children(sandbox, run.id)
        await sandbox.client.runs.cancel(child.id)
        await sandbox.work()
        (error,) = (await sandbox.client.runs.get_errors(run.id)).values()
        assert error["code"] == "CHILD_CANCELLED"
        await sandbox.client.runs.rerun_failed(run.id)
        await sandbox.work()
        assert [child.state for child in await list_children(sandbox, run.id)] == ["cancelled", "paused"]


async def test_cancelling_a_run_cancels_its_children_first(open_sandbox: OpenSandbox) -> None:
    writing = Writing(review=True)
    async with writing.open(open_sandbox) as sandbox:
        run = await sandbox.run(writing.batch)
        assert await sandbox.client.runs.cancel(run.id) == "cancelling"
        await sandbox.work()
        assert await state(sandbox, run.id) == "cancelled"
        assert {child.state for child in await list_children(sandbox, run.id)} == {RunState.CANCELLED}


async def test_a_worker_that_dies_after_the_start_starts_no_second_child(open_sandbox: OpenSandbox) -> None:
    writing = Writing()
    async with writing.open(open_sandbox) as sandbox:
        run = (await sandbox.client.start(writing.batch, {"topics": ["tea"]})).id
        async with killed_worker(sandbox) as dying:
            await run_claims(dying, await dying.claim(1), "topics")
            await dying.attempt(await dying.claim(1))  # its outcome is never reported
        assert len(await list_children(sandbox, run)) == 1
        await pass_heartbeat_timeout(sandbox)
        await sandbox.work()
        assert (await state(sandbox, run), len(await list_children(sandbox, run))) == ("completed", 1)
        assert writing.attempts == ["tea"]


async def test_a_child_that_ends_before_its_parent_is_parked_is_not_missed(open_sandbox: OpenSandbox) -> None:
    writing = Writing()
    async with writing.open(open_sandbox) as sandbox, sandbox.manual_worker() as slow:
        run = (await sandbox.client.start(writing.batch, {"topics": ["tea"]})).id
        await run_claims(slow, await slow.claim(1), "topics")
        parked = await slow.attempt(await slow.claim(1))
        await sandbox.work()
        (child,) = await list_children(sandbox, run)
        assert child.state == "completed"
        await slow.record_outcomes(parked)
        await sandbox.work()
        assert await state(sandbox, run) == "completed"


async def test_a_run_that_another_request_started_is_awaited_and_not_cancelled(open_sandbox: OpenSandbox) -> None:
    writing = Writing(key="article", review=True)
    async with writing.open(open_sandbox) as sandbox:
        shared = await sandbox.run(writing.article, {"topic": "tea"}, key="article tea")
        run = (await sandbox.client.start(writing.batch, {"topics": ["tea"]})).id
        await sandbox.work(advance_clock=False)
        assert await list_children(sandbox, run) == []
        await sandbox.client.runs.cancel(run)
        await sandbox.work(advance_clock=False)
        assert await state(sandbox, run) == "cancelled"
        assert await state(sandbox, shared.id) == "paused"


async def test_two_jobs_of_one_run_share_a_child(open_sandbox: OpenSandbox) -> None:
    writing, parent = Writing(review=True), Pipeline("parent")

    @parent.step
    async def first(*, ctx: Context) -> Any:
        return await ctx.run_child(writing.article, key="one")

    @parent.step
    async def second(*, ctx: Context) -> Any:
        return await ctx.run_child(writing.article, key="one")

    async with open_sandbox(writing.article, parent) as sandbox:
        run = (await sandbox.client.start(parent)).id
        async with sandbox.manual_worker() as worker:
            await worker.record_outcomes(await worker.attempt(await worker.claim(2)))
        await sandbox.work(advance_clock=False)
        (child,) = await list_children(sandbox, run)
        (review,) = await sandbox.client.reviews.list(run=child.id)
        await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana"))
        await sandbox.work()
        assert await state(sandbox, run) == "completed"
        assert writing.attempts == ["tea"]


async def test_a_run_that_had_ended_is_rerun_once_for_each_key(open_sandbox: OpenSandbox) -> None:
    writing, parent = Writing(), Pipeline("parent", inputs=Topic)

    @parent.step
    async def child(topic: str, *, ctx: Context) -> Any:
        return await ctx.run_child(writing.article, key="one", rerun_from="text", rerun_key=topic)

    async with open_sandbox(writing.article, parent) as sandbox:
        for topic, attempts in (("a", 1), ("b", 2), ("b", 2), ("c", 3)):
            run = await sandbox.run(parent, {"topic": topic})
            assert (run.state, run.results["child"]) == ("completed", {"published": "published about tea"})
            assert len(writing.attempts) == attempts
            await sandbox.clock.advance(timedelta(seconds=1))
        (article,) = await sandbox.client.runs.list(pipeline="article")
        assert article.revision == 3


async def test_a_run_that_is_in_progress_or_was_cancelled_is_not_rerun(open_sandbox: OpenSandbox) -> None:
    writing, parent = Writing(review=True), Pipeline("parent")

    @parent.step
    async def child(*, ctx: Context) -> Any:
        return await ctx.run_child(writing.article, key="one", rerun_from="text", rerun_key="again")

    async with open_sandbox(writing.article, parent) as sandbox:
        shared = await sandbox.run(writing.article, key="one")
        run = (await sandbox.client.start(parent)).id
        await sandbox.work(advance_clock=False)
        await sandbox.clock.advance(timedelta(seconds=1))
        await sandbox.client.runs.cancel(shared.id)
        await sandbox.work()
        assert (await state(sandbox, run), writing.attempts) == ("failed", ["tea"])


@pytest.mark.parametrize("options", [{"rerun_from": "text"}, {"key": "one", "rerun_key": "again"}])
async def test_a_rerun_without_its_key_is_refused(open_sandbox: OpenSandbox, options: dict[str, Any]) -> None:
    writing, parent = Writing(), Pipeline("parent", retry=Retry(0))

    @parent.step
    async def child(*, ctx: Context) -> Any:
        return await ctx.run_child(writing.article, **options)

    async with open_sandbox(writing.article, parent) as sandbox:
        run = await sandbox.run(parent)
        (error,) = (await sandbox.client.runs.get_errors(run.id)).values()
        assert error["message"] == "run_child: rerun_from= needs rerun_key=, and the key= of the run"


async def test_a_run_that_another_request_completed_is_not_repeated(open_sandbox: OpenSandbox) -> None:
    writing = Writing(key="article")
    async with writing.open(open_sandbox) as sandbox:
        await sandbox.run(writing.article, {"topic": "tea"}, key="article tea")
        run = await sandbox.run(writing.batch, {"topics": ["tea"]})
        assert run.results["all_written"] == ["published about tea"]
        assert writing.attempts == ["tea"]


@pytest.mark.parametrize(
    ("inputs", "key", "code"), [({"topic": []}, None, "INVALID_INPUT"), ({"topic": "milk"}, "one", "KEY_REUSED")]
)
async def test_a_child_that_cannot_start_fails_its_job_at_once(
    inputs: dict[str, Any], key: str | None, code: str, open_sandbox: OpenSandbox
) -> None:
    writing, parent = Writing(), Pipeline("parent")

    @parent.step
    async def child(*, ctx: Context) -> dict[str, Any]:
        return await ctx.run_child(writing.article, inputs, key=key)

    async with open_sandbox(writing.article, parent) as sandbox:
        await sandbox.client.start(writing.article, {"topic": "tea"}, key="one", run_at=None)
        run = await sandbox.run(parent)
        (error,) = (await sandbox.client.runs.get_errors(run.id)).values()
        assert (error["code"], error["attempt"]) == (code, 1)


async def test_a_step_can_handle_the_failure_of_its_child(open_sandbox: OpenSandbox) -> None:
    writing, parent = Writing(), Pipeline("parent")
    writing.failing = {"tea"}

    @parent.step
    async def child(*, ctx: Context) -> str:
        try:
            await ctx.run_child(writing.article)
        except ChildRunFailed as error:
            return error.code
        return "completed"

    async with open_sandbox(writing.article, parent) as sandbox:
        assert (await sandbox.run(parent)).results == {"child": "CHILD_FAILED"}


async def test_a_poll_that_fails_after_the_end_of_the_child_is_repeated(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = Writing()
    polls: list[str] = []

    async def fail_once(children: ChildRuns, external_id: str) -> PollResult:
        polls.append(external_id)
        if len(polls) == 1:
            raise OSError("the connection was lost")
        return await poll(children, external_id)

    poll = ChildRuns.poll
    monkeypatch.setattr(ChildRuns, "poll", fail_once)
    async with writing.open(open_sandbox) as sandbox:
        run = await sandbox.run(writing.batch, {"topics": ["tea"]})
        assert (run.state, len(polls)) == ("completed", 2)


async def test_the_children_of_a_run_are_listed_in_pages(open_sandbox: OpenSandbox) -> None:
    writing = Writing()
    writing.failing = {"milk"}
    async with writing.open(open_sandbox) as sandbox:
        await sandbox.run(writing.batch)
        run = await sandbox.run(writing.batch, {"topics": ["tea", "milk", "rum"]})
        runs = sandbox.client.runs
        found = await runs.list(parent=run.id)
        assert [child.parent for child in found] == [run.id] * 3
        (first,) = await runs.list(parent=run.id, limit=1)
        assert [first, *await runs.list(parent=run.id, before=first.id)] == found
        (failed,) = await runs.list(parent=run.id, states=[RunState.FAILED])
        assert failed.input == {"topic": "milk"}
        assert await runs.list(parent=run.id, pipeline="batch") == []
        assert await runs.count_children(run.id) == {RunState.COMPLETED: 2, RunState.FAILED: 1}
        assert await runs.count_children(failed.id) == {}


async def test_the_costs_of_a_run_include_those_of_its_descendants(open_sandbox: OpenSandbox) -> None:
    grandparent, parent, child = (Pipeline(name) for name in ("grandparent", "parent", "child"))

    @child.step
    async def paid(*, ctx: Context) -> int:
        ctx.charge("openrouter", "small", micros=5)
        return 1

    @parent.step
    async def answer(*, ctx: Context) -> int:
        results = await ctx.run_child(child)
        ctx.charge("openrouter", "small", micros=30)
        return int(results["paid"])

    @grandparent.step
    async def delegated(*, ctx: Context) -> int:
        results = await ctx.run_child(parent, tenant="other")
        ctx.charge("openrouter", "small", micros=200)
        return int(results["answer"])

    async with open_sandbox(grandparent, parent, child) as sandbox:
        await sandbox.run(grandparent, tenant=ALL_TENANTS)
        run = (await sandbox.run(grandparent, tenant=ALL_TENANTS)).id
        (total,) = await sandbox.client.costs.get_totals(by=(), run=run)
        steps = await sandbox.client.costs.get_totals(by=("step",), run=run)
        assert (total.micros, total.charges) == (235, 3)
        assert {each.step: each.micros for each in steps} == {"delegated": 200, "answer": 30, "paid": 5}
        assert [charge.micros for charge in await sandbox.client.costs.list_charges(run)] == [200]


async def test_a_wait_names_the_child_run_and_external_work_marks_it(open_sandbox: OpenSandbox) -> None:
    writing = Writing()
    async with writing.open(open_sandbox) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(writing.batch)).id
        await run_claims(worker, await worker.claim(1), "topics")
        first, second = await worker.claim(2)
        await worker.record_outcomes(await worker.attempt([first]))
        (child,) = await list_children(sandbox, run)
        (wait,) = [each for each in await sandbox.client.runs.list_waits(run) if each.child]
        assert (wait.reason, wait.child, wait.until) == ("child_run", child.id, None)
        assert wait.explanation == f"written of {first.item}: waiting for its child run {child.id}"
        (work,) = await sandbox.client.external_work.list(run)
        assert (work.is_child_run, work.external_id) == (True, str(child.id))

        await worker.record_outcomes(await worker.attempt([second]))
        (both,) = await sandbox.client.runs.list_waits(run)
        assert both.explanation == f"2 jobs of written: each waiting for its child run, such as {child.id}"


async def test_a_pipeline_that_starts_itself_without_end_is_stopped(open_sandbox: OpenSandbox) -> None:
    endless = Pipeline("endless")

    @endless.step
    async def below(*, ctx: Context) -> dict[str, Any]:
        return await ctx.run_child(endless)

    async with open_sandbox(endless) as sandbox:
        run = await sandbox.run(endless)
        found = await sandbox.client.runs.list()
        assert (run.state, len(found)) == ("failed", 1 + MAX_DEPTH)
        (error,) = (await sandbox.client.runs.get_errors(found[0].id)).values()
        assert (error["code"], error["attempt"]) == ("TOO_DEEP", 1)
        assert "check whether a pipeline starts itself" in error["message"]


@pytest.mark.parametrize("waits_through_a_child", [False, True])
async def test_a_run_does_not_wait_for_itself(open_sandbox: OpenSandbox, waits_through_a_child: bool) -> None:
    first, second = Pipeline("first"), Pipeline("second")

    @first.step
    async def answer(*, ctx: Context) -> dict[str, Any]:
        return await (ctx.run_child(second) if waits_through_a_child else ctx.run_child(first, key="one"))

    @second.step
    async def answered(*, ctx: Context) -> dict[str, Any]:
        return await ctx.run_child(first, key="one")

    async with open_sandbox(first, second) as sandbox:
        await sandbox.run(first, key="one")
        found = await sandbox.client.runs.list()
        (error,) = (await sandbox.client.runs.get_errors(found[0].id)).values()
        assert error["code"] == "WAITS_FOR_ITSELF"
        assert {run.state for run in found} == {RunState.FAILED}


def make_reviewed_parent(writing: Writing) -> Pipeline:
    """A pipeline whose child waits for a person while its own draft can be sent back."""
    parent = Pipeline("parent")

    @parent.step
    async def draft() -> str:
        return "draft"

    parent.review("good_draft", of=draft)

    @parent.step
    async def child(draft: str, *, ctx: Context) -> dict[str, Any]:
        return await ctx.run_child(writing.article)

    return parent


async def decide_review_of(sandbox: Sandbox, run: UUID, action: Any) -> None:
    (review,) = await sandbox.client.reviews.list(run=run)
    await sandbox.client.reviews.decide(review.id, Decision(action, by="ana", notes="again"))
    await sandbox.work(advance_clock=False)


async def test_a_job_that_is_replaced_while_it_waits_starts_another_child(open_sandbox: OpenSandbox) -> None:
    writing = Writing(review=True)
    parent = make_reviewed_parent(writing)
    async with open_sandbox(writing.article, parent) as sandbox:
        run = await sandbox.run(parent)
        await decide_review_of(sandbox, run.id, "send_back")
        first, second = await list_children(sandbox, run.id)
        assert (first.state, second.state) == ("cancelled", "paused")
        await decide_review_of(sandbox, second.id, "approve")
        await decide_review_of(sandbox, run.id, "approve")
        assert await state(sandbox, run.id) == "completed"

        await sandbox.client.runs.rerun(run.id, "child")
        await sandbox.work()
        assert await state(sandbox, run.id) == "completed"
        assert len(await list_children(sandbox, run.id)) == 2, "the second one has the results"


async def test_a_child_that_a_job_waits_for_is_not_cancelled_by_another(open_sandbox: OpenSandbox) -> None:
    """An attempt that was replaced may find the child of the job that replaced it, and try to clean up."""
    writing = Writing(review=True)
    async with writing.open(open_sandbox) as sandbox:
        run = await sandbox.run(writing.batch, {"topics": ["tea"]})
        (child,) = await list_children(sandbox, run.id)
        children = ChildRuns(sandbox.app, sandbox.database)
        await children.cancel(str(child.id))
        assert await state(sandbox, child.id) == "paused"
        await rows(sandbox, "update retoma.jobs set stopping = true where step = 'written'")
        await children.cancel(str(child.id))
        assert await state(sandbox, child.id) == "cancelled"
        await children.close()


async def test_a_child_that_an_attempt_was_starting_when_it_was_replaced_is_cancelled(
    open_sandbox: OpenSandbox,
) -> None:
    writing = Writing(review=True)
    parent = make_reviewed_parent(writing)
    async with open_sandbox(writing.article, parent) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(parent)).id
        await run_next(worker, "draft")
        claims = await worker.claim(1)
        parked = await worker.attempt(claims)
        await decide_review_of(sandbox, run, "send_back")
        await worker.record_outcomes(parked)
        await sandbox.clock.advance(timedelta(minutes=1))
        await sandbox.work(advance_clock=False)
        first, second = await list_children(sandbox, run)
        assert (first.state, second.state) == ("cancelled", "paused")


async def test_an_attempt_that_was_replaced_does_not_make_its_successor_start_twice(
    open_sandbox: OpenSandbox,
) -> None:
    writing = Writing(review=True)
    parent = make_reviewed_parent(writing)
    async with open_sandbox(writing.article, parent) as sandbox:
        run = (await sandbox.client.start(parent)).id
        async with sandbox.manual_worker() as replaced:
            await run_next(replaced, "draft")
            await replaced.attempt(await replaced.claim(1))
            (review,) = await sandbox.client.reviews.list(run=run)
            await sandbox.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="again"))
            async with killed_worker(sandbox) as dying:
                await run_claims(dying, [claim for claim in await dying.claim(9) if claim.step == "draft"])
                await dying.attempt([claim for claim in await dying.claim(9) if claim.step == "child"])
        assert len(await list_children(sandbox, run)) == 2
        # It died before it recorded the start.
        await rows(sandbox, "update retoma.effects set value = null, done_at = null where revision = 2")
        await pass_heartbeat_timeout(sandbox)
        await sandbox.work(advance_clock=False)
        assert len(await list_children(sandbox, run)) == 2


async def test_a_run_that_fails_cancels_its_children(open_sandbox: OpenSandbox) -> None:
    writing, parent = Writing(review=True), Pipeline("parent")

    @parent.step
    async def child(*, ctx: Context) -> dict[str, Any]:
        return await ctx.run_child(writing.article)

    @parent.step
    async def broken() -> str:
        raise GiveUp("broken")

    async with open_sandbox(writing.article, parent) as sandbox:
        run = await sandbox.run(parent)
        (found,) = await list_children(sandbox, run.id)
        assert (run.state, found.state) == ("failed", "cancelled")


class Book:
    """`book` has an item for each chapter, and `chapter` one for each of its scenes. Scenes in `failing` fail."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.attempts: list[str] = []
        self.chapter = chapter = Pipeline("chapter", inputs=Topic)
        self.book = book = Pipeline("book", inputs=Topics)

        @chapter.step
        async def scenes(topic: str) -> list[str]:
            return [f"{topic} 1", f"{topic} 2"]

        @chapter.each(scenes)
        async def scene_text(scene: str) -> str:
            self.attempts.append(scene)
            if scene in self.failing:
                raise GiveUp("no idea", "NO_IDEA")
            return scene

        @chapter.step
        async def chapter_text(scene_text: Items[str]) -> str:
            return " + ".join(scene_text)

        @book.each("topics", on_failure="continue")
        async def written_chapter(topic: str, *, ctx: Context) -> str:
            return str((await ctx.run_child(chapter, {"topic": topic}))["chapter_text"])

        @book.step
        async def manuscript(written_chapter: Items[str]) -> list[str]:
            return list(written_chapter)

    def open(self, open_sandbox: OpenSandbox) -> AbstractAsyncContextManager[Sandbox]:
        return open_sandbox(self.chapter, self.book)


async def test_nested_items_are_joined_level_by_level(open_sandbox: OpenSandbox) -> None:
    writing = Book()
    async with writing.open(open_sandbox) as sandbox:
        run = (await sandbox.client.start(writing.book)).id
        async with sandbox.manual_worker() as worker:
            late: list[Any] = []
            while claims := await worker.claim(10):
                late += [claim for claim in claims if claim.item == "coffee 2"]
                await worker.record_outcomes(await worker.attempt([each for each in claims if each not in late]))
                await worker.poll_external_work()
            coffee, tea = await list_children(sandbox, run)
            assert (tea.state, (await sandbox.client.runs.get_results(tea.id))["chapter_text"]) == (
                "completed",
                "tea 1 + tea 2",
            )
            assert "chapter_text" not in await sandbox.client.runs.get_results(coffee.id)
            assert "manuscript" not in await sandbox.client.runs.get_results(run)
            await worker.record_outcomes(await worker.attempt(late))
        await sandbox.work()
        assert (await sandbox.client.runs.get_results(run))["manuscript"] == ["tea 1 + tea 2", "coffee 1 + coffee 2"]


async def test_a_rerun_of_a_nested_failure_reruns_only_the_failed_inner_item(open_sandbox: OpenSandbox) -> None:
    writing = Book()
    writing.failing.add("coffee 2")
    async with writing.open(open_sandbox) as sandbox:
        run = await sandbox.run(writing.book)
        assert run.state == "completed_with_errors"
        writing.failing.clear()
        writing.attempts.clear()
        await sandbox.client.runs.rerun_failed(run.id)
        await sandbox.work()
        assert writing.attempts == ["coffee 2"]
        assert (await sandbox.client.runs.get_results(run.id))["manuscript"] == [
            "tea 1 + tea 2",
            "coffee 1 + coffee 2",
        ]


async def test_jobs_of_one_run_can_share_a_run(open_sandbox: OpenSandbox) -> None:
    """It is the child of the job that started it. Its end wakes no other job, so others ask for it."""
    leaf, batch = Pipeline("leaf", inputs=Topic), Pipeline("batch", inputs=Topics)

    @leaf.step
    async def text(topic: str) -> str:
        return topic

    @batch.each("topics")
    async def shared(topic: str, *, ctx: Context) -> str:
        return str((await ctx.run_child(leaf, {"topic": "milk"}, key="milk"))["text"])

    async with open_sandbox(leaf, batch) as sandbox:
        run = await sandbox.run(batch)
        assert (run.state, run.results["shared"]) == ("completed", {"tea": "milk", "coffee": "milk"})
        assert len(await list_children(sandbox, run.id)) == 1


async def test_a_job_that_waits_for_the_run_of_another_looks_ever_less_often_and_logs_it_once(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of jobs may wait for days, for a run that waits for a person."""
    writing, delays = Writing(key="shared", review=True), []
    async with writing.open(open_sandbox) as sandbox:
        await sandbox.client.start(writing.article, {"topic": "tea"}, key="shared tea")
        run = (await sandbox.client.start(writing.batch, {"topics": ["tea"]})).id
        for age in (0, 3_600, 86_400):
            monkeypatch.setattr(child_runs, "get_age", lambda _, age=age: age)
            await sandbox.work(advance_clock=False)
            (job,) = [job for job in await sandbox.client.runs.list_jobs(run) if job.step == "written"]
            assert job.code == "AWAITS_RUN"
            assert job.ready_at is not None
            delays.append(job.ready_at - await sandbox.clock.now())
            await sandbox.clock.set(job.ready_at)
        assert delays == [seconds(15), minutes(6), minutes(10)]
        assert [kind for kind in await kinds(sandbox, run) if kind.startswith("retry")] == ["retry written:tea"]


async def test_a_run_that_another_request_starts_in_between_is_not_adopted(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = Writing(key="shared")
    guess_run = ChildRuns.guess_run

    async def guess_and_lose(children: ChildRuns, child: Child) -> FoundChild:
        found = await guess_run(children, child)
        await sandbox.client.start(writing.article, {"topic": "tea"}, key="shared tea")
        return found

    monkeypatch.setattr(ChildRuns, "guess_run", guess_and_lose)
    async with writing.open(open_sandbox) as sandbox:
        run = await sandbox.run(writing.batch, {"topics": ["tea"]})
        assert (run.state, writing.attempts) == ("completed", ["tea"])
        assert await list_children(sandbox, run.id) == []


@pytest.mark.parametrize("key", [None, "shared"])
async def test_children_of_concurrent_jobs_start_in_one_transaction(
    key: str | None, open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No statement is sent for each child: their number decides how many children a worker starts per second."""
    counts = count_statements(monkeypatch)
    writing, children = Writing(key=key), 20
    async with open_batch(writing, open_sandbox, 1 + children) as (sandbox, worker, claims):
        await worker.attempt(claims[:1])  # it looks up what all children share
        counts.clear()
        await worker.attempt(claims[1:])
        del counts["notify_workers"]
        assert counts == {"start_children": 1}
        assert await value(sandbox, "select count(*) from retoma.runs where parent is not null") == 1 + children
        commits = (
            "select xmin::text from retoma.runs where parent is not null union select xmin::text from retoma.effects"
        )
        assert len(await rows(sandbox, commits)) == 2, "a start and its record are committed together"


async def test_the_end_of_a_child_needs_few_statements(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = count_statements(monkeypatch)
    writing, children = Writing(), 10
    async with open_batch(writing, open_sandbox, children) as (sandbox, worker, claims):
        await worker.record_outcomes(await worker.attempt(claims))
        counts.clear()
        await sandbox.work()
        assert await state(sandbox, claims[0].run) == "completed"
        for name in ("get_outcome", "record_poll", "get_ended_work"):
            assert counts[name] == children
        for name in ("get_run", "get_graph", "list_results", "find_child_run"):
            assert counts[name] <= 1


async def test_a_start_whose_answer_is_lost_starts_each_child_once(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, children = Writing(), 3
    lost = lose_answer(monkeypatch, "start_children")
    async with open_batch(writing, open_sandbox, children) as (sandbox, worker, claims):
        await worker.record_outcomes(await worker.attempt(claims))
        await sandbox.work()
        assert lost
        assert await state(sandbox, claims[0].run) == "completed"
        assert len(await list_children(sandbox, claims[0].run)) == len(writing.attempts) == children


async def test_an_attempt_that_has_lost_its_lease_starts_no_child(open_sandbox: OpenSandbox) -> None:
    writing = Writing(review=True)
    async with open_batch(writing, open_sandbox, 2) as (sandbox, worker, claims):
        await rows(sandbox, "update retoma.jobs set fence = fence + 1 where item = $1", claims[0].item)
        outcomes = await worker.attempt(claims)
        (child,) = await list_children(sandbox, claims[0].run)
        assert child.input == {"topic": claims[1].item}
        await worker.record_outcomes(outcomes)
        assert worker.rejected_outcomes == 1


@asynccontextmanager
async def open_batch(
    writing: Writing, open_sandbox: OpenSandbox, children: int
) -> AsyncIterator[tuple[Sandbox, ManualWorker, list[Claim]]]:
    """Yield a worker that has claimed the jobs that start this many children."""
    async with writing.open(open_sandbox) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(writing.batch, {"topics": [str(number) for number in range(children)]})
        await run_claims(worker, await worker.claim(1), "topics")
        yield sandbox, worker, await worker.claim(children)


def count_statements(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()
    for kind in (Database, DedicatedConnection):
        monkeypatch.setattr(kind, "fetch", count_calls(kind.fetch, counts))
    return counts


def count_calls(fetch: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    async def counted(self: Any, statement: Statement, *arguments: Any, **values: Any) -> Any:
        counts[statement.name] += 1
        return await fetch(self, statement, *arguments, **values)

    return counted
