"""Many channels at the same time: what goes wrong in one is its own affair."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retoma import GiveUp
from retoma.store.database import Database
from retoma_apps.videos.models import Brief, Fact
from retoma_apps.videos.writing.port import Researched
from retoma_apps.videos.writing.template import TemplateWriter
from tests.apps.videos.house import TOPIC, House, a_house
from tests.apps.videos.studio import small_studio
from tests.conftest import empty
from tests.patience import PATIENCE
from tests.receiver import receiver, says

CHANNELS = ("ciencia", "historia", "jogos", "musica", "viagens")


class Picky(TemplateWriter):
    """Refuses one topic, stumbles over another, and hangs at a third until all others are written about."""

    def __init__(self) -> None:
        self.researched = 0
        self.others_are_done = asyncio.Event()

    async def research(self, brief: Brief, known: Sequence[Fact], wishes: Sequence[str], **options: Any) -> Researched:
        if brief.topic == "proibido":
            raise GiveUp("there is nothing to be said about this", "NOTHING_FOUND")
        if brief.topic == "tropeço":
            raise RuntimeError("a bug in the writer")
        if brief.topic == "parado":
            await self.others_are_done.wait()
        found = await super().research(brief, known, wishes, **options)
        self.researched += 1
        if self.researched == len(CHANNELS) - 1:
            self.others_are_done.set()
        return found


@pytest.fixture
async def house(database: Database, tmp_path: Path) -> AsyncIterator[House]:
    await empty(database)
    async with a_house(database, tmp_path, replace(small_studio(tmp_path), writer=Picky())) as made:
        yield made


@pytest.mark.parametrize("topic", ["proibido", "tropeço"])
async def test_a_failure_in_one_channel_touches_no_other(topic: str, house: House) -> None:
    alone = await house.scripted(channel="sozinho")
    videos = {name: await house.order(topic if name == "historia" else TOPIC, name) for name in CHANNELS}
    await house.api.sandbox.work()
    shown = {name: await house.show(video) for name, video in videos.items()}
    assert {name: one["stage"] for name, one in shown.items()} == {
        name: "failed" if name == "historia" else "scripted" for name in CHANNELS
    }
    for name in set(CHANNELS) - {"historia"}:
        checkpoint = await house.checkpoint(shown[name]["checkpoint"]["id"])
        assert checkpoint["data"] == alone["data"]
        assert (checkpoint["channel"], checkpoint["status"]) == (name, "pending")


async def test_a_step_that_hangs_in_one_channel_delays_no_other(house: House) -> None:
    videos = [await house.order("parado" if name == "ciencia" else TOPIC, name) for name in CHANNELS]
    async with asyncio.timeout(PATIENCE):
        await house.work()
    assert {(await house.show(video))["stage"] for video in videos} == {"scripted"}


async def test_the_backlog_of_one_channel_leaves_room_for_the_others(house: House) -> None:
    for channel in (*["ciencia"] * 6, "historia"):
        await house.order(TOPIC, channel)
    await house.work_once()
    async with house.api.sandbox.hands() as hands:
        begun = Counter([(await house.client.show(claim.run)).tenant for claim in await hands.claim(100)])
    assert begun == {"ciencia": 4, "historia": 1}


async def test_a_failed_video_says_which_step_failed_and_why(house: House) -> None:
    video = await house.order("proibido", "historia")
    await house.work()
    shown = await house.show(video)
    assert (shown["stage"], shown["status"], shown["current_step"]) == ("failed", "failed", None)
    assert shown["error_message"] == "research: there is nothing to be said about this"
    assert await house.begun(video) == {"knowledge_query", "research"}


@pytest.mark.parametrize(
    ("topic", "code", "error"),
    [
        ("proibido", "NOTHING_FOUND", "there is nothing to be said about this"),
        ("tropeço", "ERROR", "RuntimeError: a bug in the writer"),
    ],
)
async def test_a_failed_video_is_in_the_log_with_its_channel_and_its_error(
    topic: str, code: str, error: str, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    video = await house.order(topic, "historia")
    await house.api.sandbox.work()
    (told,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert {name: vars(told)[name] for name in ("tenant", "run", "code", "error")} == {
        "tenant": "historia",
        "run": video,
        "code": code,
        "error": error,
    }


async def test_a_failed_video_goes_on_when_it_is_resumed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    video = await house.order("proibido", "historia")
    await house.work()
    monkeypatch.setattr(Picky, "research", TemplateWriter.research)
    (run,) = await house.client.runs()
    await house.client.resume(run.id)
    assert (await house.asked(video))["checkpoint_type"] == "script_review"
    shown = await house.show(video)
    assert (shown["stage"], shown["error_message"]) == ("scripted", None)


async def test_whoever_ordered_is_told_of_a_failure_with_its_channel_and_its_error(house: House) -> None:
    async with receiver() as there:
        await house.order("proibido", "historia", webhook_url=there.url)
        await house.work()
        await house.api.sandbox.send_webhooks()
    told = there.got[0].json["data"]
    assert (told["tenant"], told["error"]["code"]) == ("historia", "NOTHING_FOUND")
    assert told["error"]["message"] == "there is nothing to be said about this"


async def test_a_notification_that_cannot_be_sent_is_sent_again_and_the_work_goes_on_meanwhile(house: House) -> None:
    async with receiver(says(500)) as there:
        await house.order("proibido", "historia", webhook_url=there.url)
        await house.work()
        await house.api.sandbox.send_webhooks()
        assert (await house.scripted(TOPIC, "jogos"))["status"] == "pending"
        (owed,) = await house.client.deliveries(tenant="historia")
        await house.api.sandbox.clock.advance(timedelta(hours=1))
        await house.api.sandbox.send_webhooks()
        (sent,) = await house.client.deliveries(tenant="historia")
    assert (owed.state, sent.state) == ("due", "delivered")
    first, again = there.got
    assert (again.body, again.headers["webhook-id"]) == (first.body, first.headers["webhook-id"])
