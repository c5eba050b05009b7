from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from retoma import Context, GiveUp, Pipeline, PollResult, Pool, Retry, RetryLater, minutes, seconds
from retoma.define.codec import MAX_RESULT_BYTES
from retoma.errors import ExternalWorkFailed, Gone, NotFound, RateLimited, SubmissionUnknown
from retoma.store import external_work
from retoma.store.external_work import DuePoll, DueRequest
from retoma.testing import Sandbox
from retoma.worker import external_work_poller as poller_module
from retoma.worker.external_work_poller import ExternalWorkPoller
from tests.conftest import OpenSandbox
from tests.engine.builders import (
    codes,
    kinds,
    load_versions,
    pass_heartbeat_timeout,
    rows,
    run_claims,
    run_next,
    state,
    states,
    value,
)
from tests.engine.test_leases import killed_worker
from tests.wait_timeout import WAIT_TIMEOUT

EVERY = seconds(8)


class Host:
    """A provider driven by the test. It records requests in `submitted` and `cancelled`."""

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.cancelled: list[str] = []
        self.polled: list[str] = []
        self.reports: dict[str, PollResult | Exception] = {}
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

    async def status(self, external_id: str) -> PollResult:
        self.polled.append(external_id)
        report = self.reports.get(external_id, PollResult("queued"))
        if isinstance(report, Exception):
            raise report
        return report

    async def cancel(self, external_id: str) -> None:
        self.cancelled.append(external_id)
        if self.obeys:
            self.reports[external_id] = PollResult("cancelled")

    async def find(self, scene: str) -> str | None:
        return next((handle for handle in self.submitted if handle.startswith(scene)), None)


class UnreachableHost(Host):
    is_away = True

    async def cancel(self, external_id: str) -> None:
        await super().cancel(external_id)
        if self.is_away:
            raise ConnectionError("away")


def film(retry: int = 1, *, finds: bool = True, **limits: Any) -> Pipeline:
    pipeline = Pipeline("film", retry=Retry(retry, delays=[5], jitter=0))

    @pipeline.step(pool=Pool("gpu", capacity=1), timeout=minutes(60))
    async def clip(*, host: Host, ctx: Context) -> str:
        video = await ctx.external(
            lambda: host.submit("scene", ctx.callback_url),
            find=host.find if finds else None,
            key="scene",
            poll=host.status,
            cancel=host.cancel,
            poll_interval=EVERY,
            **limits,
        )
        return f"{video}!"

    return pipeline


async def start_parked(sandbox: Sandbox, pipeline: Pipeline) -> UUID:
    run = (await sandbox.client.start(pipeline)).id
    async with sandbox.manual_worker() as worker:
        await run_next(worker, "clip")
    return run


async def poll(sandbox: Sandbox, after: timedelta = EVERY) -> int:
    await sandbox.clock.advance(after)
    async with sandbox.manual_worker() as worker:
        return await worker.poll_external_work()


async def count_used_slots(sandbox: Sandbox) -> int:
    return (await sandbox.client.pools.list("gpu"))[0].used


