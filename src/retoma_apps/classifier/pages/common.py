"""Values that all templates of the classifier use."""

from __future__ import annotations

from typing import Any

from retoma.server import PageContext
from retoma_apps.classifier.pages.messages import (
    DOCUMENT_COUNT_NAMES,
    DOCUMENT_STATUS_NAMES,
    FIELD_HINTS,
    FIELD_LABELS,
    NOTICES,
    STATUS_NAMES,
)


def common_values(context: PageContext) -> dict[str, Any]:
    notice = context.query.get("notice", "")
    return {
        "status_name": lambda status: context.translate(STATUS_NAMES[status]),
        "document_status_name": lambda status: context.translate(DOCUMENT_STATUS_NAMES[status]),
        "count_name": lambda status: context.translate(DOCUMENT_COUNT_NAMES[status]),
        "field_label": lambda name: context.translate(FIELD_LABELS[name]),
        "field_hint": lambda name: context.translate(FIELD_HINTS[name]),
        # The address names it, and anyone can write an address.
        "own_notice": context.translate(NOTICES[notice]) if notice in NOTICES else None,
    }
