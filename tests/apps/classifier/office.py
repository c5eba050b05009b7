"""The classifier in this process: its routes, a worker in the test's hands, and OpenRouter's stand-in or no key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
from pydantic import SecretStr

from retoma import Context, Settings
from retoma.engine.exchange import Claim, Result, SetBack
from retoma.files import FileSettings, files_of
from retoma.records import Scope
from retoma.store import workers
from retoma.store.database import Database
from retoma.testing import Hands
from retoma.worker.attempt import attempt
from retoma.worker.plan import Plan
from retoma_apps.classifier.application import make_app
from retoma_apps.providers.llm import OpenRouter, OpenRouterSettings
from retoma_apps.providers.llm.standin import StandIn, by_mention
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


def a_project(**changed: Any) -> dict[str, Any]:
    return {
        "nome": "Peças processuais",
        "taxonomia": [{"rotulo": label} for label in LABELS],
        "exemplos": EXAMPLES,
    } | changed


def refused(answer: httpx2.Response, status: int, code: str) -> str:
    """What the refusal says in English, where it does: every one has a code and a sentence in Portuguese."""
    told = answer.json()
    assert (answer.status_code, told.get("code")) == (status, code), answer.text
    assert len(told["detail"].split()) > 2, told
    assert told["detail"] != told.get("detail_en")
    return str(told.get("detail_en", told["detail"]))


def answered(body: dict[str, Any]) -> Any:
    """What the stand-in's model says. About a text that holds `SPOILT` it says nothing that can be used."""
    return "Não sei." if SPOILT in str(body["messages"]) else by_mention(body)


class InThisProcess:
    """In place of child processes."""

    def __init__(self, hands: Hands) -> None:
        self._threads = hands._threads

    async def attempt(
        self, plan: Plan, claim: Claim, context: Context | None, on_body: Callable[[Claim], None]
    ) -> Result | SetBack:
        on_body(claim)
        return await attempt(plan, claim, context, self._threads)


@dataclass
class Office:
    api: Api
    standin: StandIn
    hands: Hands

    @property
    def client(self) -> Any:
        return self.api.client

    async def project(self, **changed: Any) -> str:
        """A new project's id."""
        answer = await self.api.post("/projetos", json=a_project(**changed))
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def send(self, name: str, data: bytes | str, **options: Any) -> list[dict[str, Any]]:
        """What there is to start with, of one file."""
        answer = await self.upload(name, data, **options)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["documentos"])

    async def upload(self, name: str, data: bytes | str, **options: Any) -> httpx2.Response:
        content = data.encode() if isinstance(data, str) else data
        return await self.api.post("/arquivos", params={"nome": name}, content=content, **options)

    async def begin(self, project: str, texts: Mapping[str, bytes | str] = TEXTS, **more: Any) -> str:
        """An execution of these documents; its id."""
        documents = [each for name, data in texts.items() for each in await self.send(name, data)]
        answer = await self.start(project, documents, **more)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def start(self, project: str, documents: Iterable[dict[str, Any]], **options: Any) -> httpx2.Response:
        body = {"projeto": project, "documentos": list(documents), **options.pop("also", {})}
        return await self.api.post("/execucoes", json=body, **options)

    async def done(self, texts: Mapping[str, bytes | str] = TEXTS, **changed: Any) -> str:
        """An execution that was worked on until nothing was left to do."""
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

    async def act(self, execution: str, what: str, **options: Any) -> httpx2.Response:
        return await self.api.post(f"/execucoes/{execution}/{what}", **options)

    def asked_about(self, words: str) -> int:
        """How often the model was asked about a text with these words."""
        return sum(words in str(request["messages"][-1]["content"]) for request in self.standin.requests)

    def mend(self) -> None:
        """From now on the model answers well on every text."""
        self.standin._answer = by_mention

    async def key(self, project: str, *scopes: str) -> str:
        """A key that is for this project only."""
        return await self.api.make_key(*(scopes or ("runs:read", "runs:write")), tenant=project)

    async def work(self, *, until_later: bool = True) -> None:
        """All that can be done, and with `until_later` also what is due later."""
        await self.api.sandbox._work(self.hands, until_later)

    @asynccontextmanager
    async def another_worker(self) -> AsyncIterator[Hands]:
        async with self.api.sandbox.hands() as hands:
            yield _at_home(hands)

    async def watch(self, after: timedelta) -> None:
        """Let time pass in which the worker lives, and let the watchdog look."""
        await self.api.sandbox.clock.advance(after)
        await workers.beat(self.api.sandbox.database, self.hands.worker)
        await self.api.sandbox.watch()

    async def kinds(self, execution: str) -> list[str]:
        """What happened, in order."""
        return [event.kind for event in await self.client.events(UUID(execution))]


@asynccontextmanager
async def an_office(
    database: Database,
    folder: Path,
    *,
    offline: bool = False,
    scopes: Iterable[Scope] | None = (Scope.ADMIN,),
    timeout: float = 90.0,
    isolated: bool = False,
) -> AsyncIterator[Office]:
    """Documents are read in this process, which is quick, unless they are to be `isolated` as they are in earnest."""
    standin = StandIn(key=KEY, answer=answered)
    async with standin.serving() as base_url:
        settings = OpenRouterSettings(
            _env_file=None, api_key=SecretStr(KEY), base_url=base_url, timeout_seconds=timeout
        )
        openrouter = OpenRouter(settings)
        application = make_app(files_of(FileSettings(_env_file=None, home=folder)), None if offline else openrouter)
        async with (
            an_api(database, application=application, scopes=scopes, **vars(Settings())) as api,
            api.sandbox.hands() as hands,
        ):
            yield Office(api, standin, hands if isolated else _at_home(hands))
        await openrouter.close()


def _at_home(hands: Hands) -> Hands:
    hands._runner._children = InThisProcess(hands)  # type: ignore[assignment]
    return hands
