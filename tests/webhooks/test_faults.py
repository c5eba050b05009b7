"""Faulty receivers: each delivery succeeds or becomes a dead letter, and delays no other."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from retoma import Webhook
from retoma.errors import NotFound
from retoma.outgoing import Guard, HttpClient, Response
from retoma.settings import Settings
from retoma.states import DeliveryState
from retoma.store import deliveries, servers
from retoma.testing import Sandbox
from retoma.webhooks import sender as sending
from retoma.webhooks.sender import Sender
from tests.conftest import OpenSandbox
from tests.outgoing.test_requests import drips, endless, self_signed, silence
from tests.receiver import Responder, hang_up, receiver, respond_with
from tests.wait_timeout import WAIT_TIMEOUT
from tests.webhooks.builders import get_delivery, list_deliveries, one_step, open_sender, run_to_end

DEAD_URL = "http://127.0.0.1:9/hook"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda: respond_with(500, b"oops"), "the receiver answered 500"),
        (lambda: respond_with(302, location="http://169.254.169.254/latest"), "redirects are not followed"),
        (silence, "did not send a complete response within"),
        (lambda: drips(HEAD), "did not send a complete response within"),
        (hang_up, "broke the connection"),
        (lambda: respond_with(200, content_length="99"), "broke the connection"),
    ],
)
async def test_a_delivery_to_a_failing_receiver_is_retried(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Responder], why: str
) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(act()) as listener:
        run = await run_to_end(sandbox, listener.url)
        with monkeypatch.context() as hurried:
            if "within" in why:
                hurried.setattr(sending, "TIMEOUT", 0.3)
            await sandbox.send_webhooks()
        failed = await get_delivery(sandbox, run)
        assert (failed.state, why in (failed.error or "")) == (DeliveryState.DUE, True)
        await sandbox.clock.advance(timedelta(seconds=10))
        await sandbox.send_webhooks()
        assert (await get_delivery(sandbox, run)).state is DeliveryState.DELIVERED
    assert len({got.headers["webhook-id"] for got in listener.requests}) == 1


async def test_a_delivery_that_is_not_answered_within_ten_seconds_has_failed(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seconds pass fifty times as fast."""
    values, request = [], HttpClient.request

    async def hurried(self: HttpClient, *where: Any, timeout: float, **more: Any) -> Response:
        values.append(timeout)
        return await request(self, *where, timeout=timeout / 50, **more)

    monkeypatch.setattr(HttpClient, "request", hurried)
    async with open_sandbox(one_step()) as sandbox, receiver(silence()) as listener:
        run = await run_to_end(sandbox, listener.url, retries=0)
        await sandbox.send_webhooks()
        dead = await get_delivery(sandbox, run)
    assert (values, dead.state) == ([10.0], DeliveryState.DEAD)
    assert "did not send a complete response within" in (dead.error or "")


@pytest.mark.parametrize(
    "act", [lambda: respond_with(200, gzip.compress(b"0" * 10_000_000), content_encoding="gzip"), endless]
)
async def test_an_endless_or_compressed_response_counts_as_delivered_and_little_of_it_is_stored(
    open_sandbox: OpenSandbox, act: Callable[[], Responder]
) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(act()) as listener:
        run = await run_to_end(sandbox, listener.url)
        await sandbox.send_webhooks()
        delivery = await get_delivery(sandbox, run)
    assert delivery.state is DeliveryState.DELIVERED
    assert len(delivery.attempts[0].answer or "") <= 1_000


