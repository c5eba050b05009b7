"""Every line of the troubleshooting page is run in the situation that it is for."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retoma import PollResult
from retoma.checks import Finding
from retoma.files import FileSettings
from retoma.store.database import Database
from retoma_apps.gpu.application import make_app
from retoma_apps.gpu.settings import GpuSettings, Rules
from tests.cli.terminal import Terminal
from tests.conftest import empty_database
from tests.engine.builders import rows
from tests.server.api import RUNS, Api, an_api

PAGE = Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md"
SITUATIONS = ["A job stays QUEUED", "A job stays IN_PROGRESS", "A webhook did not arrive"]
WAYS = ["retoma", "curl"]


class BusyHost:
    """A host whose work never ends unless it is cancelled."""

    name = "busy"
    is_offline = False
    poll_interval = timedelta(seconds=8)

    def __init__(self) -> None:
        self.cancelled: set[str] = set()

    async def submit(self, *_: Any, key: str, **__: Any) -> str:
        return f"endpoint/{key[:8]}-u1"

    async def status(self, external_id: str) -> PollResult:
        return PollResult("cancelled" if external_id in self.cancelled else "running")

    async def cancel(self, external_id: str) -> None:
        self.cancelled.add(external_id)

    async def find(self, key: str) -> str | None:
        return None

    def check(self) -> Finding:
        return Finding("ok", "GPUs", "busy")


@dataclass
class Scene:
    """A situation, and the values of the page's variables in it."""

    api: Api
    terminal: Terminal
    variables: dict[str, str]

    async def run(self, line: str) -> Any:
        """Return the output of a command or the JSON of a call. It must succeed."""
        words = shlex.split(re.sub(r"\$(\w+)", lambda found: self.variables[found[1]], line))
        if words[0] == "retoma":
            return await asyncio.to_thread(self.terminal.out, *words[1:])
        return await self._call(words[1:])

    async def _call(self, words: list[str]) -> Any:
        method = words[words.index("-X") + 1] if "-X" in words else "GET"
        name, _, value = words[words.index("-H") + 1].partition(": ")
        path = words[-1].removeprefix(self.variables["RETOMA_URL"])
        answer = await self.api.call(method, path, key=None, headers={name: value})
        assert answer.is_success, answer.text
        return answer.json()


@pytest.mark.parametrize("way", WAYS)
async def test_the_reason_why_a_job_stays_queued_is_found(database: Database, tmp_path: Path, way: str) -> None:
    async with open_scene(database, tmp_path) as scene:
        messages = [await scene.run(line) for line in lines("A job stays QUEUED", way) if "pools update" not in line]
        if way == "curl":
            pools, _, workers, in_progress, job = messages
            assert "gpu" in str(pools)
            assert workers
            assert [one["jobId"] for one in in_progress["jobs"]] == [scene.variables["BUSY"]]
            assert job["status"] == "QUEUED"
            assert "pool" in str(job["waiting"])
        else:
            assert "gpu" in messages[0]
            assert "waiting for capacity: pool 'gpu' has too few free slots" in messages[2]


async def test_more_capacity_lets_a_queued_job_start(database: Database, tmp_path: Path) -> None:
    async with open_scene(database, tmp_path) as scene:
        (line,) = (line for line in lines("A job stays QUEUED", "retoma") if "pools update" in line)
        await scene.run(line)
        async with scene.api.sandbox.manual_worker() as worker:
            await work(worker)
            shown = await scene.run(lines("A job stays QUEUED", "curl")[-1])
    assert shown["status"] == "IN_PROGRESS"


@pytest.mark.parametrize("way", WAYS)
async def test_a_running_job_is_inspected_and_cancelled(database: Database, tmp_path: Path, way: str) -> None:
    async with open_scene(database, tmp_path) as scene:
        scene.variables |= {"JOB": scene.variables["BUSY"], "RUN": scene.variables["BUSY"].removeprefix("orc-")}
        first, *others = [line for line in lines("A job stays IN_PROGRESS", way) if "api.runpod.ai" not in line]
        message = await scene.run(first)
        if way == "curl":
            assert message["status"] == "IN_PROGRESS"
            assert message["runpodJobIds"]
        for line in others:
            await scene.run(line)
        shown = await scene.run(lines("A job stays IN_PROGRESS", "curl")[0])
    assert shown["status"] == "CANCELLED"


