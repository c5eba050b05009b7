"""Icons and colours of statuses. No colour is the only sign of a status."""

from __future__ import annotations

from retoma.server import BadgeStyle
from retoma_apps.classifier.states import DocumentStatus, Status

EXECUTION_BADGES: dict[Status, BadgeStyle] = {
    "PENDENTE": BadgeStyle("ring", "wait"),
    "EM_ANDAMENTO": BadgeStyle("run", "run"),
    "TRAVADO": BadgeStyle("stuck", "stuck"),
    "CONCLUIDO": BadgeStyle("check", "ok"),
    "CONCLUIDO_COM_ERROS": BadgeStyle("checkpart", "warn"),
    "ERRO": BadgeStyle("fail", "fail"),
    "CANCELADO": BadgeStyle("cancel", "wait"),
}
DOCUMENT_BADGES: dict[DocumentStatus, BadgeStyle] = {
    "PENDENTE": BadgeStyle("dash", "wait"),
    "PROCESSANDO": BadgeStyle("run", "run"),
    "CONCLUIDO": BadgeStyle("check", "ok"),
    "ERRO": BadgeStyle("fail", "fail"),
    "PULADO": BadgeStyle("skip", "wait"),
}
NEEDS_CHECK_BADGE = BadgeStyle("hand", "human")
# In the order of the bar, with the class that fills a part of it.
BAR_FILLS: dict[DocumentStatus, str] = {
    "CONCLUIDO": "f-ok",
    "PULADO": "f-skip",
    "ERRO": "f-fail",
    "PROCESSANDO": "f-run3",
    "PENDENTE": "f-wait",
}