async def test_the_response_of_the_receiver_is_stored_in_the_log(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(respond_with(422, b"no\0such field")) as listener:
        run = await run_to_end(sandbox, listener.url)
        await sandbox.send_webhooks()
        (attempt,) = (await get_delivery(sandbox, run)).attempts
    assert (attempt.status, attempt.answer, attempt.error) == (422, "nosuch field", "the receiver answered 422")


async def test_an_unexpected_error_uses_an_attempt_and_reports_why(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(said: str | None, now: datetime) -> None:
        raise OverflowError("too far off")

    monkeypatch.setattr(sending, "parse_retry_after", fails)
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        run = await run_to_end(sandbox, listener.url, retries=0)
        await sandbox.send_webhooks()
        dead = await get_delivery(sandbox, run)
    assert dead.state is DeliveryState.DEAD
    assert dead.error == "an unexpected error on this side: OverflowError: too far off"


async def test_bad_tls_is_a_failure_and_nothing_is_sent(open_sandbox: OpenSandbox, tmp_path: Path) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(tls=self_signed(tmp_path)) as listener:
        run = await run_to_end(sandbox, listener.url)
        await sandbox.send_webhooks()
        delivery = await get_delivery(sandbox, run)
    assert (delivery.state, listener.requests) == (DeliveryState.DUE, [])
    assert "certificate" in (delivery.error or "").lower()


async def test_a_name_that_has_become_private_is_given_up_at_once(open_sandbox: OpenSandbox) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with open_sandbox(one_step()) as sandbox:
        run = await run_to_end(sandbox, "https://hooks.example.com/")
        async with HttpClient(Guard(), resolve=resolve) as outgoing:
            await Sender(sandbox.client, Settings(), outgoing).send_due()
        delivery = await get_delivery(sandbox, run)
    assert delivery.state is DeliveryState.DEAD
    assert "add hooks.example.com to RETOMA_ALLOW_HOSTS" in (delivery.error or "")


async def test_a_worker_that_lacks_a_host_of_the_server_leaves_the_delivery_due(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        run = await run_to_end(sandbox, listener.url)
        await servers.send_heartbeat(sandbox.database, uuid4(), ["127.0.0.0/8"], None)
        async with HttpClient(Guard()) as outgoing:
            await Sender(sandbox.client, Settings(), outgoing).send_due()
        delivery = await get_delivery(sandbox, run)
        assert (delivery.state, listener.requests) == (DeliveryState.DUE, [])
        assert "RETOMA_ALLOW_HOSTS" in (delivery.error or "")
        await sandbox.clock.advance(timedelta(hours=1))
        await sandbox.send_webhooks()
        assert (await get_delivery(sandbox, run)).state is DeliveryState.DELIVERED


async def test_410_disables_the_endpoint_and_gives_up_its_pending_deliveries(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(respond_with(410)) as listener:
        first = await run_to_end(sandbox, listener.url, events=("run.started", "run.ended"))
        await sandbox.send_webhooks()
        assert [each.state for each in await list_deliveries(sandbox, first)] == [DeliveryState.DEAD] * 2
        later = await run_to_end(sandbox, listener.url)
        assert await sandbox.send_webhooks() == 0
        dead = await get_delivery(sandbox, later)
        assert (dead.state, dead.error) == (DeliveryState.DEAD, "the endpoint is disabled: it responded with 410 Gone")
        (endpoint,) = await sandbox.client.webhooks.list_endpoints()
        assert (endpoint.disabled_because, endpoint.dead, endpoint.due) == ("it responded with 410 Gone", 3, 0)
        assert (await sandbox.client.metrics.get_all()).deliveries.disabled == 1


async def test_an_attempt_that_ends_after_its_endpoint_was_disabled_is_given_up(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        for _ in range(2):
            await sandbox.client.start("one", webhook=Webhook(DEAD_URL, events=["run.started"]))
        one, two = await deliveries.claim_deliveries(sandbox.database, ["one"], 2, 8, timedelta(minutes=1))
        await record(sandbox, one, "gone")
        recorded = await record(sandbox, two, "again")
        assert recorded is not None
        assert (recorded.state, recorded.disabled) == (DeliveryState.DEAD, False)


async def test_retry_after_delays_all_deliveries_to_the_endpoint(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(respond_with(429, retry_after="40")) as listener:
        first = await run_to_end(sandbox, listener.url)
        await sandbox.send_webhooks()
        second = await run_to_end(sandbox, listener.url)
        await sandbox.clock.advance(timedelta(seconds=39))
        assert await sandbox.send_webhooks() == 0
        await sandbox.clock.advance(timedelta(seconds=2))
        assert await sandbox.send_webhooks() == 2
        assert {(await get_delivery(sandbox, run)).state for run in (first, second)} == {DeliveryState.DELIVERED}


async def test_another_failure_does_not_shorten_what_retry_after_asked_for(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        await sandbox.client.start_many("one", [None] * 2, webhook=Webhook(DEAD_URL, events=["run.started"]))
        busy, broken = await deliveries.claim_deliveries(sandbox.database, ["one"], 2, 8, timedelta(minutes=1))
        await record(sandbox, busy, "again", pause=timedelta(minutes=40))
        await record(sandbox, broken, "again")
        requested = await sandbox.clock.now() + timedelta(minutes=40)
        assert {each.next_at for each in await sandbox.client.webhooks.list_deliveries()} == {requested}


async def test_the_fifth_failure_in_a_row_opens_the_breaker(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        await sandbox.client.start_many("one", [None] * 5, webhook=Webhook(DEAD_URL, events=["run.started"]))
        await sandbox.send_webhooks()
        (endpoint,) = await sandbox.client.webhooks.list_endpoints()
        now = await sandbox.clock.now()
        assert (endpoint.failures, endpoint.open_until) == (5, now + timedelta(seconds=10))
        waiting = await sandbox.client.webhooks.list_deliveries()
        assert all(each.next_at == endpoint.open_until for each in waiting)
        # Then one at a time, until one is delivered.
        await sandbox.clock.advance(timedelta(seconds=10))
        assert len(await deliveries.claim_deliveries(sandbox.database, ["one"], 10, 8, timedelta(minutes=1))) == 1
        assert await deliveries.claim_deliveries(sandbox.database, ["one"], 10, 8, timedelta(minutes=1)) == []


async def test_an_endpoint_that_keeps_failing_is_tried_at_spread_times_then_paused_and_delays_no_other(
    open_sandbox: OpenSandbox,
) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        failing = Webhook(DEAD_URL, events=["run.started"])
        await sandbox.client.start_many("one", [None] * 4, webhook=failing)
        await sandbox.send_webhooks()
        now = await sandbox.clock.now()
        waits = {each.next_at - now for each in await sandbox.client.webhooks.list_deliveries() if each.next_at}
        assert len(waits) == 4
        assert all(timedelta(seconds=2) <= wait <= timedelta(seconds=2.4) for wait in waits)
        await sandbox.client.start("one", webhook=failing)
        await sandbox.client.start("one", webhook=Webhook(listener.url, events=["run.started"]))
        assert await sandbox.send_webhooks() == 2
        assert len(listener.requests) == 1
        await sandbox.clock.advance(timedelta(seconds=9))
        await sandbox.client.start("one", webhook=Webhook(listener.url, events=["run.started"]))
        assert await sandbox.send_webhooks() == 1
        assert len(listener.requests) == 2
        await sandbox.clock.advance(timedelta(seconds=1))
        assert await sandbox.send_webhooks() > 0


async def test_a_success_closes_the_breaker(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(*[respond_with(500)] * 5) as listener:
        await sandbox.client.start_many("one", [None] * 8, webhook=Webhook(listener.url, events=["run.started"]))
        await sandbox.send_webhooks()
        await sandbox.clock.advance(timedelta(seconds=11))
        await sandbox.send_webhooks()
        (endpoint,) = await sandbox.client.webhooks.list_endpoints()
        assert (endpoint.failures, endpoint.failing_since, endpoint.open_until, endpoint.due) == (0, None, None, 0)


async def test_five_days_of_nothing_but_failures_disable_the_endpoint(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        for day in range(7):
            run = await run_to_end(sandbox, DEAD_URL, retries=1)
            await sandbox.send_webhooks()
            await sandbox.clock.advance(timedelta(minutes=10))
            await sandbox.send_webhooks()
            (endpoint,) = await sandbox.client.webhooks.list_endpoints()
            assert (endpoint.disabled_at is None) == (day < 5)
            await sandbox.clock.advance(timedelta(hours=24))
        assert endpoint.disabled_because == "every attempt failed for 5 days"
        assert (await get_delivery(sandbox, run)).attempts == ()


async def test_a_slow_receiver_does_not_delay_another(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        await sandbox.client.start_many("one", [None] * 100, webhook=Webhook(DEAD_URL, events=["run.started"]))
        other = await sandbox.client.start("one", webhook=Webhook("http://127.0.0.2:9/", events=["run.started"]))
        taken = await deliveries.claim_deliveries(sandbox.database, ["one"], 50, 8, timedelta(minutes=1))
        assert len(taken) == 9
        assert other.id in {each.run for each in taken}
        assert await deliveries.claim_deliveries(sandbox.database, ["one"], 50, 8, timedelta(minutes=1)) == []


async def test_many_unresponsive_hosts_of_one_tenant_do_not_delay_another(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        for number in range(60):
            hook = Webhook(f"https://h{number}.example.com/", events=["run.started"])
            await sandbox.client.start("one", webhook=hook, tenant="many")
        other = await sandbox.client.start("one", webhook=Webhook(DEAD_URL, events=["run.started"]), tenant="other")
        taken = await deliveries.claim_deliveries(sandbox.database, ["one"], 2, 8, timedelta(seconds=30))
        assert len(taken) == 2
        assert other.id in {each.run for each in taken}


async def test_a_delivery_whose_sender_dies_after_sending_is_resent_with_the_same_id(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        run = await run_to_end(sandbox, listener.url)
        async with open_sender(sandbox) as sender:
            (taken,) = await sender._claim_due(1)
            body = await sender._get_or_freeze_body(taken)
            assert body is not None
            await sender._post(taken, body)
        assert await sandbox.send_webhooks() == 0  # its lease still counts
        await sandbox.clock.advance(timedelta(seconds=31))
        assert await sandbox.send_webhooks() == 1
        delivery = await get_delivery(sandbox, run)
    assert len(listener.requests) == 2
    assert len({(got.headers["webhook-id"], got.body) for got in listener.requests}) == 1
    assert (delivery.state, delivery.attempt, delivery.attempts[0].seconds) == (DeliveryState.DELIVERED, 2, None)


async def test_a_late_record_of_a_lost_lease_changes_nothing(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        run = await run_to_end(sandbox, listener.url)
        (late,) = await deliveries.claim_deliveries(sandbox.database, ["one"], 1, 8, timedelta(seconds=30))
        await sandbox.clock.advance(timedelta(seconds=31))
        await sandbox.send_webhooks()
        before = await get_delivery(sandbox, run)
        for outcome in ("again", "dead", "gone", "delivered"):
            assert await record(sandbox, late, outcome) is None
        assert await deliveries.freeze_body(sandbox.database, late, "{}") is None
        assert await get_delivery(sandbox, run) == before
        assert (await sandbox.client.webhooks.list_endpoints())[0].disabled_at is None


async def test_two_senders_share_the_work_and_send_each_once(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener:
        await sandbox.client.start_many("one", [None] * 60, webhook=Webhook(listener.url, events=["run.started"]))
        async with open_sender(sandbox) as one, open_sender(sandbox) as two:
            await asyncio.gather(one.send_due(), two.send_due())
        assert len(await sandbox.client.webhooks.list_deliveries(states=[DeliveryState.DELIVERED], limit=100)) == 60
    ids = [got.headers["webhook-id"] for got in listener.requests]
    assert len(ids) == len(set(ids)) == 60


async def test_a_running_sender_sends_until_it_is_stopped(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener, open_sender(sandbox) as sender:
        running = asyncio.create_task(sender.run())
        run = await run_to_end(sandbox, listener.url)
        async with asyncio.timeout(WAIT_TIMEOUT):
            while (await get_delivery(sandbox, run)).state is not DeliveryState.DELIVERED:
                pass
        sender.stop()
        await running
    assert len(listener.requests) == 1


async def test_an_idle_sender_polls_less_and_less_often_until_it_is_notified(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, reported = [], iter([False, False, False, True, False])

    async def woken(within: float) -> bool:
        reads.append(within)
        if len(reads) == 5:
            sender.stop()
        return next(reported)

    async with open_sandbox(one_step()) as sandbox, open_sender(sandbox) as sender:
        monkeypatch.setattr(sender, "_wait_for_wake", woken)
        await sender.run()
    assert reads == [0.5, 1.0, 2.0, 2.0, 0.5]


async def test_deliveries_in_progress_may_finish_when_a_sender_is_stopped(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver() as listener, open_sender(sandbox) as sender:
        run = await run_to_end(sandbox, listener.url)
        await sender._start_due()
        sender.stop()
        await sender.run()
        assert (await get_delivery(sandbox, run)).state is DeliveryState.DELIVERED


async def test_the_answer_of_a_receiver_is_for_its_own_tenant_alone(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(respond_with(500, b"private")) as listener:
        run = await run_to_end(sandbox, listener.url)
        await sandbox.send_webhooks()
        delivery, (endpoint,) = await get_delivery(sandbox, run), await sandbox.client.webhooks.list_endpoints()
        client = sandbox.client
        assert await client.webhooks.list_deliveries(tenant="other") == []
        assert await client.webhooks.list_endpoints(tenant="other") == []
        for act in (
            client.webhooks.get_delivery(delivery.id, tenant="other"),
            client.webhooks.redeliver(delivery.id, tenant="other"),
            client.webhooks.get_endpoint(endpoint.id, tenant="other"),
            client.webhooks.enable_endpoint(endpoint.id, tenant="other"),
            client.webhooks.rotate_secret(endpoint.id, tenant="other"),
        ):
            with pytest.raises(NotFound):
                await act
        assert await client.webhooks.redeliver_all(tenant="other") == 0


async def record(
    sandbox: Sandbox, taken: deliveries.ClaimedDelivery, outcome: str, pause: timedelta | None = None
) -> deliveries.RecordedAttempt | None:
    return await deliveries.record_attempt(
        sandbox.database,
        taken,
        outcome=outcome,
        delay=timedelta(0),
        pause=pause,
        took=timedelta(0),
    )