async def test_external_work_holds_no_worker_and_keeps_its_slots(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        assert (await states(sandbox, run), await state(sandbox, run)) == ({"clip": "parked"}, "running")
        assert await count_used_slots(sandbox) == 1
        assert await value(sandbox, "select count(*) from retoma.jobs where state = 'running'") == 0


async def test_the_result_of_external_work_is_returned_to_the_step(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = PollResult("running", progress=0.5)
        assert await poll(sandbox) == 1
        (outside,) = await sandbox.client.external_work.list(run)
        assert (outside.state, outside.progress) == ("running", 0.5)

        host.reports["scene-1"] = PollResult("succeeded", result="video.mp4")
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run) == {"clip": "video.mp4!"}
        assert host.submitted == ["scene-1"]
        (job,) = await sandbox.client.runs.list_jobs(run)
        assert job.attempt == 1


async def test_the_duration_of_a_step_includes_its_external_work(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        await sandbox.clock.advance(minutes(2))
        host.reports["scene-1"] = PollResult("succeeded", result="video.mp4")
        await sandbox.work()
        (step,) = await sandbox.client.runs.get_progress(run)
        assert step.duration is not None
        assert step.duration >= minutes(2)


async def test_slots_are_released_as_soon_as_external_work_has_ended(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = PollResult("succeeded", result=1)
        await poll(sandbox)
        assert await count_used_slots(sandbox) == 0


async def test_external_work_is_polled_as_often_as_the_step_requested(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await start_parked(sandbox, pipeline)
        assert await poll(sandbox, seconds(7.9)) == 0
        assert await poll(sandbox, seconds(0.1)) == 1
        assert await poll(sandbox, seconds(7.9)) == 0
        assert await poll(sandbox, seconds(0.1)) == 1


async def test_a_retry_resubmits_failed_external_work(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(finds=False)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = PollResult("failed", code="CUDA", message="out of memory")
        host.reports["scene-2"] = PollResult("succeeded", result="video")
        await sandbox.work()
        assert host.submitted == ["scene-1", "scene-2"]
        assert await sandbox.client.runs.get_results(run) == {"clip": "video!"}
        (job,) = await sandbox.client.runs.list_jobs(run)
        assert job.attempt == 2


async def test_only_the_submission_runs_again_with_the_retry(open_sandbox: OpenSandbox) -> None:
    host, pipeline, paid = Host(), Pipeline("film", retry=Retry(1, delays=[5], jitter=0)), []

    @pipeline.step
    async def clip(*, host: Host, ctx: Context) -> Any:
        await ctx.once("pay", lambda: paid.append("scene-1"))
        return await ctx.external(lambda: host.submit("scene"), poll=host.status)

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = PollResult("failed")
        host.reports["scene-2"] = PollResult("succeeded", result="video")
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run) == {"clip": "video"}
        assert (host.submitted, paid) == (["scene-1", "scene-2"], ["scene-1"])


@pytest.mark.parametrize("name", ["external", "external#1"])
async def test_a_part_cannot_take_the_name_of_the_submission(name: str, open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("film", retry=Retry(0))

    @pipeline.step
    async def clip(*, ctx: Context) -> Any:
        return await ctx.once(name, lambda: 1)

    async with open_sandbox(pipeline) as sandbox:
        ended = await sandbox.run(pipeline)
        said = (await sandbox.client.runs.get_errors(ended.id))["clip", ""]["message"]
        assert "reserved for ctx.external" in said


async def test_a_retry_of_external_work_takes_its_slots_again(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(finds=False)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.manual_worker() as worker:
        await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = PollResult("failed")
        await poll(sandbox)
        await run_next(worker, "clip")
        await sandbox.client.pools.update("gpu", capacity=0)
        await sandbox.work()
        assert host.submitted == ["scene-1"]
        await sandbox.client.pools.update("gpu", capacity=1)
        await sandbox.work(advance_clock=False)
        assert host.submitted == ["scene-1", "scene-2"]
        assert await count_used_slots(sandbox) == 1


async def test_without_attempts_left_the_providers_error_code_becomes_the_jobs(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(retry=0)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = PollResult("failed", code="CUDA", message="out of memory")
        await sandbox.work()
        assert (await state(sandbox, run), await codes(sandbox, run)) == ("failed", {"clip": "CUDA"})
        assert (await sandbox.client.runs.get_errors(run))["clip", ""]["message"] == "out of memory"
        assert await count_used_slots(sandbox) == 0


async def test_a_step_that_fails_after_external_work_does_not_repeat_it(open_sandbox: OpenSandbox) -> None:
    host = Host()
    pipeline = Pipeline("film", retry=Retry(1, delays=[5], jitter=0))
    fails = [True]

    @pipeline.step(pool=Pool("gpu", capacity=1))
    async def clip(*, host: Host, ctx: Context) -> str:
        video = await ctx.external(lambda: host.submit("scene"), poll=host.status)
        if fails.pop():
            fails.append(False)
            raise OSError("the download broke")
        return str(video)

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = PollResult("succeeded", result="video")
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run) == {"clip": "video"}
        assert host.submitted == ["scene-1"]


async def test_a_submission_whose_answer_was_lost_is_found_and_not_repeated(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = PollResult("succeeded", result="video")
        await sandbox.work()
        assert host.submitted == ["scene-1"]
        assert await sandbox.client.runs.get_results(run) == {"clip": "video!"}


class UnsureHost(Host):
    """Raises `SubmissionUnknown` if the outcome of a submission is unknown."""

    async def submit(self, scene: str, callback_url: str | None = None) -> str:
        try:
            return await super().submit(scene, callback_url)
        except ConnectionError as error:
            raise SubmissionUnknown(str(error)) from error


async def test_a_submission_with_an_unknown_outcome_is_found_without_using_an_attempt(
    open_sandbox: OpenSandbox,
) -> None:
    host, pipeline = UnsureHost(), film(retry=0)
    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = PollResult("succeeded", result="video")
        await sandbox.work()
        assert host.submitted == ["scene-1"]
        assert await sandbox.client.runs.get_results(run) == {"clip": "video!"}


async def test_a_submission_of_a_dying_worker_is_found_afterwards(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        async with sandbox.manual_worker() as dying:
            await dying.attempt(await dying.claim(1))  # and dies before it has told
        host.reports["scene-1"] = PollResult("succeeded", result="video")
        await sandbox.work()
        assert host.submitted == ["scene-1"]
        assert await sandbox.client.runs.get_results(run) == {"clip": "video!"}


async def test_a_step_that_must_wait_at_its_submission_submits_again(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("film", retry=Retry(0))
    answers: list[Any] = ["handle", RateLimited(30)]

    class Desk:
        def __init__(self) -> None:
            self.asked: list[str] = []

        def find(self, key: str) -> None:
            self.asked.append(key)

    desk = Desk()

    async def submit() -> Any:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    @pipeline.step
    async def clip(*, desk: Desk, ctx: Context) -> str:
        return str(await ctx.once("submit", submit, find=desk.find))

    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        ended = await sandbox.run(pipeline)
        assert (ended.results, desk.asked) == ({"clip": "handle"}, [])


async def test_a_completed_effect_is_not_repeated_by_a_later_attempt(open_sandbox: OpenSandbox) -> None:
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

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        await run_claims(worker, await worker.claim(1))
        assert worker.rejected_outcomes == 1
        assert await value(sandbox, "select count(*) from retoma.effects where done_at is not null") == 0


async def test_failed_polls_are_repeated_less_and_less_often(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = ConnectionError("away")
        assert await poll(sandbox) == 1
        assert await poll(sandbox, seconds(8)) == 0
        assert await poll(sandbox, seconds(8)) == 1
        host.reports["scene-1"] = PollResult("succeeded", result="video")
        await sandbox.work()
        assert await state(sandbox, run) == "completed"


LARGE = "é" * (MAX_RESULT_BYTES // 2)  # with its quotes over the limit in bytes, and half of it in characters


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (PollResult("succeeded", result=LARGE), "RESULT_TOO_LARGE", "keep it in a file and return its location"),
        (PollResult("succeeded", result=object()), "INVALID_POLL_RESULT", "cannot be written as JSON"),
        (PollResult("done"), "INVALID_POLL_RESULT", "return a retoma.PollResult with one of its states"),  # type: ignore[arg-type]
        (None, "INVALID_POLL_RESULT", "host.status returned None: return a retoma.PollResult"),
        (PollResult("failed", code=137, message=["killed"]), "137", "killed"),  # type: ignore[arg-type]
    ],
)
async def test_an_unusable_answer_fails_at_once_with_the_reason(
    answer: Any, code: str, message: str, open_sandbox: OpenSandbox
) -> None:
    host, pipeline = Host(), film(retry=0)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = answer
        assert await poll(sandbox) == 1
        assert await count_used_slots(sandbox) == 0
        await sandbox.work(advance_clock=False)
        error = (await sandbox.client.runs.get_errors(run))["clip", ""]
        assert (error["code"], message in error["message"]) == (code, True), error


@pytest.mark.parametrize("progress", [-1, 50, float("nan"), "half"])
async def test_an_invalid_progress_value_is_omitted(progress: Any, open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = PollResult("running", progress=progress)
        await poll(sandbox)
        (outside,) = await sandbox.client.external_work.list(run)
        assert (outside.state, outside.progress) == ("running", None)


class HangingHost(Host):
    """Does not answer about its first work until it is released or its poll is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()
        self.interrupted = False

    async def status(self, external_id: str) -> PollResult:
        if external_id == "scene-1":
            self.asked.set()
            try:
                await self.goes_on.wait()
            except asyncio.CancelledError:
                self.interrupted = True
                raise
        return PollResult("succeeded", result=external_id)


@asynccontextmanager
async def run_poller(sandbox: Sandbox, ended: Callable[[], None]) -> AsyncIterator[ExternalWorkPoller]:
    """A running poller, as a worker has one."""
    catalog = await load_versions(sandbox)
    poller = ExternalWorkPoller(sandbox.database, catalog, ended)
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
        return await ctx.external(lambda: host.submit("scene"), poll=host.status, poll_interval=EVERY)

    return pipeline


async def test_a_hanging_poll_delays_no_other_and_ends_with_its_worker(open_sandbox: OpenSandbox) -> None:
    host, pipeline, ended = HangingHost(), two_clips(), asyncio.Event()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, asyncio.timeout(WAIT_TIMEOUT):
        first = await start_parked(sandbox, pipeline)
        async with run_poller(sandbox, ended.set) as poller:
            await sandbox.clock.advance(EVERY)
            poller.wake()
            await host.asked.wait()
            second = await start_parked(sandbox, pipeline)
            await sandbox.clock.advance(EVERY)
            poller.wake()
            await ended.wait()
            assert [(await states(sandbox, run))["clip"] for run in (first, second)] == ["parked", "ready"]
        assert host.interrupted


async def test_due_polls_run_as_soon_as_there_is_room(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller_module, "MAX_CONCURRENT_CALLS", 1)
    host, pipeline, ends = HangingHost(), two_clips(), asyncio.Queue[None]()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, asyncio.timeout(WAIT_TIMEOUT):
        await start_parked(sandbox, pipeline)
        await sandbox.clock.advance(seconds(1))
        await start_parked(sandbox, pipeline)
        await sandbox.clock.advance(EVERY)
        async with run_poller(sandbox, lambda: ends.put_nowait(None)) as poller:
            poller.wake()
            await host.asked.wait()
            host.goes_on.set()
            for _ in range(2):
                await ends.get()


async def test_a_poll_that_fails_unexpectedly_delays_no_other(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, pipeline, broken, ended = Host(), two_clips(), asyncio.Event(), asyncio.Event()
    judged = poller_module._apply_stop

    def breaks_once(look: DuePoll, report: PollResult, *, given_up: bool) -> PollResult:
        broken.set()
        monkeypatch.setattr(poller_module, "_apply_stop", judged)
        raise KeyError("unforeseen")

    monkeypatch.setattr(poller_module, "_apply_stop", breaks_once)
    async with (
        open_sandbox(pipeline, resources={"host": host}) as sandbox,
        asyncio.timeout(WAIT_TIMEOUT),
        run_poller(sandbox, ended.set) as poller,
    ):
        for event in (broken, ended):
            await start_parked(sandbox, pipeline)
            host.reports[host.submitted[-1]] = PollResult("succeeded")
            await sandbox.clock.advance(EVERY)
            poller.wake()
            await event.wait()


async def test_a_cancel_reaches_the_provider_and_frees_slots_when_confirmed(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    host.obeys = False
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        assert await sandbox.client.runs.cancel(run) == "cancelling"
        assert await poll(sandbox, seconds(0)) == 1
        assert host.cancelled == ["scene-1"]
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("cancelling", 1)

        host.obeys = True
        await poll(sandbox, seconds(1))
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("cancelled", 0)
        assert await states(sandbox, run) == {"clip": "cancelled"}


async def test_an_unconfirmed_cancel_is_repeated_until_its_limit(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    host.obeys = False
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        await sandbox.client.runs.cancel(run)
        await poll(sandbox, seconds(0))
        await poll(sandbox, minutes(60))
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("cancelling", 1)
        assert len(host.cancelled) == 2
        assert await sandbox.client.runs.list_orphans(run) == []
        await poll(sandbox, minutes(1))
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("cancelled", 0)
        (orphan,) = await sandbox.client.runs.list_orphans(run)
        assert (orphan.step, orphan.effect, orphan.key, orphan.value) == ("clip", "external#1", "scene", "scene-1")
        assert "did not confirm that it ended" in orphan.error["message"]
        assert "orphan clip" in await kinds(sandbox, run)


@pytest.mark.parametrize("reported", ["cancelled", "failed", "lost", "succeeded"])
async def test_an_end_that_the_provider_confirms_leaves_no_orphan(reported: Any, open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    host.obeys = False
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        await sandbox.client.runs.cancel(run)
        host.reports["scene-1"] = PollResult(reported)
        await poll(sandbox, minutes(61))
        assert (await state(sandbox, run), await sandbox.client.runs.list_orphans(run)) == ("cancelled", [])


async def test_a_retry_after_an_unconfirmed_timeout_leaves_an_orphan_and_submits_again(
    open_sandbox: OpenSandbox,
) -> None:
    host, pipeline = Host(), film(retry=2, finds=False, total_timeout=minutes(5))
    host.obeys = False
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.reports["scene-3"] = PollResult("succeeded", result="video")
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run) == {"clip": "video!"}
        orphans = await sandbox.client.runs.list_orphans(run)
        assert [orphan.value for orphan in orphans] == ["scene-1", "scene-2"]
        for orphan in orphans:
            await sandbox.client.runs.resolve_orphan(run, "clip", orphan.effect, "cancelled_by_hand")
        assert await sandbox.client.runs.list_orphans() == []


async def test_work_of_a_job_that_fails_by_an_unconfirmed_timeout_is_an_orphan(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(retry=0, total_timeout=minutes(5))
    host.obeys = False
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        await sandbox.work()
        assert (await state(sandbox, run), await codes(sandbox, run)) == ("failed", {"clip": "TIMEOUT"})
        (orphan,) = await sandbox.client.runs.list_orphans(run)
        assert (orphan.value, orphan.error["code"]) == ("scene-1", "TIMEOUT")


async def test_external_work_without_a_poll_is_also_cancelled(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback(cancels=True)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        await sandbox.client.runs.cancel(run)
        await poll(sandbox, seconds(0))
        assert (await state(sandbox, run), host.cancelled) == ("cancelled", ["scene-1"])
        assert await sandbox.client.runs.list_orphans(run) == []


@pytest.mark.parametrize("recovers", [True, False])
async def test_a_failed_cancel_of_work_without_a_poll_is_repeated(recovers: bool, open_sandbox: OpenSandbox) -> None:
    host, pipeline = UnreachableHost(), waiting_for_a_callback(cancels=True)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        await sandbox.client.runs.cancel(run)
        for _ in range(2):
            await poll(sandbox, seconds(1))
        assert (await state(sandbox, run), host.cancelled) == ("cancelling", ["scene-1"] * 2)
        host.is_away = not recovers
        await poll(sandbox, minutes(11))
        assert (await state(sandbox, run), host.cancelled) == ("cancelled", ["scene-1"] * 3)
        assert [one.value for one in await sandbox.client.runs.list_orphans(run)] == ([] if recovers else ["scene-1"])


async def test_work_that_can_be_neither_polled_nor_cancelled_is_an_orphan(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        await sandbox.client.runs.cancel(run)
        await poll(sandbox, seconds(0))
        (outside,) = await sandbox.client.external_work.list(run)
        assert (await state(sandbox, run), outside.state) == ("cancelled", "lost")
        assert [orphan.value for orphan in await sandbox.client.runs.list_orphans(run)] == ["scene-1"]


async def test_external_work_that_parks_in_a_stopping_run_is_cancelled(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(1)
        outcomes = await worker.attempt(claims)
        await sandbox.client.runs.cancel(run)
        await worker.record_outcomes(outcomes)
        assert await state(sandbox, run) == "cancelling"
        await worker.poll_external_work()
        assert (await state(sandbox, run), host.cancelled) == ("cancelled", ["scene-1"])


@pytest.mark.parametrize(
    ("limits", "reported", "after", "code"),
    [
        ({"queue_timeout": minutes(5)}, "queued", minutes(5), "QUEUE_TIMEOUT"),
        ({"run_timeout": minutes(5)}, "running", minutes(5) + seconds(8), "TIMEOUT"),
        ({"total_timeout": minutes(5)}, "running", minutes(5), "TIMEOUT"),
        ({}, "running", minutes(60), "TIMEOUT"),
    ],
)
async def test_queueing_running_and_the_total_have_separate_limits(
    limits: dict[str, Any], reported: Any, after: timedelta, code: str, open_sandbox: OpenSandbox
) -> None:
    host, pipeline = Host(), film(retry=0, **limits)
    host.reports["scene-1"] = PollResult(reported)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        await poll(sandbox)
        await poll(sandbox, after - seconds(10))
        assert host.cancelled == []
        await poll(sandbox, seconds(10))
        assert host.cancelled == ["scene-1"]
        await sandbox.work()
        assert await codes(sandbox, run) == {"clip": code}


async def test_work_that_completes_while_being_cancelled_for_its_time_limit_counts(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(retry=0, total_timeout=minutes(5))
    host.obeys = False
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = PollResult("succeeded", result="video")
        await poll(sandbox, minutes(6))
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run) == {"clip": "video!"}


async def test_a_callback_is_only_a_hint_and_the_poll_decides(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        token = token_of(host.callbacks[0])
        assert await sandbox.client.external_work.record_callback(token, {"status": "COMPLETED", "output": "a lie"})
        assert await poll(sandbox, seconds(0)) == 1
        assert await states(sandbox, run) == {"clip": "parked"}
        host.reports["scene-1"] = PollResult("succeeded", result="the truth")
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run) == {"clip": "the truth!"}


def waiting_for_a_callback(retry: Retry | None = None, *, cancels: bool = False) -> Pipeline:
    pipeline = Pipeline("film", retry=retry or Retry(0))

    @pipeline.step(timeout=minutes(10))
    async def clip(*, host: Host, ctx: Context) -> Any:
        return await ctx.external(
            lambda: host.submit("scene", ctx.callback_url), cancel=host.cancel if cancels else None
        )

    return pipeline


async def test_without_a_poll_the_callback_body_is_the_result(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        assert await sandbox.client.external_work.record_callback(token_of(host.callbacks[0]), {"answer": 42})
        assert not await sandbox.client.external_work.record_callback(token_of(host.callbacks[0]), {"answer": 43})
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run) == {"clip": {"answer": 42}}


async def test_a_late_callback_of_the_first_attempt_does_not_affect_the_second(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback(Retry(1, delays=[5], jitter=0))
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.manual_worker() as worker:
        run = await start_parked(sandbox, pipeline)
        await poll(sandbox, minutes(10))
        await run_next(worker, "clip")
        await sandbox.clock.advance(seconds(5))
        await sandbox.work(advance_clock=False)
        assert host.submitted == ["scene-1", "scene-2"]
        with pytest.raises(NotFound):
            await sandbox.client.external_work.record_callback(token_of(host.callbacks[0]), "of the first")
        await sandbox.client.external_work.record_callback(token_of(host.callbacks[1]), "of the second")
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run) == {"clip": "of the second"}


async def test_an_invalid_callback_body_fails_the_step(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        await sandbox.client.external_work.record_callback(token_of(host.callbacks[0]), LARGE)
        await poll(sandbox, seconds(0))
        (outside,) = await sandbox.client.external_work.list(run)
        assert (outside.state, outside.error and outside.error["code"]) == ("failed", "RESULT_TOO_LARGE")


async def test_a_callback_that_arrives_before_the_job_is_parked_is_not_lost(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        outcomes = await worker.attempt(await worker.claim(1))
        await sandbox.client.external_work.record_callback(token_of(host.callbacks[0]), {"answer": 42})
        await worker.record_outcomes(outcomes)
        await sandbox.work(advance_clock=False)
        assert await sandbox.client.runs.get_results(run) == {"clip": {"answer": 42}}


async def test_a_missing_callback_is_awaited_until_the_limit(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        ended = await sandbox.run(pipeline)
        assert ended.state == "failed"
        assert await codes(sandbox, ended.id) == {"clip": "TIMEOUT"}


async def test_an_unexpected_callback_is_rejected(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await start_parked(sandbox, pipeline)
        with pytest.raises(NotFound, match="no such callback"):
            await sandbox.client.external_work.record_callback("guessed")
        await sandbox.clock.advance(timedelta(days=31))
        with pytest.raises(Gone, match="has expired"):
            await sandbox.client.external_work.record_callback(token_of(host.callbacks[0]))


async def test_callback_tokens_are_not_stored_in_the_database(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), waiting_for_a_callback()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await start_parked(sandbox, pipeline)
        token = token_of(host.callbacks[0])
        for table in ("callbacks", "effects", "external_work", "events", "jobs"):
            kept = await rows(sandbox, f"select t::text as row from retoma.{table} t")
            assert not [row for row in kept if token in row["row"]]


async def test_only_the_last_poll_counts(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = PollResult("succeeded", result="late")
        polled = host.status

        async def slow(external_id: str) -> PollResult:
            await rows(sandbox, "update retoma.external_work set polls = polls + 1")
            return await polled(external_id)

        host.status = slow  # type: ignore[method-assign]
        await poll(sandbox)
        assert await states(sandbox, run) == {"clip": "parked"}


@pytest.mark.parametrize("option", ["find", "poll", "cancel"])
async def test_a_function_that_another_process_could_not_find_is_refused_before_the_call(
    option: str, open_sandbox: OpenSandbox
) -> None:
    host, pipeline = Host(), Pipeline("film", retry=Retry(0))

    @pipeline.step
    async def clip(*, host: Host, ctx: Context) -> Any:
        functions: dict[str, Any] = {"poll": host.status, option: lambda handle: host.status(handle)}
        return await ctx.external(lambda: host.submit("scene"), **functions)

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        ended = await sandbox.run(pipeline)
        said = (await sandbox.client.runs.get_errors(ended.id))["clip", ""]["message"]
        assert said.startswith(f"{option}= is ")
        assert "pass a method of one of the step's resources" in said
        assert host.submitted == []


async def test_a_step_that_waits_after_failed_external_work_submits_again(open_sandbox: OpenSandbox) -> None:
    host = Host()
    waited: list[str] = []
    pipeline = Pipeline("film", retry=Retry(0))

    @pipeline.step(pool=Pool("gpu", capacity=1))
    async def clip(*, host: Host, ctx: Context) -> str:
        try:
            return str(await ctx.external(lambda: host.submit("scene"), poll=host.status))
        except ExternalWorkFailed as failure:
            waited.append(host.submitted[-1])
            raise (RetryLater(30) if len(waited) == 1 else GiveUp("once is enough")) from failure

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        host.reports |= {"scene-1": PollResult("failed"), "scene-2": PollResult("succeeded", result="video")}
        ended = await sandbox.run(pipeline)
        assert (ended.results, host.submitted) == ({"clip": "video"}, ["scene-1", "scene-2"])
        (job,) = await sandbox.client.runs.list_jobs(ended.id)
        assert (job.attempt, await count_used_slots(sandbox)) == (1, 0)


async def test_the_result_of_one_piece_of_work_is_never_returned_for_another(open_sandbox: OpenSandbox) -> None:
    host = Host()
    pipeline = Pipeline("film", retry=Retry(0))

    @pipeline.step
    async def clip(*, host: Host, ctx: Context) -> list[Any]:
        return [await ctx.external(lambda: host.submit("scene"), poll=host.status) for _ in range(2)]

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        host.reports["scene-1"] = PollResult("succeeded", result="the first")
        ended = await sandbox.run(pipeline)
        assert (ended.state, ended.results) == ("failed", {})
        message = (await sandbox.client.runs.get_errors(ended.id))["clip", ""]["message"]
        assert "move the second piece of external work to its own step" in message


async def test_a_step_may_handle_failed_external_work(open_sandbox: OpenSandbox) -> None:
    host = Host()
    pipeline = Pipeline("film")

    @pipeline.step
    async def clip(*, host: Host, ctx: Context) -> str:
        try:
            return str(await ctx.external(lambda: host.submit("scene"), poll=host.status))
        except ExternalWorkFailed as failure:
            raise GiveUp("the picture is broken", code=failure.code) from failure

    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = PollResult("failed", code="BROKEN")
        await sandbox.work()
        assert await codes(sandbox, run) == {"clip": "BROKEN"}


def token_of(url: str | None) -> str:
    assert url is not None
    return url.rpartition("/")[2]


class Wordless(BaseException):
    """An object whose repr raises."""

    def __repr__(self) -> str:
        raise SystemExit(3)

    __str__ = __repr__


class WordlessReport(PollResult):
    @property
    def is_final(self) -> bool:
        raise Wordless


class HostileHost(Host):
    """A provider whose `poll` and `cancel` raise what `error` creates, or return it as the poll result."""

    def __init__(self, error: Any) -> None:
        super().__init__()
        self.error = error

    async def status(self, external_id: str) -> PollResult:
        if self.error in HOSTILE.values():
            raise self.error()
        report: PollResult = self.error
        return report

    async def cancel(self, external_id: str) -> None:
        await self.status(external_id)


class CancelIgnoringHost(Host):
    """Its poll ends when the test says so and ignores its cancellation."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()

    async def status(self, external_id: str) -> PollResult:
        while not self.released.is_set():
            with suppress(asyncio.CancelledError):
                await self.released.wait()
        return PollResult("running")


class Unreadable(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise Unreadable


class OddText(str):
    def __str__(self) -> str:
        raise SystemExit(5)

    __repr__ = __str__


class OddMessage(Exception):
    def __str__(self) -> str:
        return OddText("odd")


class OddClass(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit(6)


class OddlyNamed(Exception, metaclass=OddClass):
    pass


class SelfCancellingHost(Host):
    """Its poll and its cancel cancel the task that they run in."""

    def __init__(self, *, awaits: bool) -> None:
        super().__init__()
        self.awaits = awaits

    async def status(self, external_id: str) -> PollResult:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if self.awaits:
            await asyncio.Event().wait()
        return PollResult("succeeded", result="?")

    async def cancel(self, external_id: str) -> None:
        await self.status(external_id)


class WordlessText:
    def __str__(self) -> str:
        raise Wordless

    __repr__ = __str__


# By name, as a test runner cannot read all of them.
HOSTILE: dict[str, Callable[[], BaseException]] = {
    "CancelledError": asyncio.CancelledError,
    "Wordless": Wordless,
    "SystemExit": lambda: SystemExit(1),
    "KeyboardInterrupt": KeyboardInterrupt,
    "StopAsyncIteration": StopAsyncIteration,
    "GeneratorExit": GeneratorExit,
    "Unreadable": Unreadable,
    "OddMessage": OddMessage,
    "OddlyNamed": lambda: OddlyNamed(),
}


@pytest.mark.parametrize("error", HOSTILE)
async def test_any_exception_of_a_poll_is_a_failed_poll_and_limits_hold(open_sandbox: OpenSandbox, error: str) -> None:
    host, pipeline = HostileHost(HOSTILE[error]), film(retry=0, total_timeout=seconds(40))
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, asyncio.timeout(WAIT_TIMEOUT):
        run = await start_parked(sandbox, pipeline)
        await poll(sandbox)
        (outside,) = await sandbox.client.external_work.list(run)
        assert (outside.state, outside.failed_polls) == ("queued", 1)
        await sandbox.work()
        assert (await states(sandbox, run), await codes(sandbox, run)) == ({"clip": "failed"}, {"clip": "TIMEOUT"})
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("failed", 0)


@pytest.mark.parametrize("awaits", [True, False])
async def test_a_poll_that_cancels_its_own_task_is_a_failed_poll_and_limits_hold(
    open_sandbox: OpenSandbox, awaits: bool
) -> None:
    host, pipeline = SelfCancellingHost(awaits=awaits), film(retry=0, total_timeout=seconds(40))
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, asyncio.timeout(WAIT_TIMEOUT):
        run = await start_parked(sandbox, pipeline)
        await poll(sandbox)
        (outside,) = await sandbox.client.external_work.list(run)
        assert (outside.state, outside.failed_polls) == ("queued", 1)
        await sandbox.work()
        assert (await states(sandbox, run), await codes(sandbox, run)) == ({"clip": "failed"}, {"clip": "TIMEOUT"})
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("failed", 0)


@pytest.mark.parametrize("error", HOSTILE)
async def test_a_run_whose_poll_and_cancel_always_raise_can_be_cancelled(open_sandbox: OpenSandbox, error: str) -> None:
    host, pipeline = HostileHost(HOSTILE[error]), film(retry=0, total_timeout=seconds(40))
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, asyncio.timeout(WAIT_TIMEOUT):
        run = await start_parked(sandbox, pipeline)
        await sandbox.client.runs.cancel(run)
        await sandbox.work()
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("cancelled", 0)


@pytest.mark.parametrize(
    "report",
    [
        WordlessReport("queued"),
        WordlessText(),
        PollResult("failed", code=WordlessText()),  # type: ignore[arg-type]
        PollResult("failed", message=Wordless()),  # type: ignore[arg-type]
    ],
    ids=["state", "no report", "code", "message"],
)
async def test_an_unreadable_poll_result_delays_nothing(open_sandbox: OpenSandbox, report: Any) -> None:
    host, pipeline = HostileHost(report), film(retry=0, total_timeout=seconds(40))
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, asyncio.timeout(WAIT_TIMEOUT):
        run = await start_parked(sandbox, pipeline)
        await sandbox.work()
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("failed", 0)


class SimulatedHang:
    """In place of calls of a provider: each takes all the time that it may, which passes at once."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    async def call(self, _: Any, timeout: float) -> None:
        self._now += timeout
        await self._sandbox.clock.advance(timedelta(seconds=timeout))
        raise TimeoutError


async def test_work_whose_poll_and_cancel_hang_ends_soon_after_its_limit(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, pipeline = Host(), film(retry=0, total_timeout=seconds(20))
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        hang = SimulatedHang(sandbox)
        monkeypatch.setattr(poller_module, "time", hang)
        monkeypatch.setattr(poller_module, "call_application", hang.call)
        run = await start_parked(sandbox, pipeline)
        await sandbox.work()
        (outside,) = await sandbox.client.external_work.list(run)
        assert await codes(sandbox, run) == {"clip": "TIMEOUT"}
        assert outside.ended_at is not None
        assert outside.ended_at - outside.parked_at <= seconds(20) + seconds(70)


async def test_overdue_work_gets_the_full_time_for_its_first_call_after_the_limit(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, pipeline = Host(), film(retry=0, total_timeout=seconds(20))
    timeouts: list[float] = []

    async def call(_: Any, timeout: float) -> None:
        timeouts.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(poller_module, "call_application", call)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        await poll(sandbox, after=minutes(10))  # no worker was running
        assert timeouts == [poller_module.PROVIDER_TIMEOUT] * 2
        (outside,) = await sandbox.client.external_work.list(run)
        assert outside.state == "lost"


async def test_a_poll_that_ignores_its_cancellation_is_abandoned(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller_module, "PROVIDER_TIMEOUT", 0.01)
    host, pipeline = CancelIgnoringHost(), film(retry=0, total_timeout=seconds(40))
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        try:
            async with asyncio.timeout(WAIT_TIMEOUT):
                await sandbox.work()
        finally:
            host.released.set()
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("failed", 0)


async def die_while_polling(sandbox: Sandbox) -> int:
    """A worker claims the due polls and vanishes; return how many it had claimed."""
    async with killed_worker(sandbox) as worker:
        claimed = await external_work.poll_due(
            sandbox.database, DueRequest(worker.versions, 100, minutes(2), worker.worker)
        )
        await pass_heartbeat_timeout(sandbox)
    return len(claimed)


async def test_a_poll_that_kills_three_workers_is_quarantined(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(retry=3)
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        await sandbox.clock.advance(EVERY)
        for death in (1, 2):
            assert await die_while_polling(sandbox) == 1
            assert (await states(sandbox, run), await count_used_slots(sandbox)) == ({"clip": "parked"}, 1), death
        assert await die_while_polling(sandbox) == 1
        assert (await states(sandbox, run), await codes(sandbox, run)) == (
            {"clip": "quarantined"},
            {"clip": "QUARANTINED"},
        )
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("failed", 0)
        (outside,) = await sandbox.client.external_work.list(run)
        assert (outside.state, (outside.error or {})["code"]) == ("lost", "QUARANTINED")
        assert [orphan.value for orphan in await sandbox.client.runs.list_orphans(run)] == ["scene-1"]


async def test_a_cancelled_run_ends_though_its_poll_kills_workers(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        await sandbox.client.runs.cancel(run)
        for _ in range(3):
            await die_while_polling(sandbox)
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("cancelled", 0)


async def test_polls_that_died_together_with_a_killer_are_tried_one_at_a_time(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), two_clips()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        for _ in range(3):
            await start_parked(sandbox, pipeline)
        await sandbox.clock.advance(EVERY)
        assert [await die_while_polling(sandbox) for _ in range(2)] == [3, 1]
        assert await value(
            sandbox, "select array_agg(worker_deaths order by worker_deaths) from retoma.external_work"
        ) == [1, 1, 2]


async def test_an_answered_poll_is_trusted_again(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await start_parked(sandbox, pipeline)
        await sandbox.clock.advance(EVERY)
        await die_while_polling(sandbox)
        assert await poll(sandbox) == 1
        assert await value(sandbox, "select worker_deaths from retoma.external_work") == 0


async def test_a_suspect_poll_waits_while_its_worker_tries_a_suspect_step(open_sandbox: OpenSandbox) -> None:
    host, pipeline, suspect = Host(), film(), True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await start_parked(sandbox, pipeline)
        await sandbox.clock.advance(EVERY)
        await die_while_polling(sandbox)
        catalog = await load_versions(sandbox)
        poller = ExternalWorkPoller(sandbox.database, catalog, lambda: None, lambda: suspect)
        assert await poller.poll_due() == 0
        suspect = False
        assert await poller.poll_due() == 1


async def test_a_stopping_worker_releases_its_polls_at_once(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        await start_parked(sandbox, pipeline)
        await sandbox.clock.advance(EVERY)
        async with sandbox.manual_worker() as worker:
            await external_work.poll_due(sandbox.database, DueRequest(worker.versions, 100, minutes(2), worker.worker))
        assert await value(sandbox, "select worker_deaths from retoma.external_work") == 0
        assert await poll(sandbox, seconds(0)) == 1
