"""Actions on many runs, jobs and deliveries: what they choose, and that they do it once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from retoma import Pipeline, Retry, Webhook
from retoma.client.bulk_actions import MAX_OPEN_ACTIONS, BulkFilter
from retoma.engine.bulk_actions import MAX_ACTIONS, advance_open_actions
from retoma.errors import Conflict, InvalidInput, KeyReused, NotFound
from retoma.records import BulkKind
from retoma.states import DeliveryState, RunState
from retoma.testing import NOON, Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import names, rows, run_next, state, states, value
from tests.engine.test_races import is_blocked
from tests.worker.test_worker import run_worker, wait_until

ALL = BulkFilter()


def fragile(delay: int = 600) -> Pipeline:
    """A step that fails the first time, and waits for its second attempt; `broken` fails at once."""
    pipeline = Pipeline("fragile", retry=Retry(3, delays=[delay]))

    @pipeline.step
    async def shaky() -> None:
        raise ValueError("not today")

    return pipeline


def broken() -> Pipeline:
    pipeline = Pipeline("broken", retry=Retry(0))

    @pipeline.step
    async def bad() -> None:
        raise ValueError("never")

    return pipeline


async def fail_once(sandbox: Sandbox, count: int = 1, tenant: str = "default") -> list[UUID]:
    runs = [(await sandbox.client.start("fragile", tenant=tenant)).id for _ in range(count)]
    async with sandbox.manual_worker() as worker:
        await run_next(worker)
    return runs


async def test_runs_that_match_are_cancelled_and_no_others(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile(), broken()) as sandbox:
        client = sandbox.client
        mine = [(await client.start("fragile", tenant="shop")).id for _ in range(3)]
        others = [(await client.start("broken", tenant="shop")).id, (await client.start("fragile")).id]
        preview = await client.bulk_actions.preview(BulkKind.CANCEL_RUNS, BulkFilter(pipeline="fragile"), tenant="shop")
        assert (preview.count, [each.run for each in preview.sample]) == (3, mine)
        assert {await state(sandbox, run) for run in mine} == {"running"}
        action = await client.bulk_actions.start(
            BulkKind.CANCEL_RUNS, BulkFilter(pipeline="fragile"), tenant="shop", by="ana", expected=3
        )
        assert (action.total, action.done, action.ended_at) == (3, 0, None)
        await advance_open_actions(sandbox.database)
        assert {await state(sandbox, run) for run in mine} == {"cancelled"}
        assert {await state(sandbox, run) for run in others} == {"running"}
        ended = await client.bulk_actions.get(action.id)
        assert (ended.done, ended.skipped, ended.left, ended.ended_at) == (3, 0, 0, NOON)
        (event,) = await client.runs.list_events(mine[0], kinds=("action",))
        assert event.data == {"by": "ana", "action": "cancel"}


async def test_a_repeated_click_starts_one_action(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile()) as sandbox:
        await sandbox.client.start("fragile")
        start = sandbox.client.bulk_actions.start
        first, second = await asyncio.gather(*[start(BulkKind.CANCEL_RUNS, ALL, by="ana", key="click") for _ in "12"])
        assert first == second
        assert await sandbox.client.bulk_actions.list() == [first]
        await advance_open_actions(sandbox.database)
        await sandbox.client.start("fragile")
        assert (await start(BulkKind.CANCEL_RUNS, ALL, by="ana", key="click")).total == 1
        with pytest.raises(KeyReused):
            await start(BulkKind.RERUN_FAILED, ALL, by="ana", key="click")


async def test_two_processes_share_an_action_and_do_nothing_twice(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(broken()) as sandbox:
        runs = [(await sandbox.client.start("broken")).id for _ in range(8)]
        async with sandbox.manual_worker() as worker:
            await run_next(worker)
        action = await sandbox.client.bulk_actions.start(BulkKind.RERUN_FAILED, ALL, by="ana")
        await asyncio.gather(*[advance_open_actions(sandbox.database) for _ in range(4)])
        await advance_open_actions(sandbox.database)
        ended = await sandbox.client.bulk_actions.get(action.id)
        assert (ended.total, ended.done, ended.skipped) == (8, 8, 0)
        assert {(await sandbox.client.runs.get(run)).revision for run in runs} == {2}


async def test_a_worker_continues_an_action_that_was_interrupted(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile()) as sandbox:
        for _ in range(3):
            await sandbox.client.start("fragile")
        action = (await sandbox.client.bulk_actions.start(BulkKind.CANCEL_RUNS, ALL, by="ana")).id
        await sandbox.client.bulk_actions.advance(action)  # and then its process ends
        async with run_worker(sandbox):

            async def has_ended() -> bool:
                return (await sandbox.client.bulk_actions.get(action)).ended_at is not None

            await wait_until(has_ended)
        assert (await sandbox.client.bulk_actions.get(action)).done == 3


async def test_dead_workers_are_reaped_while_targets_take_long(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile()) as sandbox, sandbox.manual_worker() as silent:
        run = (await sandbox.client.start("fragile")).id
        async with sandbox.database.connection() as other, run_worker(sandbox), other.transaction():
            await other.execute("select from retoma.runs where id = $1 for update", run)  # to cancel it takes long
            for _ in range(MAX_ACTIONS):
                await sandbox.client.bulk_actions.start(BulkKind.CANCEL_RUNS, ALL, by="ana")
            await wait_until(lambda: is_blocked(sandbox, "advance_bulk_action"))
            silenced = "update retoma.workers set heartbeat_at = heartbeat_at - interval '1 hour' where id = $1"
            await rows(sandbox, silenced, silent.worker)
            await wait_until(lambda: has_ended(sandbox, silent.worker))


async def has_ended(sandbox: Sandbox, worker: int) -> bool:
    return bool(await value(sandbox, "select ended_at from retoma.workers where id = $1", worker))


async def test_the_actions_of_one_tenant_do_not_hold_up_those_of_others(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile()) as sandbox:
        start, find = sandbox.client.bulk_actions.start, sandbox.client.bulk_actions.get
        for tenant in ("shop", "blog"):
            for _ in range(2):
                await sandbox.client.start("fragile", tenant=tenant)
        for _ in range(MAX_ACTIONS):
            await start(BulkKind.CANCEL_RUNS, ALL, tenant="shop", by="ana")
        await sandbox.clock.advance(timedelta(seconds=1))
        late = await start(BulkKind.CANCEL_RUNS, ALL, tenant="blog", by="bo")
        await advance_open_actions(sandbox.database)
        assert (await find(late.id)).done > 0


async def test_a_tenant_has_a_limited_number_of_actions_in_progress(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile()) as sandbox:
        await sandbox.client.start("fragile", tenant="shop")
        start = sandbox.client.bulk_actions.start
        for number in range(MAX_OPEN_ACTIONS):
            await start(BulkKind.CANCEL_RUNS, ALL, tenant="shop", by="ana", key=str(number))
        with pytest.raises(Conflict, match="20 bulk actions are in progress"):
            await start(BulkKind.CANCEL_RUNS, ALL, tenant="shop", by="ana")
        assert (await start(BulkKind.CANCEL_RUNS, ALL, tenant="shop", by="ana", key="3")).total == 1
        assert (await start(BulkKind.CANCEL_RUNS, ALL, by="ana")).total == 1


async def test_a_target_that_has_changed_is_skipped(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(broken()) as sandbox:
        runs = [(await sandbox.client.start("broken")).id for _ in range(3)]
        async with sandbox.manual_worker() as worker:
            await run_next(worker)
        action = await sandbox.client.bulk_actions.start(BulkKind.RERUN_FAILED, ALL, by="ana")
        await sandbox.client.runs.rerun(runs[0], "bad")
        await rows(sandbox, "delete from retoma.runs where id = $1", runs[1])
        await advance_open_actions(sandbox.database)
        ended = await sandbox.client.bulk_actions.get(action.id)
        assert (ended.done, ended.skipped, ended.ended_at) == (1, 2, NOON)


async def test_an_aborted_action_leaves_the_rest_alone(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile()) as sandbox:
        client = sandbox.client
        runs = [(await client.start("fragile")).id for _ in range(3)]
        action = await client.bulk_actions.start(BulkKind.CANCEL_RUNS, ALL, by="ana")
        assert await client.bulk_actions.advance(action.id)
        aborted = await client.bulk_actions.abort(action.id, by="bo")
        assert (aborted.done, aborted.left, aborted.aborted_by) == (1, 2, "bo")
        assert not await advance_open_actions(sandbox.database)
        assert [await state(sandbox, run) for run in runs] == ["cancelled", "running", "running"]
        assert await client.bulk_actions.abort(action.id, by="cy") == aborted
        assert await value(sandbox, "select count(*) from retoma.bulk_targets") == 0


async def test_nothing_starts_if_more_match_than_the_preview_has_shown(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile()) as sandbox:
        await sandbox.client.start("fragile")
        await sandbox.client.start("fragile")
        with pytest.raises(Conflict, match="more match now"):
            await sandbox.client.bulk_actions.start(BulkKind.CANCEL_RUNS, ALL, by="ana", expected=1)
        assert await sandbox.client.bulk_actions.list() == []


async def test_an_action_without_targets_has_ended(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile()) as sandbox:
        action = await sandbox.client.bulk_actions.start(BulkKind.REDELIVER, ALL, by="ana")
        assert (action.total, action.ended_at) == (0, NOON)


async def test_an_action_of_an_unknown_tenant_is_refused(open_sandbox: OpenSandbox) -> None:
    """It would be listed as one of all tenants."""
    async with open_sandbox(fragile()) as sandbox:
        with pytest.raises(NotFound, match="no such tenant"):
            await sandbox.client.bulk_actions.start(BulkKind.CANCEL_RUNS, ALL, tenant="nobody", by="ana")
        assert await sandbox.client.bulk_actions.list() == []


async def test_a_field_of_another_kind_is_refused(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile()) as sandbox:
        preview = sandbox.client.bulk_actions.preview
        with pytest.raises(InvalidInput, match="`queue` does not apply to cancel_runs"):
            await preview(BulkKind.CANCEL_RUNS, BulkFilter(queue="default"))
        for wanted in (BulkFilter(title="\0"), BulkFilter(pipeline="\0")):
            with pytest.raises(InvalidInput):
                await preview(BulkKind.CANCEL_RUNS, wanted)
        with pytest.raises(InvalidInput):
            await preview(BulkKind.REDELIVER, BulkFilter(endpoint=2**40))
        with pytest.raises(InvalidInput):
            await sandbox.client.bulk_actions.start(BulkKind.CANCEL_RUNS, ALL, by="ana", expected=2**40)
        hostile = BulkFilter(title="'; drop table retoma.runs; --%_\\", pipeline="x' or '1'='1")
        assert (await preview(BulkKind.CANCEL_RUNS, hostile)).count == 0


async def test_states_starts_and_titles_choose_runs(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile()) as sandbox:
        client = sandbox.client
        old = (await client.start("fragile")).id
        new = (await client.start("fragile")).id
        await rows(sandbox, "update retoma.runs set title = 'Summer 50%' where id = $1", new)
        for wanted, chosen in (
            (BulkFilter(since=datetime.now(UTC) - timedelta(hours=1)), [old, new]),  # ids have the time of this machine
            (BulkFilter(since=datetime.now(UTC) + timedelta(hours=1)), []),
            (BulkFilter(title="sUMMER 50%"), [new]),
            (BulkFilter(states=[RunState.RUNNING]), [old, new]),
            (BulkFilter(states=[RunState.PAUSED]), []),
        ):
            preview = await client.bulk_actions.preview(BulkKind.CANCEL_RUNS, wanted)
            assert [each.run for each in preview.sample] == chosen, wanted


async def test_dead_deliveries_are_redelivered_except_those_of_disabled_endpoints(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile()) as sandbox:
        client = sandbox.client
        for host in ("one", "two"):
            webhook = Webhook(f"https://{host}.example.com", events=("run.started",))
            await client.start("fragile", webhook=webhook)
        await rows(sandbox, "update retoma.deliveries set state = 'sending'")
        await rows(sandbox, "update retoma.deliveries set state = 'dead', ended_at = retoma.now()")
        await rows(
            sandbox,
            "update retoma.endpoints set disabled_at = retoma.now(), disabled_because = 'gone' where url like '%one%'",
        )
        action = await client.bulk_actions.start(BulkKind.REDELIVER, BulkFilter(pipeline="fragile"), by="ana")
        await advance_open_actions(sandbox.database)
        assert (action.total, (await client.bulk_actions.get(action.id)).done) == (1, 1)
        (due,) = await client.webhooks.list_deliveries(states=[DeliveryState.DUE])
        assert due.url == "https://two.example.com"


async def test_a_job_that_waits_for_its_retry_is_listed_and_starts_now(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile()) as sandbox:
        (run,) = await fail_once(sandbox, tenant="shop")
        (found,) = await sandbox.client.runs.list_retries(tenant="shop")
        assert (found.run, found.step, found.failures, found.queue) == (run, "shaky", 1, "default")
        assert found.ready_at > NOON
        assert await sandbox.client.runs.list_retries(tenant="default") == []
        async with sandbox.manual_worker() as worker:
            assert await worker.claim(10) == []
            await sandbox.client.runs.retry_now(run, "shaky", by="ana")
            assert names(await worker.claim(10)) == ["shaky"]
        with pytest.raises(Conflict, match="does not wait"):
            await sandbox.client.runs.retry_now(run, "shaky", by="ana")
        for tenant, step in (("default", "shaky"), ("shop", "none")):
            with pytest.raises(NotFound):
                await sandbox.client.runs.retry_now(run, step, tenant=tenant, by="ana")


async def test_a_run_that_starts_later_does_not_wait_for_a_retry(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile()) as sandbox:
        await sandbox.client.start("fragile", run_at=NOON + timedelta(hours=1))
        assert await sandbox.client.runs.list_retries() == []
        assert (await sandbox.client.bulk_actions.preview(BulkKind.RETRY_JOBS, ALL)).count == 0


async def test_all_matching_retries_start_now(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(fragile()) as sandbox:
        runs = await fail_once(sandbox, 3)
        (code,) = {each.code for each in await sandbox.client.runs.list_retries()}
        assert (await sandbox.client.bulk_actions.preview(BulkKind.RETRY_JOBS, BulkFilter(code="OTHER"))).count == 0
        wanted = BulkFilter(queue="default", step="shaky", code=code)
        await sandbox.client.bulk_actions.start(BulkKind.RETRY_JOBS, wanted, by="ana")
        await advance_open_actions(sandbox.database)
        assert await sandbox.client.runs.list_retries() == []
        async with sandbox.manual_worker() as worker:
            assert len(await worker.claim(10)) == 3
        assert [await states(sandbox, run) for run in runs] == [{"shaky": "ready"}] * 3
