"""Shared by the tests of webhooks: a pipeline, a second sender, and queries of pending deliveries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

from retoma import GiveUp, Pipeline, Webhook
from retoma.outgoing import HttpClient
from retoma.records import DeliveryDetails
from retoma.settings import Settings
from retoma.testing import Sandbox
from retoma.webhooks.sender import Sender

BOTH = ("run.started", "run.ended")


def one_step(fails: bool = False) -> Pipeline:
    pipeline = Pipeline("one")

    @pipeline.step
    async def answer() -> int:
        if fails:
            raise GiveUp("no more")
        return 42

    return pipeline


async def run_to_end(
    sandbox: Sandbox, url: str, *, events: tuple[str, ...] = ("run.ended",), **options: object
) -> UUID:
    """An ended run with pending deliveries to `url`."""
    webhook = Webhook(url, events=events, **options)  # type: ignore[arg-type]
    return (await sandbox.run("one", webhook=webhook)).id


async def list_deliveries(sandbox: Sandbox, run: UUID) -> list[DeliveryDetails]:
    """In the order of their sequence."""
    return [
        await sandbox.client.webhooks.get_delivery(found.id)
        for found in reversed(await sandbox.client.webhooks.list_deliveries(run=run))
    ]


async def get_delivery(sandbox: Sandbox, run: UUID) -> DeliveryDetails:
    (delivery,) = await list_deliveries(sandbox, run)
    return delivery


async def send_until_done(sandbox: Sandbox, run: UUID) -> list[timedelta]:
    """Send repeatedly, each time when it is due; return the waits before each attempt."""
    waits = []
    while (delivery := await get_delivery(sandbox, run)).ended_at is None:
        assert delivery.next_at is not None
        waits.append(max(timedelta(0), delivery.next_at - await sandbox.clock.now()))
        await sandbox.clock.advance(waits[-1])
        await sandbox.send_webhooks()
    return waits


@asynccontextmanager
async def open_sender(sandbox: Sandbox, **settings: object) -> AsyncIterator[Sender]:
    async with HttpClient(sandbox.client.guard) as outgoing:
        yield Sender(sandbox.client, Settings(**settings), outgoing)  # type: ignore[arg-type]
