"""Ended runs are removed after a time, with everything that belongs to them; what must outlive them does."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from retoma import Context, File, GiveUp, Items, Pipeline, Webhook
from retoma.engine.retention import remove_due
from retoma.errors import InvalidInput, KeyReused, NotFound, RunBusy, RunHeld, RunRemoved
from retoma.records import ChargeTotal, Erasure, FinalClass, InboundEvent
from retoma.reviews import Decision
from retoma.settings import RetentionTimes
from retoma.store import retention
from retoma.testing import NOON, Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import rows, value
from tests.engine.test_child_runs import Topics, Writing

TIMES = RetentionTimes()
DAY = timedelta(days=1)


class Order(BaseModel):
    names: list[str] = ["a", "b"]
    fails: bool = False


def build_pipeline(name: str = "order", **options: Any) -> Pipeline:
    pipeline = Pipeline(name, inputs=Order, **options)

    @pipeline.step
    async def checked(fails: bool, *, ctx: Context) -> str:
        ctx.charge("openai", "gpt", tokens_in=10, micros=700)
        if fails:
            raise GiveUp("no")
        return "checked"

    @pipeline.each("names")
    async def packed(name: str, *, ctx: Context) -> str:
        ctx.charge("openai", "gpt", units=1, micros=50)
        return name

    @pipeline.step
    async def sent(checked: str, packed: Items[str]) -> list[str]:
        return list(packed)

    return pipeline


async def remove(sandbox: Sandbox, times: RetentionTimes = TIMES) -> int:
    """A pass over all runs."""
    return await remove_due(sandbox.database, times, at_once=True)


async def exists(sandbox: Sandbox, run: UUID) -> bool:
    return bool(await value(sandbox, "select exists (select from retoma.runs where id = $1)", run))


async def test_a_run_is_removed_90_days_after_its_end(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.run("order")).id
        await sandbox.clock.advance(90 * DAY - timedelta(seconds=1))
        assert await remove(sandbox) == 0
        await sandbox.clock.advance(timedelta(seconds=1))
        assert await remove(sandbox) == 1
        with pytest.raises(NotFound):
            await sandbox.client.runs.get(run)


async def test_a_failed_run_is_kept_for_a_year(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.run("order", {"fails": True})).id
        await sandbox.clock.advance(364 * DAY)
        assert await remove(sandbox) == 0
        assert await exists(sandbox, run)
        await sandbox.clock.advance(DAY)
        assert await remove(sandbox) == 1


async def test_an_open_run_is_never_removed(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.client.start("order")).id
        await sandbox.clock.advance(4_000 * DAY)
        assert await remove(sandbox) == 0
        assert await exists(sandbox, run)


async def test_no_row_of_a_removed_run_is_left(open_sandbox: OpenSandbox) -> None:
    """In no column of type uuid of any table: a new table with a run is found."""
    pipeline = build_pipeline()
    pipeline.review("approved", of="sent", send_back_to="sent")
    async with open_sandbox(pipeline) as sandbox:
        webhook = Webhook("http://127.0.0.1:9/hook", retries=0)
        run = (await sandbox.run("order", webhook=webhook)).id
        (review,) = await sandbox.client.reviews.list()
        await sandbox.client.reviews.decide(review.id, Decision("send_back", by="Ana", seen=1, notes="no"))
        await sandbox.work()
        (again,) = await sandbox.client.reviews.list()
        await sandbox.client.reviews.decide(again.id, Decision("approve", by="Ana", seen=2))
        await sandbox.work()
        await sandbox.send_webhooks()
        before = await count_mentions(sandbox, run)
        assert {"runs.id", "jobs.run", "events.run", "charges.run", "reviews.run", "deliveries.run"} <= before.keys()
        await sandbox.clock.advance(91 * DAY)
        assert await remove(sandbox) == 1
        assert await count_mentions(sandbox, run) == {}
        assert await value(sandbox, "select count(*) from retoma.delivery_attempts") == 0


async def count_mentions(sandbox: Sandbox, run: UUID) -> dict[str, int]:
    columns = await rows(
        sandbox,
        "select table_name || '.' || column_name as name, table_name, column_name from information_schema.columns c "
        "where table_schema = 'retoma' and data_type = 'uuid' and column_name in ('run', 'id', 'subject') "
        "and table_name in (select relname from pg_class where relkind = 'r')",
    )
    found = {
        row["name"]: await value(
            sandbox, f"select count(*) from retoma.{row['table_name']} where {row['column_name']} = $1", run
        )
        for row in columns
    }
    return {name: count for name, count in found.items() if count}


async def list_totals(sandbox: Sandbox) -> list[list[ChargeTotal]]:
    ways: list[dict[str, Any]] = [
        {"by": ("step", "tenant")},
        {"by": ("provider", "resource", "day")},
        {"by": ("tenant",), "pipeline": "order"},
        {"by": (), "tenant": "blog"},
        {"by": (), "since": NOON + timedelta(hours=1)},
        {"by": (), "until": NOON + timedelta(hours=1)},
    ]
    return [await sandbox.client.costs.get_totals(**way) for way in ways]


async def test_costs_are_the_same_after_the_removal(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline(), build_pipeline("other")) as sandbox:
        await sandbox.run("order", tenant="blog")
        await sandbox.clock.advance(timedelta(hours=2))
        await sandbox.run("order")
        await sandbox.run("other", tenant="blog")
        totals, days = await list_totals(sandbox), await sandbox.client.costs.get_by_day(NOON, "America/Sao_Paulo")
        assert sum(total.micros for total in totals[0]) == 3 * 800
        await sandbox.clock.advance(90 * DAY)
        await sandbox.run("order", tenant="late")
        assert await remove(sandbox) == 3
        after = await sandbox.client.costs.get_totals(by=("step", "tenant"), until=NOON + 2 * DAY)
        assert after == totals[0]
        late = NOON + 60 * DAY
        assert await sandbox.client.costs.get_totals(by=("provider", "resource", "day"), until=late) == totals[1]
        assert await sandbox.client.costs.get_totals(by=(), tenant="blog") == totals[3]
        assert await sandbox.client.costs.get_totals(by=(), until=NOON + timedelta(hours=1)) == totals[5]
        by_day = await sandbox.client.costs.get_by_day(NOON, "America/Sao_Paulo")
        assert {day: by_day[day] for day in days} == days
        assert await value(sandbox, "select count(*) from retoma.charges") == 3


async def test_a_charge_that_arrives_after_its_run_was_erased_is_rolled_up(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        kept = (await sandbox.run("order", tenant="blog")).id
        erased = (await sandbox.run("order", tenant="blog")).id
        await sandbox.client.retention.erase_run(erased)
        await rows(sandbox, LATE_CHARGE, erased, kept)
        spent = await sandbox.client.costs.get_totals(by=("tenant", "step", "provider", "resource"))
        await remove(sandbox)
        assert {row["run"] for row in await rows(sandbox, "select run from retoma.charges")} == {kept}
        assert await sandbox.client.costs.get_totals(by=("tenant", "step", "provider", "resource")) == spent


LATE_CHARGE = """
insert into retoma.charges (id, run, step, item, revision, attempt, tenant, at, provider, resource, micros)
select gen_random_uuid(), $1, c.step, c.item, c.revision, c.attempt + 1, c.tenant, c.at, c.provider, c.resource, 7
  from retoma.charges c where c.run = $2
