"""The sender is killed at every commit point of a delivery: what is owed is delivered, with the same id and body."""

from __future__ import annotations

import os
import signal

import pytest

from bench.chaos.proxy import Call
from retoma import Webhook
from tests.faults.stage import SOON, Stage, until
from tests.receiver import receiver

BOTH = ("run.started", "run.ended")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", ["retoma.claim_deliveries", "update retoma.deliveries", "retoma.record_attempt"])
async def test_a_sender_killed_at_any_point_loses_nothing(stage: Stage, moment: str, call: str) -> None:
    async with receiver() as there:
        sender = stage.worker(silence=SOON)
        await until(lambda: sender.is_ready, "the worker is ready")

        def kills(seen: Call) -> bool:
            matters = call in seen.sql and (moment == "before" or seen.rows > 0)
            if matters and sender.lives:
                os.kill(sender.pid, signal.SIGKILL)
            return matters

        run = await stage.start("chain", "told", webhook=Webhook(there.url, events=BOTH))
        if moment == "before":
            stage.proxy.loses_call = kills
        else:
            stage.proxy.loses_answer = kills
        await until(lambda: not sender.lives, "the sender dies")
        stage.proxy.loses_call = stage.proxy.loses_answer = lambda call: False
        await stage.bury()
        await stage.end_leases()
        stage.worker()
        assert await stage.ended(run) == ["completed"]
        owed = await until(lambda: all_ended(stage), "all is delivered")
        assert [str(each.state) for each in owed] == ["delivered"] * 2

    sent = [(got.json["type"], got.headers["webhook-id"], got.body) for got in there.got]
    assert [kind for kind, _, _ in dict.fromkeys(sent)] == ["run.started", "run.completed"]
    assert {delivery for _, delivery, _ in sent} == {str(each.id) for each in owed}
    again = call == "retoma.record_attempt" and moment == "before"
    assert len(sent) == 2 + again  # sent and not recorded: the one case in which it comes twice
    await stage.check()


async def all_ended(stage: Stage) -> object:
    owed = await stage.client.deliveries()
    return owed if len(owed) == 2 and all(each.ended_at for each in owed) else None


async def test_a_sender_that_stood_still_beyond_its_lease_changes_nothing(stage: Stage) -> None:
    """It was answered 500, and another sender has delivered in the meantime."""
    async with receiver() as there:
        there.script.append(stops_its_sender := StopsItsSender())
        zombie = stage.worker(silence=SOON)
        stops_its_sender.pid = zombie.pid
        await until(lambda: zombie.is_ready, "the worker is ready")
        run = await stage.start("chain", "late", webhook=Webhook(there.url))
        await until(lambda: there.got, "it is sent")
        await stage.end_leases()
        stage.worker(by_proxy=False, silence=SOON)
        (delivery,) = await until(lambda: delivered(stage), "another sender delivers it")
        zombie.signal(signal.SIGCONT)
        (refused,) = await until(lambda: zombie.said("a late end of an attempt is refused"), "the late word is refused")
        assert refused["delivery"] == str(delivery.id)
        (after,) = await stage.client.deliveries(run=run)
        assert (str(after.state), after.attempt) == ("delivered", 2)


class StopsItsSender:
    """Answers 500 when the sender stands still, so that it reads that when it goes on."""

    pid = 0

    async def __call__(self, writer: object) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        writer.write(b"HTTP/1.1 500 Said\r\ncontent-length: 0\r\n\r\n")  # type: ignore[attr-defined]
        await writer.drain()  # type: ignore[attr-defined]


async def delivered(stage: Stage) -> object:
    return [each for each in await stage.client.deliveries() if str(each.state) == "delivered"]
