"""The demo batch: `retoma dev retoma_apps.classifier --demo` classifies a dozen documents once.

It then reports how many got each label.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

from retoma import Client
from retoma.errors import NotFound
from retoma.files import FileStore
from retoma.states import RunState
from retoma.translations import N_
from retoma_apps.classifier.models import ROUTE, Project
from retoma_apps.classifier.operations.executions import get_label_summary, start_execution
from retoma_apps.classifier.operations.projects import StoredProject, create_project, get_project
from retoma_apps.classifier.operations.uploads import Upload
from retoma_apps.classifier.pages.messages import create_translator
from retoma_apps.classifier.pipeline import classification

DOCUMENTS = Path(__file__).parent / "demo_documents"
PROJECT = "documentos-do-escritorio"
KEY = "demo"
_STARTED = N_("%(count)s documents are being classified: %(page)s")
_ALREADY_ENDED = N_("The sample documents have already been classified: %(page)s")
_DONE = N_("classified: %(labels)s. %(page)s")
_NOT_DONE = N_("the classification did not succeed: %(page)s")


async def run_demo(files: FileStore, client: Client, address: str, language: str) -> AsyncIterator[str]:
    run = await client.runs.find_by_key(KEY, classification, tenant=PROJECT) or await _start(client, files)
    page, translator = f"{address}{ROUTE}execucoes/{run}", create_translator(language)
    if (await client.runs.get(run)).is_over:
        yield translator.gettext(_ALREADY_ENDED, page=page)
        return
    yield translator.gettext(_STARTED, count=len(_list_documents()), page=page)
    ended = await client.wait(run)
    message = _DONE if ended.state is RunState.COMPLETED else _NOT_DONE
    summary = await get_label_summary(client, ended) or {"rotulos": {}}
    labels = ", ".join(f"{count} {label}" for label, count in summary["rotulos"].items())
    yield translator.gettext(message, labels=labels, page=page)


async def _start(client: Client, files: FileStore) -> UUID:
    uploads = [
        Upload(nome=file.name, arquivo=await files.save(file.read_bytes(), name=file.name))
        for file in _list_documents()
    ]
    stored = await _get_or_create_project(client)
    return (await start_execution(client, files, stored, uploads, name="Exemplo", key=KEY)).id


async def _get_or_create_project(client: Client) -> StoredProject:
    try:
        return await get_project(client, PROJECT)
    except NotFound:
        project = Project.model_validate_json((DOCUMENTS / "projeto.json").read_bytes())
        return await create_project(client.limit_to([PROJECT]), project)


def _list_documents() -> list[Path]:
    return sorted(DOCUMENTS.glob("*.txt"))
