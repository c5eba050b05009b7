"""Executions: how one begins, and how it and its documents are shown, by the names that their users know."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from retoma import Client, Webhook
from retoma.errors import NotFound, RunBusy
from retoma.files import FileStore
from retoma.records import Item, ItemTotals, Run, Stuck
from retoma.states import JobState, RunState
from retoma_apps.classifier.errors import Missing, Refused
from retoma_apps.classifier.models import MOST_DOCUMENTS, ROUTE, Batch, Classification, Criteria, Document
from retoma_apps.classifier.pipeline import classification, is_unsure
from retoma_apps.classifier.problems import explain_in_portuguese
from retoma_apps.classifier.projects import StoredProject
from retoma_apps.classifier.states import (
    DOCUMENT_STATUS_BY_JOB_STATE,
    DOCUMENT_STATUSES,
    DocumentStatus,
    Status,
    job_states_of,
    status_of,
)
from retoma_apps.classifier.uploads import BATCH_SIZE, Upload, number_documents

DOCUMENTS_STEP = "documents"
LABEL_STEP = "label"
MAX_LISTED_ERRORS = 20
WEBHOOK_EVENTS = ("run.ended", "run.stuck")


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
    """Begin to classify these. The execution keeps the project as it is now.

    `webhook_url` is told of its end, and whenever it is stuck.
    """
    if not 1 <= len(uploads) <= MOST_DOCUMENTS:
        raise Refused(
            f"an execution takes 1 to {MOST_DOCUMENTS:,} documents; given: {len(uploads):,}",
            pt=f"uma execução tem de 1 a {MOST_DOCUMENTS} documentos; vieram {len(uploads)}",
        )
    await _check_files(files, uploads)
    project = stored.project
    examples = json.dumps([each.model_dump() for each in project.exemplos], ensure_ascii=False)
    criteria = Criteria(
        taxonomia=project.taxonomia,
        prompt=project.prompt,
        modelo=project.modelo,
        confianca_minima=project.confianca_minima,
        exemplos=await files.save(examples.encode(), name="exemplos.json") if project.exemplos else None,
    )
    begun = await client.start(
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
    return await client.runs.get(begun.id)


async def _check_files(files: FileStore, uploads: Sequence[Upload]) -> None:
    for upload in uploads:
        if (upload.arquivo is None) == (upload.recusa is None):
            raise Refused(
                f"{upload.nome!r:.120} needs what /arquivos answered for it, as it was",
                pt=f"{upload.nome!r:.120} precisa do que /arquivos respondeu, sem mudança",
            )
    sent = [(upload.nome, upload.arquivo) for upload in uploads if upload.arquivo is not None]
    for at in range(0, len(sent), BATCH_SIZE):
        some = sent[at : at + BATCH_SIZE]
        are_here = await asyncio.gather(*(files.has(file) for _, file in some))
        for (name, _), is_here in zip(some, are_here, strict=True):
            if not is_here:
                raise Refused(
                    f"the file of {name!r:.120} is not here: send it first, to /arquivos",
                    pt=f"o arquivo de {name!r:.120} não está aqui: envie-o antes, para /arquivos",
                )


async def get_run(client: Client, execution: UUID, tenant: str | None) -> Run:
    """An execution that this tenant may see. Raises NotFound."""
    try:
        run = await client.runs.get(execution, tenant=tenant)
    except NotFound:
        raise _execution_not_found(execution) from None
    if run.pipeline != classification.name:
        raise _execution_not_found(execution)
    return run


def _execution_not_found(execution: UUID) -> Missing:
    return Missing(f"there is no execution {execution}", pt=f"não há execução {execution}")


async def resume_execution(
    client: Client, execution: UUID, *, tenant: str | None, by: str, key: str | None = None
) -> None:
    """Idempotent: who asks for an execution that goes on, or has ended well, changes nothing."""
    try:
        await client.runs.resume(execution, tenant=tenant, by=by, key=key)
    except RunBusy:
        state = (await client.runs.get(execution, tenant=tenant)).state
        if state not in (RunState.COMPLETED, RunState.COMPLETED_WITH_ERRORS):
            raise


async def rerun_errors(client: Client, run: Run, *, tenant: str | None, by: str, key: str | None) -> int:
    """Classify the documents that failed again; return how many. A failed execution goes on with all that is left."""
    resuming = key and f"resume {key}"
    was_resumed = resuming is not None and await client.runs.has_action(run.id, resuming)
    if was_resumed or (run.state is RunState.FAILED and not (key and await client.runs.has_action(run.id, key))):
        counts = (await get_execution(client, run)).counts
        await resume_execution(client, run.id, tenant=tenant, by=by, key=resuming)
        return counts["ERRO"] + counts["PENDENTE"]
    return (await client.runs.rerun_failed(run.id, tenant=tenant, by=by, key=key)).jobs


async def list_runs(
    client: Client,
    *,
    project: str | None,
    states: Sequence[Any] | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> list[Run]:
    return await client.runs.list(
        tenant=project, pipeline=classification.name, states=states, before=before, limit=limit
    )


class Execution:
    """One execution with what there is to say about it now.

    Pages keep many of them, and so it lets go of its input: of that, `batch` has neither criteria nor documents.
    """

    def __init__(self, run: Run, totals: ItemTotals, stuck: Stuck | None) -> None:
        given = run.input if isinstance(run.input, dict) else {}
        self.run = replace(run, input=None)
        self.totals = totals
        self.stuck = stuck
        self.batch = {name: given[name] for name in given.keys() - {"criterios", "documentos"}}
        self.total = len(given.get("documentos", ()))
        """As the execution was given them, also before they are laid out."""

    @property
    def status(self) -> Status:
        begun = any(
            count for state, count in self.totals.states.items() if DOCUMENT_STATUS_BY_JOB_STATE[state] != "PENDENTE"
        )
        return status_of(self.run.state, started=begun)

    @property
    def name(self) -> str:
        return str(self.batch.get("nome") or "")

    @property
    def counts(self) -> dict[DocumentStatus, int]:
        found: dict[DocumentStatus, int] = dict.fromkeys(DOCUMENT_STATUSES, 0)
        for state, count in self.totals.states.items():
            found[DOCUMENT_STATUS_BY_JOB_STATE[state]] += count
        found["PENDENTE"] += self.total - sum(found.values())
        return found

    @property
    def finished_count(self) -> int:
        counts = self.counts
        return counts["CONCLUIDO"] + counts["ERRO"] + counts["PULADO"]

    @property
    def last_progress_at(self) -> datetime | None:
        """When a document was last done with."""
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
    seen = await get_execution(client, run)
    failed = await client.runs.list_items(run.id, DOCUMENTS_STEP, states=[JobState.FAILED], limit=MAX_LISTED_ERRORS)
    return seen.to_json() | {
        "ultimo_heartbeat": format_time(seen.last_progress_at),
        "ultimo_codigo_processado": seen.totals.last_item,
        "tentativas_retry": await client.runs.count_resumes(run.id),
        "max_retries": seen.batch.get("max_retries", 0),
        "max_retries_documento": seen.batch.get("max_retries_documento", 0),
        "erros": [document_to_json(each) for each in failed],
        "travamento": await get_stuck_details(client, run),
        "esperando": [] if run.is_over else [wait.explanation for wait in await client.runs.list_waits(run.id)],
    }


async def get_stuck_details(client: Client, run: Run) -> dict[str, Any] | None:
    """Why it stands still, or why it was given up."""
    if run.state not in (RunState.STUCK, RunState.FAILED):
        return None
    episodes = await client.runs.list_events(run.id, kinds=["stuck"])
    if not episodes:
        return None
    told = episodes[-1].data
    why = told.get("explanation") or _describe_stall(told)
    return {"desde": format_time(episodes[-1].at), "causa": told.get("cause"), "motivo": why, "detalhes": told}


def _describe_stall(episode: dict[str, Any]) -> str:
    step, item = episode.get("step"), episode.get("item")
    where = f": {step} of {item} goes on beyond its time" if item else ""
    return f"no document was done with for longer than it may take{where}"


def document_to_json(item: Item, min_confidence: float = 0.0) -> dict[str, Any]:
    """A document, by the names that the seed of this application gives them."""
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
        "rotulo": found.rotulo if found else None,
        "confianca": found.confianca if found else None,
        "justificativa": found.justificativa if found else None,
        "modelo": found.modelo if found else None,
        "corrigido": bool(found and found.corrigido),
        "rotulo_modelo": found.rotulo_modelo if found else None,
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
    """A page of documents, and after which position the next one begins."""
    states = None if status is None else [JobState(state) for state in job_states_of(status)]
    items = await client.runs.list_items(
        run.id, DOCUMENTS_STEP, states=states, search=search, only=only, after=after, limit=limit + 1
    )
    least = float((run.input or {}).get("criterios", {}).get("confianca_minima", 0))
    return [document_to_json(item, least) for item in items[:limit]], items[limit - 1].position if len(
        items
    ) > limit else None


async def get_label_summary(client: Client, run: Run) -> dict[str, Any] | None:
    """The summary of an execution that is over; None before."""
    jobs = await client.runs.list_step_jobs(run.id, "summary", limit=1)
    return jobs[0].output if jobs else None


async def correct_label(client: Client, run: Run, code: str, label: str, *, tenant: str | None, by: str) -> None:
    """Put a person's label in place of the model's, which stays known."""
    known = [each["rotulo"] for each in run.input["criterios"]["taxonomia"]]
    if label not in known:
        raise Refused(
            f"{label!r:.120} is not in the taxonomy of this execution",
            pt=f"{label!r:.120} não está na taxonomia desta execução",
        )
    if not run.is_over:
        raise RunBusy(f"execution {run.id} is {run.state}: its labels are corrected when it has ended")
    items = await client.runs.list_items(run.id, DOCUMENTS_STEP, only=[code], limit=1)
    former = Classification.model_validate(items[0].output) if items and items[0].output else None
    said = former and (former.rotulo_modelo if former.corrigido else former.rotulo)
    given = Classification(rotulo=label, corrigido=True, rotulo_modelo=said, modelo=former.modelo if former else "")
    await client.runs.edit(run.id, LABEL_STEP, given, item=code, tenant=tenant, by=by)


def format_time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
