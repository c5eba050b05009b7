from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from retoma import (
    Context,
    GiveUp,
    OutcomeUnknown,
    OutsideFailed,
    Pipeline,
    Pool,
    RateLimited,
    Report,
    Retry,
    RetryLater,
    minutes,
    seconds,
)
from retoma.define.codec import LARGEST_RESULT
from retoma.errors import Gone, NotFound
from retoma.store import outside
from retoma.store.outside import Look
from retoma.testing import Sandbox
from retoma.worker import poller as poller_module
from retoma.worker.catalog import Catalog
from retoma.worker.poller import Poller
from tests.conftest import OpenSandbox
from tests.engine.builders import codes, do, do_next, fall_silent, rows, state, states, value
from tests.engine.test_leases import dying_hands
from tests.patience import PATIENCE

EVERY = seconds(8)


class Host:
    """A provider moved by the test. What it was asked for is in `submitted` and `cancelled`."""

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.cancelled: list[str] = []
        self.polled: list[str] = []
        self.reports: dict[str, Report | Exception] = {}
        self.callbacks: list[str | None] = []
        self.lose_answer = False
        self.obeys = True
        self.refuses = False

    async def submit(self, scene: str, callback_url: str | None = None) -> str:
        if self.refuses:
            raise RetryLater(5)
        handle = f"{scene}-{len(self.submitted) + 1}"
        self.submitted.append(handle)
        self.callbacks.append(callback_url)
        if self.lose_answer:
            self.lose_answer = False
            raise ConnectionError("the answer was lost")
        return handle

    async def status(self, handle: str) -> Report:
        self.polled.append(handle)
        report = self.reports.get(handle, Report("queued"))
        if isinstance(report, Exception):
            raise report
        return report

    async def cancel(self, handle: str) -> None:
        self.cancelled.append(handle)
        if self.obeys:
            self.reports[handle] = Report("cancelled")

    async def find(self, scene: str) -> str | None:
        return next((handle for handle in self.submitted if handle.startswith(scene)), None)


def film(retry: int = 1, *, reconciles: bool = True, **limits: Any) -> Pipeline:
    pipeline = Pipeline("film", retry=Retry(retry, delays=[5], jitter=0))

    @pipeline.step(pool=Pool("gpu", capacity=1), timeout=minutes(60))
    async def clip(*, host: Host, ctx: Context) -> str:
        handle = await ctx.once(
            "submit",
            lambda: host.submit("scene", ctx.callback_url),
            reconcile=(lambda: host.find("scene")) if reconciles else None,
        )
        video = await ctx.external(handle, poll=host.status, cancel=host.cancel, every=EVERY, **limits)
        return f"{video}!"

    return pipeline


async def parked(sandbox: Sandbox, pipeline: Pipeline) -> UUID:
    run = (await sandbox.client.start(pipeline)).id
    async with sandbox.hands() as hands:
        await do_next(hands, "clip")
    return run


async def look(sandbox: Sandbox, after: timedelta = EVERY) -> int:
    await sandbox.clock.advance(after)
    async with sandbox.hands() as hands:
        return await hands.look()


async def used(sandbox: Sandbox) -> int:
    return (await sandbox.client.pools("gpu"))[0].used


