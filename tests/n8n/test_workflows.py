"""The workflows of deploy/n8n in a real n8n, against a real server of the GPU application."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from retoma import Settings, signing
from retoma.cli.listening import address, bound, serving
from retoma.store.database import Database
from tests.apps.gpu.studio import Studio, a_studio, images
from tests.conftest import empty
from tests.n8n.instance import SECONDS, SECRET, N8n, running

SCRIPT = {"id": 34, "canal": "Canal", "titulo": 'As "aspas" da ação', "imagens": images(2)}


@pytest.fixture(scope="module")
def n8n(tmp_path_factory: pytest.TempPathFactory) -> Iterator[N8n]:
    with running(tmp_path_factory.mktemp("n8n")) as made:
        yield made


@dataclass(frozen=True)
class Served:
    studio: Studio
    n8n: N8n
    address: str

    async def publish(self, name: str) -> str:
        credential = await asyncio.to_thread(self.n8n.save_key, self.studio.api.key or "")
        return await asyncio.to_thread(self.n8n.publish, name, self.address, credential)

    async def trigger(self, path: str, **options: Any) -> Any:
        return await asyncio.to_thread(lambda: self.n8n.trigger(path, **options))

    async def last(self, workflow: str) -> dict[str, Any]:
        found = await asyncio.to_thread(self.n8n.executions, workflow)
        return found[0] if found else {}

    async def until(self, is_so: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(SECONDS):
            while not (found := await is_so()):  # noqa: ASYNC110  (it happens in n8n)
                await asyncio.sleep(0.2)
        return found

    async def until_execution(self, workflow: str, *statuses: str) -> dict[str, Any]:
        async def reached() -> dict[str, Any] | None:
            seen = await self.last(workflow)
            return seen if seen.get("status") in statuses else None

        found: dict[str, Any] = await self.until(reached)
        return found

    async def send_callbacks(self) -> None:
        """Send all that is due; what n8n was not ready for is due again."""
        await self.studio.pass_time()
        await self.studio.api.sandbox.send_webhooks()


@pytest.fixture
async def served(
    database: Database, tmp_path: Path, n8n: N8n, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Served]:
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    await empty(database)
    async with a_studio(database, tmp_path) as studio:
        settings = Settings(port=0)
        listening = bound(settings, "127.0.0.1")
        async with serving(studio.api.server, listening, settings):
            await studio.api.sandbox.clock.set(datetime.now(UTC))  # n8n refuses what was not signed just now
            yield Served(studio, n8n, address(listening))


async def submitted(served: Served) -> tuple[str, str]:
    """Start the workflow that submits and waits. Return its id, and that of the job, once n8n waits for it."""
    workflow = await served.publish("submit-and-wait")
    assert (await served.trigger("/webhook/roteiro", json=SCRIPT)).status_code == 200
    await served.until_execution(workflow, "waiting")
    (job,) = (await served.studio.api.get("/jobs")).json()["jobs"]
    return workflow, job["jobId"]


async def switch_off(served: Served, workflow: str) -> None:
    """Its path can then be used by the next test."""
    await asyncio.to_thread(served.n8n.call, "POST", f"/rest/workflows/{workflow}/deactivate", json={})


async def test_a_job_is_submitted_waited_for_and_its_videos_are_used(served: Served) -> None:
    workflow, job = await submitted(served)
    shown = await served.studio.show(job)
    assert shown["data"]["path"] == 'Canal/As "aspas" da ação/videos/temp/'
    await served.studio.work([job])

    async def over() -> bool:
        await served.send_callbacks()
        return bool((await served.last(workflow))["status"] == "success")

    await served.until(over)
    kept = await asyncio.to_thread(served.n8n.data, (await served.last(workflow))["id"])
    assert all(video["video_url"] in kept for video in (await served.studio.show(job))["result"]["videos"])
    await switch_off(served, workflow)


async def test_a_forged_callback_changes_nothing(served: Served) -> None:
    workflow, job = await submitted(served)
    execution = (await served.last(workflow))["id"]
    forged = {"status": "COMPLETED", "result": {"videos": [{"id": "1", "video_url": "https://evil.example/x.mp4"}]}}
    # The recorded input has the URL without the values of its query, such as a signature.
    resume = max(await served.studio.client.endpoints(limit=100), key=lambda endpoint: endpoint.id).url
    assert (await served.trigger(resume.removeprefix(served.n8n.address), json=forged)).status_code == 200
    seen = await served.until_execution(workflow, "waiting", "success", "error")
    assert (seen["id"], seen["status"]) == (execution, "waiting")
    await served.studio.cancel(job)

    async def over() -> bool:
        await served.send_callbacks()
        return bool((await served.last(workflow))["status"] == "error")

    await served.until(over)
    kept = await asyncio.to_thread(served.n8n.data, execution)
    assert f"{job}: CANCELLED" in kept
    await switch_off(served, workflow)


async def test_a_signed_callback_is_accepted_and_another_is_refused(served: Served) -> None:
    workflow = await served.publish("webhook-trigger")
    assert (await served.trigger("/webhook/gerarVideo", json={"status": "COMPLETED"})).status_code == 401
    hook = f"{served.n8n.address}/webhook/gerarVideo"
    job = await served.studio.submit({**SCRIPT_JOB, "webhook_url": hook})
    await served.studio.work([job])
    await served.studio.api.sandbox.send_webhooks()
    (delivery,) = await served.studio.client.deliveries(limit=5)
    assert (str(delivery.state), delivery.status) == ("delivered", 200)
    await served.until_execution(workflow, "success")
    await switch_off(served, workflow)


async def test_a_callback_that_comes_twice_is_used_once(served: Served) -> None:
    workflow = await served.publish("webhook-trigger")
    videos = [{"id": "1", "video_url": "https://videos.example/used.mp4"}]
    body = json.dumps({"jobId": "orc-1", "status": "COMPLETED", "result": {"videos": videos}}).encode()
    seconds = int(time.time())
    headers = {
        "content-type": "application/json",
        "webhook-id": "msg-twice",
        "x-webhook-timestamp": str(seconds),
        "x-webhook-signature": signing.hex_signature(SECRET, seconds, body),
    }
    used = []
    for count in (1, 2):
        assert (await served.trigger("/webhook/gerarVideo", content=body, headers=headers)).status_code == 200

        async def ended(count: int = count) -> bool:
            found = await asyncio.to_thread(served.n8n.executions, workflow)
            return len(found) == count and all(one["status"] == "success" for one in found)

        await served.until(ended)
        kept = await asyncio.to_thread(served.n8n.data, (await served.last(workflow))["id"])
        used.append('"Conclu\u00eddo?"' in kept)
    assert used == [True, False]
    await switch_off(served, workflow)


SCRIPT_JOB = {"id_roteiro": 34, "images": images(1)}
