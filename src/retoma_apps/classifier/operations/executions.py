"""Start executions, and show them and their documents under the API's own names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from retoma import Client, Webhook
from retoma.errors import InvalidInput, NotFound, RunBusy
from retoma.files import FileStore
from retoma.records import ItemStatus, ItemTotals, Run, StuckRun
from retoma.states import JobState, RunState
from retoma.translations import N_
from retoma_apps.classifier.models import MOST_DOCUMENTS, ROUTE, Batch, Classification, Criteria, Document
from retoma_apps.classifier.operations.projects import StoredProject
from retoma_apps.classifier.operations.uploads import BATCH_SIZE, Upload, number_documents
from retoma_apps.classifier.pages.problems import explain_in_portuguese
from retoma_apps.classifier.pipeline import classification, is_unsure
from retoma_apps.classifier.states import (
    DOCUMENT_STATUS_BY_JOB_STATE,
    DOCUMENT_STATUSES,
    DocumentStatus,
    Status,
    job_states_of,
    status_of,
)

DOCUMENTS_STEP = "documents"
LABEL_STEP = "label"
MAX_LISTED_ERRORS = 20
WEBHOOK_EVENTS = ("run.ended", "run.stuck")
_NO_LABEL = {**dict.fromkeys(Classification.model_fields), "corrigido": False}


async def start_execution(
    client: Client,
    files: FileStore,
    stored: StoredProject,
    uploads: Sequence[Upload],
    *,
    name: str = "",
    key: str | None = None,
    webhook_url: str | None = None,
) -> Run:
    """Start classifying these documents. The execution keeps the project as it is now.

    `webhook_url` is notified when the execution ends, and whenever it is stuck.
    """
    if not 1 <= len(uploads) <= MOST_DOCUMENTS:
        raise InvalidInput(
            N_("an execution accepts 1 to %(limit)s documents, not %(sent)s"), limit=MOST_DOCUMENTS, sent=len(uploads)
        )
    await _check_files(client, files, uploads)
    project = stored.project
    examples = json.dumps([each.model_dump() for each in project.exemplos], ensure_ascii=False)
    criteria = Criteria(
        taxonomia=project.taxonomia,
        prompt=project.prompt,
        modelo=project.modelo,
        confianca_minima=project.confianca_minima,
        exemplos=await client.files.save(examples.encode(), tenant=stored.id, name="exemplos.json")
        if project.exemplos
        else None,
    )
    started = await client.start(
        classification,
        Batch(
            criterios=criteria,
            documentos=number_documents(uploads),
            nome=name,
            max_retries=project.max_retries_execucao,
            max_retries_documento=project.max_retries_documento,
        ),
        tenant=stored.id,
        key=key,
        resumes=project.max_retries_execucao,
        retries=project.max_retries_documento,
        webhook=None if webhook_url is None else Webhook(webhook_url, events=WEBHOOK_EVENTS),
    )
    return await client.runs.get(started.id)


async def _check_files(client: Client, files: FileStore, uploads: Sequence[Upload]) -> None:
    """Raise InvalidInput for a file that the caller has not uploaded. It does not say whether somebody else has."""
    for upload in uploads:
        if (upload.arquivo is None) == (upload.recusa is None):
            raise InvalidInput(N_("send %(name)s exactly as /arquivos returned it"), name=f"{upload.nome!r:.120}")
    sent = [(upload.nome, upload.arquivo) for upload in uploads if upload.arquivo is not None]
    foreign = set(await client.files.list_foreign(file for _, file in sent))
    for at in range(0, len(sent), BATCH_SIZE):
        some = sent[at : at + BATCH_SIZE]
        exist = await asyncio.gather(*(files.has(file) for _, file in some))
        for (name, file), is_stored in zip(some, exist, strict=True):
            if not is_stored or file.file in foreign:
                raise InvalidInput(
                    N_("the file of %(name)s was not found: send it to /arquivos first"), name=f"{name!r:.120}"
                )


async def get_run(client: Client, execution: UUID) -> Run:
    """Return an execution. Raise NotFound if there is none."""
    try:
        run = await client.runs.get(execution)
    except NotFound:
        raise _execution_not_found(execution) from None
    if run.pipeline != classification.name:
        raise _execution_not_found(execution)
    return run


def _execution_not_found(execution: UUID) -> NotFound:
    return NotFound(N_("there is no execution %(execution)s"), execution=execution)


async def resume_execution(client: Client, execution: UUID, *, by: str, key: str | None = None) -> None:
    """Resume an execution. Does nothing if it is running or has succeeded."""
    try:
        await client.runs.resume(execution, by=by, key=key)
    except RunBusy:
        state = (await client.runs.get(execution)).state
        if state not in (RunState.COMPLETED, RunState.COMPLETED_WITH_ERRORS):
            raise


async def rerun_errors(client: Client, run: Run, *, by: str, key: str | None) -> int:
    """Classify the failed documents again and return how many. A failed execution resumes with all pending ones."""
    resuming = key and f"resume {key}"
    was_resumed = resuming is not None and await client.runs.has_action(run.id, resuming)
    if was_resumed or (run.state is RunState.FAILED and not (key and await client.runs.has_action(run.id, key))):
        counts = (await get_execution(client, run)).counts
        await resume_execution(client, run.id, by=by, key=resuming)
        return counts["ERRO"] + counts["PENDENTE"]
    return (await client.runs.rerun_failed(run.id, by=by, key=key)).jobs


class Execution:
    """An execution with its current counts.

    Pages cache many of these, so it drops its input: `batch` has neither criteria nor documents.
    """

    def __init__(self, run: Run, totals: ItemTotals, stuck: StuckRun | None) -> None:
        batch = run.input if isinstance(run.input, dict) else {}
        self.run = replace(run, input=None)
        self.totals = totals
        self.stuck = stuck
        self.batch = {name: batch[name] for name in batch.keys() - {"criterios", "documentos"}}
        self.total = len(batch.get("documentos", ()))
        """The documents of the execution, including those without jobs yet."""

    @property
    def status(self) -> Status:
        has_started = any(
            count for state, count in self.totals.states.items() if DOCUMENT_STATUS_BY_JOB_STATE[state] != "PENDENTE"
        )
        return status_of(self.run.state, started=has_started)

    @property
    def name(self) -> str:
        return str(self.batch.get("nome") or "")

    @property
    def counts(self) -> dict[DocumentStatus, int]:
        counts: dict[DocumentStatus, int] = dict.fromkeys(DOCUMENT_STATUSES, 0)
        for state, count in self.totals.states.items():
            counts[DOCUMENT_STATUS_BY_JOB_STATE[state]] += count
        counts["PENDENTE"] += self.total - sum(counts.values())
        return counts

    @property
    def finished_count(self) -> int:
        counts = self.counts
        return counts["CONCLUIDO"] + counts["ERRO"] + counts["PULADO"]

    @property
    def last_progress_at(self) -> datetime | None:
        """When a document last finished."""
        return self.totals.last_at

    def to_json(self) -> dict[str, Any]:
        return {
            "id": str(self.run.id),
            "projeto": self.run.tenant,
            "nome": self.name,
            "status": self.status,
            "rodada": self.run.revision,
            "total": self.total,
            "processados": self.finished_count,
            "contagem": self.counts,
            "criado_em": format_time(self.run.created_at),
            "terminado_em": format_time(self.run.ended_at),
            "rota": self.batch.get("rota", ROUTE),
        }


async def get_execution(client: Client, run: Run) -> Execution:
    stuck = await client.runs.list_stuck(run=run.id) if run.state == "stuck" else []
    return Execution(run, await client.runs.get_item_totals(run.id, DOCUMENTS_STEP), stuck[0] if stuck else None)


async def get_status_details(client: Client, run: Run) -> dict[str, Any]:
    """`GET /execucoes/{id}/status-detalhado`."""
    execution = await get_execution(client, run)
    failed = await client.runs.list_items(run.id, DOCUMENTS_STEP, states=[JobState.FAILED], limit=MAX_LISTED_ERRORS)
    return execution.to_json() | {
        "ultimo_heartbeat": format_time(execution.last_progress_at),
        "ultimo_codigo_processado": execution.totals.last_item,
        "tentativas_retry": await client.runs.count_resumes(run.id),
        "max_retries": execution.batch.get("max_retries", 0),
        "max_retries_documento": execution.batch.get("max_retries_documento", 0),
        "erros": [document_to_json(each) for each in failed],
        "travamento": await get_stuck_details(client, run),
        "esperando": [] if run.is_over else [wait.explanation for wait in await client.runs.list_waits(run.id)],
    }


async def get_stuck_details(client: Client, run: Run) -> dict[str, Any] | None:
    """Return why it is stuck, or why it was given up."""
    if run.state not in (RunState.STUCK, RunState.FAILED):
        return None
    episodes = await client.runs.list_events(run.id, kinds=["stuck"])
    if not episodes:
        return None
    episode = episodes[-1].data
    why = episode.get("explanation") or _describe_stall(episode)
    return {"desde": format_time(episodes[-1].at), "causa": episode.get("cause"), "motivo": why, "detalhes": episode}


def _describe_stall(episode: dict[str, Any]) -> str:
    step, item = episode.get("step"), episode.get("item")
    where = f": {step} of {item} is running past its limit" if item else ""
    return f"no document has finished within the time limit{where}"


def document_to_json(item: ItemStatus, min_confidence: float = 0.0) -> dict[str, Any]:
    """Return a document under the API's own names."""
    value = Document.model_validate(item.value)
    found = None if item.output is None else Classification.model_validate(item.output)
    error = item.error or {}
    status = DOCUMENT_STATUS_BY_JOB_STATE[item.state]
    code = item.code if status == "ERRO" else error.get("code")
    return {
        "codigo": item.item,
        "status": status,
        "tentativas": 0 if value.duplicado_de else item.attempt,
        "erro_codigo": code,
        "erro_mensagem": explain_in_portuguese(code) or error.get("message"),
        "erro_detalhe": error.get("message"),
        "erro_stack": error.get("stack"),
        "ultimo_erro_em": format_time(item.error_at),
        **(found.model_dump() if found else _NO_LABEL),
        "rever": bool(found and is_unsure(found, min_confidence)),
        "duplicado_de": value.duplicado_de,
        "tamanho": value.arquivo.size if value.arquivo else None,
    }


