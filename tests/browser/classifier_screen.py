"""The classifier before a browser, with a worker in the test's hands that reads documents in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from playwright.async_api import Page

from retoma.files import FileSettings, FileStore, create_file_store
from retoma.store.database import Database
from retoma.testing import ManualWorker
from retoma_apps.classifier.application import make_app
from retoma_apps.classifier.models import Project
from retoma_apps.classifier.operations import executions, projects
from retoma_apps.classifier.operations.uploads import Upload
from tests.apps.classifier.classifier_app import TEXTS, InProcessIsolation, make_project
from tests.browser.screen import Screen, open_screen
from tests.engine.builders import send_heartbeat

UNREADABLE = b"\x7fELF is a program"


@dataclass
class ClassifierScreen:
    """Offline: labels come from the examples of the project."""

    screen: Screen
    files: FileStore
    worker: ManualWorker

    @property
    def client(self) -> Any:
        return self.screen.sandbox.client

    async def open(self, path: str = "", **options: Any) -> Page:
        return await self.screen.open(f"/classificador/{path}", **({"language": "pt-BR"} | options))

    async def project(self, **changed: Any) -> str:
        return (await projects.create_project(self.client, Project(**make_project(**changed)))).id

    async def begin(self, project: str, texts: Mapping[str, str | bytes] = TEXTS, name: str = "") -> UUID:
        uploads = [
            Upload(nome=code, arquivo=await self.files.save(_bytes(text), name=code)) for code, text in texts.items()
        ]
        kept = await projects.get_project(self.client, project)
        return (await executions.start_execution(self.client, self.files, kept, uploads, name=name)).id

    async def run_execution(self, texts: Mapping[str, str | bytes] = TEXTS, name: str = "", **changed: Any) -> UUID:
        execution = await self.begin(await self.project(**changed), texts, name)
        await self.work()
        return execution

    async def work(self) -> None:
        await self.screen.sandbox._work_until_idle(self.worker, True)

    async def get_stuck(self) -> None:
        """Claim a document and let it hang beyond its time limit while the worker is running."""
        claims = await self.worker.claim(100)
        while {claim.step for claim in claims} & {"documents", "criteria"}:
            await self.worker.record_outcomes(await self.worker.attempt(claims))
            claims = await self.worker.claim(100)
        await self.pass_time(timedelta(minutes=6))

    async def pass_time(self, by: timedelta) -> None:
        await self.screen.sandbox.clock.advance(by)
        await send_heartbeat(self.screen.sandbox.database, self.worker.worker)
        await self.screen.sandbox.run_watchdog()


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


@asynccontextmanager
async def running_classifier_screen(
    database: Database, folder: Path, *, development: bool = True
) -> AsyncIterator[ClassifierScreen]:
    files = create_file_store(FileSettings(_env_file=None, home=folder))
    async with (
        open_screen(database, development=development, application=make_app(files, None)) as screen,
        screen.sandbox.manual_worker() as worker,
    ):
        worker._runner.process_pool = InProcessIsolation(worker)  # type: ignore[assignment]
        yield ClassifierScreen(screen, files, worker)