returning id
"""


async def test_every_run_with_charges_is_checked_in_turn(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        runs = [(await sandbox.run("order")).id for _ in range(5)]
        await sandbox.client.retention.erase_run(runs[3])
        await rows(sandbox, LATE_CHARGE, runs[3], runs[0])
        found = [await value(sandbox, "select retoma.remove_orphaned_charges(2)") for _ in range(5)]
        assert found == [0, 1, 0, 0, 0]
        await rows(sandbox, LATE_CHARGE, runs[3], runs[0])
        assert sum([await value(sandbox, "select retoma.remove_orphaned_charges(2)") for _ in range(3)]) == 1


async def test_costs_of_removed_runs_are_known_by_the_day_after_13_months(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        for _ in range(3):
            await sandbox.run("order", tenant="blog")
            await sandbox.clock.advance(timedelta(hours=5))
        await sandbox.clock.advance(100 * DAY)
        assert await remove(sandbox) == 3
        by_day = await sandbox.client.costs.get_totals(by=("step", "provider", "resource", "day"))
        assert await value(sandbox, "select count(*) from retoma.charge_rollups") == 6
        await sandbox.clock.advance(200 * DAY)
        await remove(sandbox)
        assert await value(sandbox, "select count(*) from retoma.charge_rollups") == 6
        await sandbox.clock.advance(100 * DAY)
        await remove(sandbox)
        assert await value(sandbox, "select count(*) from retoma.charge_rollups") == 2 * len({e.day for e in by_day})
        assert await sandbox.client.costs.get_totals(by=("step", "provider", "resource", "day")) == by_day


async def test_rollups_are_not_compacted_while_a_removal_adds_to_them(open_sandbox: OpenSandbox) -> None:
    """Two connections: otherwise each could wait for a row of the other."""
    async with open_sandbox(build_pipeline()) as sandbox:
        old = (await sandbox.run("order")).id
        await sandbox.client.retention.erase_run(old)
        run = (await sandbox.run("order")).id
        compact = "select retoma.compact_charge_rollups(retoma.now() + interval '1 day', 100)"
        async with sandbox.database.connection() as removing, removing.transaction():
            await removing.execute("select retoma.remove_runs(array[$1::uuid], 'erased')", run)
            assert await value(sandbox, compact) == 0
        assert await value(sandbox, compact) == 2


async def test_the_metrics_of_reviewers_are_the_same_after_the_removal(open_sandbox: OpenSandbox) -> None:
    pipeline = build_pipeline()
    pipeline.review("approved", of="sent", send_back_to="sent")
    async with open_sandbox(pipeline) as sandbox:
        for hours, action in enumerate(("approve", "send_back", "approve"), 1):
            await sandbox.run("order")
            await sandbox.clock.advance(timedelta(hours=hours))
            review = next(each for each in await sandbox.client.reviews.list() if each.revision == 1)
            await sandbox.client.reviews.decide(review.id, Decision(action, by="Ana", seen=1, notes="no"))
            await sandbox.work()
        (review,) = await sandbox.client.reviews.list()
        await sandbox.client.reviews.decide(review.id, Decision("approve", by="Bia", seen=2))
        await sandbox.work()
        before = await read_review_metrics(sandbox)
        assert [each.decided for each in before[0]] == [4, 3, 1]
        await sandbox.clock.advance(100 * DAY)
        assert await remove(sandbox) == 3
        assert await read_review_metrics(sandbox) == before


async def read_review_metrics(sandbox: Sandbox) -> list[Any]:
    return [
        await sandbox.client.metrics.list_reviewers(NOON),
        await sandbox.client.metrics.list_review_days(NOON, "UTC"),
        await sandbox.client.reviews.get_metrics("order", NOON),
    ]


async def test_a_key_outlives_its_run(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        await sandbox.client.start("order", key="order 7")
        await sandbox.work()
        await sandbox.clock.advance(91 * DAY)
        assert await remove(sandbox) == 1
        with pytest.raises(RunRemoved, match="order 7"):
            await sandbox.client.start("order", key="order 7")
        with pytest.raises(RunRemoved):
            await sandbox.client.start("order", {"fails": True}, key="order 7")
        with pytest.raises(RunRemoved):
            await sandbox.client.runs.find_by_key("order 7", "order")
        assert await value(sandbox, "select count(*) from retoma.runs") == 0


async def test_a_key_of_a_removed_run_does_not_refuse_other_starts(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        await sandbox.client.start("order", key="old")
        kept = await sandbox.client.start("order", key="kept")
        await sandbox.work()
        await sandbox.clock.advance(91 * DAY)
        await sandbox.client.retention.hold(kept.id, "a dispute")
        assert await remove(sandbox) == 1
        assert (await sandbox.client.start("order", key="kept")).id == kept.id
        with pytest.raises(KeyReused):
            await sandbox.client.start("order", {"fails": True}, key="kept")
        assert (await sandbox.client.start("order", key="new")).created
        one, other = await sandbox.client.start_many("order", [{}, {}], key="many")
        assert one.created
        assert other.created


async def test_an_old_key_is_forgotten_in_the_end(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        await sandbox.client.start("order", key="old")
        held = await sandbox.client.start("order", key="held")
        await sandbox.work()
        await sandbox.client.retention.hold(held.id, "a dispute")
        await sandbox.clock.advance(1_096 * DAY)
        await remove(sandbox)
        assert (await sandbox.client.start("order", key="old")).created
        assert (await sandbox.client.start("order", key="held")).id == held.id


async def test_a_repeated_fork_whose_run_was_removed_says_so(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.run("order")).id
        fork = await sandbox.client.runs.fork(run, {"names": ["c"]}, key="again")
        await sandbox.work()
        assert (await sandbox.client.runs.get(fork.id)).forked_from == run
        await sandbox.client.retention.erase_run(fork.id)
        with pytest.raises(RunRemoved):
            await sandbox.client.runs.fork(run, {"names": ["c"]}, key="again")


async def test_a_fork_outlives_its_source(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.run("order")).id
        fork = await sandbox.client.runs.fork(run, {"names": ["c"]})
        await sandbox.work()
        results = await sandbox.client.runs.get_results(fork.id)
        await sandbox.client.retention.erase_run(run)
        assert (await sandbox.client.runs.get(fork.id)).forked_from is None
        assert await sandbox.client.runs.get_results(fork.id) == results


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ([({}, 30)], {"none": 30, "tenant": 30, "pipeline": 30, "both": 30}),
        ([({"tenant": "blog"}, 10)], {"none": 90, "tenant": 10, "pipeline": 90, "both": 10}),
        (
            [({"tenant": "blog"}, 10), ({"pipeline": "other"}, 20)],
            {"none": 90, "tenant": 10, "pipeline": 20, "both": 20},
        ),
        (
            [({"tenant": "blog"}, 10), ({"pipeline": "other"}, 20), ({"pipeline": "other", "tenant": "blog"}, 40)],
            {"none": 90, "tenant": 10, "pipeline": 20, "both": 40},
        ),
        ([({}, None), ({"tenant": "blog"}, 10)], {"none": None, "tenant": 10, "pipeline": None, "both": 10}),
    ],
)
async def test_the_most_specific_rule_applies(
    open_sandbox: OpenSandbox, rules: list[tuple[dict[str, str], int | None]], kept: dict[str, int | None]
) -> None:
    async with open_sandbox(build_pipeline(), build_pipeline("other")) as sandbox:
        runs = {
            "none": (await sandbox.run("order")).id,
            "tenant": (await sandbox.run("order", tenant="blog")).id,
            "pipeline": (await sandbox.run("other")).id,
            "both": (await sandbox.run("other", tenant="blog")).id,
        }
        for about, days in rules:
            await sandbox.client.retention.set_rule(None if days is None else days * DAY, **about)
        started = await sandbox.clock.now()
        for days in (10, 20, 30, 40, 90, 3_000):
            await sandbox.clock.set(started + days * DAY)
            await remove(sandbox)
            expected = {name for name, limit in kept.items() if limit is None or limit > days}
            assert {name for name, run in runs.items() if await exists(sandbox, run)} == expected, f"after {days} days"


async def test_a_pipeline_declares_how_long_its_runs_are_kept(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline(retention=timedelta(hours=24))) as sandbox:
        await sandbox.run("order")
        await sandbox.run("order", {"fails": True})
        await sandbox.clock.advance(timedelta(hours=23))
        assert await remove(sandbox) == 0
        await sandbox.client.retention.set_rule(2 * DAY, pipeline="order", final_class="failed")
        await sandbox.clock.advance(timedelta(hours=1))
        assert await remove(sandbox) == 1
        await sandbox.client.retention.remove_rule(pipeline="order", final_class=FinalClass.FAILED)
        assert await remove(sandbox) == 1


async def test_a_run_is_kept_until_its_deliveries_have_ended_long_enough(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline(retention=timedelta(hours=24))) as sandbox:
        await sandbox.run("order", webhook=Webhook("http://127.0.0.1:9/hook", retries=0))
        await sandbox.clock.advance(2 * DAY)
        assert await remove(sandbox) == 0, "its delivery is not sent yet"
        await sandbox.send_webhooks()
        assert await value(sandbox, "select count(*) from retoma.deliveries where ended_at is null") == 0
        await sandbox.clock.advance(timedelta(hours=23))
        assert await remove(sandbox) == 0
        await sandbox.clock.advance(timedelta(hours=1))
        assert await remove(sandbox) == 1


async def test_a_held_run_is_kept_until_it_is_released(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.run("order")).id
        await sandbox.client.retention.hold(run, "a dispute", by="Ana")
        await sandbox.clock.advance(4_000 * DAY)
        assert await remove(sandbox) == 0
        with pytest.raises(RunHeld, match="a dispute"):
            await sandbox.client.retention.erase_run(run)
        (hold,) = await sandbox.client.retention.list_holds()
        assert (hold.run, hold.held_by, hold.reason) == (run, "Ana", "a dispute")
        await sandbox.client.retention.release(run)
        assert await remove(sandbox) == 1
        with pytest.raises(NotFound):
            await sandbox.client.retention.hold(run, "too late")


async def test_child_runs_are_kept_as_long_as_their_parent(open_sandbox: OpenSandbox) -> None:
    async with Writing().open(open_sandbox) as sandbox:
        run = (await sandbox.run("batch", Topics(topics=["tea"]))).id
        await sandbox.client.retention.set_rule(DAY, pipeline="article")
        await sandbox.clock.advance(2 * DAY)
        assert await remove(sandbox) == 0, "its parent could run again"
        await sandbox.clock.advance(90 * DAY)
        assert await remove(sandbox) + await remove(sandbox) == 2, "the child follows its parent"
        assert not await exists(sandbox, run)
        assert await value(sandbox, "select count(*) from retoma.runs") == 0


async def test_erasing_a_run_erases_its_children(open_sandbox: OpenSandbox) -> None:
    async with Writing().open(open_sandbox) as sandbox:
        run = (await sandbox.run("batch", Topics(topics=["tea", "coffee"]))).id
        assert await sandbox.client.retention.erase_run(run) == Erasure(runs=3, files=0)
        assert await value(sandbox, "select count(*) from retoma.jobs") == 0


async def test_an_open_run_is_not_erased(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.client.start("order")).id
        with pytest.raises(RunBusy, match="running"):
            await sandbox.client.retention.erase_run(run)
        assert await exists(sandbox, run)


async def test_one_tenant_is_erased_at_once(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        kept = (await sandbox.run("order", key="one")).id
        for number in range(3):
            await sandbox.run("order", tenant="blog", key=f"blog {number}")
        await sandbox.client.tenants.set_profile("blog", {"name": "Ana"})
        spent = await sandbox.client.costs.get_spent("blog")
        assert await sandbox.client.retention.erase_tenant("blog") == Erasure(runs=3, files=0)
        assert await exists(sandbox, kept)
        assert await sandbox.client.costs.get_spent("blog") == spent
        assert await value(sandbox, "select count(*) from retoma.start_keys") == 1
        assert await sandbox.client.tenants.list_profiles() == []
        entries = await sandbox.client.audit.list(action="tenant.erase")
        assert [(entry.object_id, entry.after) for entry in entries] == [("blog", {"runs": 3, "files": 0})]


async def test_the_events_of_other_systems_about_a_tenant_are_erased(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        inbound = sandbox.client.inbound_events
        await sandbox.run("order", tenant="blog")
        await inbound.record("post 7", InboundEvent("e-1", 1, {"author": "Ana"}), tenant="blog")
        await inbound.record("post 8", InboundEvent("e-1", 1, {"author": "Bia"}), tenant="other")
        await sandbox.client.retention.erase_tenant("blog")
        assert await inbound.list("post 7") == []
        assert await value(sandbox, "select array_agg(stream) from retoma.inbound_streams") == ["post 8"]
        assert [event.body for event in await inbound.list("post 8")] == [{"author": "Bia"}]


async def test_events_that_are_fetched_for_a_tenant_are_erased_with_it(open_sandbox: OpenSandbox) -> None:
    async def fetch(after: int) -> list[InboundEvent]:
        return [InboundEvent("e-1", 1, {"author": "Ana"})]

    async with open_sandbox(build_pipeline()) as sandbox:
        inbound = sandbox.client.inbound_events
        await inbound.record("post 7", InboundEvent("e-2", 2, {}), tenant="blog")
        assert await inbound.fill_gaps("post 7", fetch, tenant="blog")
        await sandbox.client.retention.erase_tenant("blog")
        assert await inbound.list("post 7") == []


async def test_a_tenant_with_an_open_run_is_not_erased(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        await sandbox.run("order", tenant="blog")
        await sandbox.client.start("order", tenant="blog")
        with pytest.raises(RunBusy):
            await sandbox.client.retention.erase_tenant("blog")
        assert await value(sandbox, "select count(*) from retoma.runs") == 2


async def test_the_preview_says_what_the_next_pass_removes(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline(), build_pipeline("other")) as sandbox:
        for _ in range(3):
            await sandbox.run("order")
        held = (await sandbox.run("other")).id
        await sandbox.run("other", {"fails": True})
        await sandbox.client.retention.hold(held, "a dispute")
        await sandbox.clock.advance(400 * DAY)
        preview = await sandbox.client.retention.preview()
        assert [(group.pipeline, group.final_class, group.runs) for group in preview.groups] == [
            ("order", "ended", 3),
            ("other", "failed", 1),
        ]
        assert preview.runs == 4
        assert preview.is_complete
        assert 4_000 < preview.bytes < 200_000
        assert await sandbox.client.retention.run() == 4
        assert (await sandbox.client.retention.preview()).runs == 0
        assert (await sandbox.client.retention.get_totals()).removed_runs == 4
        removals = await sandbox.client.retention.list_removals()
        assert [(each.pipeline, each.cause, each.runs, each.jobs) for each in removals] == [
            ("order", "expired", 3, 15),
            ("other", "expired", 1, 3),
        ]


async def test_the_preview_counts_only_runs_that_nothing_needs(open_sandbox: OpenSandbox) -> None:
    writing = Writing()
    webhook = Webhook("http://127.0.0.1:9/hook", retries=0)
    async with open_sandbox(writing.article, writing.batch, build_pipeline()) as sandbox:
        parent = (await sandbox.run("batch", Topics(topics=["tea", "coffee"]))).id
        await sandbox.client.retention.set_rule(DAY, pipeline="article")
        await sandbox.run("order", webhook=webhook)
        work = (await sandbox.run("order")).id
        free = (await sandbox.run("order")).id
        await rows(sandbox, OPEN_WORK, work)
        await sandbox.clock.advance(2 * DAY)
        assert (await sandbox.client.retention.preview()).runs == 0, "the parent of the articles could run again"
        await sandbox.clock.advance(90 * DAY)
        await sandbox.client.retention.hold(parent, "a dispute")
        assert [(group.pipeline, group.runs) for group in (await sandbox.client.retention.preview()).groups] == [
            ("order", 1)
        ]
        assert await remove(sandbox) == 1
        assert not await exists(sandbox, free)
        await sandbox.client.retention.release(parent)
        assert (await sandbox.client.retention.preview()).runs == 3
        assert await remove(sandbox) + await remove(sandbox) == 3


OPEN_WORK = """
insert into retoma.external_work (run, step, item, revision, version, external_id, poll_interval, total_timeout,
                                  next_at, parked_at, state)
