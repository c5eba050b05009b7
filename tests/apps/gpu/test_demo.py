"""The demo of the orchestrator: three drawings, and a receiver for the webhook."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2

from retoma import PollResult
from retoma.checks import Finding
from retoma.files import FileSettings
from retoma.outgoing import LOOPBACK, Guard
from retoma.store.database import Database
from retoma.testing import Sandbox, sandbox
from retoma_apps.gpu.application import make_app
from retoma_apps.gpu.settings import GpuSettings, Rules
from retoma_apps.providers.gpu.port import Operation
from tests.conftest import empty_database

ADDRESS = "http://127.0.0.1:8765"


class DownloadingHost:
    """Downloads the pictures and says that it made videos of them."""

    name = "downloading"
    is_offline = True
    poll_interval = timedelta(seconds=1)

    def __init__(self) -> None:
        self.pictures: dict[str, bytes] = {}

    async def submit(
        self,
        operation: Operation,
        input: dict[str, Any],  # noqa: A002, the port's name
        *,
        key: str,
        callback_url: str | None = None,
        timeout: timedelta,
    ) -> str:
        async with httpx2.AsyncClient() as http:
            for image in input["images"]:
                self.pictures[image["id"]] = (await http.get(image["image_url"])).content
        return key

    async def status(self, external_id: str) -> PollResult:
        videos = [{"id": one, "video_url": f"{ADDRESS}/files/{one}.mp4", "filename": one} for one in self.pictures]
        return PollResult("succeeded", result={"videos": videos, "failed": []})

    async def cancel(self, external_id: str) -> None: ...

    async def find(self, key: str) -> str | None:
        return None

    def check(self) -> Finding:
        return Finding("ok", "GPUs", "pictures are downloaded")


def make_offline_app(host: DownloadingHost, home: Path) -> Any:
    rules = Rules(GpuSettings(), offline=True, guard=Guard.from_hosts(LOOPBACK))
    return make_app(rules, host, FileSettings(home=home))


def tell(opened: Sandbox, language: str = "en") -> Any:
    assert opened.app.demo is not None
    return opened.app.demo(opened.client, ADDRESS, language)


async def test_three_drawings_are_rendered_once_and_the_webhook_is_reported(database: Database, tmp_path: Path) -> None:
    await empty_database(database)
    host = DownloadingHost()
    async with sandbox(make_offline_app(host, tmp_path), database) as opened:
        messages = tell(opened)
        started = await anext(messages)
        (run,) = await opened.client.runs.list()
        assert (run.title, f"{ADDRESS}/runs/{run.id}" in started) == ("Three drawings", True)
        await opened.work()
        await opened.send_webhooks()
        assert await anext(messages) == (
            f"the webhook has arrived: COMPLETED, 3 videos. The first: {ADDRESS}/files/1.mp4"
        )
        assert [picture[:2] for picture in host.pictures.values()] == [b"\xff\xd8"] * 3
        again = [each async for each in tell(opened, "pt")]
        assert again == [f"Os desenhos do exemplo já viraram vídeo: {ADDRESS}/runs/{run.id}"]
        assert len(await opened.client.runs.list()) == 1


async def test_an_unfinished_job_finds_its_receiver_again_after_a_restart(database: Database, tmp_path: Path) -> None:
    await empty_database(database)
    async with sandbox(make_offline_app(DownloadingHost(), tmp_path), database) as opened:
        first = tell(opened)
        await anext(first)
        await first.aclose()
        second = tell(opened)
        await anext(second)
        await opened.work()
        await opened.send_webhooks()
        assert "COMPLETED, 3 videos" in await anext(second)
        await second.aclose()


def test_with_a_paid_host_there_is_no_demo(tmp_path: Path) -> None:
    rules = Rules(GpuSettings(), offline=False)
    assert make_app(rules, DownloadingHost(), FileSettings(home=tmp_path)).demo is None
