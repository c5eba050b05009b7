"""Deliveries are written together with their change, once, and in order."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from retoma import GiveUp, Pipeline, Webhook
from retoma.errors import InvalidInput, UnsafeUrl
from retoma.outgoing import Guard
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import rows, value
from tests.receiver import receiver
from tests.wait_timeout import WAIT_TIMEOUT
from tests.webhooks.builders import BOTH, list_deliveries, one_step, run_to_end

URL = "http://127.0.0.1:9/hook"


async def test_a_run_without_a_webhook_enqueues_nothing(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        await sandbox.run("one")
        assert await sandbox.client.webhooks.list_deliveries() == []


async def test_start_and_end_are_enqueued_in_order(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        run = await run_to_end(sandbox, URL, events=BOTH)
        assert [(each.event, each.seq) for each in await list_deliveries(sandbox, run)] == [
            ("run.started", 1),
            ("run.completed", 2),
        ]


@pytest.mark.parametrize("fails", [False, True])
async def test_only_requested_events_are_enqueued(open_sandbox: OpenSandbox, fails: bool) -> None:
    async with open_sandbox(one_step(fails)) as sandbox:
        run = await run_to_end(sandbox, URL, events=("run.failed",))
        assert [each.event for each in await list_deliveries(sandbox, run)] == (["run.failed"] if fails else [])


async def test_every_final_state_is_an_end(open_sandbox: OpenSandbox) -> None:
    partly = Pipeline("partly")

    @partly.step(on_failure="continue")
    async def broken() -> int:
        raise GiveUp("no")

    async with open_sandbox(one_step(fails=True), partly) as sandbox:
        hook = Webhook(URL)
        failed = (await sandbox.run("one", webhook=hook)).id
        with_errors = (await sandbox.run("partly", webhook=hook)).id
        cancelled = (await sandbox.client.start("partly", webhook=hook)).id
        await sandbox.client.runs.cancel(cancelled)
        events = [
            [each.event for each in await list_deliveries(sandbox, run)] for run in (failed, with_errors, cancelled)
        ]
    assert events == [["run.failed"], ["run.completed_with_errors"], ["run.cancelled"]]


async def test_runs_that_end_in_one_call_in_different_states_are_all_reported(open_sandbox: OpenSandbox) -> None:
    partly = Pipeline("partly")

    @partly.step(on_failure="continue")
    async def broken() -> int:
        raise GiveUp("no")

    async with open_sandbox(one_step(), partly) as sandbox, sandbox.manual_worker() as worker:
        runs = [
            (await sandbox.client.start(name, webhook=Webhook(URL))).id for name in ("one", "partly", "one", "partly")
        ]
        await worker.record_outcomes(await worker.attempt(await worker.claim(10)))
        assert {(await list_deliveries(sandbox, run))[0].event for run in runs} == {
            "run.completed",
            "run.completed_with_errors",
        }
        assert len(await sandbox.client.webhooks.list_deliveries()) == 4


async def test_deliveries_are_enqueued_in_the_transaction_of_their_event(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        run = (await sandbox.client.start("one", webhook=Webhook(URL, events=BOTH))).id
        written = """
            select count(distinct xmin::text)
              from (select xmin from retoma.runs where id = $1
                    union all select xmin from retoma.deliveries where run = $1 and event = $2
                    union all select xmin from retoma.run_webhooks where run = $1 and $2 = 'run.started') as rows
        """
        assert await value(sandbox, written, run, "run.started") == 1
        await sandbox.work()
        assert await value(sandbox, written, run, "run.completed") == 1


async def test_a_start_with_a_used_key_enqueues_nothing(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        hook = Webhook(URL, events=["run.started"])
        first = await sandbox.client.start("one", key="k", webhook=hook)
        again = await sandbox.client.start("one", key="k", webhook=Webhook(URL + "/other", events=["run.started"]))
        assert (again.id, again.created) == (first.id, False)
        assert len(await sandbox.client.webhooks.list_deliveries()) == 1


async def test_many_runs_share_an_endpoint_and_a_secret(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        await sandbox.client.start_many("one", [None] * 20, webhook=Webhook(URL, events=["run.started"]))
        await sandbox.client.start_many("one", [None] * 20, webhook=Webhook(URL + "/b", events=["run.started"]))
        assert len(await sandbox.client.webhooks.list_deliveries(limit=100)) == 40
        assert len(await sandbox.client.webhooks.list_endpoints()) == 2
        assert await value(sandbox, "select count(*) from retoma.webhook_secrets") == 1


async def test_tenants_share_neither_endpoint_nor_secret(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        for tenant in ("a", "b"):
            await sandbox.client.start("one", tenant=tenant, webhook=Webhook(URL))
        assert [each.tenant for each in await sandbox.client.webhooks.list_endpoints()] == ["b", "a"]
        assert await value(sandbox, "select count(distinct secret) from retoma.webhook_secrets") == 2


async def test_an_unsafe_url_is_refused_at_the_start(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        sandbox.client._core.guard = Guard()
        with pytest.raises(UnsafeUrl, match="RETOMA_ALLOW_HOSTS"):
            await sandbox.client.start("one", webhook=Webhook(URL))
        with pytest.raises(UnsafeUrl):
            await sandbox.client.start_many("one", [None], webhook=Webhook("https://169.254.169.254/"))
        assert await sandbox.client.runs.list() == []


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"events": ["run.end"]}, "did you mean 'run.ended'"),
        ({"events": []}, "at least one"),
        ({"events": "run.ended"}, "a list"),
        ({"schedule": "shrt"}, "did you mean 'short'"),
        ({"retries": -1}, "a whole number"),
        ({"retries": 101}, "a whole number"),
    ],
)
def test_the_error_for_an_invalid_webhook_says_what_is_valid(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        Webhook(URL, **wrong)  # type: ignore[arg-type]


async def test_the_next_is_not_sent_before_the_previous_is_delivered(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        run = await run_to_end(sandbox, listener.url, events=BOTH)
        await sandbox.send_webhooks()
        assert [got.json["type"] for got in listener.requests] == ["run.started", "run.completed"]
        assert [got.json["data"]["seq"] for got in listener.requests] == [1, 2]
        assert [str(each.state) for each in await list_deliveries(sandbox, run)] == ["delivered", "delivered"]


async def test_the_next_delivery_waits_while_the_previous_fails_and_follows_once_it_is_dead(
    open_sandbox: OpenSandbox,
) -> None:
    async with open_sandbox(one_step()) as sandbox:
        run = await run_to_end(sandbox, URL, events=BOTH, schedule="short", retries=1)
        await sandbox.send_webhooks()
        first, second = await list_deliveries(sandbox, run)
        assert (first.attempt, str(first.state), second.attempt, second.next_at) == (1, "due", 0, None)
        await sandbox.clock.advance(timedelta(seconds=10))
        await sandbox.send_webhooks()
        first, second = await list_deliveries(sandbox, run)
        assert (str(first.state), second.attempt) == ("dead", 1)


async def test_an_end_concurrent_with_the_end_of_the_previous_delivery_is_not_lost(open_sandbox: OpenSandbox) -> None:
    """The run ends while the delivery of its start is being recorded: whichever commits first, the next is due."""
    for owes_first in (True, False):
        async with open_sandbox(one_step()) as sandbox:
            run = (await sandbox.client.start("one", webhook=Webhook(URL, events=BOTH))).id
            (started,) = await rows(sandbox, "select * from retoma.claim_deliveries('{one}', 1, 1, '1 minute')")
            owe = "select retoma.enqueue_deliveries(retoma.now(), array[$1::uuid], 'run.completed')", run
            record = (
                "select * from retoma.record_delivery_attempt($1, 1, 'delivered', '0', null, 1, 200, null, null)",
                started["id"],
            )
            first, second = (owe, record) if owes_first else (record, owe)
            async with sandbox.database.connection() as one, sandbox.database.connection() as two:
                transaction = one.transaction()
                await transaction.start()
                await one.fetch(*first)
                waiting = asyncio.ensure_future(two.fetch(*second))
                await is_blocked(sandbox)
                await transaction.commit()
                await waiting
            states = await rows(
                sandbox, "select state::text, next_at <= retoma.now() from retoma.deliveries order by seq"
            )
            assert [tuple(row) for row in states][1] == ("due", True)
            await rows(sandbox, "delete from retoma.delivery_attempts")
            await rows(sandbox, "delete from retoma.deliveries")


async def is_blocked(sandbox: Sandbox) -> None:
    """Returns once a statement in this database waits for a lock."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        while not await value(sandbox, waits):
            pass