async def list_documents(
    client: Client,
    run: Run,
    *,
    status: DocumentStatus | None = None,
    search: str | None = None,
    only: Sequence[str] | None = None,
    after: int = -1,
    limit: int = 100,
) -> tuple[list[dict[str, Any]], int | None]:
    """Return a page of documents, and the position after which the next page begins."""
    states = None if status is None else job_states_of(status)
    items = await client.runs.list_items(
        run.id, DOCUMENTS_STEP, states=states, search=search, only=only, after=after, limit=limit + 1
    )
    min_confidence = float((run.input or {}).get("criterios", {}).get("confianca_minima", 0))
    next_after = items[limit - 1].position if len(items) > limit else None
    return [document_to_json(item, min_confidence) for item in items[:limit]], next_after


async def get_label_summary(client: Client, run: Run) -> dict[str, Any] | None:
    """Return the summary of a finished execution, or None before."""
    jobs = await client.runs.list_step_jobs(run.id, "summary", limit=1)
    return jobs[0].output if jobs else None


async def correct_label(client: Client, run: Run, code: str, label: str, *, by: str, summarize: bool = True) -> None:
    """Replace the model's label with a person's. The model's label is kept in `rotulo_modelo`.

    Without `summarize`, the summary stays as it is until the next correction.
    """
    known = [each["rotulo"] for each in run.input["criterios"]["taxonomia"]]
    if label not in known:
        raise InvalidInput(N_("%(label)s is not in the taxonomy of this execution"), label=f"{label!r:.120}")
    if not run.is_over:
        raise RunBusy(f"execution {run.id} is {run.state}: correct its labels once it has ended")
    items = await client.runs.list_items(run.id, DOCUMENTS_STEP, only=[code], limit=1)
    previous = Classification.model_validate(items[0].output) if items and items[0].output else None
    suggested = previous and (previous.rotulo_modelo if previous.corrigido else previous.rotulo)
    corrected = Classification(
        rotulo=label, corrigido=True, rotulo_modelo=suggested, modelo=previous.modelo if previous else ""
    )
    await client.runs.edit(run.id, LABEL_STEP, corrected, item=code, by=by, downstream=summarize)


def format_time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
