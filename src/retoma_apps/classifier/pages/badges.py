"""Icons and colours of statuses. No colour is the only sign of a status."""

from __future__ import annotations

from typing import NamedTuple

from retoma_apps.classifier.states import DocumentStatus, Status


class Badge(NamedTuple):
    icon: str
    colour: str


EXECUTION_BADGES: dict[Status, Badge] = {
    "PENDENTE": Badge("ring", "wait"),
    "EM_ANDAMENTO": Badge("run", "run"),
    "TRAVADO": Badge("stuck", "stuck"),
    "CONCLUIDO": Badge("check", "ok"),
    "CONCLUIDO_COM_ERROS": Badge("checkpart", "warn"),
    "ERRO": Badge("fail", "fail"),
    "CANCELADO": Badge("cancel", "wait"),
}
DOCUMENT_BADGES: dict[DocumentStatus, Badge] = {
    "PENDENTE": Badge("dash", "wait"),
    "PROCESSANDO": Badge("run", "run"),
    "CONCLUIDO": Badge("check", "ok"),
    "ERRO": Badge("fail", "fail"),
    "PULADO": Badge("skip", "wait"),
}
NEEDS_CHECK_BADGE = Badge("hand", "human")
# In the order of the bar, with the class that fills a part of it.
BAR_FILLS: dict[DocumentStatus, str] = {
    "CONCLUIDO": "f-ok",
    "PULADO": "f-skip",
    "ERRO": "f-fail",
    "PROCESSANDO": "f-run",
    "PENDENTE": "f-wait",
}
