"""A step that takes a provider chain moves on to the next provider as the error says, and no further."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from retoma import (
    App,
    Context,
    GiveUp,
    NeedsReview,
    PerWorker,
    Pipeline,
    PollResult,
    Pool,
    ProviderChain,
    Retry,
    RetryLater,
    hours,
    minutes,
    records,
    seconds,
)
from retoma.connections import PerTenant
from retoma.define.review import Feedback
from retoma.errors import DefinitionError, ProviderDown, ProviderRejected, RateLimited, SubmissionUnknown
from retoma.providers import SingleProvider
from retoma.records import WaitReason
from retoma.store import attempt_providers
from retoma.store.attempt_providers import AttemptProvider
from retoma.testing import NOON, ManualWorker, Sandbox
from retoma.worker.external_work_poller import find_function
from tests.conftest import OpenSandbox
from tests.engine.builders import codes, kinds, pass_heartbeat_timeout, rows, run_claims, run_next, state, states
from tests.engine.test_leases import killed_worker

RETRY = Retry(2, delays=[10, 30], jitter=0)


class Model:
    """A language model. It raises its error, the next of a list of errors, or writes."""

    def __init__(self, name: str, error: Exception | list[Exception] | None = None) -> None:
        self.name = name
        self.error = error
        self.calls = 0
        self.found: str | None = None
        self.asked: list[str] = []
        self.cancelled: list[str] = []
        self.poll_result = PollResult("running")

    def write(self) -> str:
        self.calls += 1
        error = self.error.pop(0) if isinstance(self.error, list) and self.error else self.error
        if isinstance(error, Exception):
            raise error
        return f"written by {self.name}"

    def find(self, key: str) -> str | None:
        self.asked.append(key)
        return self.found

    async def poll(self, external_id: str) -> PollResult:
        return self.poll_result

    def cancel(self, value: str) -> None:
        self.cancelled.append(value)


def articles(retry: Retry = RETRY, **options: Any) -> Pipeline:
    pipeline = Pipeline("articles", retry=retry)

    @pipeline.step(**options)
    def body(*, llm: Model) -> str:
        return llm.write()

    return pipeline


def chain(*models: Model) -> dict[str, ProviderChain]:
    return {"llm": ProviderChain(models)}


async def list_attempts(sandbox: Sandbox, run: UUID) -> list[tuple[float, str, str | None, str | None]]:
    """The attempts without a result: seconds since the start, code, provider, and the provider that follows."""
    events = await sandbox.client.runs.list_events(run, kinds=["retry", "failure"])
    return [
        (
            (event.at - NOON).total_seconds(),
            event.data["code"],
            event.data.get("provider"),
            event.data.get("next_provider"),
        )
        for event in events
    ]


async def list_providers(sandbox: Sandbox, run: UUID) -> list[tuple[str, int | None, str]]:
    """The kind, number and provider of each attempt."""
    events = await sandbox.client.runs.list_events(run, kinds=["retry", "failure", "result"])
    return [(event.kind, event.attempt, event.data["provider"]) for event in events]


async def breaker(sandbox: Sandbox, name: str) -> records.Pool:
    (pool,) = await sandbox.client.pools.list(name)
    return pool


async def reject_once(sandbox: Sandbox, worker: ManualWorker, model: Model) -> None:
    """Let a run find out that this model rejects our key, which opens its breaker for a minute."""
    model.error = ProviderRejected("no credit", delay=60)
    await sandbox.client.start("articles")
    await run_claims(worker, await worker.claim(100))
    model.error = None


async def test_a_provider_has_its_retries_and_then_the_next_one_is_tried(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", ValueError("not JSON")), Model("second")
    async with open_sandbox(articles(), resources=chain(first, second)) as sandbox:
        run = await sandbox.run("articles")
        assert (run.state, run.results) == ("completed", {"body": "written by second"})
        assert (first.calls, second.calls) == (3, 1)
        assert await list_attempts(sandbox, run.id) == [
            (0, "ERROR", "first", None),
            (10, "ERROR", "first", None),
            (40, "ERROR", "first", "second"),
        ]
        assert await sandbox.clock.now() == NOON + seconds(10 + 30 + 120)


async def test_every_attempt_names_its_provider_also_one_that_succeeds(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", ProviderRejected("no credit")), Model("second", [OSError("broken pipe")])
    async with open_sandbox(articles(), resources=chain(first, second)) as sandbox:
        run = await sandbox.run("articles")
        assert run.results == {"body": "written by second"}
        assert await list_providers(sandbox, run.id) == [
            ("retry", 1, "first"),
            ("retry", 1, "second"),
            ("result", 2, "second"),
        ]


async def test_an_attempt_whose_worker_died_names_its_provider(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first"), Model("second")
    async with open_sandbox(articles(), resources=chain(first, second)) as sandbox:
        run = (await sandbox.client.start("articles")).id
        async with killed_worker(sandbox) as dead:
            await dead.attempt(await dead.claim())
            await dead.record_outcomes([])  # as once a second: this writes what its attempts have buffered
        first.error = ProviderRejected("no credit")
        await pass_heartbeat_timeout(sandbox)
        await sandbox.work()
        assert await list_providers(sandbox, run) == [
            ("retry", 1, "first"),
            ("retry", 2, "first"),
            ("result", 2, "second"),
        ]
        assert [one.provider for one in await sandbox.client.runs.list_failed_attempts(run)] == ["first", "first"]


@pytest.mark.parametrize("is_per_tenant", [False, True])
async def test_the_attempts_of_a_single_provider_name_it_and_wait_while_it_is_down(
    open_sandbox: OpenSandbox, is_per_tenant: bool
) -> None:
    only = SingleProvider("only", Model("model", [OSError("broken pipe"), *[ProviderDown("b", delay=60)] * 3]))
    resource = PerTenant(lambda _: only) if is_per_tenant else only
    async with open_sandbox(articles(Retry(1, delays=[10], jitter=0)), resources={"llm": resource}) as sandbox:
        run = await sandbox.run("articles")
        assert run.results == {"body": "written by model"}
        assert await list_providers(sandbox, run.id) == [
            ("retry", 1, "only"),
            *[("retry", 2, "only")] * 3,
            ("result", 2, "only"),
        ]
        assert await sandbox.clock.now() == NOON + seconds(10 + 3 * 60)
        assert await sandbox.client.pools.list("only") == []
        assert await sandbox.client.get_resource("llm") is only.provider


async def test_a_step_knows_the_name_of_its_single_provider(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("articles")

    @pipeline.step
    def body(*, llm: Model, ctx: Context) -> str:
        return f"{ctx.provider}: {llm.name}"

    async with open_sandbox(pipeline, resources={"llm": SingleProvider("only", Model("model"))}) as sandbox:
        assert (await sandbox.run("articles")).results == {"body": "only: model"}


async def test_a_single_provider_is_opened_by_each_worker(open_sandbox: OpenSandbox) -> None:
    @asynccontextmanager
    async def open_model() -> AsyncIterator[Model]:
        yield Model("opened")

    only = SingleProvider("only", PerWorker(open_model))
    async with open_sandbox(articles(), resources={"llm": only}) as sandbox:
        assert (await sandbox.run("articles")).results == {"body": "written by opened"}


async def test_a_step_without_a_chain_names_no_provider(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(articles(), resources={"llm": Model("only")}) as sandbox:
        run = (await sandbox.run("articles")).id
        assert [event.data for event in await sandbox.client.runs.list_events(run, kinds=["result"])] == [None]
        assert await rows(sandbox, "select * from retoma.attempt_providers") == []


async def test_a_provider_that_was_written_late_does_not_replace_a_newer_one(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", ProviderRejected("no credit")), Model("second")
    async with open_sandbox(articles(), resources=chain(first, second)) as sandbox:
        run = (await sandbox.run("articles")).id
        entry = AttemptProvider(run, "body", "", 1, 1, 1, "first")
        await attempt_providers.write(sandbox.database, [entry, replace(entry, step="other"), entry])
        assert (await list_providers(sandbox, run))[-1] == ("result", 1, "second")


async def test_the_delay_before_the_next_provider_is_set_with_the_chain(open_sandbox: OpenSandbox) -> None:
    models = ProviderChain([Model("first", OSError()), Model("second")], switch_delay=minutes(5))
    async with open_sandbox(articles(Retry(0, jitter=0)), resources={"llm": models}) as sandbox:
        await sandbox.run("articles")
        assert await sandbox.clock.now() == NOON + minutes(5)


@pytest.mark.parametrize(
    ("on_failure", "ended"), [("stop", "failed"), ("continue", "completed_with_errors"), ("review", "needs_review")]
)
async def test_after_the_last_provider_the_job_fails_as_its_step_says(
    open_sandbox: OpenSandbox, on_failure: str, ended: str
) -> None:
    models = Model("first", OSError("a")), Model("second", ProviderDown("b"))
    pipeline = articles(Retry(1, delays=[10], jitter=0), on_failure=on_failure)
    async with open_sandbox(pipeline, resources=chain(*models)) as sandbox:
        run = (await sandbox.client.start("articles")).id
        await sandbox.work()
        assert (await state(sandbox, run), [model.calls for model in models]) == (ended, [2, 2])
        if on_failure == "review":
            (review,) = await sandbox.client.reviews.list()
            assert (review.reason or {})["provider"] == "second"
        else:
            assert await codes(sandbox, run) == {"body": "PROVIDER_DOWN"}
            assert await list_attempts(sandbox, run) == [
                (0, "ERROR", "first", None),
                (10, "ERROR", "first", "second"),
                (130, "PROVIDER_DOWN", "second", None),
                (140, "PROVIDER_DOWN", "second", None),
            ]


async def test_a_run_with_fewer_retries_moves_on_sooner(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", OSError()), Model("second", OSError())
    async with open_sandbox(articles(), resources=chain(first, second)) as sandbox:
        run = await sandbox.run("articles", retries=0)
        assert (run.state, first.calls, second.calls) == ("failed", 1, 1)
        assert await sandbox.clock.now() == NOON + seconds(120)


async def test_a_rerun_starts_with_the_first_provider_again(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", OSError()), Model("second", OSError())
    async with open_sandbox(articles(), resources=chain(first, second)) as sandbox:
        run = await sandbox.run("articles")
        first.error = None
        await sandbox.client.runs.rerun_failed(run.id)
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run.id) == {"body": "written by first"}


async def test_a_rate_limit_is_waited_for_with_the_same_provider_and_uses_no_attempt(
    open_sandbox: OpenSandbox,
) -> None:
    first, second = Model("first", [RateLimited(50) for _ in range(4)]), Model("second")
    async with open_sandbox(articles(), resources=chain(first, second)) as sandbox:
        run = await sandbox.run("articles")
        assert run.results == {"body": "written by first"}
        assert await list_attempts(sandbox, run.id) == [(at, "RATE_LIMITED", "first", None) for at in (0, 50, 100, 150)]
        (job,) = await sandbox.client.runs.list_jobs(run.id)
        assert job.attempt == 1


async def test_other_jobs_wait_for_a_provider_that_limits_our_rate(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", [RateLimited(50)]), Model("second")
    async with open_sandbox(articles(), resources=chain(first, second)) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start("articles")
        await run_claims(worker, await worker.claim())
        other = (await sandbox.client.start("articles")).id
        await run_claims(worker, await worker.claim())
        (job,) = await sandbox.client.runs.list_jobs(other)
        assert (job.state, job.attempt, job.ready_at) == ("ready", 0, NOON + seconds(50))
        await sandbox.work()
        assert (first.calls, second.calls) == (3, 0)


async def test_a_rejected_key_moves_the_job_on_at_once_without_using_an_attempt(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", ProviderRejected("no credit")), Model("second")
    async with open_sandbox(articles(), resources=chain(first, second)) as sandbox:
        run = await sandbox.run("articles")
        assert run.results == {"body": "written by second"}
        assert await list_attempts(sandbox, run.id) == [(0, "PROVIDER_REJECTED", "first", "second")]
        (job,) = await sandbox.client.runs.list_jobs(run.id)
        assert (job.attempt, job.ended_at) == (1, NOON)


async def test_a_rejected_key_opens_the_breaker_of_its_provider(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", ProviderRejected("no credit")), Model("second")
    async with open_sandbox(articles(), resources=chain(first, second)) as sandbox:
        await sandbox.client.start("articles")
        await sandbox.work(advance_clock=False)
        pool = await breaker(sandbox, "first")
        assert (pool.problem, pool.open_until) == ("PROVIDER_REJECTED", NOON + minutes(10))
        await sandbox.client.start("articles")
        await sandbox.work(advance_clock=False)
        assert (first.calls, second.calls) == (1, 2)


async def test_without_a_next_provider_a_rejected_key_is_waited_for(open_sandbox: OpenSandbox) -> None:
    only = Model("only", ProviderRejected("no credit"))
    async with open_sandbox(articles(), resources=chain(only)) as sandbox:
        run = (await sandbox.client.start("articles")).id
        await sandbox.work(advance_clock=False)
        (job,) = await sandbox.client.runs.list_jobs(run)
        assert (job.state, job.code, job.ready_at) == ("ready", "NO_PROVIDER", NOON + minutes(10))
        (wait,) = await sandbox.client.runs.list_waits(run)
        assert wait.reason is WaitReason.NO_PROVIDER
        assert "retoma pools list" in wait.explanation
        only.error = None
        await sandbox.work()
        assert (await state(sandbox, run), only.calls) == ("completed", 2)


async def test_five_failures_in_a_row_make_other_workers_skip_the_provider(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", ProviderDown("503")), Model("second")
    async with (
        open_sandbox(articles(), resources=chain(first, second)) as sandbox,
        sandbox.manual_worker() as worker,
        sandbox.manual_worker() as other,
    ):
        for _ in range(6):
            await sandbox.client.start("articles")
        await run_claims(worker, await worker.claim(4))
        assert ((await breaker(sandbox, "first")).failures, (await breaker(sandbox, "first")).problem) == (4, None)
        await run_claims(worker, await worker.claim(1))
        assert (await breaker(sandbox, "first")).problem == "PROVIDER_DOWN"
        await run_claims(other, await other.claim(1))
        assert (first.calls, second.calls) == (5, 1)


async def test_a_success_between_failures_resets_the_breaker(open_sandbox: OpenSandbox) -> None:
    first = Model("first", ProviderDown())
    async with open_sandbox(articles(), resources=chain(first)) as sandbox, sandbox.manual_worker() as worker:
        for _ in range(5):
            await sandbox.client.start("articles")
        await run_claims(worker, await worker.claim(4))
        first.error = None
        await run_claims(worker, await worker.claim(1))
        assert (await breaker(sandbox, "first")).failures == 0


async def test_a_success_after_failures_of_the_same_moment_resets_the_breaker(
    open_sandbox: OpenSandbox,
) -> None:
    first = Model("first", [ProviderDown(), ProviderDown()])
    async with open_sandbox(articles(), resources=chain(first)) as sandbox, sandbox.manual_worker() as worker:
        for _ in range(3):
            await sandbox.client.start("articles")
        await run_claims(worker, await worker.claim(3))
        assert (await breaker(sandbox, "first")).failures == 0


async def test_one_job_of_all_workers_probes_the_provider_and_its_success_lets_all_use_it(
    open_sandbox: OpenSandbox,
) -> None:
    first, second = Model("first"), Model("second")
    async with (
        open_sandbox(articles(), resources=chain(first, second)) as sandbox,
        sandbox.manual_worker() as worker,
        sandbox.manual_worker() as other,
    ):
        await reject_once(sandbox, worker, first)
        await sandbox.clock.advance(seconds(60))
        for _ in range(5):
            await sandbox.client.start("articles")
        probes = await worker.attempt(await worker.claim(2))
        await run_claims(other, await other.claim(2))
        assert (first.calls, second.calls) == (2, 3)
        await worker.record_outcomes(probes)
        assert (await breaker(sandbox, "first")).problem is None
        await run_claims(other, await other.claim(100))
        assert (first.calls, second.calls) == (4, 3)


async def test_a_failed_probe_opens_the_breaker_again_for_longer(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", ProviderDown()), Model("second")
    async with open_sandbox(articles(), resources=chain(first, second)) as sandbox, sandbox.manual_worker() as worker:
        for _ in range(5):
            await sandbox.client.start("articles")
        await run_claims(worker, await worker.claim(5))
        assert (await breaker(sandbox, "first")).open_until == NOON + seconds(15)
        await sandbox.clock.advance(seconds(15))
        await sandbox.client.start("articles")
        await run_claims(worker, await worker.claim(1))
        assert (await breaker(sandbox, "first")).open_until == NOON + seconds(15 + 30)


async def test_failures_of_attempts_that_began_before_the_breaker_opened_do_not_lengthen_the_wait(
    open_sandbox: OpenSandbox,
) -> None:
    first = Model("first", ProviderDown())
    async with open_sandbox(articles(), resources=chain(first)) as sandbox, sandbox.manual_worker() as worker:
        for _ in range(8):
            await sandbox.client.start("articles")
        outcomes = await worker.attempt(await worker.claim(8))
        await sandbox.clock.advance(seconds(5))
        await worker.record_outcomes(outcomes)
        pool = await breaker(sandbox, "first")
        assert (pool.failures, pool.open_until) == (5, NOON + seconds(5 + 15))


async def test_while_all_breakers_are_open_the_job_waits_for_the_first_that_may_be_probed(
    open_sandbox: OpenSandbox,
) -> None:
    first, second = Model("first"), Model("second")
    async with open_sandbox(articles(), resources=chain(first, second)) as sandbox, sandbox.manual_worker() as worker:
        await reject_once(sandbox, worker, first)
        await sandbox.clock.advance(seconds(20))
        second.error = ProviderRejected("no credit", delay=60)
        run = (await sandbox.client.start("articles")).id
        await sandbox.work(advance_clock=False)
        (job,) = await sandbox.client.runs.list_jobs(run)
        assert (job.state, job.code, job.attempt, job.ready_at) == ("ready", "NO_PROVIDER", 0, NOON + seconds(60))
        await sandbox.work()
        assert await state(sandbox, run) == "completed"


async def test_waiting_for_a_provider_writes_no_events_and_is_reported_as_stuck(open_sandbox: OpenSandbox) -> None:
    only = Model("only", ProviderRejected("no credit", delay=minutes(30)))
    async with open_sandbox(articles(), resources=chain(only)) as sandbox, sandbox.manual_worker():
        run = (await sandbox.client.start("articles")).id
        await sandbox.work(advance_clock=False)
        await sandbox.clock.advance(minutes(6))
        sandbox.client._core.heartbeat_timeout = minutes(9)
        await sandbox.run_watchdog()
        (stuck,) = await sandbox.client.runs.list_stuck()
        assert stuck.cause == WaitReason.NO_PROVIDER
        assert await kinds(sandbox, run) == ["start", "retry body", "stuck body"]


async def test_a_person_lets_jobs_use_a_provider_again(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first"), Model("second")
    async with open_sandbox(articles(), resources=chain(first, second)) as sandbox, sandbox.manual_worker() as worker:
        await reject_once(sandbox, worker, first)
        await sandbox.client.pools.update("first", resume=True)
        run = await sandbox.run("articles")
        assert run.results == {"body": "written by first"}


async def test_the_attempts_of_a_skipped_provider_go_to_the_next_one(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first"), Model("second", ValueError())
    pipeline = articles(Retry(1, delays=[1], jitter=0))
    async with open_sandbox(pipeline, resources=chain(first, second)) as sandbox:
        first.error = ProviderRejected("no credit", delay=hours(10))
        run = await sandbox.run(pipeline)
        assert (run.state, first.calls, second.calls) == ("failed", 1, 4)


async def test_give_up_is_final_and_needs_review_asks_a_person(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", GiveUp("the text is too long")), Model("second")
    async with open_sandbox(articles(), resources=chain(first, second)) as sandbox:
        assert (await sandbox.run("articles")).state == "failed"
        first.error = NeedsReview("is this right?")
        assert (await sandbox.run("articles")).state == "needs_review"
        assert second.calls == 0


async def test_retry_later_stays_with_the_provider_and_uses_no_attempt(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", [RetryLater(5), RetryLater(5)]), Model("second")
    async with open_sandbox(articles(Retry(0)), resources=chain(first, second)) as sandbox:
        assert (await sandbox.run("articles")).results == {"body": "written by first"}


async def test_an_error_that_the_step_does_not_retry_is_final_but_a_failing_provider_is_replaced(
    open_sandbox: OpenSandbox,
) -> None:
    first, second = Model("first", ValueError()), Model("second")
    pipeline = articles(Retry(0, on=OSError))
    async with open_sandbox(pipeline, resources=chain(first, second)) as sandbox:
        assert (await sandbox.run(pipeline)).state == "failed"
        first.error = ProviderDown()
        assert (await sandbox.run(pipeline)).results == {"body": "written by second"}


async def test_an_error_of_a_provider_keeps_its_own_code(open_sandbox: OpenSandbox) -> None:
    class KeywordsDown(ProviderDown):
        code = "KEYWORDS_API_FAIL"

    pipeline = articles(Retry(0), on_failure="continue")
    async with open_sandbox(pipeline, resources=chain(Model("only", KeywordsDown()))) as sandbox:
        run = await sandbox.run(pipeline)
        assert await codes(sandbox, run.id) == {"body": "KEYWORDS_API_FAIL"}
        assert (await breaker(sandbox, "only")).failures == 1


async def test_a_timeout_counts_as_a_failed_attempt_with_its_provider(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("articles", retry=Retry(0, jitter=0))

    @pipeline.step(timeout=0.05)
    async def body(*, llm: Model) -> str:
        if llm.name == "first":
            await asyncio.sleep(60)
        return llm.write()

    async with open_sandbox(pipeline, resources=chain(Model("first"), Model("second"))) as sandbox:
        run = await sandbox.run(pipeline)
        assert run.results == {"body": "written by second"}
        assert await list_attempts(sandbox, run.id) == [(0, "TIMEOUT", "first", "second")]


async def test_the_total_timeout_ends_the_chain(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", OSError()), Model("second")
    pipeline = articles(total_timeout=seconds(100), on_failure="continue")
    async with open_sandbox(pipeline, resources=chain(first, second)) as sandbox:
        run = await sandbox.run(pipeline)
        assert (await codes(sandbox, run.id), second.calls) == ({"body": "TOTAL_TIMEOUT"}, 0)
        assert (await list_attempts(sandbox, run.id))[-1] == (40, "TOTAL_TIMEOUT", "first", None)


def paid_articles(cost_limit: float, micros: int, **options: Any) -> Pipeline:
    pipeline = Pipeline("articles", retry=RETRY)

    @pipeline.step(cost_limit=cost_limit, on_failure="continue", **options)
    def body(*, llm: Model, ctx: Context) -> str:
        ctx.charge(ctx.provider or "", "model", micros=micros)
        return llm.write()

    return pipeline


@pytest.mark.parametrize(("micros", "calls"), [(2_500_000, (1, 0)), (1_250_000, (2, 0)), (800_000, (3, 1))])
async def test_no_attempt_starts_once_the_cost_limit_is_reached(
    open_sandbox: OpenSandbox, micros: int, calls: tuple[int, int]
) -> None:
    first, second = Model("first", OSError()), Model("second", OSError())
    async with open_sandbox(paid_articles(2.5, micros), resources=chain(first, second)) as sandbox:
        run = await sandbox.run("articles")
        assert ((first.calls, second.calls), await codes(sandbox, run.id)) == (calls, {"body": "COST_LIMIT"})
        assert run.state == "completed_with_errors"
        charges = await sandbox.client.costs.list_charges(run.id)
        assert [charge.provider for charge in charges] == ["first"] * calls[0] + ["second"] * calls[1]


async def test_a_result_is_kept_whatever_it_cost(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(paid_articles(2.5, 9_000_000), resources=chain(Model("first"))) as sandbox:
        assert (await sandbox.run("articles")).state == "completed"


async def test_external_work_that_was_paid_for_is_used_although_the_cost_limit_is_reached(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = Pipeline("films")

    @pipeline.step(cost_limit=1)
    async def clip(*, llm: Model, ctx: Context) -> str:
        if ctx.maybe_done is False:
            ctx.charge(llm.name, "machine", micros=5_000_000)
        return str(await ctx.external(llm.write, poll=llm.poll))

    model = Model("first")
    model.poll_result = PollResult("succeeded", result="clip.mp4")
    async with open_sandbox(pipeline, resources=chain(model)) as sandbox:
        assert (await sandbox.run(pipeline)).results == {"clip": "clip.mp4"}


async def test_the_cost_of_an_earlier_revision_does_not_count(open_sandbox: OpenSandbox) -> None:
    first = Model("first", OSError())
    async with open_sandbox(paid_articles(2.5, 3_000_000), resources=chain(first)) as sandbox:
        run = await sandbox.run("articles")
        first.error = None
        await sandbox.client.runs.rerun_failed(run.id)
        await sandbox.work()
        assert await states(sandbox, run.id) == {"body": "succeeded"}


def careful_articles(retry: Retry = RETRY, **options: Any) -> Pipeline:
    """Articles whose provider can be asked whether it has written."""
    pipeline = Pipeline("articles", retry=retry)

    @pipeline.step(**options)
    async def body(*, llm: Model, ctx: Context) -> str:
        return str(await ctx.once("write", llm.write, find=llm.find, cancel=llm.cancel, key="article"))

    return pipeline


async def test_an_unknown_outcome_is_looked_for_at_the_same_provider(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", SubmissionUnknown()), Model("second")
    async with open_sandbox(careful_articles(Retry(0)), resources=chain(first, second)) as sandbox:
        run = (await sandbox.client.start("articles")).id
        await sandbox.work(advance_clock=False)
        first.found = "found at first"
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run) == {"body": "found at first"}
        assert (first.asked, second.calls) == (["article"], 0)


async def test_the_job_moves_on_once_the_provider_has_answered_that_nothing_happened(
    open_sandbox: OpenSandbox,
) -> None:
    first, second = Model("first", SubmissionUnknown("lost")), Model("second")
    pipeline = careful_articles(Retry(1, delays=[10], jitter=0))
    async with open_sandbox(pipeline, resources=chain(first, second)) as sandbox:
        run = await sandbox.run(pipeline)
        assert run.results == {"body": "written by second"}
        assert (first.calls, len(first.asked), second.asked) == (2, 2, [])
        assert await list_attempts(sandbox, run.id) == [
            (0, "PROVIDER_DOWN", "first", None),
            (10, "PROVIDER_DOWN", "first", "second"),
            (130, "RETRY_LATER", "first", "second"),
        ]


async def test_the_job_stays_with_a_provider_that_cannot_say_what_happened(open_sandbox: OpenSandbox) -> None:
    class Unreachable(Model):
        is_down = True

        def find(self, key: str) -> str | None:
            if self.is_down:
                raise ProviderDown("still down")
            return super().find(key)

    first, second = Unreachable("first", SubmissionUnknown()), Model("second")
    async with open_sandbox(careful_articles(Retry(0, jitter=0)), resources=chain(first, second)) as sandbox:
        run = (await sandbox.client.start("articles")).id
        for _ in range(20):
            await sandbox.work(advance_clock=False)
            await sandbox.clock.advance(minutes(1))
        (job,) = await sandbox.client.runs.list_jobs(run)
        assert (job.state, job.attempt, second.calls) == ("ready", 1, 0)
        first.is_down = False
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run) == {"body": "written by second"}


async def test_what_a_failed_job_left_behind_is_cancelled_at_its_provider(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", OSError("lost")), Model("second", SubmissionUnknown())
    pipeline = careful_articles(Retry(0, jitter=0), on_failure="continue")
    async with open_sandbox(pipeline, resources=chain(first, second)) as sandbox:
        second.found = "found at second"
        run = await sandbox.run(pipeline)
        assert run.state == "completed_with_errors"
        assert (first.cancelled, second.cancelled) == ([], ["found at second"])


async def test_a_call_of_a_dead_worker_is_looked_for_at_its_provider(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first"), Model("second")
    pipeline = careful_articles()
    async with open_sandbox(pipeline, resources=chain(first, second)) as sandbox, killed_worker(sandbox) as dying:
        run = (await sandbox.client.start(pipeline)).id
        first.error = OSError("the worker dies before it reports this")
        await dying.attempt(await dying.claim())
        await pass_heartbeat_timeout(sandbox)
        first.found = "found at first"
        async with sandbox.manual_worker() as worker:
            await run_next(worker, "body")
        assert await sandbox.client.runs.get_results(run) == {"body": "found at first"}


async def test_a_provider_does_not_get_what_another_one_recorded(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("articles", retry=Retry(0, jitter=0))

    @pipeline.step
    async def body(*, llm: Model, shop: Model, ctx: Context) -> list[str]:
        order = await ctx.once("order", shop.write)
        written = await ctx.once("write", llm.write, cancel=llm.cancel)
        if llm.name == "first":
            raise ValueError("not good enough")
        return [order, written]

    first, second, shop = Model("first"), Model("second"), Model("shop")
    async with open_sandbox(pipeline, resources=chain(first, second) | {"shop": shop}) as sandbox:
        run = await sandbox.run(pipeline)
        assert run.results == {"body": ["written by shop", "written by second"]}
        assert (first.calls, second.calls, shop.calls) == (1, 1, 1)


def films() -> Pipeline:
    pipeline = Pipeline("films", retry=Retry(0, jitter=0))

    @pipeline.step
    async def clip(*, llm: Model, ctx: Context) -> list[str]:
        result = await ctx.external(llm.write, poll=llm.poll, cancel=llm.cancel, poll_interval=10)
        return [str(result), llm.name]

    return pipeline


async def test_external_work_is_polled_and_continued_with_the_provider_that_does_it(
    open_sandbox: OpenSandbox,
) -> None:
    first, second = Model("first", ProviderRejected()), Model("second.1")
    async with open_sandbox(films(), resources=chain(first, second)) as sandbox:
        run = (await sandbox.client.start("films")).id
        await sandbox.work(advance_clock=False)
        assert await states(sandbox, run) == {"clip": "parked"}
        await sandbox.client.pools.update("first", resume=True)
        second.poll_result = PollResult("succeeded", result="clip.mp4")
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run) == {"clip": ["clip.mp4", "second.1"]}


async def test_the_result_of_external_work_is_used_while_the_breaker_of_its_provider_is_open(
    open_sandbox: OpenSandbox,
) -> None:
    first, second = Model("first"), Model("second")
    async with open_sandbox(films(), articles(), resources=chain(first, second)) as sandbox:
        run = (await sandbox.client.start("films")).id
        await sandbox.work(advance_clock=False)
        async with sandbox.manual_worker() as worker:
            await reject_once(sandbox, worker, first)
        first.poll_result = PollResult("succeeded", result="clip.mp4")
        await sandbox.clock.advance(seconds(10))
        await sandbox.work(advance_clock=False)
        assert await sandbox.client.runs.get_results(run) == {"clip": ["clip.mp4", "first"]}


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (ProviderRejected("no credit", delay=60), [(10, "PROVIDER_REJECTED"), (70, "PROVIDER_REJECTED")]),
        (OSError("lost"), [(10, "ERROR"), (130, "ERROR")]),
    ],
)
async def test_the_job_stays_with_the_provider_that_did_its_external_work(
    open_sandbox: OpenSandbox, error: Exception, attempts: list[tuple[float, str]]
) -> None:
    pipeline, errors = Pipeline("films", retry=Retry(0, jitter=0)), [error, error]

    @pipeline.step
    async def clip(*, llm: Model, ctx: Context) -> str:
        await ctx.external(llm.write, poll=llm.poll, poll_interval=10)
        if errors:
            raise errors.pop()
        return f"downloaded from {llm.name}"

    first, second, third = Model("first"), Model("second"), Model("third")
    first.poll_result = PollResult("succeeded")
    async with open_sandbox(pipeline, resources=chain(first, second, third)) as sandbox:
        run = await sandbox.run(pipeline)
        assert run.results == {"clip": "downloaded from first"}
        assert await list_attempts(sandbox, run.id) == [(at, code, "first", None) for at, code in attempts]


async def test_external_work_that_failed_is_submitted_to_the_next_provider(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first"), Model("second")
    first.poll_result = PollResult("failed", code="NO_GPU")
    second.poll_result = PollResult("succeeded", result="clip.mp4")
    async with open_sandbox(films(), resources=chain(first, second)) as sandbox:
        run = await sandbox.run("films")
        assert run.results == {"clip": ["clip.mp4", "second"]}
        assert await list_attempts(sandbox, run.id) == [(10, "NO_GPU", "first", "second")]


async def test_external_work_of_a_cancelled_run_is_cancelled_at_its_provider(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", ProviderRejected()), Model("second")
    async with open_sandbox(films(), resources=chain(first, second)) as sandbox:
        run = (await sandbox.client.start("films")).id
        await sandbox.work(advance_clock=False)
        await sandbox.client.runs.cancel(run)
        second.poll_result = PollResult("cancelled")
        await sandbox.work()
        assert (await state(sandbox, run), second.cancelled) == ("cancelled", ["written by second"])


def test_work_recorded_before_a_resource_became_a_chain_belongs_to_its_first_provider() -> None:
    first, second = Model("first"), Model("second")
    assert find_function("llm.poll", chain(first, second)) == first.poll
    assert find_function("llm[second].poll", chain(first, second)) == second.poll


async def test_errors_of_a_chain_do_not_open_the_breaker_of_the_pool_of_its_step(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", ProviderRejected()), Model("second", [RateLimited(60)])
    pipeline = articles(pool=Pool("writers", capacity=8))
    async with open_sandbox(pipeline, resources=chain(first, second)) as sandbox:
        await sandbox.client.start(pipeline)
        await sandbox.work(advance_clock=False)
        pool = await breaker(sandbox, "writers")
        assert (pool.problem, pool.failures, pool.paused_until) == (None, 0, None)
        assert (await breaker(sandbox, "second")).paused_until == NOON + seconds(60)


async def test_a_pool_that_the_application_declares_keeps_its_limits_and_shares_the_breaker(
    open_sandbox: OpenSandbox,
) -> None:
    first, second = Model("first", ProviderRejected()), Model("second")
    pipeline = articles()

    @pipeline.step(pool=Pool("first", capacity=3))
    def summary() -> str:
        return "short"

    async with open_sandbox(pipeline, resources=chain(first, second)) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_claims(worker, await worker.claim(1, queues=["default"]), "body")
        pool = await breaker(sandbox, "first")
        assert (pool.capacity, pool.problem) == (3, "PROVIDER_REJECTED")
        await sandbox.work(advance_clock=False)
        assert await states(sandbox, run) == {"body": "succeeded", "summary": "ready"}


async def test_a_client_lists_the_provider_of_each_failed_attempt(open_sandbox: OpenSandbox) -> None:
    first, second = Model("first", OSError()), Model("second")
    async with open_sandbox(articles(Retry(0)), resources=chain(first, second)) as sandbox:
        run = await sandbox.run("articles")
        (attempt,) = await sandbox.client.runs.list_failed_attempts(run.id)
        assert attempt.provider == "first"
        ((_, error),) = (await sandbox.client.runs.get_errors(run.id)).items()
        assert (error["provider"], error["next_provider"]) == ("first", "second")


async def test_providers_of_a_chain_may_be_opened_by_each_worker(open_sandbox: OpenSandbox) -> None:
    story: list[str] = []

    def opener(name: str) -> Callable[[], Any]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Model]:
            story.append(f"opened {name}")
            yield Model(name, OSError() if name == "first" else None)
            story.append(f"closed {name}")

        return opened

    models = ProviderChain({name: PerWorker(opener(name)) for name in ("first", "second")})
    async with open_sandbox(articles(Retry(0)), resources={"llm": models}) as sandbox:
        assert (await sandbox.run("articles")).results == {"body": "written by second"}
    assert story == ["opened first", "opened second", "closed second", "closed first"]


async def test_steps_that_share_their_retries_share_the_chain(open_sandbox: OpenSandbox) -> None:
    pipeline, tries = Pipeline("articles", retry=Retry(1, delays=[1])), []

    @pipeline.step
    def topics() -> list[str]:
        return ["tea"]

    @pipeline.each(topics, work_limit=minutes(5))
    def outline(topic: str, *, ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ValueError
        return topic

    @pipeline.each(topics, work_limit=minutes(5), continues=outline)
    def body(outline: str, *, llm: Model) -> str:
        tries.append(llm.name)
        return llm.write()

    first, second = Model("first", OSError()), Model("second")
    async with open_sandbox(pipeline, resources=chain(first, second)) as sandbox:
        await sandbox.run(pipeline)
        assert tries == ["first", "second"]


def test_a_step_takes_one_chain_at_most() -> None:
    pipeline = Pipeline("articles")

    @pipeline.step
    def body(*, llm: Model, images: Model) -> str:
        return ""

    with pytest.raises(DefinitionError, match="step 'body': it takes 2 provider chains, 'llm', 'images'"):
        App("test", pipelines=[pipeline], resources=chain(Model("a")) | {"images": ProviderChain([Model("b")])})


def test_a_step_cannot_use_the_pool_of_one_of_its_providers() -> None:
    with pytest.raises(DefinitionError, match="step 'body': pool= is 'first', a provider of the chain 'llm'"):
        App("test", pipelines=[articles(pool=Pool("first", capacity=1))], resources=chain(Model("first")))


def test_a_feedback_check_cannot_use_a_chain() -> None:
    pipeline = Pipeline("articles")

    def can_follow(feedback: Feedback, *, llm: Model) -> None: ...

    @pipeline.step(feedback=can_follow)
    def body() -> str:
        return ""

    with pytest.raises(DefinitionError, match="step 'body': its feedback check cannot use the resource 'llm'"):
        App("test", pipelines=[pipeline], resources=chain(Model("first")))


@pytest.mark.parametrize(
    ("providers", "options", "message"),
    [
        ([], {}, "pass at least one provider"),
        ([object()], {}, "has no name; give it one, or pass a mapping"),
        ([Model("a"), Model("a")], {}, "two providers are named 'a'"),
        ({"no spaces": Model("a")}, {}, "'no spaces' is not a valid provider name"),
        ([Model("a")], {"switch_delay": -1}, "switch_delay= is -1"),
        ([Model("a")], {"switch_delay": "soon"}, "switch_delay= is 'soon'"),
    ],
)
def test_a_wrong_chain_is_rejected(providers: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        ProviderChain(providers, **options)


@pytest.mark.parametrize("limit", [0, -1, "2", True, float("nan"), float("inf")])
def test_a_wrong_cost_limit_is_rejected(limit: Any) -> None:
    with pytest.raises(DefinitionError, match=r"step .body.: cost_limit= is .*; pass US dollars as a number"):
        articles(cost_limit=limit)
