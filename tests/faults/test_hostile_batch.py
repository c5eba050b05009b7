"""A batch with documents that are damaged, crash their reader or never end, while workers are killed at random.

HOSTILE_DOCUMENTS=2000 makes it as large as batches may be.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import httpx2

from retoma.client import Client
from retoma.files import FileSettings, create_file_store
from retoma.server import make_server
from retoma.settings import Settings
from retoma.store.database import Database
from retoma_apps.classifier.application import make_app
from retoma_apps.classifier.steps.reading import read
from retoma_apps.providers.llm import Message
from retoma_apps.providers.llm.openrouter import OpenRouter
from retoma_apps.providers.llm.prompts import find_quoted_text
from standins.llm import StandIn, by_mention
from tests.apps.classifier.papers import KINDS, Paper, batch
from tests.conftest import empty_database

PROJECT = Path(__file__).parents[2]
KEY = "sk-or-test"
SEED = 5
WAIT_TIMEOUT = timedelta(minutes=10)
SIZES = {  # by the number of documents: corrupt ones, crashing, hanging, workers that are killed, retries of each
    200: (4, 2, 1, 2, 0),
    2_000: (20, 7, 3, 10, 1),
}
DOCUMENTS = int(os.environ.get("HOSTILE_DOCUMENTS", "200"))
CORRUPT, CRASHING, HANGING, KILLS, RETRIES = SIZES[DOCUMENTS]
WORKERS = 2


class WorkerCrew:
    """Workers, each followed by another when it has ended."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.killed = 0
        self._environment = environment
        self._folder = folder
        self._log = folder / "workers.log"
        self._random = Random(SEED)
        self._alive: set[Process] = set()
        self._keeping = [asyncio.create_task(self._keep()) for _ in range(WORKERS)]

    def kill_one(self) -> None:
        """As the worst crash does."""
        if living := [process for process in self._alive if process.returncode is None]:
            self._random.choice(living).send_signal(signal.SIGKILL)
            self.killed += 1

    async def end(self) -> None:
        for keeping in self._keeping:
            keeping.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)

    async def _keep(self) -> None:
        while True:
            process = await self._start_worker()
            self._alive.add(process)
            try:
                await process.wait()
            finally:
                self._alive.discard(process)
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _start_worker(self) -> Process:
        command = (
            "-m",
            "retoma",
            "worker",
            "tests.faults.classifier_application:app",
            "-c",
            "2",
            "--until-stdin-closes",
        )
        with self._log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, *command), cwd=self._folder, env=self._environment, stdin=PIPE, stdout=log, stderr=log
            )


@dataclass
class Provider:
    """A model that counts independently how often it is called for each text while workers die."""

    calls: Counter[str] = field(default_factory=Counter)
    kills_at: set[int] = field(default_factory=set)
    crew: WorkerCrew | None = None

    def answer(self, body: dict[str, Any]) -> Any:
        text = find_quoted_text([Message(each["role"], each["content"]) for each in body["messages"]])
        assert text is not None
        self.calls[_digest(text)] += 1
        if self.crew is not None and self.calls.total() in self.kills_at:
            self.crew.kill_one()
        return by_mention(body)

    def asked_about(self, paper: Paper) -> int:
        return self.calls[_digest(read(paper.data).text)]


class ClassifierApp:
    """The classifier's own routes, in this process."""

    def __init__(self, http: httpx2.AsyncClient, client: Client, database: Database) -> None:
        self._http = http
        self._client = client
        self._database = database

    async def begin(self, papers: list[Paper]) -> str:
        project = {"nome": "Peças", "taxonomia": [{"rotulo": kind} for kind in KINDS], "max_retries_documento": RETRIES}
        sent = [each for paper in papers for each in (await self._upload(paper))]
        assert len(sent) == len(papers)
        made = await self.post("/projetos", json=project)
        return str((await self.post("/execucoes", json={"projeto": made["id"], "documentos": sent}))["id"])

    async def _upload(self, paper: Paper) -> list[dict[str, Any]]:
        answer = await self.post("/arquivos", params={"nome": paper.name}, content=paper.data)
        return list(answer["documentos"])

    async def post(self, path: str, **options: Any) -> dict[str, Any]:
        answer = await self._http.post(path, **options)
        assert answer.status_code < 300, answer.text
        return dict(answer.json())

    async def wait_for_end(self, execution: str) -> str:
        """Its state, once it is over."""
        await self._client.wait(UUID(execution), WAIT_TIMEOUT)
        return str((await self._http.get(f"/execucoes/{execution}")).json()["status"])

    async def documents(self, execution: str) -> list[dict[str, Any]]:
        """In the order in which they were sent."""
        found: list[dict[str, Any]] = []
        after: int | None = -1
        while after is not None:
            query = {"apos": after, "limite": 100}
            page = (await self._http.get(f"/execucoes/{execution}/documentos", params=query)).json()
            found += page["documentos"]
            after = page["proximo"]
        return found

    async def jobs(self, execution: str) -> dict[tuple[str, str, int], dict[str, Any]]:
        """Return the database rows of every job of every round."""
        sql = "select step, item, revision, state, attempt, worker_deaths, output from retoma.jobs where run = $1"
        async with self._database.connection() as connection:
            rows = await connection.fetch(sql, UUID(execution))
        return {(row["step"], row["item"], row["revision"]): dict(row) for row in rows}


