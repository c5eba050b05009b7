"""The sender is killed at every commit point: pending deliveries still arrive, with the same id and body."""

from __future__ import annotations

import os
import signal

import pytest

from bench.chaos.proxy import Call
from retoma import Webhook
from tests.faults.testbed import LONG_TIMEOUT, FaultEnvironment, wait_until
from tests.receiver import receiver

BOTH = ("run.started", "run.ended")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "call", ["retoma.claim_deliveries", "update retoma.deliveries", "retoma.record_delivery_attempt"]
)
async def test_a_sender_killed_at_any_point_loses_nothing(testbed: FaultEnvironment, moment: str, call: str) -> None:
    async with receiver() as listener:
        sender = testbed.worker(heartbeat_timeout=LONG_TIMEOUT)
        await wait_until(lambda: sender.is_ready, "the worker is ready")

        def kills(seen: Call) -> bool:
            matters = call in seen.sql and (moment == "before" or seen.rows > 0)
            if matters and sender.is_running:
                os.kill(sender.pid, signal.SIGKILL)
            return matters

        run = await testbed.start("chain", "told", webhook=Webhook(listener.url, events=BOTH))
        if moment == "before":
            testbed.proxy.loses_call = kills
        else:
            testbed.proxy.loses_answer = kills
        await wait_until(lambda: not sender.is_running, "the sender dies")
        testbed.proxy.loses_call = testbed.proxy.loses_answer = lambda call: False
        await testbed.declare_all_dead()
        await testbed.end_leases()
        testbed.worker()
        assert await testbed.wait_for_end(run) == ["completed"]
        deliveries = await wait_until(lambda: are_all_ended(testbed), "all is delivered")
        assert [str(each.state) for each in deliveries] == ["delivered"] * 2

    sent = [(got.json["type"], got.headers["webhook-id"], got.body) for got in listener.requests]
    assert [kind for kind, _, _ in dict.fromkeys(sent)] == ["run.started", "run.completed"]
    assert {delivery for _, delivery, _ in sent} == {str(each.id) for each in deliveries}
    again = call == "retoma.record_delivery_attempt" and moment == "before"
    assert len(sent) == 2 + again  # sent and not recorded: the one case in which it comes twice
    await testbed.check()


async def are_all_ended(testbed: FaultEnvironment) -> object:
    deliveries = await testbed.client.webhooks.list_deliveries()
    return deliveries if len(deliveries) == 2 and all(each.ended_at for each in deliveries) else None


async def test_a_sender_paused_beyond_its_lease_changes_nothing(testbed: FaultEnvironment) -> None:
    """It was answered 500, and another sender has delivered in the meantime."""
    async with receiver() as listener:
        listener.script.append(stops_its_sender := StopsItsSender())
        zombie = testbed.worker(heartbeat_timeout=LONG_TIMEOUT)
        stops_its_sender.pid = zombie.pid
        await wait_until(lambda: zombie.is_ready, "the worker is ready")
        run = await testbed.start("chain", "late", webhook=Webhook(listener.url))
        await wait_until(lambda: listener.requests, "it is sent")
        await testbed.end_leases()
        testbed.worker(by_proxy=False, heartbeat_timeout=LONG_TIMEOUT)
        (delivery,) = await wait_until(lambda: list_delivered(testbed), "another sender delivers it")
        zombie.signal(signal.SIGCONT)
        (refused,) = await wait_until(
            lambda: zombie.list_log_events("webhook_attempt_rejected"), "the late attempt is rejected"
        )
        assert refused["delivery"] == str(delivery.id)
        (after,) = await testbed.client.webhooks.list_deliveries(run=run)
        assert (str(after.state), after.attempt) == ("delivered", 2)


class StopsItsSender:
    """Answers 500 when the sender is frozen, so the sender reads that when it continues."""

    pid = 0

    async def __call__(self, writer: object) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        writer.write(b"HTTP/1.1 500 Said\r\ncontent-length: 0\r\n\r\n")  # type: ignore[attr-defined]
        await writer.drain()  # type: ignore[attr-defined]


async def list_delivered(testbed: FaultEnvironment) -> object:
    return [each for each in await testbed.client.webhooks.list_deliveries() if str(each.state) == "delivered"]