select id, 'checked', '', 1, version, '1', '1 minute', '1 hour', retoma.now(), retoma.now(), 'queued'
  from retoma.runs where id = $1
"""


async def test_the_preview_counts_files_that_only_expired_runs_name(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_scans()) as sandbox:
        await sandbox.run("scan", {"pages": [make_file("a", 10), make_file("b", 200)]})
        await sandbox.run("scan", {"pages": [make_file("b", 200), make_file("c", 3_000)]})
        await sandbox.client.tenants.set_profile("blog", {"logo": make_file("c", 3_000)})
        await sandbox.clock.advance(91 * DAY)
        await sandbox.run("scan", {"pages": [make_file("d", 40_000), make_file("a", 10)]})
        preview = await sandbox.client.retention.preview()
        assert (preview.runs, preview.files, preview.file_bytes) == (2, 1, 200)


def build_scans() -> Pipeline:
    class Pages(BaseModel):
        pages: list[File]

    pipeline = Pipeline("scan", inputs=Pages)

    @pipeline.step
    async def counted(pages: list[File]) -> int:
        return len(pages)

    return pipeline


def make_file(content: str, size: int) -> dict[str, Any]:
    return {"file": sha256(content.encode()).hexdigest(), "name": f"{content}.txt", "size": size}


async def test_an_erasure_counts_the_files_that_no_run_names_any_more(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_scans()) as sandbox:
        run = (await sandbox.run("scan", {"pages": [make_file("a", 10), make_file("b", 20)]})).id
        await sandbox.run("scan", {"pages": [make_file("b", 20)]}, tenant="blog")
        await sandbox.run("scan", {"pages": [make_file("b", 20), make_file("c", 30)]}, tenant="blog")
        assert await sandbox.client.retention.erase_run(run) == Erasure(runs=1, files=1)
        assert await sandbox.client.retention.erase_tenant("blog") == Erasure(runs=2, files=2)


async def test_a_preview_that_checked_too_few_runs_says_so(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline(), build_pipeline("other")) as sandbox:
        for _ in range(3):
            held = (await sandbox.run("order")).id
            await sandbox.client.retention.hold(held, "a dispute")
        await sandbox.run("other")
        await sandbox.clock.advance(91 * DAY)
        previews = [await retention.preview(sandbox.database, TIMES, limit) for limit in (3, 4)]
        assert [(preview.runs, preview.is_complete) for preview in previews] == [(1, False), (1, True)]


async def test_a_pass_continues_where_it_was_interrupted(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        for _ in range(7):
            await sandbox.run("order")
        await sandbox.clock.advance(91 * DAY)
        removed: list[int] = []
        while sum(removed) < 7:
            async with sandbox.database.connection() as connection:
                count = await connection.fetchval(
                    "select o_removed from retoma.remove_expired_runs('90 days', '1 year', 3, 1000, '10 minutes')"
                )
            removed.append(count)
        assert removed == [3, 3, 1]


async def test_a_batch_ends_after_a_run_with_many_jobs(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        for _ in range(3):
            await sandbox.run("order", {"names": [f"n{number}" for number in range(20)]})
        await sandbox.clock.advance(91 * DAY)
        removed = [
            await value(
                sandbox, "select o_removed from retoma.remove_expired_runs('90 days', '1 year', 3, 10, '1 hour')"
            )
            for _ in range(3)
        ]
        assert removed == [1, 1, 1]


async def test_the_ends_of_erased_runs_are_counted(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.run("order")).id
        await sandbox.client.retention.erase_run(run)
        counted = await value(sandbox, "select sum(count) from retoma.metric_counters where what = 'run_end'")
        assert counted == 1


async def test_old_entries_of_the_audit_log_have_a_retention_of_their_own(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        run = (await sandbox.run("order")).id
        await sandbox.client.retention.hold(run, "a dispute")
        await sandbox.clock.advance(1_824 * DAY)
        await remove(sandbox)
        assert len(await sandbox.client.audit.list(action="run.hold")) == 1
        await sandbox.clock.advance(2 * DAY)
        await remove(sandbox)
        assert await sandbox.client.audit.list(action="run.hold") == []


@pytest.mark.parametrize("keep", [timedelta(seconds=-1), timedelta(days=40_000)])
async def test_a_rule_has_a_reasonable_time(open_sandbox: OpenSandbox, keep: timedelta) -> None:
    async with open_sandbox(build_pipeline()) as sandbox:
        with pytest.raises(InvalidInput):
            await sandbox.client.retention.set_rule(keep)
