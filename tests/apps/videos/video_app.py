"""The video workflow behind its routes, with a manual worker and small frames."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2

from retoma.states import JobState
from retoma.store.database import Database
from retoma_apps.videos.application import make_app
from retoma_apps.videos.services import Services
from tests.apps.videos.small_services import make_small_services
from tests.server.api import Api, an_api

TOPIC = "Como investir em renda fixa"
SHORT = {"seconds": 25}


@dataclass
class VideoApp:
    api: Api

    @property
    def client(self) -> Any:
        return self.api.client

    async def order(self, topic: str = TOPIC, channel: str = "financas", **values: Any) -> str:
        """Order a video and return its id."""
        answer = await self.api.post("/api/v1/videos", json={"topic": topic, "channel": channel, **values})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def order_until_script_review(self, topic: str = TOPIC, channel: str = "financas") -> dict[str, Any]:
        """Order a video and return its first checkpoint."""
        return await self.work_until_review(await self.order(topic, channel))

    async def show(self, video: str) -> dict[str, Any]:
        answer = await self.api.get(f"/api/v1/videos/{video}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def checkpoint(self, checkpoint: str) -> dict[str, Any]:
        answer = await self.api.get(f"/api/v1/checkpoints/{checkpoint}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def work_until_review(self, video: str) -> dict[str, Any]:
        """Do all work that is ready and return the open checkpoint."""
        await self.work()
        return await self.checkpoint((await self.show(video))["checkpoint"]["id"])

    async def decide(self, checkpoint: dict[str, Any], action: str, **values: Any) -> httpx2.Response:
        options = {"headers": values.pop("headers", {})}
        path = f"/api/v1/checkpoints/{checkpoint['checkpoint_id']}/decision"
        return await self.api.post(path, json={"action": action, **values}, **options)

    async def list_started_steps(self, video: str) -> set[str]:
        """Return the steps that were attempted, or were added and not cancelled."""
        idle = (JobState.WAITING, JobState.CANCELLED)
        return {
            job.step for job in await self.client.runs.list_jobs(UUID(video)) if job.attempt or job.state not in idle
        }

    async def work_once(self) -> None:
        """Do the work that is ready now, without what follows from it."""
        async with self.api.sandbox.manual_worker() as worker:
            await worker.record_outcomes(await worker.attempt(await worker.claim(100)))

    async def work(self) -> None:
        await self.api.sandbox.work(advance_clock=False)


@asynccontextmanager
async def running_video_app(
    database: Database, folder: Path, services: Services | None = None
) -> AsyncIterator[VideoApp]:
    async with an_api(database, application=make_app(services or make_small_services(folder))) as api:
        video_app = VideoApp(api)
        await api.client.tenants.set_profile("financas", SHORT)
        yield video_app
