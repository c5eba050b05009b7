"""Budgets: checked before an attempt with an estimated cost, so that no two attempts pass one together."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from retoma import Context, Items, NeedsReview, Pipeline, PollResult, Pool, Retry
from retoma.define.charge import Charge
from retoma.engine.reviews import Decision
from retoma.errors import InvalidInput, SendBackNotAllowed
from retoma.identifiers import new_run_id
from retoma.records import BudgetAction, BudgetPeriod, Role
from retoma.store import budgets, charges
from retoma.store.charges import ChargeEntry
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import pass_heartbeat_timeout, rows, run_claims, run_next, state, states, value
from tests.engine.test_races import is_blocked, wait_until

DOLLAR = 1_000_000
TENANT = "channel"

film = Pipeline("film", retry=Retry(0))


@film.step(estimated_cost=12)
async def scene(*, ctx: Context) -> int:
    ctx.charge("video", "second", micros=12 * DOLLAR)
    return 1


async def set_budget(
    sandbox: Sandbox,
    dollars: float,
    *,
    period: BudgetPeriod = BudgetPeriod.MONTH,
    pipeline: str | None = None,
    action: BudgetAction = BudgetAction.REVIEW,
    tenant: str = TENANT,
) -> int:
    number = await sandbox.client._core.tenants.get_or_create_id(tenant)
    return await budgets.set_budget(
        sandbox.database,
        number,
        pipeline,
        period,
        micros=int(dollars * DOLLAR),
        action=action,
        warn_at=0.8,
        by="Ana",
    )


async def spend(sandbox: Sandbox, run: UUID, dollars: float, step: str = "scene") -> None:
    """Write a charge as a worker does."""
    tenant = await sandbox.client._core.tenants.get_or_create_id(TENANT)
    charge = Charge("video", "second", micros=int(dollars * DOLLAR))
    await charges.write(sandbox.database, [ChargeEntry(new_run_id(), run, step, "", 1, 1, tenant, charge)])


async def reserved(sandbox: Sandbox) -> int:
    (status,) = await budgets.list_statuses(sandbox.database, None)
    assert status.reserved is not None
    return status.reserved


async def start(sandbox: Sandbox, pipeline: Pipeline = film) -> UUID:
    return (await sandbox.client.start(pipeline, tenant=TENANT)).id


async def test_a_job_over_a_hard_budget_opens_a_review(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 50)
        first, second = await start(sandbox), await start(sandbox)
        await spend(sandbox, first, 41.20)
        await run_next(worker)
        assert {await state(sandbox, first), await state(sandbox, second)} == {"needs_review"}
        review, _ = await sandbox.client.reviews.list()
        assert review.reason["code"] == "BUDGET"
        assert review.reason["message"].endswith("US$ 50.00: US$ 41.20 spent, and this step is estimated at US$ 12.00")


async def test_a_job_within_a_hard_budget_runs(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 12)
        run = await start(sandbox)
        await run_next(worker)
        assert await state(sandbox, run) == "completed"


async def test_two_jobs_cannot_pass_a_hard_budget_together(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 20)
        await start(sandbox), await start(sandbox)
        first, second = await worker.claim(2)
        async with sandbox.database.connection() as one, sandbox.database.connection() as other:
            sql = "select retoma.reserve_budget($1, $2, '', 1, $3, $4)"
            async with one.transaction():
                assert await one.fetchval(sql, first.run, first.step, first.fence, 12 * DOLLAR) is None
                waiting = asyncio.create_task(other.fetchval(sql, second.run, second.step, second.fence, 12 * DOLLAR))
                await wait_until(lambda: is_blocked(sandbox, "reserve_budget"))
            assert '"reserved" : 12000000' in await waiting


async def test_an_over_budget_job_uses_up_no_attempt(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5)
        await start(sandbox)
        await run_next(worker)
        assert await value(sandbox, "select attempt from retoma.jobs") == 0


async def test_a_crash_leaves_nothing_reserved(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 20)
        await start(sandbox)
        (claim,) = await worker.claim()
        assert await budgets.reserve(sandbox.database, claim.key, 12 * DOLLAR) is None
        assert await reserved(sandbox) == 12 * DOLLAR
        await worker.abandon()
        await pass_heartbeat_timeout(sandbox)
        assert await reserved(sandbox) == 0


async def test_a_reservation_shrinks_by_what_was_charged(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 20)
        run = await start(sandbox)
        (claim,) = await worker.claim()
        await budgets.reserve(sandbox.database, claim.key, 12 * DOLLAR)
        await spend(sandbox, run, 5)
        assert await reserved(sandbox) == 7 * DOLLAR
        await run_claims(worker, [claim])
        assert await reserved(sandbox) == 0


async def test_late_charges_of_superseded_attempts_count(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 20)
        run = await start(sandbox)
        (claim,) = await worker.claim()
        await budgets.reserve(sandbox.database, claim.key, 12 * DOLLAR)
        await worker.abandon()
        await pass_heartbeat_timeout(sandbox)
        await spend(sandbox, run, 9)
        async with sandbox.manual_worker() as next_worker:
            await run_next(next_worker)
        assert await states(sandbox, run) == {"scene": "parked"}


async def test_raising_a_budget_lets_the_job_continue(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5)
        run = await start(sandbox)
        await run_next(worker)
        await set_budget(sandbox, 15)
        await sandbox.work()
        assert await state(sandbox, run) == "completed"
        (review,) = await sandbox.client.reviews.list(states=None)
        assert (review.state, review.decided_by, review.via) == ("approved", "Ana", "budget")


async def test_only_as_many_jobs_continue_as_the_raised_budget_allows(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5)
        runs = [await start(sandbox) for _ in range(3)]
        await run_next(worker)
        await set_budget(sandbox, 30)
        await sandbox.work(advance_clock=False)
        assert sorted([await state(sandbox, run) for run in runs]) == ["completed", "completed", "needs_review"]


async def test_a_removed_budget_lets_the_job_continue(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        number = await set_budget(sandbox, 5)
        run = await start(sandbox)
        await run_next(worker)
        await budgets.remove(sandbox.database, number)
        await sandbox.work()
        assert await state(sandbox, run) == "completed"


async def decide(sandbox: Sandbox, action: str) -> None:
    (review,) = await sandbox.client.reviews.list()
    await sandbox.client.reviews.decide(review.id, Decision(action, "Ana", notes="too expensive"))


async def test_a_person_lets_one_job_pass_the_budget(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5)
        run = await start(sandbox)
        await run_next(worker)
        await decide(sandbox, "approve")
        await sandbox.work()
        assert await state(sandbox, run) == "completed"
        assert (await sandbox.client.costs.get_spent(TENANT)) == 12 * DOLLAR


async def test_a_person_stops_the_run(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5)
        run = await start(sandbox)
        await run_next(worker)
        await decide(sandbox, "reject")
        assert await state(sandbox, run) == "rejected"


async def test_a_new_month_begins_in_the_time_zone_of_the_tenant(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 20)
        tenant = await sandbox.client._core.tenants.get_or_create_id(TENANT)
        await budgets.set_money(
            sandbox.database, tenant, time_zone="America/Sao_Paulo", currency=None, rate=None, rate_date=None
        )
        await sandbox.clock.set(datetime(2026, 12, 1, 2, 59, tzinfo=UTC))  # 23:59 on 30 November there
        run = await start(sandbox)
        await spend(sandbox, run, 15)
        await run_next(worker)
        assert await state(sandbox, run) == "needs_review"
        await sandbox.clock.advance(timedelta(minutes=1))
        (status,) = await budgets.list_statuses(sandbox.database, None)
        assert (status.spent, status.starts_at) == (0, datetime(2026, 12, 1, 3, 0, tzinfo=UTC))
        await sandbox.work()
        assert await state(sandbox, run) == "completed"


async def test_a_budget_per_run_counts_that_run_only(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 20, period=BudgetPeriod.RUN)
        dear, cheap = await start(sandbox), await start(sandbox)
        await spend(sandbox, dear, 10)
        await run_next(worker)
        assert (await state(sandbox, dear), await state(sandbox, cheap)) == ("needs_review", "completed")


async def test_a_budget_of_a_pipeline_ignores_others(open_sandbox: OpenSandbox) -> None:
    other = Pipeline("other")

    @other.step(estimated_cost=lambda: 12)
    async def render() -> int:
        return 1

    async with open_sandbox(film, other) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5, pipeline="film")
        limited, free = await start(sandbox), await start(sandbox, other)
        await run_next(worker)
        assert (await state(sandbox, limited), await state(sandbox, free)) == ("needs_review", "completed")


async def test_another_tenant_is_not_limited(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5, tenant="somebody else")
        run = await start(sandbox)
        await run_next(worker)
        assert await state(sandbox, run) == "completed"


async def test_an_estimate_is_computed_from_the_inputs(open_sandbox: OpenSandbox) -> None:
    takes = Pipeline("takes")

    @takes.step
    async def plan() -> list[int]:
        return [1, 9]

    @takes.each(plan, estimated_cost=lambda length: length)
    async def take(length: int) -> int:
        return length

    @takes.step
    async def cut(take: Items[int]) -> int:
        return sum(take)

    async with open_sandbox(takes) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5)
        run = await start(sandbox, takes)
        await run_next(worker)
        await run_next(worker)
        assert sorted((await states(sandbox, run)).items())[-2:] == [("take:1", "succeeded"), ("take:9", "parked")]


async def test_an_estimate_that_is_no_amount_fails_the_job(open_sandbox: OpenSandbox) -> None:
    broken = Pipeline("broken")

    @broken.step(estimated_cost=lambda: "much")  # type: ignore[arg-type, return-value]
    async def one() -> int:
        return 1

    async with open_sandbox(broken) as sandbox:
        run = (await sandbox.run(broken)).id
        (job,) = await sandbox.client.runs.list_jobs(run)
        assert job.code == "ESTIMATE_FAILED"


async def test_a_step_with_a_cost_limit_is_not_called_once_a_hard_budget_is_used_up(open_sandbox: OpenSandbox) -> None:
    calls = []
    letter = Pipeline("letter", retry=Retry(0))

    @letter.step(cost_limit=2)
    async def write() -> int:
        calls.append("write")
        return 1

    async with open_sandbox(letter) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5)
        run = await start(sandbox, letter)
        await spend(sandbox, run, 5, "write")
        await run_next(worker)
        assert calls == []
        assert await state(sandbox, run) == "needs_review"
        (review,) = await sandbox.client.reviews.list()
        assert review.reason["code"] == "BUDGET"
        assert review.reason["message"].endswith("US$ 5.00: US$ 5.00 spent, so it is used up")


async def test_a_step_with_a_cost_limit_runs_as_long_as_money_is_left(open_sandbox: OpenSandbox) -> None:
    letter = Pipeline("letter", retry=Retry(0))

    @letter.step(cost_limit=2)
    async def write() -> int:
        return 1

    async with open_sandbox(letter) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5)
        run = await start(sandbox, letter)
        await spend(sandbox, run, 4.99, "write")
        (claim,) = await worker.claim()
        assert await budgets.reserve(sandbox.database, claim.key, None) is None
        assert await reserved(sandbox) == 0
        await run_claims(worker, [claim])
        assert await state(sandbox, run) == "completed"


async def test_a_step_with_a_cost_limit_continues_once_the_budget_is_raised(open_sandbox: OpenSandbox) -> None:
    letter = Pipeline("letter", retry=Retry(0))

    @letter.step(cost_limit=2)
    async def write() -> int:
        return 1

    async with open_sandbox(letter) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 0)
        run = await start(sandbox, letter)
        await run_next(worker)
        assert await state(sandbox, run) == "needs_review"
        await set_budget(sandbox, 1)
        await sandbox.work()
        assert await state(sandbox, run) == "completed"


async def test_a_failing_condition_of_a_paid_step_is_not_reported_as_its_estimate(open_sandbox: OpenSandbox) -> None:
    broken = Pipeline("broken", retry=Retry(0))

    @broken.step(cost_limit=2, when=lambda: 1 / 0 > 1)
    async def one() -> int:
        return 1

    async with open_sandbox(broken) as sandbox:
        run = (await sandbox.run(broken)).id
        (job,) = await sandbox.client.runs.list_jobs(run)
        assert job.code == "ERROR"


async def test_the_sums_by_quarter_of_an_hour_equal_the_charges(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox:
        await sandbox.clock.set(datetime(2026, 11, 18, 12, 7, tzinfo=UTC))
        for _ in range(3):
            await sandbox.run(film, tenant=TENANT)
            await sandbox.clock.advance(timedelta(minutes=20))
        await spend(sandbox, new_run_id(), 2)  # of a run that no longer exists
        difference = """
            with recomputed as (
              select c.tenant, date_bin('15 minutes', c.at, 'epoch') as quarter, coalesce(v.pipeline, '') as pipeline,
                     sum(c.micros)::bigint as micros
                from retoma.charges c
                left join retoma.runs r on r.id = c.run
                left join retoma.versions v on v.id = r.version
               group by 1, 2, 3)
            select count(*) from ((table recomputed except table retoma.charge_sums)
                                  union all (table retoma.charge_sums except table recomputed)) d"""
        assert await value(sandbox, "select count(*) from retoma.charge_sums") == 4
        assert await value(sandbox, difference) == 0


async def list_warnings(sandbox: Sandbox) -> list[tuple[str, int]]:
    found = await rows(sandbox, "select level, spent from retoma.budget_warnings order by warned_at, level")
    return [(row["level"], row["spent"] // DOLLAR) for row in found]


async def test_a_budget_warns_once_near_its_limit_and_once_at_it(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox:
        await set_budget(sandbox, 10, action=BudgetAction.NOTIFY)
        run = await start(sandbox)
        for dollars in (7, 1, 1, 1, 5):
            await spend(sandbox, run, dollars)
        assert await list_warnings(sandbox) == [("near", 8), ("reached", 10)]


async def test_a_budget_warns_again_in_the_next_period(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox:
        await set_budget(sandbox, 10, period=BudgetPeriod.DAY, action=BudgetAction.NOTIFY)
        run = await start(sandbox)
        await spend(sandbox, run, 9)
        await sandbox.clock.advance(timedelta(days=1))
        await spend(sandbox, run, 9)
        assert await list_warnings(sandbox) == [("near", 9), ("near", 9)]


async def test_a_soft_budget_stops_nothing(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox:
        await set_budget(sandbox, 1, action=BudgetAction.NOTIFY)
        await sandbox.run(film, tenant=TENANT)
        assert await list_warnings(sandbox) == [("reached", 12)]


async def test_operators_are_notified_of_a_budget_that_is_used_up(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox:
        await sandbox.client.people.create("Rui", "rui@example.com", role=Role.OPERATOR, tenant=TENANT)
        await rows(
            sandbox,
            "insert into retoma.notification_channels (channel, kinds, digest)"
            " values ('email', '{budget}', 'immediately')",
        )
        await set_budget(sandbox, 10)
        await spend(sandbox, await start(sandbox), 9)
        ((kind, data),) = await rows(sandbox, "select kind, data::text from retoma.notifications")
        assert kind == "budget"
        assert (json.loads(data)["name"], json.loads(data)["used"]) == (TENANT, 9 * DOLLAR)


async def test_charges_are_written_although_a_warning_fails(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox:
        await set_budget(sandbox, 10)
        run = await start(sandbox)
        await rows(sandbox, "update retoma.tenants set time_zone = 'Nowhere/Land'")
        await spend(sandbox, run, 9)
        assert await value(sandbox, "select count(*) from retoma.charges") == 1
        assert await list_warnings(sandbox) == []


async def poll_clip(external_id: str) -> PollResult:
    return PollResult("succeeded", 1)


async def test_external_work_stays_reserved_until_it_is_charged(open_sandbox: OpenSandbox) -> None:
    clip = Pipeline("clip", retry=Retry(0))

    @clip.step(estimated_cost=12)
    async def render(*, ctx: Context) -> int:
        result: int = await ctx.external(lambda: "x1", poll=poll_clip)
        ctx.charge("gpu", "second", micros=10 * DOLLAR)
        return result

    async with open_sandbox(clip) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 15)
        run = await start(sandbox, clip)
        await run_next(worker)
        assert await states(sandbox, run) == {"render": "parked"}
        assert await reserved(sandbox) == 12 * DOLLAR
        await sandbox.work()
        assert await state(sandbox, run) == "completed"
        assert await reserved(sandbox) == 0


async def test_a_job_keeps_its_pool_while_it_waits_for_a_budget(open_sandbox: OpenSandbox) -> None:
    drawn = Pipeline("drawn")

    @drawn.step(pool=Pool("gpu", capacity=1), estimated_cost=12)
    async def draw() -> int:
        return 1

    async with open_sandbox(drawn) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5)
        run = await start(sandbox, drawn)
        await run_next(worker)
        assert await value(sandbox, "select count(*) from retoma.holdings") == 0
        await decide(sandbox, "approve")
        (claim,) = await worker.claim()
        assert await value(sandbox, "select count(*) from retoma.holdings") == 1
        await run_claims(worker, [claim])
        assert await state(sandbox, run) == "completed"


async def test_a_step_that_may_pass_the_budget_may_still_ask_for_help(open_sandbox: OpenSandbox) -> None:
    unsure = Pipeline("unsure")

    @unsure.step(estimated_cost=12)
    async def judge() -> int:
        raise NeedsReview("which one?")

    async with open_sandbox(unsure) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5)
        run = await start(sandbox, unsure)
        await run_next(worker)
        await decide(sandbox, "approve")
        await run_next(worker)
        (review,) = await sandbox.client.reviews.list()
        assert review.reason["code"] != "BUDGET"
        assert await state(sandbox, run) == "needs_review"


async def test_a_job_that_passes_a_budget_is_asked_about_again_after_a_raise(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5)
        run = await start(sandbox)
        await run_next(worker)
        await set_budget(sandbox, 15)
        await reviews_due(sandbox)
        await set_budget(sandbox, 5)
        await run_next(worker)
        found = await sandbox.client.reviews.list(states=None)
        assert sorted(str(each.state) for each in found) == ["approved", "open"]
        assert await state(sandbox, run) == "needs_review"


async def reviews_due(sandbox: Sandbox) -> None:
    await rows(sandbox, "select retoma.process_due_reviews(100)")


async def test_a_run_that_waits_for_a_budget_is_not_derived_again_for_each_review(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5)
        run = await start(sandbox)
        await run_next(worker)
        await reviews_due(sandbox)
        assert await state(sandbox, run) == "needs_review"
        await sandbox.clock.advance(timedelta(minutes=2))
        async with sandbox.database.connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("create temporary table refreshed (run uuid)")
            await connection.execute(
                "create or replace function retoma.refresh_run_state(p_now timestamptz, p_runs uuid[]) returns void "
                "language sql as 'insert into pg_temp.refreshed select unnest(p_runs)'"
            )
            assert await connection.fetchval("select retoma.process_due_reviews(100)") == 1
            assert await connection.fetchval("select count(*) from refreshed") == 0
            await transaction.rollback()


async def test_a_budget_review_cannot_be_sent_back_or_edited(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 5)
        await start(sandbox)
        await run_next(worker)
        (review,) = await sandbox.client.reviews.list()
        with pytest.raises(SendBackNotAllowed):
            await sandbox.client.reviews.decide(review.id, Decision("send_back", "Ana", notes="again"))
        with pytest.raises(InvalidInput, match="approve it without a value"):
            await sandbox.client.reviews.decide(review.id, Decision("approve", "Ana", value=1))


async def test_a_reservation_of_a_superseded_attempt_does_not_count(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(film) as sandbox, sandbox.manual_worker() as worker:
        await set_budget(sandbox, 20)
        run = await start(sandbox)
        (claim,) = await worker.claim()
        await budgets.reserve(sandbox.database, claim.key, 12 * DOLLAR)
        await sandbox.client.runs.cancel(run)
        await run_claims(worker, [claim])
        assert await reserved(sandbox) == 0


async def test_a_job_that_waits_for_a_budget_is_logged(
    open_sandbox: OpenSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_sandbox(film) as sandbox:
        await set_budget(sandbox, 5)
        await sandbox.run(film, tenant=TENANT)
        assert "budget_reached" in caplog.text
        assert "this step is estimated at US$ 12.00" in caplog.text
