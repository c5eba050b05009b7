"""An application whose runs have titles, and states of runs that people see."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel

from retoma import App, Pipeline, Retry, Webhook, minutes
from retoma.engine import watchdog
from retoma.settings import HEARTBEAT_TIMEOUT
from retoma.testing import Sandbox
from tests.receiver import receiver, respond_with

HOSTILE = '<b>Bold</b> {{ 7*7 }} "quoted" \u202egpj.exe \x1b[2J\n' + "long" * 100


class Topic(BaseModel):
    topic: str


news = Pipeline("news", Topic, title="News: {topic}", retry=Retry(0))


@news.step
def draft(topic: str) -> str:
    if topic == "bad":
        raise ValueError("no news")
    return topic


news.review("good_draft", of=draft)


@news.step
def post(good_draft: str) -> str:
    return good_draft


app = App("newsroom", pipelines=[news])


async def start_until_review(sandbox: Sandbox, topic: str = "tea") -> UUID:
    """Return a run that waits for a person."""
    run = (await sandbox.client.start("news", {"topic": topic})).id
    await sandbox.work(advance_clock=False)
    return run


async def start_until_stuck(sandbox: Sandbox, topic: str = "tea") -> UUID:
    """Return a run that no worker serves."""
    run = (await sandbox.client.start("news", {"topic": topic})).id
    await sandbox.clock.advance(minutes(6))
    await watchdog.check_due_runs(sandbox.database, HEARTBEAT_TIMEOUT)
    return run


async def start_with_dead_delivery(sandbox: Sandbox, topic: str = "tea") -> UUID:
    """Return a run whose webhook was answered with 500."""
    async with receiver(respond_with(500, b"no")) as listener:
        webhook = Webhook(listener.url, ("run.started",), retries=0)
        run = (await sandbox.client.start("news", {"topic": topic}, webhook=webhook)).id
        await sandbox.send_webhooks()
    return run
