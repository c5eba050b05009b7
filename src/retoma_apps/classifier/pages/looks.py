"""How statuses look: icons and colours of the engine's states, which no colour stands alone for."""

from __future__ import annotations

from typing import NamedTuple

from retoma_apps.classifier.states import DocumentStatus, Status


class Look(NamedTuple):
    icon: str
    colour: str


STATUSES: dict[Status, Look] = {
    "PENDENTE": Look("ring", "wait"),
    "EM_ANDAMENTO": Look("run", "run"),
    "TRAVADO": Look("stuck", "stuck"),
    "CONCLUIDO": Look("check", "ok"),
    "CONCLUIDO_COM_ERROS": Look("checkpart", "warn"),
    "ERRO": Look("fail", "fail"),
    "CANCELADO": Look("cancel", "wait"),
}
DOCUMENTS: dict[DocumentStatus, Look] = {
    "PENDENTE": Look("dash", "wait"),
    "PROCESSANDO": Look("run", "run"),
    "CONCLUIDO": Look("check", "ok"),
    "ERRO": Look("fail", "fail"),
    "PULADO": Look("skip", "wait"),
}
CHECK = Look("hand", "human")
# In the order of the bar, with the class that fills a part of it.
PARTS: dict[DocumentStatus, str] = {
    "CONCLUIDO": "f-ok",
    "PULADO": "f-skip",
    "ERRO": "f-fail",
    "PROCESSANDO": "f-run",
    "PENDENTE": "f-wait",
}