async def test_outside_work_holds_no_worker_and_keeps_its_slots(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        assert (await states(sandbox, run), await state(sandbox, run)) == ({"clip": "parked"}, "running")
        assert await used(sandbox) == 1
        assert await value(sandbox, "select count(*) from retoma.jobs where state = 'running'") == 0


async def test_its_result_comes_back_to_the_step(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("running", progress=0.5)
        assert await look(sandbox) == 1
        (outside,) = await sandbox.client.outside(run)
        assert (outside.state, outside.progress) == ("running", 0.5)

        host.reports["scene-1"] = Report("succeeded", result="video.mp4")
        await sandbox.work()
        assert await sandbox.client.results(run) == {"clip": "video.mp4!"}
        assert host.submitted == ["scene-1"]
        (job,) = await sandbox.client.jobs(run)
        assert job.attempt == 1


async def test_the_slots_are_free_as_soon_as_the_outside_has_ended(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("succeeded", result=1)
        await look(sandbox)
        assert await used(sandbox) == 0


async def test_it_is_looked_at_as_often_as_the_step_asked(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await parked(sandbox, pipeline)
        assert await look(sandbox, seconds(7.9)) == 0
        assert await look(sandbox, seconds(0.1)) == 1
        assert await look(sandbox, seconds(7.9)) == 0
        assert await look(sandbox, seconds(0.1)) == 1


async def test_failed_outside_work_is_submitted_anew_by_the_retry(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(reconciles=False)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("failed", code="CUDA", message="out of memory")
        host.reports["scene-2"] = Report("succeeded", result="video")
        await sandbox.work()
        assert host.submitted == ["scene-1", "scene-2"]
        assert await sandbox.client.results(run) == {"clip": "video!"}
        (job,) = await sandbox.client.jobs(run)
        assert job.attempt == 2


async def test_it_is_submitted_anew_also_if_the_handle_is_only_a_part_of_the_answer(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), Pipeline("film", retry=Retry(1, delays=[5], jitter=0))

    @pipeline.step
    async def clip(*, host: Host, ctx: Context) -> Any:
        await ctx.once("prepare", lambda: "scene-1")
        answer = await ctx.once("submit", lambda: answered(host))
        return await ctx.external(answer["id"], poll=host.status)

    async def answered(host: Host) -> dict[str, str]:
        return {"id": await host.submit("scene"), "status": "IN_QUEUE"}

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("failed")
        host.reports["scene-2"] = Report("succeeded", result="video")
        await sandbox.work()
        assert (await sandbox.client.results(run), host.submitted) == ({"clip": "video"}, ["scene-1", "scene-2"])


async def test_a_part_that_repeats_the_handle_has_not_given_it(open_sandbox: OpenSandbox) -> None:
    host, pipeline, tagged = Host(), Pipeline("film", retry=Retry(1, delays=[5], jitter=0)), []

    @pipeline.step
    async def clip(*, host: Host, ctx: Context) -> Any:
        handle = await ctx.once("submit", lambda: host.submit("scene"))
        tagged.append(await ctx.once("tag", lambda: {"tagged": handle, "all": [handle]}))
        return await ctx.external(handle, poll=host.status)

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("failed")
        host.reports["scene-2"] = Report("succeeded", result="video")
        await sandbox.work()
        assert (await sandbox.client.results(run), host.submitted) == ({"clip": "video"}, ["scene-1", "scene-2"])


@pytest.mark.parametrize("handle_is_given_by", ["submit", "nothing"])
async def test_only_the_part_that_gave_the_handle_is_done_anew(
    open_sandbox: OpenSandbox, handle_is_given_by: str
) -> None:
    host, pipeline, paid = Host(), Pipeline("film", retry=Retry(1, delays=[5], jitter=0)), []

    @pipeline.step
    async def clip(*, host: Host, ctx: Context) -> Any:
        by_once = handle_is_given_by == "submit"
        handle = await ctx.once("submit", lambda: host.submit("scene")) if by_once else await host.submit("scene")
        await ctx.once("pay", lambda: paid.append(handle))
        return await ctx.external(handle, poll=host.status)

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("failed")
        await sandbox.work()
        assert (host.submitted[:2], paid) == (["scene-1", "scene-2"], ["scene-1"])
        assert run


async def test_a_retry_of_outside_work_takes_its_slots_again(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(reconciles=False)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.hands() as hands:
        await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("failed")
        await look(sandbox)
        await do_next(hands, "clip")
        await sandbox.client.set_pool("gpu", capacity=0)
        await sandbox.work()
        assert host.submitted == ["scene-1"]
        await sandbox.client.set_pool("gpu", capacity=1)
        await sandbox.work(until_later=False)
        assert host.submitted == ["scene-1", "scene-2"]
        assert await used(sandbox) == 1


async def test_when_no_try_is_left_the_outsides_code_is_the_jobs(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(retry=0)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("failed", code="CUDA", message="out of memory")
        await sandbox.work()
        assert (await state(sandbox, run), await codes(sandbox, run)) == ("failed", {"clip": "CUDA"})
        assert (await sandbox.client.errors(run))["clip", ""]["message"] == "out of memory"
        assert await used(sandbox) == 0


async def test_a_step_that_fails_after_its_outside_work_does_not_have_it_done_again(open_sandbox: OpenSandbox) -> None:
    host = Host()
    pipeline = Pipeline("film", retry=Retry(1, delays=[5], jitter=0))
    fails = [True]

    @pipeline.step(pool=Pool("gpu", capacity=1))
    async def clip(*, host: Host, ctx: Context) -> str:
        handle = await ctx.once("submit", lambda: host.submit("scene"))
        video = await ctx.external(handle, poll=host.status)
        if fails.pop():
            fails.append(False)
            raise OSError("the download broke")
        return str(video)

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("succeeded", result="video")
        await sandbox.work()
        assert await sandbox.client.results(run) == {"clip": "video"}
        assert host.submitted == ["scene-1"]


async def test_a_submission_whose_answer_was_lost_is_found_and_not_made_again(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("succeeded", result="video")
        await sandbox.work()
        assert host.submitted == ["scene-1"]
        assert await sandbox.client.results(run) == {"clip": "video!"}


class Unsure(Host):
    """Says so when it does not know what came of a submission."""

    async def submit(self, scene: str, callback_url: str | None = None) -> str:
        try:
            return await super().submit(scene, callback_url)
        except ConnectionError as error:
            raise OutcomeUnknown(str(error)) from error


async def test_a_submission_that_says_that_its_outcome_is_unknown_is_found_without_using_up_a_try(
    open_sandbox: OpenSandbox,
) -> None:
    host, pipeline = Unsure(), film(retry=0)
    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("succeeded", result="video")
        await sandbox.work()
        assert host.submitted == ["scene-1"]
        assert await sandbox.client.results(run) == {"clip": "video!"}


async def test_a_worker_that_dies_at_its_submission_leaves_it_to_be_found(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        async with sandbox.hands() as dying:
            await dying.attempt(await dying.claim(1))  # and dies before it has told
        host.reports["scene-1"] = Report("succeeded", result="video")
        await sandbox.work()
        assert host.submitted == ["scene-1"]
        assert await sandbox.client.results(run) == {"clip": "video!"}


async def test_a_step_that_was_told_to_wait_at_its_submission_submits_again(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("film", retry=Retry(0))
    answers: list[Any] = ["handle", RateLimited(30)]
    found: list[str] = []

    async def submit() -> Any:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def reconcile() -> None:
        found.append("asked")

    @pipeline.step
    async def clip(*, ctx: Context) -> str:
        return str(await ctx.once("submit", submit, reconcile=reconcile))

    async with open_sandbox(pipeline) as sandbox:
        ended = await sandbox.run(pipeline)
        assert (ended.results, found) == ({"clip": "handle"}, [])


async def test_a_part_that_was_done_once_is_not_done_by_a_later_attempt(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("film", retry=Retry(2, delays=[1]))
    paid: list[str] = []

    def pay() -> str:
        paid.append("first")
        return "one"

    @pipeline.step
    async def clip(*, ctx: Context) -> list[Any]:
        first = await ctx.once("first", pay)
        if ctx.attempt < 3:
            raise ValueError("no")
        return [first, await ctx.once("second", lambda: paid.append("second"))]

    async with open_sandbox(pipeline) as sandbox:
        ended = await sandbox.run(pipeline)
        assert ended.results == {"clip": ["one", None]}
        assert paid == ["first", "second"]


async def test_an_attempt_that_lost_its_lease_records_nothing(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("film", retry=Retry(0))

    @pipeline.step
    async def clip(*, ctx: Context) -> str:
        async def taken_away() -> str:
            await rows(sandbox, "update retoma.jobs set fence = fence + 1")
            await rows(sandbox, "update retoma.effects set fence = fence + 1")
            return "paid"

        return str(await ctx.once("submit", taken_away))

    async with open_sandbox(pipeline) as sandbox, sandbox.hands() as hands:
        await sandbox.client.start(pipeline)
        await do(hands, await hands.claim(1))
        assert hands.refused == 1
        assert await value(sandbox, "select count(*) from retoma.effects where done_at is not null") == 0


async def test_a_poll_that_fails_is_made_again_less_and_less_often(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = ConnectionError("away")
        assert await look(sandbox) == 1
        assert await look(sandbox, seconds(8)) == 0
        assert await look(sandbox, seconds(8)) == 1
        host.reports["scene-1"] = Report("succeeded", result="video")
        await sandbox.work()
        assert await state(sandbox, run) == "completed"


LARGE = "é" * (LARGEST_RESULT // 2)  # with its quotes over the limit in bytes, and half of it in characters


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (Report("succeeded", result=LARGE), "RESULT_TOO_LARGE", "keep it in a file and give where it is"),
        (Report("succeeded", result=object()), "UNREADABLE_REPORT", "cannot be written as JSON"),
        (Report("done"), "UNREADABLE_REPORT", "give a retoma.Report with one of its states"),  # type: ignore[arg-type]
        (None, "UNREADABLE_REPORT", "host.status gave None: give a retoma.Report"),
        (Report("failed", code=137, message=["killed"]), "137", "killed"),  # type: ignore[arg-type]
    ],
)
async def test_an_answer_that_cannot_be_taken_fails_at_once_and_says_why(
    answer: Any, code: str, said: str, open_sandbox: OpenSandbox
) -> None:
    host, pipeline = Host(), film(retry=0)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = answer
        assert await look(sandbox) == 1
        assert await used(sandbox) == 0
        await sandbox.work(until_later=False)
        error = (await sandbox.client.errors(run))["clip", ""]
        assert (error["code"], said in error["message"]) == (code, True), error


@pytest.mark.parametrize("progress", [-1, 50, float("nan"), "half"])
async def test_a_progress_that_is_none_is_left_out(progress: Any, open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("running", progress=progress)
        await look(sandbox)
        (outside,) = await sandbox.client.outside(run)
        assert (outside.state, outside.progress) == ("running", None)


class Hanging(Host):
    """Says nothing of its first work until it is told to, or its poll is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()
        self.interrupted = False

    async def status(self, handle: str) -> Report:
        if handle == "scene-1":
            self.asked.set()
            try:
                await self.goes_on.wait()
            except asyncio.CancelledError:
                self.interrupted = True
                raise
        return Report("succeeded", result=handle)


@asynccontextmanager
async def polling(sandbox: Sandbox, ended: Callable[[], None]) -> AsyncIterator[Poller]:
    """A poller at work, as a worker has one."""
    catalog = Catalog(sandbox.app)
    await catalog.open(sandbox.database)
    poller = Poller(sandbox.database, catalog, ended)
    task = asyncio.create_task(poller.run())
    try:
        yield poller
    finally:
        task.cancel()
        await asyncio.wait([task])


def two_clips() -> Pipeline:
    pipeline = Pipeline("film")

    @pipeline.step
    async def clip(*, host: Host, ctx: Context) -> Any:
        handle = await ctx.once("submit", lambda: host.submit("scene"))
        return await ctx.external(handle, poll=host.status, every=EVERY)

    return pipeline


async def test_a_poll_that_hangs_holds_up_no_other_and_ends_with_its_worker(open_sandbox: OpenSandbox) -> None:
    host, pipeline, ended = Hanging(), two_clips(), asyncio.Event()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, asyncio.timeout(PATIENCE):
        first = await parked(sandbox, pipeline)
        async with polling(sandbox, ended.set) as poller:
            await sandbox.clock.advance(EVERY)
            poller.wake()
            await host.asked.wait()
            second = await parked(sandbox, pipeline)
            await sandbox.clock.advance(EVERY)
            poller.wake()
            await ended.wait()
            assert [(await states(sandbox, run))["clip"] for run in (first, second)] == ["parked", "ready"]
        assert host.interrupted


async def test_what_waits_for_room_is_looked_at_as_soon_as_there_is_some(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller_module, "AT_ONCE", 1)
    host, pipeline, ends = Hanging(), two_clips(), asyncio.Queue[None]()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, asyncio.timeout(PATIENCE):
        await parked(sandbox, pipeline)
        await sandbox.clock.advance(seconds(1))
        await parked(sandbox, pipeline)
        await sandbox.clock.advance(EVERY)
        async with polling(sandbox, lambda: ends.put_nowait(None)) as poller:
            poller.wake()
            await host.asked.wait()
            host.goes_on.set()
            for _ in range(2):
                await ends.get()


async def test_a_look_that_fails_in_an_unforeseen_way_holds_up_no_other(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, pipeline, broken, ended = Host(), two_clips(), asyncio.Event(), asyncio.Event()
    judged = poller_module._judged

    def breaks_once(look: Look, report: Report) -> Report:
        broken.set()
        monkeypatch.setattr(poller_module, "_judged", judged)
        raise KeyError("unforeseen")

    monkeypatch.setattr(poller_module, "_judged", breaks_once)
    async with (
        open_sandbox(pipeline, resources={"host": host}) as sandbox,
        asyncio.timeout(PATIENCE),
        polling(sandbox, ended.set) as poller,
    ):
        for event in (broken, ended):
            await parked(sandbox, pipeline)
            host.reports[host.submitted[-1]] = Report("succeeded")
            await sandbox.clock.advance(EVERY)
            poller.wake()
            await event.wait()


async def test_a_cancel_reaches_the_outside_and_the_slots_are_free_when_it_confirms(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    host.obeys = False
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        assert await sandbox.client.cancel(run) == "cancelling"
        assert await look(sandbox, seconds(0)) == 1
        assert host.cancelled == ["scene-1"]
        assert (await state(sandbox, run), await used(sandbox)) == ("cancelling", 1)

        host.obeys = True
        await look(sandbox, seconds(1))
        assert (await state(sandbox, run), await used(sandbox)) == ("cancelled", 0)
        assert await states(sandbox, run) == {"clip": "cancelled"}


async def test_an_outside_that_never_confirms_is_told_again_until_its_limit(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    host.obeys = False
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        await sandbox.client.cancel(run)
        await look(sandbox, seconds(0))
        await look(sandbox, minutes(60))
        assert (await state(sandbox, run), await used(sandbox)) == ("cancelling", 1)
        assert len(host.cancelled) == 2
        await look(sandbox, minutes(1))
        assert (await state(sandbox, run), await used(sandbox)) == ("cancelled", 0)


async def test_work_without_a_poll_is_cancelled_outside_too(open_sandbox: OpenSandbox) -> None:
    host = Host()
    pipeline = Pipeline("film")

    @pipeline.step(timeout=minutes(10))
    async def clip(*, host: Host, ctx: Context) -> Any:
        handle = await ctx.once("submit", lambda: host.submit("scene", ctx.callback_url))
        return await ctx.external(handle, cancel=host.cancel)

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        await sandbox.client.cancel(run)
        await look(sandbox, seconds(0))
        assert (await state(sandbox, run), host.cancelled) == ("cancelled", ["scene-1"])


async def test_a_step_that_parks_in_a_run_that_stops_is_cancelled_outside(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.hands() as hands:
        run = (await sandbox.client.start(pipeline)).id
        claims = await hands.claim(1)
        outcomes = await hands.attempt(claims)
        await sandbox.client.cancel(run)
        await hands.give_back(outcomes)
        assert await state(sandbox, run) == "cancelling"
        await hands.look()
        assert (await state(sandbox, run), host.cancelled) == ("cancelled", ["scene-1"])


@pytest.mark.parametrize("when", ["its answer was lost", "its worker died", "its worker dies later"])
async def test_what_goes_on_outside_unknown_to_all_is_found_and_cancelled_with_its_run(
    when: str, open_sandbox: OpenSandbox
) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await let_it_park(sandbox, "clip")
        async with sandbox.hands() as hands:
            host.lose_answer = when == "its answer was lost"
            outcomes = await hands.attempt(await hands.claim(1))
            if when == "its answer was lost":
                await hands.give_back(outcomes)
            if when == "its worker dies later":
                await sandbox.client.cancel(run)
        if when != "its worker dies later":
            await sandbox.client.cancel(run)
        assert (await state(sandbox, run), await used(sandbox)) == ("cancelling", 1)
        await sandbox.work()
        assert (host.submitted, host.cancelled, await used(sandbox)) == (["scene-1"], ["scene-1"], 0)
        assert (await state(sandbox, run), await states(sandbox, run)) == ("cancelled", {"clip": "cancelled"})


@pytest.mark.parametrize("reconciles", [True, False])
async def test_the_last_look_for_what_goes_on_outside_begins_nothing(
    reconciles: bool, open_sandbox: OpenSandbox
) -> None:
    host, pipeline = Host(), film(reconciles=reconciles)
    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        taken, host.submitted = host.submitted, []
        await sandbox.client.cancel(run)
        await sandbox.work()
        assert (len(taken), host.submitted, host.cancelled) == (1, [], [])
        assert (await state(sandbox, run), await codes(sandbox, run)) == ("cancelled", {"clip": "RUN_STOPPED"})


async def test_a_step_with_nothing_to_be_found_outside_does_not_begin_again_in_a_cancelled_run(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline, sent = Pipeline("upload", retry=Retry(0)), []

    @pipeline.step
    async def upload(*, ctx: Context) -> None:
        await ctx.once("session", lambda: "s1")
        sent.append("try")
        raise RetryLater(minutes(1))

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await let_it_park(sandbox, "upload")
        async with sandbox.hands() as hands:
            await do_next(hands, "upload")
        assert await sandbox.client.cancel(run) == "cancelled"
        await sandbox.work()
        assert sent == ["try"]


async def test_a_step_that_never_parks_does_not_begin_again_in_a_cancelled_run(open_sandbox: OpenSandbox) -> None:
    pipeline, published = Pipeline("upload", retry=Retry(3)), []

    @pipeline.step
    async def upload(*, ctx: Context) -> None:
        await ctx.once("upload", lambda: "v1", reconcile=lambda: "v1")
        if ctx.attempt == 1:
            raise ConnectionError
        published.append("v1")

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        async with sandbox.hands() as hands:
            await do_next(hands, "upload")
        assert await sandbox.client.cancel(run) == "cancelled"
        await sandbox.work()
        assert published == []


async def test_a_last_attempt_does_nothing_by_itself_that_takes_time(open_sandbox: OpenSandbox) -> None:
    pipeline, published = Pipeline("upload", retry=Retry(3)), []

    @pipeline.step
    async def upload(*, ctx: Context) -> None:
        await ctx.once("upload", lambda: "v1", reconcile=lambda: "v1")
        if ctx.attempt == 1:
            raise ConnectionError
        await asyncio.Event().wait()
        published.append("v1")

    async with open_sandbox(pipeline) as sandbox, asyncio.timeout(PATIENCE):
        run = (await sandbox.client.start(pipeline)).id
        await let_it_park(sandbox, "upload")
        async with sandbox.hands() as hands:
            await do_next(hands, "upload")
        await sandbox.client.cancel(run)
        await sandbox.work()
        assert (await state(sandbox, run), published) == ("cancelled", [])


async def test_what_was_found_is_parked_though_something_is_to_be_noted_first(open_sandbox: OpenSandbox) -> None:
    host, pipeline, noted = Host(), Pipeline("film", retry=Retry(1)), []

    @pipeline.step
    async def clip(*, host: Host, ctx: Context) -> Any:
        find = lambda: host.find("scene")  # noqa: E731
        handle, _ = await asyncio.gather(
            ctx.once("submit", lambda: host.submit("scene"), reconcile=find),
            ctx.once("count", lambda: noted.append(ctx.attempt)),
        )
        await ctx.once("note", lambda: noted.append(ctx.attempt))
        return await ctx.external(handle, poll=host.status, cancel=host.cancel)

    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        await sandbox.client.cancel(run)
        await sandbox.work()
        assert (host.submitted, host.cancelled) == (["scene-1"], ["scene-1"])
        assert 2 not in noted


async def test_what_was_found_is_parked_though_the_context_is_asked_something_first(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), Pipeline("film", retry=Retry(1))

    @pipeline.step
    async def clip(*, host: Host, ctx: Context) -> Any:
        handle = await ctx.once("submit", lambda: host.submit("scene"), reconcile=lambda: host.find("scene"))
        await ctx.limit_run(minutes(5))
        await ctx.now()
        return await ctx.external(handle, poll=host.status, cancel=host.cancel)

    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        await sandbox.client.cancel(run)
        await sandbox.work()
        assert (host.submitted, host.cancelled) == (["scene-1"], ["scene-1"])


@pytest.mark.parametrize("error", [ValueError("no"), RetryLater(minutes(1)), GiveUp("no")])
async def test_a_last_attempt_that_finds_nothing_to_end_is_the_last(
    error: Exception, open_sandbox: OpenSandbox
) -> None:
    pipeline, tries = Pipeline("order", retry=Retry(3)), []

    @pipeline.step
    async def ordered(*, ctx: Context) -> None:
        await ctx.once("order", lambda: "o1", reconcile=lambda: "o1")
        tries.append(ctx.attempt)
        raise error if len(tries) > 1 else RetryLater(minutes(1))

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await let_it_park(sandbox, "ordered")
        async with sandbox.hands() as hands:
            await do_next(hands, "ordered")
        assert await sandbox.client.cancel(run) == "cancelling"
        await sandbox.work()
        assert len(tries) == 2
        assert (await state(sandbox, run), await states(sandbox, run)) == ("cancelled", {"ordered": "cancelled"})


async def test_an_outside_that_is_away_is_asked_again_for_what_goes_on_there(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    host.lose_answer, away = True, [True, True]

    async def find(scene: str) -> str | None:
        if away:
            away.pop()
            raise RetryLater(minutes(10))
        return await Host.find(host, scene)

    host.find = find  # type: ignore[method-assign]
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        await sandbox.client.cancel(run)
        await sandbox.work()
        assert (await state(sandbox, run), host.submitted, host.cancelled) == ("cancelled", ["scene-1"], ["scene-1"])


@pytest.mark.parametrize(
    ("limits", "reported", "after", "code"),
    [
        ({"queued": minutes(5)}, "queued", minutes(5), "QUEUE_TIMEOUT"),
        ({"running": minutes(5)}, "running", minutes(5) + seconds(8), "TIMEOUT"),
        ({"total": minutes(5)}, "running", minutes(5), "TIMEOUT"),
        ({}, "running", minutes(60), "TIMEOUT"),
    ],
)
async def test_queueing_running_and_all_of_it_have_limits_of_their_own(
    limits: dict[str, Any], reported: Any, after: timedelta, code: str, open_sandbox: OpenSandbox
) -> None:
    host, pipeline = Host(), film(retry=0, **limits)
    host.reports["scene-1"] = Report(reported)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        await look(sandbox)
        await look(sandbox, after - seconds(10))
        assert host.cancelled == []
        await look(sandbox, seconds(10))
        assert host.cancelled == ["scene-1"]
        await sandbox.work()
        assert await codes(sandbox, run) == {"clip": code}


async def test_work_that_ends_in_the_moment_it_is_cancelled_for_its_time_counts(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(retry=0, total=minutes(5))
    host.obeys = False
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("succeeded", result="video")
        await look(sandbox, minutes(6))
        await sandbox.work()
        assert await sandbox.client.results(run) == {"clip": "video!"}


async def test_a_callback_is_a_hint_and_the_poll_is_the_truth(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        token = token_of(host.callbacks[0])
        assert await sandbox.client.call_back(token, {"status": "COMPLETED", "output": "a lie"})
        assert await look(sandbox, seconds(0)) == 1
        assert await states(sandbox, run) == {"clip": "parked"}
        host.reports["scene-1"] = Report("succeeded", result="the truth")
        await sandbox.work()
        assert await sandbox.client.results(run) == {"clip": "the truth!"}


def waiting_for_a_callback(retry: Retry | None = None) -> Pipeline:
    pipeline = Pipeline("film", retry=retry or Retry(0))

    @pipeline.step(timeout=minutes(10))
    async def clip(*, host: Host, ctx: Context) -> Any:
        handle = await ctx.once("submit", lambda: host.submit("scene", ctx.callback_url))
        return await ctx.external(handle)

    return pipeline


async def test_without_a_poll_the_callbacks_body_is_the_result(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        assert await sandbox.client.call_back(token_of(host.callbacks[0]), {"answer": 42})
        assert not await sandbox.client.call_back(token_of(host.callbacks[0]), {"answer": 43})
        await sandbox.work()
        assert await sandbox.client.results(run) == {"clip": {"answer": 42}}


async def test_a_late_call_about_the_first_try_says_nothing_of_the_second(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback(Retry(1, delays=[5], jitter=0))
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.hands() as hands:
        run = await parked(sandbox, pipeline)
        await look(sandbox, minutes(10))
        await do_next(hands, "clip")
        await sandbox.clock.advance(seconds(5))
        await sandbox.work(until_later=False)
        assert host.submitted == ["scene-1", "scene-2"]
        with pytest.raises(NotFound):
            await sandbox.client.call_back(token_of(host.callbacks[0]), "of the first")
        await sandbox.client.call_back(token_of(host.callbacks[1]), "of the second")
        await sandbox.work()
        assert await sandbox.client.results(run) == {"clip": "of the second"}


async def test_a_callbacks_body_that_is_no_result_fails_the_step(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        await sandbox.client.call_back(token_of(host.callbacks[0]), LARGE)
        await look(sandbox, seconds(0))
        (outside,) = await sandbox.client.outside(run)
        assert (outside.state, outside.error and outside.error["code"]) == ("failed", "RESULT_TOO_LARGE")


async def test_a_callback_that_comes_before_the_job_is_parked_is_not_lost(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.hands() as hands:
        run = (await sandbox.client.start(pipeline)).id
        outcomes = await hands.attempt(await hands.claim(1))
        await sandbox.client.call_back(token_of(host.callbacks[0]), {"answer": 42})
        await hands.give_back(outcomes)
        await sandbox.work(until_later=False)
        assert await sandbox.client.results(run) == {"clip": {"answer": 42}}


async def test_a_callback_that_never_comes_is_waited_for_until_the_limit(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        ended = await sandbox.run(pipeline)
        assert ended.state == "failed"
        assert await codes(sandbox, ended.id) == {"clip": "TIMEOUT"}


async def test_a_callback_that_nobody_waits_for_is_refused(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await parked(sandbox, pipeline)
        with pytest.raises(NotFound, match="no such callback"):
            await sandbox.client.call_back("guessed")
        await sandbox.clock.advance(timedelta(days=31))
        with pytest.raises(Gone, match="too late"):
            await sandbox.client.call_back(token_of(host.callbacks[0]))


async def test_tokens_of_callbacks_are_nowhere_in_the_database(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await parked(sandbox, pipeline)
        token = token_of(host.callbacks[0])
        for table in ("callbacks", "effects", "outside", "events", "jobs"):
            kept = await rows(sandbox, f"select t::text as row from retoma.{table} t")
            assert not [row for row in kept if token in row["row"]]


async def test_only_the_last_look_counts(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("succeeded", result="late")
        polled = host.status

        async def slow(handle: str) -> Report:
            await rows(sandbox, "update retoma.outside set looks = looks + 1")
            return await polled(handle)

        host.status = slow  # type: ignore[method-assign]
        await look(sandbox)
        assert await states(sandbox, run) == {"clip": "parked"}


async def test_a_poll_that_another_process_could_not_find_is_refused(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("film", retry=Retry(0))

    @pipeline.step
    async def clip(*, host: Host, ctx: Context) -> Any:
        return await ctx.external("handle", poll=lambda handle: host.status(handle))

    async with open_sandbox(pipeline, resources={"host": Host()}) as sandbox:
        ended = await sandbox.run(pipeline)
        said = (await sandbox.client.errors(ended.id))["clip", ""]["message"]
        assert "give a method of one of the step's resources" in said


async def test_a_step_that_waits_after_its_outside_work_failed_submits_anew(open_sandbox: OpenSandbox) -> None:
    host = Host()
    waited: list[str] = []
    pipeline = Pipeline("film", retry=Retry(0))

    @pipeline.step(pool=Pool("gpu", capacity=1))
    async def clip(*, host: Host, ctx: Context) -> str:
        handle = await ctx.once("submit", lambda: host.submit("scene"))
        try:
            return str(await ctx.external(handle, poll=host.status))
        except OutsideFailed as failure:
            waited.append(handle)
            raise (RetryLater(30) if len(waited) == 1 else GiveUp("once is enough")) from failure

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        host.reports |= {"scene-1": Report("failed"), "scene-2": Report("succeeded", result="video")}
        ended = await sandbox.run(pipeline)
        assert (ended.results, host.submitted) == ({"clip": "video"}, ["scene-1", "scene-2"])
        (job,) = await sandbox.client.jobs(ended.id)
        assert (job.attempt, await used(sandbox)) == (1, 0)


async def test_the_result_of_one_piece_of_work_is_never_given_for_another(open_sandbox: OpenSandbox) -> None:
    host = Host()
    pipeline = Pipeline("film", retry=Retry(0))

    @pipeline.step
    async def clip(*, host: Host, ctx: Context) -> list[Any]:
        handles = [await ctx.once(name, lambda: host.submit("scene")) for name in ("first", "second")]
        return [await ctx.external(handle, poll=host.status) for handle in handles]

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        host.reports["scene-1"] = Report("succeeded", result="the first")
        ended = await sandbox.run(pipeline)
        assert (ended.state, ended.results) == ("failed", {})
        said = (await sandbox.client.errors(ended.id))["clip", ""]["message"]
        assert "leave a second piece of outside work to a step of its own" in said


async def test_a_step_may_handle_what_failed_outside(open_sandbox: OpenSandbox) -> None:
    host = Host()
    pipeline = Pipeline("film")

    @pipeline.step
    async def clip(*, host: Host, ctx: Context) -> str:
        handle = await ctx.once("submit", lambda: host.submit("scene"))
        try:
            return str(await ctx.external(handle, poll=host.status))
        except OutsideFailed as failure:
            raise GiveUp("the picture is broken", code=failure.code) from failure

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        host.reports["scene-1"] = Report("failed", code="BROKEN")
        await sandbox.work()
        assert await codes(sandbox, run) == {"clip": "BROKEN"}


def token_of(url: str | None) -> str:
    assert url is not None
    return url.rpartition("/")[2]


async def let_it_park(sandbox: Sandbox, step: str) -> None:
    """As if a job of this step had been parked before."""
    assert await rows(sandbox, "update retoma.steps set parks = true where step = $1 returning step", step)


class Wordless(BaseException):
    """Cannot even say what it is."""

    def __repr__(self) -> str:
        raise SystemExit(3)

    __str__ = __repr__


class WordlessReport(Report):
    @property
    def is_end(self) -> bool:
        raise Wordless


class Hostile(Host):
    """A provider whose client raises `error` from `poll` and `cancel`, or gives it back as the report."""

    def __init__(self, error: Any) -> None:
        super().__init__()
        self.error = error

    async def status(self, handle: str) -> Report:
        if isinstance(self.error, BaseException):
            raise self.error
        report: Report = self.error
        return report

    async def cancel(self, handle: str) -> None:
        await self.status(handle)


class Ignoring(Host):
    """Its poll ends when the test says so, and takes no notice of its cancellation."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()

    async def status(self, handle: str) -> Report:
        while not self.released.is_set():
            with suppress(asyncio.CancelledError):
                await self.released.wait()
        return Report("running")


class WordlessText:
    def __str__(self) -> str:
        raise Wordless

    __repr__ = __str__


HOSTILE = [
    asyncio.CancelledError(),
    Wordless(),
    SystemExit(1),
    KeyboardInterrupt(),
    StopAsyncIteration(),
    GeneratorExit(),
]


@pytest.mark.parametrize("error", HOSTILE, ids=lambda error: type(error).__name__)
async def test_whatever_a_poll_raises_is_a_failed_poll_and_limits_hold(open_sandbox: OpenSandbox, error: Any) -> None:
    host, pipeline = Hostile(error), film(retry=0, total=seconds(40))
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, asyncio.timeout(PATIENCE):
        run = await parked(sandbox, pipeline)
        await look(sandbox)
        (outside,) = await sandbox.client.outside(run)
        assert (outside.state, outside.failed_looks) == ("queued", 1)
        await sandbox.work()
        assert (await states(sandbox, run), await codes(sandbox, run)) == ({"clip": "failed"}, {"clip": "TIMEOUT"})
        assert (await state(sandbox, run), await used(sandbox)) == ("failed", 0)


@pytest.mark.parametrize("error", HOSTILE, ids=lambda error: type(error).__name__)
async def test_a_run_whose_poll_and_cancel_raise_anything_can_be_cancelled(
    open_sandbox: OpenSandbox, error: Any
) -> None:
    host, pipeline = Hostile(error), film(retry=0, total=seconds(40))
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, asyncio.timeout(PATIENCE):
        run = await parked(sandbox, pipeline)
        await sandbox.client.cancel(run)
        await sandbox.work()
        assert (await state(sandbox, run), await used(sandbox)) == ("cancelled", 0)


@pytest.mark.parametrize(
    "report",
    [
        WordlessReport("queued"),
        WordlessText(),
        Report("failed", code=WordlessText()),  # type: ignore[arg-type]
        Report("failed", message=Wordless()),  # type: ignore[arg-type]
    ],
    ids=["state", "no report", "code", "message"],
)
async def test_a_report_that_cannot_be_read_holds_up_nothing(open_sandbox: OpenSandbox, report: Any) -> None:
    host, pipeline = Hostile(report), film(retry=0, total=seconds(40))
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, asyncio.timeout(PATIENCE):
        run = await parked(sandbox, pipeline)
        await sandbox.work()
        assert (await state(sandbox, run), await used(sandbox)) == ("failed", 0)


async def test_a_poll_that_ignores_its_cancellation_is_left_behind(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller_module, "PATIENCE", 0.01)
    host, pipeline = Ignoring(), film(retry=0, total=seconds(40))
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        try:
            async with asyncio.timeout(PATIENCE):
                await sandbox.work()
        finally:
            host.released.set()
        assert (await state(sandbox, run), await used(sandbox)) == ("failed", 0)


async def die_while_looking(sandbox: Sandbox) -> int:
    """A worker claims the looks that are due and vanishes; gives how many it had claimed."""
    async with dying_hands(sandbox) as hands:
        claimed = await outside.due(sandbox.database, hands.versions, 100, minutes(2), hands.worker)
        await fall_silent(sandbox)
    return len(claimed)


async def test_a_poll_that_kills_three_workers_is_quarantined(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(retry=3)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        await sandbox.clock.advance(EVERY)
        for death in (1, 2):
            assert await die_while_looking(sandbox) == 1
            assert (await states(sandbox, run), await used(sandbox)) == ({"clip": "parked"}, 1), death
        assert await die_while_looking(sandbox) == 1
        assert (await states(sandbox, run), await codes(sandbox, run)) == (
            {"clip": "quarantined"},
            {"clip": "QUARANTINED"},
        )
        assert (await state(sandbox, run), await used(sandbox)) == ("failed", 0)
        (outside,) = await sandbox.client.outside(run)
        assert (outside.state, (outside.error or {})["code"]) == ("lost", "QUARANTINED")


async def test_a_cancelled_run_ends_though_its_poll_kills_workers(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await parked(sandbox, pipeline)
        await sandbox.client.cancel(run)
        for _ in range(3):
            await die_while_looking(sandbox)
        assert (await state(sandbox, run), await used(sandbox)) == ("cancelled", 0)


async def test_polls_that_died_beside_a_killer_are_tried_one_at_a_time(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), two_clips()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        for _ in range(3):
            await parked(sandbox, pipeline)
        await sandbox.clock.advance(EVERY)
        assert [await die_while_looking(sandbox) for _ in range(2)] == [3, 1]
        assert await value(sandbox, "select array_agg(deaths order by deaths) from retoma.outside") == [1, 1, 2]


async def test_a_poll_that_was_answered_is_trusted_again(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await parked(sandbox, pipeline)
        await sandbox.clock.advance(EVERY)
        await die_while_looking(sandbox)
        assert await look(sandbox) == 1
        assert await value(sandbox, "select deaths from retoma.outside") == 0


async def test_a_suspect_poll_waits_while_its_worker_tries_a_suspect_step(open_sandbox: OpenSandbox) -> None:
    host, pipeline, suspect = Host(), film(), True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await parked(sandbox, pipeline)
        await sandbox.clock.advance(EVERY)
        await die_while_looking(sandbox)
        catalog = Catalog(sandbox.app)
        await catalog.open(sandbox.database)
        poller = Poller(sandbox.database, catalog, lambda: None, lambda: suspect)
        assert await poller.look() == 0
        suspect = False
        assert await poller.look() == 1


async def test_a_worker_that_stops_leaves_its_polls_to_others_at_once(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await parked(sandbox, pipeline)
        await sandbox.clock.advance(EVERY)
        async with sandbox.hands() as hands:
            await outside.due(sandbox.database, hands.versions, 100, minutes(2), hands.worker)
        assert await value(sandbox, "select deaths from retoma.outside") == 0
        assert await look(sandbox, seconds(0)) == 1
