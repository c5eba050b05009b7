"""Reruns of steps: one step, everything from a step on, a group, stale results; and forks of runs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from retoma import Context, GiveUp, Items, Pipeline, Pool, Retry
from retoma.errors import InvalidInput, NotFound, RunBusy
from retoma.reviews import Decision
from retoma.states import JobState, ReviewState, RunState
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox


class Brief(BaseModel):
    topic: str = "café"
    tone: str = "calm"


class World:
    def __init__(self) -> None:
        self.called: list[str] = []
        self.version = 1
        self.words = ["a", "b", "c"]


def article(world: World) -> Pipeline:
    """Text and pictures, put on one page that is published."""
    pipeline = Pipeline("article", Brief, retry=Retry(0))

    @pipeline.step
    def text(topic: str) -> str:
        world.called.append("text")
        return f"{topic} {world.version}"

    @pipeline.step
    def words(text: str) -> list[str]:
        world.called.append("words")
        return list(world.words)

    @pipeline.each(words)
    def picture(word: str, tone: str) -> str:
        world.called.append(f"picture {word}")
        return f"{tone} {word}"

    @pipeline.step
    def page(text: str, picture: Items[str]) -> str:
        world.called.append("page")
        return f"{text}: {', '.join(picture)}"

    @pipeline.step(publishes=True)
    def post(page: str) -> int:
        world.called.append("post")
        return len(page)

    pipeline.group("images", [picture])
    return pipeline


async def run_to_completion(sandbox: Sandbox, world: World) -> Any:
    run = await sandbox.run("article")
    assert run.state is RunState.COMPLETED
    world.called.clear()
    return run.id


async def work_to_end(sandbox: Sandbox, run: Any) -> dict[str, Any]:
    await sandbox.work()
    assert (await sandbox.client.runs.get(run)).state is RunState.COMPLETED
    return await sandbox.client.runs.get_results(run)


async def test_a_rerun_step_reruns_its_dependents(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        world.version = 2
        revision = await sandbox.client.runs.rerun(run, "text", by="ana", reason="news")
        results = await work_to_end(sandbox, run)
        assert revision.number == 2
        assert results["page"] == "café 2: calm a, calm b, calm c"
        # The list came out as it was, and so every picture of it is kept.
        assert world.called == ["text", "words", "page", "post"]


async def test_steps_with_unchanged_inputs_keep_their_result(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        await sandbox.client.runs.rerun(run, "text")
        await work_to_end(sandbox, run)
        assert world.called == ["text"]
        assert [
            (made.revision, made.reused_from) for made in await sandbox.client.runs.get_step_history(run, "page")
        ] == [
            (2, 1),
            (1, None),
        ]
        assert await sandbox.client.runs.list_stale(run) == []


async def test_a_result_is_kept_though_an_optional_dependency_is_missing(open_sandbox: OpenSandbox) -> None:
    pipeline, called = Pipeline("page", retry=Retry(0)), []

    @pipeline.step
    def text() -> str:
        called.append("text")
        return "words"

    @pipeline.step(on_failure="continue")
    def picture() -> str:
        raise GiveUp("there is none")

    @pipeline.step
    def page(text: str, picture: str | None = None) -> str:
        called.append("page")
        return text

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.run(pipeline)).id
        await sandbox.client.runs.rerun(run, "text")
        await sandbox.work()
        assert called == ["text", "page", "text"]


async def test_results_of_previous_revisions_are_not_part_of_a_join(open_sandbox: OpenSandbox) -> None:
    pipeline, generation = Pipeline("join", retry=Retry(0)), [1]

    @pipeline.step
    def numbers() -> list[int]:
        return [1, 2, 3]

    @pipeline.each(numbers)
    def drawn(number: int) -> str:
        return f"{number} of {generation[0]}"

    @pipeline.step
    def album(drawn: Items[str]) -> str:
        return ", ".join(drawn)

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.run(pipeline)).id
        async with sandbox.database.connection() as connection:
            large = "update retoma.jobs set output = to_json(repeat('x', 34000000)) where step = 'drawn'"
            await connection.execute(large)
        for generation[0] in (2, 3):
            await sandbox.client.runs.rerun(run, "drawn")
            await sandbox.work()
            results = await sandbox.client.runs.get_results(run)
            assert results["album"] == f"1 of {generation[0]}, 2 of {generation[0]}, 3 of {generation[0]}"


async def test_fresh_reuses_nothing(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        await sandbox.client.runs.rerun(run, "text", reuse=False)
        await work_to_end(sandbox, run)
        assert sorted(world.called) == sorted(["text", "words", "picture a", "picture b", "picture c", "page", "post"])


async def test_everything_from_a_step_onwards_is_rerun(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        await sandbox.client.runs.rerun(run, from_step="page")
        await work_to_end(sandbox, run)
        assert world.called == ["page", "post"]


async def test_a_new_list_keeps_known_items_creates_new_ones_and_drops_the_others(
    open_sandbox: OpenSandbox,
) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        world.words = ["c", "d", "a"]
        await sandbox.client.runs.rerun(run, "words")
        results = await work_to_end(sandbox, run)
        assert world.called == ["words", "picture d", "page", "post"]
        assert results["page"] == "café 1: calm c, calm d, calm a"
        assert (await sandbox.client.runs.get_step_history(run, "picture", "b"))[0].state is JobState.SUCCEEDED
        assert list(results["picture"]) == ["c", "d", "a"]
        shown = await sandbox.client.runs.list_items(run, "words")
        assert [item.item for item in shown] == ["c", "d", "a"]
        assert [job.item for job in await sandbox.client.runs.list_step_jobs(run, "picture")] == ["c", "d", "a"]


async def test_a_list_that_becomes_empty_is_joined_at_once(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        world.words = []
        await sandbox.client.runs.rerun(run, "words")
        assert (await work_to_end(sandbox, run))["page"] == "café 1: "


async def test_single_items_and_groups_are_rerun(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        await sandbox.client.runs.rerun(run, "picture", items=["b"])
        await work_to_end(sandbox, run)
        assert world.called == ["picture b"]
        world.called.clear()
        await sandbox.client.runs.rerun(run, group="images")
        await work_to_end(sandbox, run)
        assert sorted(world.called) == ["picture a", "picture b", "picture c"]


async def test_an_isolated_rerun_leaves_dependents_stale_until_they_rerun(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        world.version = 2
        await sandbox.client.runs.rerun(run, "text", downstream=False)
        results = await work_to_end(sandbox, run)
        assert world.called == ["text"]
        assert (results["text"], results["page"]) == ("café 2", "café 1: calm a, calm b, calm c")
        assert await sandbox.client.runs.list_stale(run) == [("page", ""), ("words", "")]
        await sandbox.client.runs.rerun(run, stale=True)
        results = await work_to_end(sandbox, run)
        assert results["page"] == "café 2: calm a, calm b, calm c"
        assert world.called == ["text", "words", "page", "post"]
        assert await sandbox.client.runs.list_stale(run) == []


async def test_an_edit_may_leave_its_dependents_stale(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        await sandbox.client.runs.edit(run, "page", "mine", downstream=False, by="ana")
        assert await sandbox.client.runs.list_stale(run) == [("post", "")]
        await sandbox.client.runs.rerun(run, stale=True)
        assert (await work_to_end(sandbox, run))["post"] == len("mine")
        assert world.called == ["post"]


async def test_an_edited_list_that_cannot_be_fanned_out_is_rejected(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        with pytest.raises(InvalidInput, match="two items of 'words' have the key 'a'"):
            await sandbox.client.runs.edit(run, "words", ["a", "a"], by="ana")


async def test_a_fork_shares_results_its_change_does_not_affect_and_publishes_again(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        forked = await sandbox.client.runs.fork(run, {"tone": "loud"}, by="ana")
        results = await work_to_end(sandbox, forked.id)
        assert results["page"] == "café 1: loud a, loud b, loud c"
        assert sorted(world.called) == sorted(["picture a", "picture b", "picture c", "page", "post"])
        assert (await sandbox.client.runs.get(forked.id)).forked_from == run
        world.called.clear()
        again = await sandbox.client.runs.fork(run)
        await work_to_end(sandbox, again.id)
        assert world.called == ["post"]
        assert (await sandbox.client.runs.get_results(run))["page"] == "café 1: calm a, calm b, calm c"


async def test_a_rejected_run_may_be_forked_and_its_review_is_asked_again(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("article", Brief)

    @pipeline.step
    def text(topic: str) -> str:
        return topic

    pipeline.review("approved", of=text)

    @pipeline.step
    def page(approved: str) -> str:
        return f"page of {approved}"

    async with open_sandbox(pipeline) as sandbox:
        started = await sandbox.client.start("article")
        await sandbox.work(advance_clock=False)
        (review,) = await sandbox.client.reviews.list()
        await sandbox.client.reviews.decide(review.id, Decision("reject", by="ana", notes="no"))
        forked = await sandbox.client.runs.fork(started.id, {"topic": "chá"})
        await sandbox.work(advance_clock=False)
        (again,) = await sandbox.client.reviews.list(run=forked.id)
        await sandbox.client.reviews.decide(again.id, Decision("approve", by="ana"))
        assert (await work_to_end(sandbox, forked.id))["page"] == "page of chá"


async def test_a_fork_asks_the_last_review_again_before_it_publishes(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("article", Brief)
    called: list[str] = []

    @pipeline.step
    def text(topic: str) -> str:
        return topic

    pipeline.review("good_text", of=text)

    @pipeline.step
    def page(good_text: str) -> str:
        return f"page of {good_text}"

    pipeline.review("good_page", of=page)

    @pipeline.step(publishes=True)
    def post(good_text: str, good_page: str) -> None:
        called.append(good_page)

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start("article")).id
        for _ in range(2):
            await sandbox.work(advance_clock=False)
            (review,) = await sandbox.client.reviews.list()
            await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana"))
        await sandbox.work()
        forked = (await sandbox.client.runs.fork(run)).id
        await sandbox.work(advance_clock=False)
        (again,) = await sandbox.client.reviews.list(run=forked)
        assert (again.step, called) == ("good_page", ["page of café"])
        await sandbox.client.reviews.decide(again.id, Decision("approve", by="ana"))
        await sandbox.work()
        assert ((await sandbox.client.runs.get(forked)).state, len(called)) == (RunState.COMPLETED, 2)


async def test_a_running_step_cannot_be_rerun(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        started = await sandbox.client.start("article")
        async with sandbox.manual_worker() as worker:
            claimed = await worker.claim()
            with pytest.raises(RunBusy, match="is working on text"):
                await sandbox.client.runs.rerun(started.id, "text")
            await worker.record_outcomes(await worker.attempt(claimed))
        assert (await sandbox.client.runs.rerun(started.id, "text")).number == 2
        assert (await work_to_end(sandbox, started.id))["post"] == 30


async def test_an_action_on_a_waiting_run_withdraws_its_open_review(
    open_sandbox: OpenSandbox,
) -> None:
    drafts: list[Any] = []
    pipeline = Pipeline("article", Brief)

    @pipeline.step
    def text(topic: str, *, ctx: Context) -> str:
        drafts.append(ctx.previous_result)
        return f"{topic} {len(drafts)}"

    pipeline.review("approved", of=text)

    @pipeline.step
    def page(approved: str) -> str:
        return f"page of {approved}"

    async with open_sandbox(pipeline) as sandbox:
        started = await sandbox.client.start("article")
        await sandbox.work(advance_clock=False)
        (first,) = await sandbox.client.reviews.list()
        await sandbox.client.runs.rerun(started.id, "text")
        assert (await sandbox.client.runs.get(started.id)).state is RunState.RUNNING
        await sandbox.work(advance_clock=False)
        assert (await sandbox.client.reviews.get(first.id)).state is ReviewState.WITHDRAWN
        (second,) = await sandbox.client.reviews.list()
        assert drafts == [None, "café 1"]
        await sandbox.client.reviews.decide(second.id, Decision("approve", by="ana"))
        assert (await work_to_end(sandbox, started.id))["page"] == "page of café 2"
        # Its subject is as it was, so nobody is asked again.
        await sandbox.client.runs.rerun(started.id, from_step="page")
        await work_to_end(sandbox, started.id)


async def test_a_review_whose_subject_is_unchanged_keeps_its_decision(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("article", Brief)

    @pipeline.step
    def text(topic: str) -> str:
        return topic

    pipeline.review("approved", of=text)

    @pipeline.step
    def page(approved: str) -> str:
        return f"page of {approved}"

    async with open_sandbox(pipeline) as sandbox:
        started = await sandbox.client.start("article")
        await sandbox.work(advance_clock=False)
        (review,) = await sandbox.client.reviews.list()
        await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana", value="edited"))
        await work_to_end(sandbox, started.id)
        await sandbox.client.runs.rerun(started.id, "text")
        assert (await work_to_end(sandbox, started.id))["page"] == "page of edited"
        assert await sandbox.client.reviews.list() == []


async def test_a_late_result_of_superseded_work_is_rejected_and_counted(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("article", Brief)

    @pipeline.step
    def text(topic: str) -> str:
        return topic

    @pipeline.step
    def summary(text: str) -> str:
        return f"summary of {text}"

    pipeline.review("approved", of=text)

    @pipeline.step
    def page(approved: str, summary: str) -> str:
        return approved + summary

    async with open_sandbox(pipeline) as sandbox:
        started = await sandbox.client.start("article")
        async with sandbox.manual_worker() as worker:
            await worker.record_outcomes(await worker.attempt(await worker.claim()))
            summary_ = await worker.claim()
            (review,) = await sandbox.client.reviews.list()
            await sandbox.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="again"))
            await worker.record_outcomes(await worker.attempt(summary_))
            assert worker.rejected_outcomes == 1
        await sandbox.work(advance_clock=False)
        (again,) = await sandbox.client.reviews.list()
        await sandbox.client.reviews.decide(again.id, Decision("approve", by="ana"))
        assert (await work_to_end(sandbox, started.id))["page"] == "cafésummary of café"


async def test_a_failed_run_continues_as_a_whole_when_one_step_reruns(open_sandbox: OpenSandbox) -> None:
    bad = {"b"}
    pipeline = Pipeline("article", Brief, retry=Retry(0))

    @pipeline.step
    def a(topic: str) -> str:
        return topic

    @pipeline.step
    def b(a: str) -> str:
        if bad:
            raise GiveUp("bad")
        return f"b {a}"

    @pipeline.step
    def c(b: str) -> str:
        return f"c {b}"

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run("article")
        assert run.state is RunState.FAILED
        bad.clear()
        await sandbox.client.runs.rerun(run.id, "a")
        assert (await work_to_end(sandbox, run.id))["c"] == "c b café"


async def test_unknown_steps_and_groups_are_reported_with_the_nearest_valid_name(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        with pytest.raises(NotFound, match="did you mean 'picture'"):
            await sandbox.client.runs.rerun(run, "pictures")
        with pytest.raises(NotFound, match="did you mean 'images'"):
            await sandbox.client.runs.rerun(run, group="image")
        with pytest.raises(InvalidInput, match="name what to rerun"):
            await sandbox.client.runs.rerun(run)


async def test_a_cancelled_run_is_not_rerun(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        started = await sandbox.client.start("article")
        await sandbox.client.runs.cancel(started.id)
        with pytest.raises(RunBusy, match="cancelled"):
            await sandbox.client.runs.rerun(started.id, "text")


async def test_a_stale_review_whose_subject_is_unchanged_is_not_asked_again(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("article", Brief)

    @pipeline.step
    def text(topic: str) -> str:
        return topic

    pipeline.review("approved", of=text)

    async with open_sandbox(pipeline) as sandbox:
        started = await sandbox.client.start("article")
        await sandbox.work(advance_clock=False)
        (review,) = await sandbox.client.reviews.list()
        await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana"))
        await work_to_end(sandbox, started.id)
        await sandbox.client.runs.rerun(started.id, "text", downstream=False)
        await work_to_end(sandbox, started.id)
        assert await sandbox.client.runs.list_stale(started.id) == [("approved", "")]
        await sandbox.client.runs.rerun(started.id, stale=True)
        await work_to_end(sandbox, started.id)
        assert await sandbox.client.reviews.list() == []
        assert await sandbox.client.runs.list_stale(started.id) == []


async def test_an_action_shows_neither_its_key_nor_its_digest(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        await sandbox.client.runs.rerun(run, "text", by="ana", key="order 1")
        (act,) = await sandbox.client.runs.list_events(run, kinds=["action"])
        assert act.data["by"] == "ana"
        assert not act.data.keys() & {"key", "digest"}


def page_of_two(*, then: bool) -> Pipeline:
    """`bad` fails, and the page of both is `shown` or the last step."""
    pipeline = Pipeline("page", retry=Retry(0))

    @pipeline.step
    def good() -> str:
        return "good"

    @pipeline.step(pool=Pool("gpu", capacity=1))
    def bad() -> str:
        raise GiveUp("no")

    @pipeline.step
    def page(good: str, bad: str) -> str:
        return good + bad

    if then:

        @pipeline.step
        def shown(page: str) -> str:
            return page.upper()

    return pipeline


@pytest.mark.parametrize("then", [False, True])
async def test_steps_used_only_by_an_edited_result_are_not_rerun(open_sandbox: OpenSandbox, then: bool) -> None:
    pipeline = page_of_two(then=then)
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.run(pipeline)).id
        edited = await sandbox.client.runs.edit(run, "page", "mine", by="ana")
        await sandbox.work()
        assert edited.jobs == int(then)
        assert (await sandbox.client.runs.get(run)).state is RunState.COMPLETED_WITH_ERRORS
        assert [made.revision for made in await sandbox.client.runs.get_step_history(run, "bad")] == [1]
        ends = [event.data["state"] for event in await sandbox.client.runs.list_events(run, kinds=["end"])]
        assert ends == ["failed", "completed_with_errors"]


async def test_steps_used_also_by_other_results_are_rerun(open_sandbox: OpenSandbox) -> None:
    pipeline = page_of_two(then=False)

    @pipeline.step
    def copy(bad: str) -> str:
        return bad

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.run(pipeline)).id
        assert (await sandbox.client.runs.edit(run, "page", "mine", by="ana")).jobs == 1
        await sandbox.work()
        assert (await sandbox.client.runs.get(run)).state is RunState.FAILED
        assert [made.revision for made in await sandbox.client.runs.get_step_history(run, "bad")] == [2, 1]


async def test_only_items_with_dependents_are_rerun(open_sandbox: OpenSandbox) -> None:
    pipeline, read = Pipeline("items", retry=Retry(0)), []

    @pipeline.step
    def names() -> list[str]:
        return ["a", "b", "c"]

    @pipeline.each(names, on_failure="stop")
    def text(name: str) -> str:
        read.append(name)
        raise GiveUp("no")

    @pipeline.each(names)
    def size(name: str) -> int:
        return len(name)

    @pipeline.each(names)
    def label(text: str, size: int) -> str:
        return text * size

    @pipeline.step
    def report(label: Items[str]) -> list[str]:
        return list(label)

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.run(pipeline)).id
        first = read[0]
        read.clear()
        await sandbox.client.runs.edit(run, "label", "mine", item=first, by="ana")
        await sandbox.work()
        assert first not in read
        assert read


async def test_a_pending_rerun_happens_though_another_action_came_first(open_sandbox: OpenSandbox) -> None:
    world = World()
    async with open_sandbox(article(world)) as sandbox:
        run = await run_to_completion(sandbox, world)
        await sandbox.client.runs.rerun(run, "page", by="ana", reason="the printer had no ink")
        await sandbox.client.runs.rerun(run, "text", by="rui")
        await work_to_end(sandbox, run)
        assert world.called == ["text", "page"]