@asynccontextmanager
async def running_classifier_app(
    database: Database, folder: Path, base_url: str
) -> AsyncIterator[tuple[ClassifierApp, WorkerCrew]]:
    application = make_app(create_file_store(FileSettings(_env_file=None, home=folder)), OpenRouter())
    client = Client(application, database)
    server = make_server(application, client, Settings(rate_limit_per_minute=1_000_000), dev_token="token")
    transport = httpx2.ASGITransport(app=server, client=("127.0.0.1", 50_000))
    surroundings = {
        "PYTHONPATH": str(PROJECT),
        "RETOMA_DATABASE_URL": database.url,
        "RETOMA_HOME": str(folder),
        "RETOMA_HEARTBEAT_TIMEOUT_SECONDS": "3",
        "OPENROUTER_API_KEY": KEY,
        "OPENROUTER_BASE_URL": base_url,
    }
    token = {"X-API-Key": "token"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=token, timeout=60) as http:
        crew = WorkerCrew(os.environ | surroundings, folder)
        try:
            yield ClassifierApp(http, client, database), crew
        finally:
            await crew.end()
            server.state.live.close()
            await client.close()


async def test_exactly_the_bad_documents_of_a_hostile_batch_fail_and_no_other_is_classified_twice(
    real_time_database: Database, tmp_path: Path
) -> None:
    await empty_database(real_time_database)
    bad = CORRUPT + CRASHING + HANGING
    papers = batch(DOCUMENTS - bad, corrupt=CORRUPT, crashing=CRASHING, hanging=HANGING, seed=SEED)
    provider = Provider(kills_at=set(Random(SEED).sample(range(10, (DOCUMENTS - bad) * 9 // 10), KILLS)))
    async with (
        StandIn(key=KEY, answer=provider.answer).serving() as base_url,
        running_classifier_app(real_time_database, tmp_path, base_url) as (office, crew),
    ):
        provider.crew = crew
        execution = await office.begin(papers)
        assert await office.wait_for_end(execution) == "CONCLUIDO_COM_ERROS"
        assert crew.killed == KILLS
        documents = await office.documents(execution)
        check_outcomes(papers, documents)
        jobs = await office.jobs(execution)
        check_calls(papers, documents, provider, jobs)

        calls = provider.calls.copy()
        answer = await office.post(f"/execucoes/{execution}/reprocessar-erros")
        assert answer["rodada"] == 2
        assert await office.wait_for_end(execution) == "CONCLUIDO_COM_ERROS"
        assert provider.calls == calls
        check_outcomes(papers, await office.documents(execution))
        again = await office.jobs(execution)
        failed = {document["codigo"] for document in documents if document["status"] == "ERRO"}
        assert {item for _, item, revision in again if revision == 2 and item} == failed
        assert {key: again[key] for key in jobs} == jobs


def check_outcomes(papers: list[Paper], documents: list[dict[str, Any]]) -> None:
    """Every bad one failed, each in its own way, and all others have a label."""
    wrong = [
        (paper.name, document["status"], document["erro_codigo"], document["erro_detalhe"])
        for paper, document in zip(papers, documents, strict=True)
        if (document["status"], document["erro_codigo"] in paper.codes)
        != (("ERRO", True) if paper.codes else ("CONCLUIDO", False))
    ]
    assert wrong == []


def check_calls(
    papers: list[Paper], documents: list[dict[str, Any]], provider: Provider, jobs: dict[Any, dict[str, Any]]
) -> None:
    """Check that the model was called once per text, and again only if a worker died after calling it."""
    for paper, document in zip(papers, documents, strict=True):
        if paper.label:
            deaths = jobs["label", document["codigo"], 1]["worker_deaths"]
            assert 1 <= provider.asked_about(paper) <= 1 + deaths, paper.name
    good = sum(bool(paper.label) for paper in papers)
    assert len(provider.calls) == good


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
