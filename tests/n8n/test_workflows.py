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
from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.store.database import Database
from tests.apps.gpu.gpu_app import GpuApp, images, running_gpu_app
from tests.conftest import empty_database
from tests.n8n.instance import SECONDS, SECRET, N8n, run_n8n

SCRIPT = {"id": 34, "canal": "Canal", "titulo": 'As "aspas" da ação', "imagens": images(2)}


@pytest.fixture(scope="module")
def n8n(tmp_path_factory: pytest.TempPathFactory) -> Iterator[N8n]:
    with run_n8n(tmp_path_factory.mktemp("n8n")) as made:
        yield made


@dataclass(frozen=True)
class ServedGpuApp:
    gpu_app: GpuApp
    n8n: N8n
    address: str

    async def publish(self, name: str) -> str:
        credential = await asyncio.to_thread(self.n8n.save_key, self.gpu_app.api.key or "")
        return await asyncio.to_thread(self.n8n.publish, name, self.address, credential)

    async def trigger(self, path: str, **options: Any) -> Any:
        return await asyncio.to_thread(lambda: self.n8n.trigger(path, **options))

    async def get_last_execution(self, workflow: str) -> dict[str, Any]:
        found = await asyncio.to_thread(self.n8n.executions, workflow)
        return found[0] if found else {}

    async def wait_until(self, is_so: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(SECONDS):
            while not (found := await is_so()):  # noqa: ASYNC110  (it happens in n8n)
                await asyncio.sleep(0.2)
        return found

    async def wait_for_execution(self, workflow: str, *statuses: str) -> dict[str, Any]:
        async def reached() -> dict[str, Any] | None:
            seen = await self.get_last_execution(workflow)
            return seen if seen.get("status") in statuses else None

        found: dict[str, Any] = await self.wait_until(reached)
        return found

    async def send_callbacks(self) -> None:
        """Send everything that is due; deliveries that n8n was not ready for become due again."""
        await self.gpu_app.pass_time()
        await self.gpu_app.api.sandbox.send_webhooks()


@pytest.fixture
async def served(
    database: Database, tmp_path: Path, n8n: N8n, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ServedGpuApp]:
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    await empty_database(database)
    async with running_gpu_app(database, tmp_path) as services:
        settings = Settings(port=0)
        listening = bind_socket(settings, "127.0.0.1")
        async with run_server(services.api.server, listening, settings):
            await services.api.sandbox.clock.set(datetime.now(UTC))  # n8n refuses what was not signed just now
            yield ServedGpuApp(services, n8n, get_address(listening))


async def submit_and_wait(served: ServedGpuApp) -> tuple[str, str]:
    """Start the workflow that submits and waits. Return its id, and that of the job, once n8n waits for it."""
    workflow = await served.publish("submit-and-wait")
    assert (await served.trigger("/webhook/roteiro", json=SCRIPT)).status_code == 200
    await served.wait_for_execution(workflow, "waiting")
    (job,) = (await served.gpu_app.api.get("/jobs")).json()["jobs"]
    return workflow, job["jobId"]


async def switch_off(served: ServedGpuApp, workflow: str) -> None:
    """Its path can then be used by the next test."""
    await asyncio.to_thread(served.n8n.call, "POST", f"/rest/workflows/{workflow}/deactivate", json={})


async def test_a_job_is_submitted_awaited_and_its_videos_are_used(served: ServedGpuApp) -> None:
    workflow, job = await submit_and_wait(served)
    shown = await served.gpu_app.show(job)
    assert shown["data"]["path"] == 'Canal/As "aspas" da ação/videos/temp/'
    await served.gpu_app.work([job])

    async def over() -> bool:
        await served.send_callbacks()
        return bool((await served.get_last_execution(workflow))["status"] == "success")

    await served.wait_until(over)
    kept = await asyncio.to_thread(served.n8n.data, (await served.get_last_execution(workflow))["id"])
    assert all(video["video_url"] in kept for video in (await served.gpu_app.show(job))["result"]["videos"])
    await switch_off(served, workflow)


async def test_a_forged_callback_changes_nothing(served: ServedGpuApp) -> None:
    workflow, job = await submit_and_wait(served)
    execution = (await served.get_last_execution(workflow))["id"]
    forged = {"status": "COMPLETED", "result": {"videos": [{"id": "1", "video_url": "https://evil.example/x.mp4"}]}}
    # The recorded input has the URL without the values of its query, such as a signature.
    resume = max(await served.gpu_app.client.webhooks.list_endpoints(limit=100), key=lambda endpoint: endpoint.id).url
    assert (await served.trigger(resume.removeprefix(served.n8n.address), json=forged)).status_code == 200
    seen = await served.wait_for_execution(workflow, "waiting", "success", "error")
    assert (seen["id"], seen["status"]) == (execution, "waiting")
    await served.gpu_app.cancel(job)

    async def over() -> bool:
        await served.send_callbacks()
        return bool((await served.get_last_execution(workflow))["status"] == "error")

    await served.wait_until(over)
    kept = await asyncio.to_thread(served.n8n.data, execution)
    assert f"{job}: CANCELLED" in kept
    await switch_off(served, workflow)


async def test_a_signed_callback_is_accepted_and_another_is_refused(served: ServedGpuApp) -> None:
    workflow = await served.publish("webhook-trigger")
    assert (await served.trigger("/webhook/gerarVideo", json={"status": "COMPLETED"})).status_code == 401
    hook = f"{served.n8n.address}/webhook/gerarVideo"
    job = await served.gpu_app.submit({**SCRIPT_JOB, "webhook_url": hook})
    await served.gpu_app.work([job])
    await served.gpu_app.api.sandbox.send_webhooks()
    (delivery,) = await served.gpu_app.client.webhooks.list_deliveries(limit=5)
    assert (str(delivery.state), delivery.status) == ("delivered", 200)
    await served.wait_for_execution(workflow, "success")
    await switch_off(served, workflow)


async def test_a_repeated_callback_is_used_once(served: ServedGpuApp) -> None:
    workflow = await served.publish("webhook-trigger")
    videos = [{"id": "1", "video_url": "https://videos.example/used.mp4"}]
    body = json.dumps({"jobId": "orc-1", "status": "COMPLETED", "result": {"videos": videos}}).encode()
    seconds = int(time.time())
    headers = {
        "content-type": "application/json",
        "webhook-id": "msg-twice",
        "x-webhook-timestamp": str(seconds),
        "x-webhook-signature": signing.sign_hex(SECRET, seconds, body),
    }
    used = []
    for count in (1, 2):
        assert (await served.trigger("/webhook/gerarVideo", content=body, headers=headers)).status_code == 200

        async def ended(count: int = count) -> bool:
            found = await asyncio.to_thread(served.n8n.executions, workflow)
            return len(found) == count and all(one["status"] == "success" for one in found)

        await served.wait_until(ended)
        kept = await asyncio.to_thread(served.n8n.data, (await served.get_last_execution(workflow))["id"])
        used.append('"Conclu\u00eddo?"' in kept)
    assert used == [True, False]
    await switch_off(served, workflow)


SCRIPT_JOB = {"id_roteiro": 34, "images": images(1)}
