"""What jobs that end without a result leave at providers: workers look for it, end it, or leave it to a person."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from retoma import Context, GiveUp, NeedsReview, Pipeline, PollResult, Pool, Retry, RetryLater, minutes, seconds
from retoma.errors import Conflict, DatabaseUnavailable, NotFound, RateLimited
from retoma.reviews import Decision
from retoma.store import effects, workers
from retoma.store.effects import DueLook
from retoma.store.external_work import DueRequest
from retoma.testing import Sandbox
from retoma.worker.external_work_poller import ExternalWorkPoller
from retoma.worker.maintenance import Maintenance
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
from tests.engine.test_external_work import EVERY, Host, count_used_slots, film, run_poller, start_parked
from tests.engine.test_leases import killed_worker
from tests.engine.test_retention_races import wait_until_blocked
from tests.engine.test_watchdog import run_watchdog
from tests.wait_timeout import WAIT_TIMEOUT

DAY = timedelta(days=1)


class Desk:
    """A provider of orders: it takes them, can be asked for them, and cancels them."""

    def __init__(self) -> None:
        self.orders: dict[str, str] = {}
        self.asked: list[str] = []
        self.cancelled: list[str] = []
        self.loses_answers = False
        self.is_away = False

    def order(self, key: str) -> str:
        self.orders[key] = f"order of {key}"
        if self.loses_answers:
            raise ConnectionError("the answer was lost")
        return self.orders[key]

    def find(self, key: str) -> str | None:
        self.asked.append(key)
        if self.is_away:
            raise ConnectionError("away")
        return self.orders.get(key)

    async def cancel(self, order: str) -> None:
        if self.is_away:
            raise ConnectionError("away")
        self.cancelled.append(order)


def shop(*, finds: bool = True, cancels: bool = True, retry: int = 1, **options: Any) -> Pipeline:
    """One step that orders something and then fails with the error that the desk was given, if any."""
    pipeline = Pipeline("shop", retry=Retry(retry, delays=[60], jitter=0))

    @pipeline.step(pool=Pool("gpu", capacity=1), **options)
    async def buy(*, desk: Desk, ctx: Context) -> str:
        await ctx.once(
            "order",
            lambda: desk.order("a book"),
            find=desk.find if finds else None,
            cancel=desk.cancel if cancels else None,
            key="a book",
        )
        raise ERRORS[desk]

    return pipeline


ERRORS: dict[Desk, Exception] = {}


def make_desk(error: Exception | None = None, *, loses_answers: bool = False) -> Desk:
    desk = Desk()
    desk.loses_answers = loses_answers
    ERRORS[desk] = error or RetryLater(minutes(1))
    return desk


async def run_once(sandbox: Sandbox, pipeline: Pipeline) -> UUID:
    run = (await sandbox.client.start(pipeline)).id
    async with sandbox.manual_worker() as hands:
        await run_next(hands, "buy")
    return run


async def list_resolutions(sandbox: Sandbox) -> list[str | None]:
    return [row[0] for row in await rows(sandbox, "select resolution from retoma.effects order by run, name")]


async def look(sandbox: Sandbox, after: timedelta = timedelta(0)) -> int:
    await sandbox.clock.advance(after)
    async with sandbox.manual_worker() as hands:
        return await hands.poll_external_work()


@pytest.mark.parametrize("when", ["its answer was lost", "its worker died", "its worker dies later"])
async def test_unrecorded_external_work_is_found_and_cancelled_with_its_run(
    when: str, open_sandbox: OpenSandbox
) -> None:
    host, pipeline = Host(), film()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        async with sandbox.manual_worker() as hands:
            host.lose_answer = when == "its answer was lost"
            outcomes = await hands.attempt(await hands.claim(1))
            if when == "its answer was lost":
                await hands.record_outcomes(outcomes)
            if when == "its worker dies later":
                await sandbox.client.runs.cancel(run)
        if when != "its worker dies later":
            await sandbox.client.runs.cancel(run)
        assert (await state(sandbox, run), await states(sandbox, run)) == ("cancelling", {"clip": "parked"})
        assert await count_used_slots(sandbox) == 1
        assert await sandbox.work() == 0
        assert (host.submitted, host.cancelled, await count_used_slots(sandbox)) == (["scene-1"], ["scene-1"], 0)
        assert (await state(sandbox, run), await codes(sandbox, run)) == ("cancelled", {"clip": "RUN_STOPPED"})


async def test_what_was_never_submitted_holds_up_nothing(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film()
    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        host.submitted.clear()
        await sandbox.client.runs.cancel(run)
        assert await look(sandbox) == 1
        assert (host.submitted, host.cancelled) == ([], [])
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("cancelled", 0)
        assert await list_resolutions(sandbox) == ["not_submitted"]


async def test_what_no_worker_can_find_is_an_orphan_and_holds_up_nothing(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(finds=False)
    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        assert await sandbox.client.runs.cancel(run) == "cancelled"
        assert await count_used_slots(sandbox) == 0
        (orphan,) = await sandbox.client.runs.list_orphans(run)
        assert (orphan.step, orphan.effect, orphan.value, orphan.resolution) == ("clip", "external", None, None)
        assert "orphan clip" in await kinds(sandbox, run)
        assert await look(sandbox, DAY) == 0


async def test_an_unreachable_provider_is_asked_less_and_less_often(open_sandbox: OpenSandbox) -> None:
    desk, pipeline = make_desk(loses_answers=True), shop()
    desk.is_away = True
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        run = await run_once(sandbox, pipeline)
        await sandbox.client.runs.cancel(run)
        assert await look(sandbox) == 1
        async with sandbox.manual_worker():
            (wait,) = await sandbox.client.runs.list_waits(run)
        assert (wait.reason, wait.until) == ("cleanup", await sandbox.client.now() + seconds(1))
        for pause in (1, 2, 4, 8, 16, 32, 60, 60):
            assert await look(sandbox, seconds(pause - 0.1)) == 0
            assert await look(sandbox, seconds(0.1)) == 1
        assert await state(sandbox, run) == "cancelling"
        desk.is_away = False
        await sandbox.work()
        assert (await state(sandbox, run), desk.cancelled) == ("cancelled", ["order of a book"])


@pytest.mark.parametrize("loses_answers", [True, False])
async def test_what_cannot_be_found_or_cancelled_for_a_day_is_an_orphan(
    loses_answers: bool, open_sandbox: OpenSandbox
) -> None:
    desk, pipeline = make_desk(loses_answers=loses_answers), shop()
    desk.is_away = True
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        run = await run_once(sandbox, pipeline)
        await sandbox.client.runs.cancel(run)
        await look(sandbox)
        await look(sandbox, DAY - seconds(1))
        assert (await state(sandbox, run), await sandbox.client.runs.list_orphans(run)) == ("cancelling", [])
        await look(sandbox, minutes(1))
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("cancelled", 0)
        (orphan,) = await sandbox.client.runs.list_orphans(run)
        assert "away" in orphan.error["message"]
        (event,) = await sandbox.client.runs.list_events(run, kinds=["orphan"])
        assert (event.step, event.data["effect"], event.data["error"]) == ("buy", "order", orphan.error)
        assert orphan.value == (None if loses_answers else "order of a book")
        assert await look(sandbox, DAY) == 0


async def test_what_a_job_that_failed_for_good_started_is_cancelled_after_its_end(open_sandbox: OpenSandbox) -> None:
    desk, pipeline = make_desk(GiveUp("no")), shop()
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        run = await run_once(sandbox, pipeline)
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("failed", 0)
        await look(sandbox)
        assert desk.cancelled == ["order of a book"]
        assert (await list_resolutions(sandbox), desk.asked) == (["cancelled"], [])


async def test_external_work_of_a_job_that_failed_for_good_is_found_and_cancelled(open_sandbox: OpenSandbox) -> None:
    host, pipeline = Host(), film(retry=0)
    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        assert await state(sandbox, run) == "failed"
        await sandbox.work()
        (work,) = await sandbox.client.external_work.list(run)
        assert (work.state, work.error["code"], host.cancelled) == ("cancelled", "JOB_ENDED", ["scene-1"])
        assert await states(sandbox, run) == {"clip": "failed"}


async def test_what_is_done_and_cannot_be_cancelled_is_not_looked_for(open_sandbox: OpenSandbox) -> None:
    desk, pipeline = make_desk(GiveUp("no")), shop(cancels=False)
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        await run_once(sandbox, pipeline)
        assert (await look(sandbox), await list_resolutions(sandbox)) == (0, [None])


async def test_what_is_found_and_cannot_be_cancelled_is_done(open_sandbox: OpenSandbox) -> None:
    desk, pipeline = make_desk(loses_answers=True), shop(cancels=False, retry=0)
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        await run_once(sandbox, pipeline)
        assert (await look(sandbox), await list_resolutions(sandbox)) == (1, ["done"])
        assert await value(sandbox, "select value #>> '{}' from retoma.effects") == "order of a book"


async def test_what_a_job_with_a_result_started_is_left_alone(open_sandbox: OpenSandbox) -> None:
    desk, pipeline = Desk(), Pipeline("shop")

    @pipeline.step
    async def buy(*, desk: Desk, ctx: Context) -> str:
        return str(await ctx.once("order", lambda: desk.order("a book"), find=desk.find, cancel=desk.cancel))

    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        await sandbox.run(pipeline)
        assert (await look(sandbox, DAY), desk.cancelled) == (0, [])


async def test_work_that_is_sent_back_leaves_a_submission_in_progress_a_minute_to_end(
    open_sandbox: OpenSandbox,
) -> None:
    host, pipeline = Host(), Pipeline("film")

    @pipeline.step
    def draft() -> str:
        return "a draft"

    @pipeline.step
    async def clip(draft: str, *, host: Host, ctx: Context) -> Any:
        submit = lambda: host.submit("scene")  # noqa: E731
        return await ctx.external(submit, find=host.find, key="scene", poll=host.status, cancel=host.cancel)

    pipeline.review("good", of="draft", send_back_to="draft")
    host.lose_answer = True
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, sandbox.manual_worker() as hands:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(hands, "draft")
        await hands.attempt([claim for claim in await hands.claim(10) if claim.step == "clip"])
        (review,) = await sandbox.client.reviews.list(run=run)
        await sandbox.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="again"))
        assert (await states(sandbox, run))["clip"] == "cancelled"
        assert await look(sandbox, seconds(59)) == 0
        assert await look(sandbox, seconds(1)) == 1
        await look(sandbox)
        (work,) = await sandbox.client.external_work.list(run)
        assert (work.revision, work.state, host.cancelled) == (1, "cancelled", ["scene-1"])


async def test_a_rerun_looks_at_once_for_what_a_waiting_job_left(open_sandbox: OpenSandbox) -> None:
    desk, pipeline = make_desk(loses_answers=True), shop()
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        run = await run_once(sandbox, pipeline)
        await sandbox.client.runs.rerun(run, "buy")
        assert await look(sandbox) == 1
        assert (desk.cancelled, await list_resolutions(sandbox)) == (["order of a book"], ["cancelled"])


async def test_a_rerun_makes_a_call_again_only_once_what_the_first_one_started_is_ended(
    open_sandbox: OpenSandbox,
) -> None:
    desk, pipeline = make_desk(), shop()
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        run = await run_once(sandbox, pipeline)
        desk.orders.clear()
        desk.is_away = True
        await sandbox.client.runs.rerun(run, "buy")
        assert await look(sandbox) == 1
        async with sandbox.manual_worker() as worker:
            await run_next(worker, "buy")
            assert desk.orders == {}
            assert (await sandbox.client.runs.list_jobs(run))[0].attempt == 0  # it asked to wait
            desk.is_away = False
            assert await look(sandbox, seconds(15)) == 1
            assert desk.cancelled == ["order of a book"]
            await workers.release_due_jobs(sandbox.database, limit=10)
            await run_next(worker, "buy")
        assert desk.orders == {"a book": "order of a book"}


async def test_what_a_step_that_a_person_skips_started_is_cancelled(open_sandbox: OpenSandbox) -> None:
    desk, pipeline = make_desk(NeedsReview("what now?")), shop()
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        run = await run_once(sandbox, pipeline)
        (review,) = await sandbox.client.reviews.list(run=run)
        assert await look(sandbox, DAY) == 0
        await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana"))
        await sandbox.work()
        assert await states(sandbox, run) == {"buy": "skipped"}
        assert desk.cancelled == ["order of a book"]


@pytest.mark.parametrize("loses_answers", [True, False])
async def test_a_result_that_a_person_gives_leaves_nothing_unknown(
    loses_answers: bool, open_sandbox: OpenSandbox
) -> None:
    """What the step is known to have done stays; what it may have done is looked for and ended."""
    desk = make_desk(NeedsReview("what now?"), loses_answers=loses_answers)
    pipeline = shop(retry=0, on_failure="review")
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        run = await run_once(sandbox, pipeline)
        (review,) = await sandbox.client.reviews.list(run=run)
        await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana", value="my own"))
        await sandbox.work()
        assert await sandbox.client.runs.get_results(run) == {"buy": "my own"}
        assert desk.cancelled == (["order of a book"] if loses_answers else [])


async def test_what_a_run_that_is_cancelled_during_a_review_started_is_cancelled(open_sandbox: OpenSandbox) -> None:
    desk, pipeline = make_desk(NeedsReview("what now?")), shop()
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        run = await run_once(sandbox, pipeline)
        assert await sandbox.client.runs.cancel(run) == "cancelled"
        await look(sandbox)
        assert desk.cancelled == ["order of a book"]


async def test_a_part_of_parked_work_is_cancelled_once_that_work_has_ended(open_sandbox: OpenSandbox) -> None:
    host, desk, pipeline = Host(), Desk(), Pipeline("film")

    @pipeline.step(pool=Pool("gpu", capacity=1))
    async def clip(*, host: Host, desk: Desk, ctx: Context) -> Any:
        await ctx.once("order", lambda: desk.order("a book"), cancel=desk.cancel)
        return await ctx.external(lambda: host.submit("scene"), poll=host.status, cancel=host.cancel)

    host.obeys = False
    async with open_sandbox(pipeline, resources={"host": host, "desk": desk}) as sandbox:
        run = await start_parked(sandbox, pipeline)
        await sandbox.client.runs.cancel(run)
        await look(sandbox)
        assert (host.cancelled, desk.cancelled) == (["scene-1"], [])
        host.obeys = True
        await look(sandbox, seconds(1))
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("cancelling", 1)
        await look(sandbox)
        assert desk.cancelled == ["order of a book"]
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("cancelled", 0)


async def claim_looks(sandbox: Sandbox) -> list[DueLook]:
    async with sandbox.manual_worker() as hands:
        return await effects.claim_looks(sandbox.database, DueRequest(hands.versions, 100, minutes(2)))


async def test_only_the_last_look_counts(open_sandbox: OpenSandbox) -> None:
    desk, pipeline = make_desk(loses_answers=True), shop()
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        run = await run_once(sandbox, pipeline)
        await sandbox.client.runs.cancel(run)
        (first,) = await claim_looks(sandbox)
        await sandbox.clock.advance(minutes(2))
        (second,) = await claim_looks(sandbox)
        assert not await effects.record_look(sandbox.database, first, "not_submitted")
        assert await state(sandbox, run) == "cancelling"
        assert await effects.record_look(sandbox.database, second, "cancelled", value="1")
        assert not await effects.record_look(sandbox.database, second, "cancelled", value="1")
        assert await state(sandbox, run) == "cancelled"


async def test_an_answer_that_arrives_late_reopens_what_was_not_found(open_sandbox: OpenSandbox) -> None:
    """A worker that was taken for dead submits, after another has looked for it in vain."""
    desk, pipeline, answers = make_desk(), shop(), asyncio.Event()
    order, begun = desk.order, asyncio.Event()

    async def order_late(key: str) -> str:
        begun.set()
        await answers.wait()
        return order(key)

    desk.order = order_late  # type: ignore[method-assign, assignment]
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox, killed_worker(sandbox) as frozen:
        run = (await sandbox.client.start(pipeline)).id
        attempt = asyncio.create_task(frozen.attempt(await frozen.claim(1)))
        await begun.wait()
        await pass_heartbeat_timeout(sandbox)
        await sandbox.client.runs.cancel(run)
        await look(sandbox)
        assert (await state(sandbox, run), await list_resolutions(sandbox)) == ("cancelled", ["not_submitted"])
        answers.set()
        await attempt
        assert await look(sandbox) == 1
        assert (desk.cancelled, await list_resolutions(sandbox)) == (["order of a book"], ["cancelled"])


async def test_an_answer_that_says_that_nothing_happened_does_not_end_a_look(open_sandbox: OpenSandbox) -> None:
    """The job of a stopping run waits for the look, which ends it."""
    desk, pipeline = make_desk(loses_answers=True), shop()
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        run = await run_once(sandbox, pipeline)
        await sandbox.client.runs.cancel(run)
        desk.orders.clear()
        fence = await value(sandbox, "select fence from retoma.effects")
        await effects.undo_effect(sandbox.database, effects.LeasedEffect(run, "buy", "", 1, fence, "order"))
        await look(sandbox)
        assert (await state(sandbox, run), await list_resolutions(sandbox)) == ("cancelled", ["not_submitted"])


async def test_a_submission_that_is_refused_while_its_dead_worker_is_reaped_does_not_keep_the_run_open(
    open_sandbox: OpenSandbox,
) -> None:
    desk, pipeline, answers, begun = make_desk(), shop(), asyncio.Event(), asyncio.Event()

    async def order_late(key: str) -> str:
        begun.set()
        await answers.wait()
        raise RateLimited(60)

    desk.order = order_late  # type: ignore[method-assign, assignment]
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox, killed_worker(sandbox) as frozen:
        run = (await sandbox.client.start(pipeline)).id
        attempt = asyncio.create_task(frozen.attempt(await frozen.claim(1)))
        await begun.wait()
        await sandbox.client.runs.cancel(run)
        connection = await sandbox.database.connect()
        async with connection.transaction():
            await connection.execute("select from retoma.jobs for update")
            reaping = asyncio.create_task(pass_heartbeat_timeout(sandbox))
            await wait_until_blocked(connection, reaping)
            answers.set()
            await attempt  # the effect is undone
        await connection.close()
        await reaping
        assert await rows(sandbox, "select from retoma.effects") == []
        assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("cancelled", 0)


async def die_while_looking(sandbox: Sandbox) -> int:
    """A worker claims the looks that are due and vanishes; gives how many it had claimed."""
    async with killed_worker(sandbox) as hands:
        claimed = await effects.claim_looks(sandbox.database, DueRequest(hands.versions, 100, minutes(2), hands.worker))
        await pass_heartbeat_timeout(sandbox)
    return len(claimed)


async def test_a_look_that_kills_three_workers_leaves_an_orphan(open_sandbox: OpenSandbox) -> None:
    desk, pipeline = make_desk(loses_answers=True), shop()
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        run = await run_once(sandbox, pipeline)
        await sandbox.client.runs.cancel(run)
        for _ in range(3):
            assert await die_while_looking(sandbox) == 1
            assert (await state(sandbox, run), await count_used_slots(sandbox)) == ("cancelling", 1)
        await look(sandbox)
        assert (desk.asked, await state(sandbox, run), await count_used_slots(sandbox)) == ([], "cancelled", 0)
        (orphan,) = await sandbox.client.runs.list_orphans(run)
        assert orphan.error["code"] == "QUARANTINED"


async def test_looks_that_died_beside_a_killer_are_tried_one_at_a_time(open_sandbox: OpenSandbox) -> None:
    desk, pipeline, suspect = make_desk(GiveUp("no")), shop(), True
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        for _ in range(3):
            await run_once(sandbox, pipeline)
        assert [await die_while_looking(sandbox) for _ in range(2)] == [3, 1]
        deaths = "select array_agg(worker_deaths order by worker_deaths) from retoma.effects"
        assert await value(sandbox, deaths) == [1, 1, 2]
        catalog = await load_versions(sandbox)
        poller = ExternalWorkPoller(sandbox.database, catalog, lambda: None, lambda: suspect)
        assert await poller.poll_due() == 0
        suspect = False
        assert [await poller.poll_due() for _ in range(4)] == [1, 1, 1, 0]


async def test_polls_start_although_looks_cannot_be_claimed(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> list[DueLook]:
        raise DatabaseUnavailable("the connection was lost")

    monkeypatch.setattr(effects, "claim_looks", fail)
    host, pipeline, ended = Host(), film(), asyncio.Event()
    async with open_sandbox(pipeline, resources={"host": host}) as sandbox, asyncio.timeout(WAIT_TIMEOUT):
        await start_parked(sandbox, pipeline)
        host.reports["scene-1"] = PollResult("succeeded", result="video")
        async with run_poller(sandbox, ended.set) as poller:
            await sandbox.clock.advance(EVERY)
            poller.wake()
            await ended.wait()


async def test_a_worker_that_stops_leaves_its_looks_to_others_at_once(open_sandbox: OpenSandbox) -> None:
    desk, pipeline = make_desk(GiveUp("no")), shop()
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        await run_once(sandbox, pipeline)
        async with sandbox.manual_worker() as hands:
            await effects.claim_looks(sandbox.database, DueRequest(hands.versions, 100, minutes(2), hands.worker))
        assert await value(sandbox, "select worker_deaths from retoma.effects") == 0
        assert await look(sandbox) == 1


async def test_a_call_that_raised_an_error_and_names_no_function_leaves_no_orphan(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("answers", retry=Retry(0))

    @pipeline.step
    async def answer(*, ctx: Context) -> str:
        def ask() -> str:
            raise ConnectionError("the model is overloaded")

        return str(await ctx.once("ask", ask))

    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await sandbox.work()
        assert (await state(sandbox, run), await sandbox.client.runs.list_orphans(run)) == ("failed", [])


async def test_a_person_resolves_an_orphan(open_sandbox: OpenSandbox) -> None:
    desk, pipeline = make_desk(loses_answers=True), shop(finds=False, retry=0)
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        run = await run_once(sandbox, pipeline)
        resolve = sandbox.client.runs.resolve_orphan
        resolved = await resolve(run, "buy", "order", "cancelled_by_hand", by="ana")
        assert (resolved.resolution, resolved.resolved_by) == ("cancelled_by_hand", "ana")
        assert await resolve(run, "buy", "order", "cancelled_by_hand", by="bia") == resolved
        with pytest.raises(Conflict, match="ana"):
            await resolve(run, "buy", "order", "nothing_found", by="bia")
        with pytest.raises(NotFound):
            await resolve(run, "buy", "pay", "nothing_found", by="bia")
        assert await sandbox.client.runs.list_orphans(run) == [resolved]
        assert [event.data for event in await sandbox.client.runs.list_events(run, kinds=["orphan"])] == [
            {"effect": "order", "key": None, "error": None},
            {"effect": "order", "resolution": "cancelled_by_hand", "by": "ana"},
        ]


async def test_resolving_an_orphan_is_not_progress(open_sandbox: OpenSandbox) -> None:
    desk, pipeline = make_desk(loses_answers=True), shop(finds=False, retry=0, on_failure="continue")

    @pipeline.step
    def pack() -> None: ...

    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        async with sandbox.manual_worker() as hands:
            await run_claims(hands, await hands.claim(2), "buy")
        await run_watchdog(sandbox, minutes(4))
        await sandbox.client.runs.resolve_orphan(run, "buy", "order", "nothing_found")
        await run_watchdog(sandbox, minutes(1))
        assert await state(sandbox, run) == "stuck"


async def test_a_new_orphan_is_logged_once(open_sandbox: OpenSandbox, caplog: pytest.LogCaptureFixture) -> None:
    desk, pipeline = make_desk(loses_answers=True), shop(finds=False, retry=0)
    async with open_sandbox(pipeline, resources={"desk": desk}) as sandbox:
        run = await run_once(sandbox, pipeline)
        for _ in range(2):
            maintenance = make_maintenance(sandbox)
            await maintenance._run_tick(0)
        (logged,) = [vars(each) for each in caplog.records if vars(each).get("event") == "effect_orphaned"]
        assert (logged["run"], logged["step"], logged["effect"]) == (str(run), "buy", "order")


def make_maintenance(sandbox: Sandbox) -> Maintenance:
    return Maintenance(
        sandbox.database,
        heartbeat_timeout=DAY,
        refresh=lambda: asyncio.sleep(0),
        worker=0,
        list_running=list,
        on_unwanted=lambda _: None,
        on_work=lambda: None,
        on_poll_due=lambda: None,
    )
