"""Dead letters, and sending them again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from retoma import Webhook
from retoma.errors import Conflict, NotFound
from retoma.states import DeliveryState
from retoma.store.database import Database
from tests.cli.terminal import Terminal
from tests.conftest import OpenSandbox, empty_database
from tests.receiver import receiver, respond_with
from tests.server.api import an_api
from tests.server.pages.visitor import Visitor, token_of, visit_pages
from tests.webhooks.builders import BOTH, get_delivery, list_deliveries, one_step, run_to_end


async def test_a_dead_webhook_is_sent_again_with_the_same_id_and_body(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(respond_with(500)) as there:
        run = await run_to_end(sandbox, there.url, retries=0)
        await sandbox.send_webhooks()
        dead = await get_delivery(sandbox, run)
        assert dead.state is DeliveryState.DEAD
        await sandbox.client.webhooks.redeliver(dead.id)
        await sandbox.send_webhooks()
        delivered = await get_delivery(sandbox, run)
    assert (delivered.state, delivered.attempt, delivered.body) == (DeliveryState.DELIVERED, 2, dead.body)
    assert len({(got.headers["webhook-id"], got.body) for got in there.requests}) == 1


async def by_api(visitor: Visitor, delivery: UUID, _: Terminal) -> None:
    key = await visitor.api.make_key("deliveries:write")
    answer = await visitor.api.post(f"/api/v1/deliveries/{delivery}/redeliver", key=key)
    assert answer.status_code == 202, answer.text


async def by_command(_: Visitor, delivery: UUID, terminal: Terminal) -> None:
    await asyncio.to_thread(terminal.out, "deliveries", "redeliver", str(delivery))


async def on_the_page(visitor: Visitor, delivery: UUID, _: Terminal) -> None:
    token = token_of(await visitor.get(f"/deliveries/{delivery}"))
    answer = await visitor.post(f"/deliveries/{delivery}/redeliver", {"csrf": token})
    assert answer.status_code == 303, answer.text


@pytest.mark.parametrize("send_again", [by_api, by_command, on_the_page])
async def test_a_dead_webhook_is_sent_again_by_api_by_command_and_on_the_page(
    send_again: Callable[[Visitor, UUID, Terminal], Awaitable[None]], database: Database, tmp_path: Path
) -> None:
    await empty_database(database)
    terminal = Terminal(tmp_path, {"RETOMA_DATABASE_URL": database.url})
    async with visit_pages(partial(an_api, database))() as visitor, receiver(respond_with(500)) as there:
        await visitor.client.start("film", {}, webhook=Webhook(there.url, ("run.started",), retries=0))
        await visitor.api.sandbox.send_webhooks()
        (dead,) = await visitor.client.webhooks.list_deliveries(states=[DeliveryState.DEAD])
        await send_again(visitor, dead.id, terminal)
        assert await visitor.api.sandbox.send_webhooks() == 1
        assert (await visitor.client.webhooks.get_delivery(dead.id)).state is DeliveryState.DELIVERED
    assert len({got.headers["webhook-id"] for got in there.requests}) == 1
    assert len(there.requests) == 2


async def test_a_redeliver_restarts_the_schedule(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(*[respond_with(500)] * 4) as there:
        run = await run_to_end(sandbox, there.url, retries=1)
        for _ in range(2):
            await sandbox.send_webhooks()
            await sandbox.clock.advance(timedelta(minutes=1))
        dead = await get_delivery(sandbox, run)
        await sandbox.client.webhooks.redeliver(dead.id)
        await sandbox.send_webhooks()
        assert (await get_delivery(sandbox, run)).state is DeliveryState.DUE


async def test_what_is_not_dead_is_not_sent_again(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as there:
        run = await run_to_end(sandbox, there.url)
        delivery = await get_delivery(sandbox, run)
        with pytest.raises(Conflict, match="is due: only a dead delivery"):
            await sandbox.client.webhooks.redeliver(delivery.id)
        await sandbox.send_webhooks()
        with pytest.raises(Conflict, match="is delivered"):
            await sandbox.client.webhooks.redeliver(delivery.id)
        with pytest.raises(NotFound, match="there is no delivery"):
            await sandbox.client.webhooks.redeliver(uuid4())
        assert len(there.requests) == 1


async def test_a_disabled_endpoint_is_enabled_first(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(respond_with(410)) as there:
        run = await run_to_end(sandbox, there.url)
        await sandbox.send_webhooks()
        delivery, (endpoint,) = await get_delivery(sandbox, run), await sandbox.client.webhooks.list_endpoints()
        with pytest.raises(Conflict, match=f"is disabled: .* `retoma endpoints enable {endpoint.id}`"):
            await sandbox.client.webhooks.redeliver(delivery.id)
        assert await sandbox.client.webhooks.redeliver_all(endpoint=endpoint.id) == 0
        await sandbox.client.webhooks.enable_endpoint(endpoint.id)
        assert (await sandbox.client.webhooks.get_endpoint(endpoint.id)).disabled_at is None
        assert await sandbox.client.webhooks.redeliver_all(endpoint=endpoint.id) == 1
        await sandbox.send_webhooks()
        assert (await get_delivery(sandbox, run)).state is DeliveryState.DELIVERED


async def test_all_dead_ones_of_a_url_or_a_time_are_sent_again(open_sandbox: OpenSandbox) -> None:
    async with (
        open_sandbox(one_step()) as sandbox,
        receiver(*[respond_with(500)] * 3) as there,
        receiver(respond_with(500)) as other,
    ):
        began = await sandbox.clock.now()
        for _ in range(3):
            await run_to_end(sandbox, there.url, retries=0)
            await sandbox.send_webhooks()
            await sandbox.clock.advance(timedelta(hours=1))
        await run_to_end(sandbox, other.url, retries=0)
        await sandbox.send_webhooks()
        since, until = began + timedelta(minutes=30), began + timedelta(minutes=90)
        assert await sandbox.client.webhooks.redeliver_all(url=there.url, since=since, until=until) == 1
        assert await sandbox.client.webhooks.redeliver_all(url=there.url) == 2
        assert await sandbox.client.webhooks.redeliver_all() == 1
        await sandbox.send_webhooks()
        assert {each.state for each in await sandbox.client.webhooks.list_deliveries()} == {DeliveryState.DELIVERED}


async def test_those_of_one_run_go_out_in_their_order_again(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(respond_with(500), respond_with(500)) as there:
        run = await run_to_end(sandbox, there.url, events=BOTH, retries=0)
        await sandbox.send_webhooks()
        assert await sandbox.client.webhooks.redeliver_all() == 2
        assert [each.next_at is None for each in await list_deliveries(sandbox, run)] == [False, True]
        await sandbox.send_webhooks()
    assert [got.json["type"] for got in there.requests[2:]] == ["run.started", "run.completed"]


@pytest.mark.parametrize("first", [0, 1])
async def test_one_that_is_redelivered_alone_keeps_the_order_of_its_run(open_sandbox: OpenSandbox, first: int) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(respond_with(500), respond_with(500)) as there:
        run = await run_to_end(sandbox, there.url, events=BOTH, retries=0)
        await sandbox.send_webhooks()
        dead = [each.id for each in await list_deliveries(sandbox, run)]
        for each in (dead[first], dead[1 - first]):
            await sandbox.client.webhooks.redeliver(each)
        assert [each.next_at is None for each in await list_deliveries(sandbox, run)] == [False, True]
        await sandbox.send_webhooks()
    assert [got.json["type"] for got in there.requests[2:]] == ["run.started", "run.completed"]


async def test_deliveries_are_listed_newest_first_by_pages_and_filters(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(respond_with(500)) as there:
        runs = [await run_to_end(sandbox, there.url, retries=0) for _ in range(5)]
        await sandbox.send_webhooks()
        client = sandbox.client
        first = await client.webhooks.list_deliveries(limit=2)
        rest = await client.webhooks.list_deliveries(before=first[-1].id)
        assert [each.run for each in (*first, *rest)] == list(reversed(runs))
        assert len(await client.webhooks.list_deliveries(states=[DeliveryState.DEAD])) == 1
        assert [each.run for each in await client.webhooks.list_deliveries(run=runs[2])] == [runs[2]]
        assert await client.webhooks.find_delivery(str(first[0].id)[:13]) == [first[0].id]
        assert await client.webhooks.find_delivery("no id") == []
