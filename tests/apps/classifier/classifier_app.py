"""The classifier in this process: its routes, a manual worker, and OpenRouter's stand-in or no key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
from pydantic import SecretStr

from retoma import Context, Settings
from retoma.define.isolation import Isolation
from retoma.engine.claim_protocol import Claim
from retoma.engine.outcomes import Outcome
from retoma.files import FileSettings, create_file_store
from retoma.records import Scope
from retoma.store.database import Database
from retoma.testing import ManualWorker
from retoma.worker.attempt import run_attempt
from retoma.worker.step_call import StepCall
from retoma_apps.classifier.application import make_app
from retoma_apps.providers.llm.openrouter import OpenRouter, OpenRouterSettings
from standins.llm import StandIn, by_mention
from tests.engine.builders import send_heartbeat
from tests.server.api import Api, an_api

KEY = "sk-or-CANARY1234567890"
SPOILT = "INDECIFRÁVEL"
LABELS = ("sentença", "ofício", "parecer")
EXAMPLES = [
    {"texto": "Julgo procedente o pedido e condeno o réu. Publique-se.", "rotulo": "sentença"},
    {"texto": "Ofício. Solicito providências ao Senhor Secretário.", "rotulo": "ofício"},
    {"texto": "Parecer sobre a legalidade do contrato. Opina-se.", "rotulo": "parecer"},
]
TEXTS = {
    "a.txt": "SENTENÇA. Julgo procedente o pedido. Sentença publicada.",
    "b.txt": "OFÍCIO. Solicito providências. Ofício reiterado.",
    "c.txt": "PARECER. Opina-se pela legalidade. Parecer final.",
}


def make_project(**changed: Any) -> dict[str, Any]:
    return {
        "nome": "Peças processuais",
        "taxonomia": [{"rotulo": label} for label in LABELS],
        "exemplos": EXAMPLES,
    } | changed


def check_refusal(answer: httpx2.Response, status: int, code: str) -> str:
    """Check the code and the Portuguese message of a rejection, and return its English message."""
    body = answer.json()
    assert (answer.status_code, body.get("code")) == (status, code), answer.text
    assert len(body["detail"].split()) > 2, body
    assert body["detail"] != body["detail_en"]
    return str(body["detail_en"])


def answer_of_model(body: dict[str, Any]) -> Any:
    """Return the answer of the stand-in's model. It is unusable for a text that contains `SPOILT`."""
    return "Não sei." if SPOILT in str(body["messages"]) else by_mention(body)


class InProcessIsolation:
    """Replaces child processes."""

    def __init__(self, worker: ManualWorker) -> None:
        self._threads = worker._threads

    async def get_child(self, isolation: Isolation) -> None:
        """There is none."""

    async def run_attempt(self, child: None, plan: StepCall, claim: Claim, context: Context | None) -> Outcome:
        return await run_attempt(plan, claim, context, self._threads)


@dataclass
class ClassifierApp:
    api: Api
    standin: StandIn
    worker: ManualWorker

    @property
    def client(self) -> Any:
        return self.api.client

    async def project(self, **changed: Any) -> str:
        """Create a project and return its id."""
        answer = await self.api.post("/projetos", json=make_project(**changed))
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def send(self, name: str, data: bytes | str, **options: Any) -> list[dict[str, Any]]:
        """Upload one file and return its documents."""
        answer = await self.upload(name, data, **options)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["documentos"])

    async def upload(self, name: str, data: bytes | str, **options: Any) -> httpx2.Response:
        content = data.encode() if isinstance(data, str) else data
        return await self.api.post("/arquivos", params={"nome": name}, content=content, **options)

    async def begin(self, project: str, texts: Mapping[str, bytes | str] = TEXTS, **more: Any) -> str:
        """Start an execution of these documents and return its id."""
        documents = [each for name, data in texts.items() for each in await self.send(name, data)]
        answer = await self.start(project, documents, **more)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def start(self, project: str, documents: Iterable[dict[str, Any]], **options: Any) -> httpx2.Response:
        body = {"projeto": project, "documentos": list(documents), **options.pop("also", {})}
        return await self.api.post("/execucoes", json=body, **options)

    async def run_execution(self, texts: Mapping[str, bytes | str] = TEXTS, **changed: Any) -> str:
        """Start an execution and work until nothing is left to do."""
        execution = await self.begin(await self.project(**changed), texts)
        await self.work()
        return execution

    async def status(self, execution: str) -> dict[str, Any]:
        answer = await self.api.get(f"/execucoes/{execution}/status-detalhado")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def documents(self, execution: str, **query: Any) -> dict[str, dict[str, Any]]:
        answer = await self.api.get(f"/execucoes/{execution}/documentos", params=query)
        assert answer.status_code == 200, answer.text
        return {each["codigo"]: each for each in answer.json()["documentos"]}

    async def post_action(self, execution: str, what: str, **options: Any) -> httpx2.Response:
        return await self.api.post(f"/execucoes/{execution}/{what}", **options)

    def count_calls_about(self, words: str) -> int:
        """Return how many model calls contained these words."""
        return sum(words in str(request["messages"][-1]["content"]) for request in self.standin.requests)

    def fix_model(self) -> None:
        """Make the model answer every text correctly from now on."""
        self.standin._answer = by_mention

    async def key(self, project: str, *scopes: str) -> str:
        """Create a key for this project only."""
        return await self.api.make_key(*(scopes or ("runs:read", "runs:write")), tenant=project)

    async def work(self, *, advance_clock: bool = True) -> None:
        """Do all work that is ready, and with `advance_clock` also what is due later."""
        await self.api.sandbox._work_until_idle(self.worker, advance_clock)

    @asynccontextmanager
    async def another_worker(self) -> AsyncIterator[ManualWorker]:
        async with self.api.sandbox.manual_worker() as worker:
            yield _without_children(worker)

    async def run_watchdog(self, after: timedelta) -> None:
        """Advance the clock with a live worker, then run the watchdog."""
        await self.api.sandbox.clock.advance(after)
        await send_heartbeat(self.api.sandbox.database, self.worker.worker)
        await self.api.sandbox.run_watchdog()

    async def get_event_kinds(self, execution: str) -> list[str]:
        """Return the kinds of the events in order."""
        return [event.kind for event in await self.client.runs.list_events(UUID(execution))]


@asynccontextmanager
async def running_classifier_app(
    database: Database,
    folder: Path,
    *,
    offline: bool = False,
    scopes: Iterable[Scope] | None = (Scope.ADMIN,),
    timeout: float = 90.0,
    isolated: bool = False,
    provider: type[OpenRouter] = OpenRouter,
    fallback_models: Sequence[str] = (),
) -> AsyncIterator[ClassifierApp]:
    """Read documents in this process, which is fast, unless they are `isolated` as in production."""
    standin = StandIn(key=KEY, answer=answer_of_model)
    async with standin.serving() as base_url:
        settings = OpenRouterSettings(
            _env_file=None, api_key=SecretStr(KEY), base_url=base_url, timeout_seconds=timeout
        )
        openrouter = provider(settings)
        application = make_app(
            create_file_store(FileSettings(_env_file=None, home=folder)),
            None if offline else openrouter,
            fallback_models,
        )
        async with (
            an_api(database, application=application, scopes=scopes, **vars(Settings())) as api,
            api.sandbox.manual_worker() as worker,
        ):
            yield ClassifierApp(api, standin, worker if isolated else _without_children(worker))
        await openrouter.close()


def _without_children(worker: ManualWorker) -> ManualWorker:
    worker._runner.process_pool = InProcessIsolation(worker)  # type: ignore[assignment]
    return worker
