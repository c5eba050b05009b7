"""The orchestrator in this process: its routes, a manual worker, and RunPod's stand-in as the referee.

One clock drives all: `work` does everything that is due, in the database and at the stand-in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx2
from pydantic import SecretStr

from retoma import Settings
from retoma.files import FileSettings
from retoma.outgoing import LOOPBACK, Guard
from retoma.records import Scope
from retoma.store.database import Database
from retoma.testing import ManualWorker
from retoma_apps.gpu.application import make_app
from retoma_apps.gpu.settings import GpuSettings, Rules
from retoma_apps.gpu.states import run_id
from retoma_apps.providers.gpu import GpuHost
from retoma_apps.providers.gpu.runpod import RunPodHost, RunPodSettings
from standins.gpu import Job, StandIn
from tests.engine.builders import send_heartbeat
from tests.receiver import Receiver
from tests.server.api import Api, an_api

KEY = "rpa_CANARY1234567890"
WEBHOOK_URL = "https://n8n.example.com/webhook/gerarVideo"
MINUTE = timedelta(minutes=1)
TICK = timedelta(seconds=8)


def images(count: int, duracao: float = 5.0, first: int = 1) -> list[dict[str, Any]]:
    return [
        {"id": str(number), "image_url": f"https://example.com/{number}.png", "duracao": duracao}
        for number in range(first, first + count)
    ]


def img2vid(count: int = 2, **more: Any) -> dict[str, Any]:
    return {"id_roteiro": 34, "path": "Project/videos/temp/", "images": images(count), **more}


CAPTION = {"id_roteiro": 7, "video_url": "https://example.com/film.mp4", "text": "Olá, coração"}
ADDAUDIO = {"id_roteiro": 8, "video_url": "https://example.com/film.mp4", "audio_url": "https://example.com/a.mp3"}
BODIES = {"img2vid": img2vid(), "caption": CAPTION, "addaudio": ADDAUDIO}


class WithoutCallbackUrl(RunPodHost):
    """Leaves out the callback URL unless a test listens at `origin`: nothing else listens, and resolving the sandbox's
    name takes seconds."""

    origin: str | None = None

    async def submit(self, *values: Any, callback_url: str | None = None, **more: Any) -> str:
        hint = f"{self.origin}{urlsplit(callback_url).path}" if self.origin and callback_url else None
        return await super().submit(*values, callback_url=hint, **more)


@dataclass
class GpuApp:
    api: Api
    standin: StandIn
    worker: ManualWorker
    most_used: int = field(default=0)

    @property
    def client(self) -> Any:
        return self.api.client

    async def submit(self, body: dict[str, Any] | None = None, operation: str = "img2vid", **options: Any) -> str:
        """Submit a job and return its `jobId`."""
        answer = await self.post(operation, body or BODIES[operation], **options)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["jobId"])

    async def post(self, operation: str, body: Any, **options: Any) -> httpx2.Response:
        return await self.api.post(f"/video/{operation}/async", json=body, **options)

    async def show(self, job: str) -> dict[str, Any]:
        answer = await self.api.get(f"/jobs/{job}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def cancel(self, job: str) -> httpx2.Response:
        return await self.api.post(f"/jobs/{job}/cancel")

    async def work_now(self) -> None:
        """Do everything that is ready, without advancing the clock."""
        await send_heartbeat(self.api.sandbox.database, self.worker.worker)
        await self.api.sandbox._work_until_idle(self.worker, advance_clock=False)
        self.most_used = max(self.most_used, await self.count_used_slots())

    async def pass_time(self, by: timedelta = TICK) -> None:
        await self.api.sandbox.clock.advance(by)
        await self.standin.advance(by.total_seconds())
        await self.work_now()
        if await self.api.sandbox.run_watchdog():
            await self.work_now()

    async def work(self, jobs: Iterable[str] = (), *, most: int = 2_000) -> None:
        """Work until these jobs, or all, have ended."""
        await self.work_now()
        for _ in range(most):
            if not await self.open_jobs(jobs):
                return
            await self.pass_time()
        raise AssertionError("the jobs did not end")

    async def open_jobs(self, jobs: Iterable[str] = ()) -> list[UUID]:
        wanted = {run_id(job) for job in jobs}
        found = await self.client.runs.list(limit=1_000)
        return [run.id for run in found if not run.is_over and (not wanted or run.id in wanted)]

    async def count_used_slots(self) -> int:
        """Return the slots in use according to the database."""
        pools = await self.client.pools.list("gpu")
        return pools[0].used if pools else 0

    async def send_callbacks(self, listener: Receiver) -> list[dict[str, Any]]:
        """Send all due callbacks and return what the receiver got."""
        await self.api.sandbox.send_webhooks()
        return [got.json for got in listener.requests]

    def list_running(self) -> list[Job]:
        """Return the stand-in's running and queued jobs."""
        return [job for job in self.standin.jobs if job.is_live]


@asynccontextmanager
async def running_gpu_app(
    database: Database,
    folder: Path,
    *,
    host: GpuHost | None = None,
    offline: bool = False,
    scopes: Iterable[Scope] | None = (Scope.ADMIN,),
    settings: dict[str, Any] | None = None,
    **standin: Any,
) -> AsyncIterator[GpuApp]:
    made = StandIn(manual=True, key=KEY, **standin)
    async with made.serving() as base_url:
        runpod = WithoutCallbackUrl(
            RunPodSettings(_env_file=None, api_key=SecretStr(KEY), base_url=base_url, endpoint_id="pod")
        )
        rules = Rules(
            GpuSettings(_env_file=None, **(settings or {})), offline=offline, guard=Guard.from_hosts(LOOPBACK)
        )
        application = make_app(rules, host or runpod, FileSettings(home=folder, public_url="https://api.example"))
        async with (
            an_api(database, application=application, scopes=scopes, **vars(Settings())) as api,
            api.sandbox.manual_worker() as worker,
        ):
            yield GpuApp(api, made, worker)
        await runpod.close()
