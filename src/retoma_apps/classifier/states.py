"""The statuses of executions and documents in the API."""

from __future__ import annotations

from typing import Literal, get_args

from retoma.states import JobState, RunState

Status = Literal["PENDENTE", "EM_ANDAMENTO", "TRAVADO", "CONCLUIDO", "CONCLUIDO_COM_ERROS", "ERRO", "CANCELADO"]
DocumentStatus = Literal["PENDENTE", "PROCESSANDO", "CONCLUIDO", "ERRO", "PULADO"]
STATUSES: tuple[Status, ...] = get_args(Status)
DOCUMENT_STATUSES: tuple[DocumentStatus, ...] = get_args(DocumentStatus)
STATUS_BY_RUN_STATE: dict[str, Status] = {
    "pending": "PENDENTE",
    "running": "EM_ANDAMENTO",
    "paused": "EM_ANDAMENTO",
    "needs_review": "EM_ANDAMENTO",
    "stuck": "TRAVADO",
    "cancelling": "CANCELADO",
    "completed": "CONCLUIDO",
    "completed_with_errors": "CONCLUIDO_COM_ERROS",
    "failed": "ERRO",
    "rejected": "ERRO",
    "cancelled": "CANCELADO",
}
DOCUMENT_STATUS_BY_JOB_STATE: dict[str, DocumentStatus] = {
    "waiting": "PENDENTE",
    "ready": "PENDENTE",
    "running": "PROCESSANDO",
    "parked": "PROCESSANDO",
    "succeeded": "CONCLUIDO",
    "failed": "ERRO",
    "quarantined": "ERRO",
    "skipped": "PULADO",
    "cancelled": "PENDENTE",
}


def status_of(state: str, *, started: bool) -> Status:
    """Return the status. An execution is in progress once its first document is; before that it is pending."""
    status = STATUS_BY_RUN_STATE[state]
    return "PENDENTE" if status == "EM_ANDAMENTO" and not started else status


def states_of(status: Status) -> list[RunState]:
    """Return the run states in which an execution may have this status."""
    statuses = {"EM_ANDAMENTO", "PENDENTE"} if status == "PENDENTE" else {status}
    return [RunState(state) for state, mapped in STATUS_BY_RUN_STATE.items() if mapped in statuses]


def job_states_of(status: DocumentStatus) -> list[JobState]:
    return [JobState(state) for state, mapped in DOCUMENT_STATUS_BY_JOB_STATE.items() if mapped == status]