@pytest.mark.parametrize("way", WAYS)
async def test_a_dead_letter_is_found_and_redelivered(database: Database, tmp_path: Path, way: str) -> None:
    async with open_scene(database, tmp_path) as scene:
        scene.variables["DELIVERY"] = await make_dead_letter(scene)
        listed, *others = [line for line in lines("A webhook did not arrive", way) if "endpoints" not in line]
        assert scene.variables["DELIVERY"][:8] in str(await scene.run(listed))
        for line in others:
            await scene.run(line)
        (delivery,) = await scene.api.client.webhooks.list_deliveries()
    assert delivery.state == "due"


@pytest.mark.parametrize("way", WAYS)
async def test_a_disabled_endpoint_is_listed_and_enabled(database: Database, tmp_path: Path, way: str) -> None:
    async with open_scene(database, tmp_path) as scene:
        await make_dead_letter(scene, "gone")
        (endpoint,) = await scene.api.client.webhooks.list_endpoints()
        scene.variables["ENDPOINT"] = str(endpoint.id)
        listed, enable = [line for line in lines("A webhook did not arrive", way) if "endpoints" in line]
        assert "it responded with 410 Gone" in str(await scene.run(listed))
        await scene.run(enable)
        assert (await scene.api.client.webhooks.get_endpoint(endpoint.id)).disabled_at is None


def test_every_command_of_the_page_is_run_by_a_test_above_or_calls_runpod() -> None:
    found = [find_key_line(), *(line for heading in SITUATIONS for way in WAYS for line in lines(heading, way))]
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert sorted(found) == sorted(line for block in blocks for line in block.splitlines())
    assert len([line for line in found if "api.runpod.ai" in line]) == 1


def lines(heading: str, way: str) -> list[str]:
    """The lines of a section's shell blocks that begin with `retoma` or `curl`."""
    _, _, rest = PAGE.read_text().partition(f"\n## {heading}\n")
    blocks = re.findall(r"```sh\n(.*?)```", rest.partition("\n## ")[0], re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith(way)]


def find_key_line() -> str:
    """The line that makes the page's key."""
    return next(line for line in PAGE.read_text().splitlines() if line.startswith("retoma keys create "))


@asynccontextmanager
async def open_scene(database: Database, folder: Path) -> AsyncIterator[Scene]:
    """One job holds the only GPU, and another waits for it."""
    await empty_database(database)
    application = make_app(Rules(GpuSettings(), offline=False), BusyHost(), FileSettings(home=folder))
    async with an_api(database, application=application, scopes=RUNS) as api, api.sandbox.manual_worker() as worker:
        busy = await submit_job(api)
        await api.client.pools.update("gpu", capacity=1)
        await work(worker)
        waiting = await submit_job(api)
        await work(worker)
        terminal = Terminal(folder, {"RETOMA_DATABASE_URL": database.url})
        scene = Scene(
            api,
            terminal,
            {
                "JOB": waiting,
                "RUN": waiting.removeprefix("orc-"),
                "BUSY": busy,
                "RETOMA_URL": "https://retoma",
            },
        )
        scene.variables["API_KEY"] = (await scene.run(find_key_line())).strip()
        yield scene


async def submit_job(api: Api) -> str:
    image = {"id": "1", "image_url": "https://images.example.com/1.png", "duracao": 5}
    body = {"images": [image], "webhook_url": "https://n8n.example.com/webhook/gerarVideo"}
    answer = await api.post("/video/img2vid/async", json=body)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobId"])


async def work(worker: Any) -> None:
    """All that is ready."""
    while claims := await worker.claim(10):
        await worker.record_outcomes(await worker.attempt(claims))


async def make_dead_letter(scene: Scene, outcome: str = "dead") -> str:
    """Of the job that was cancelled while it waited. With `gone` its endpoint is disabled."""
    await scene.api.post(f"/jobs/{scene.variables['JOB']}/cancel")
    sent = await rows(
        scene.api.sandbox,
        f"select id, retoma.record_delivery_attempt(id, attempt, '{outcome}', '0', null, 5, 500, 'HTTP 500', null) "
        "from retoma.claim_deliveries('{img2vid}', 1, 1, '1 minute')",
    )
    return str(sent[0]["id"])
