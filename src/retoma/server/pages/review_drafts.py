"""What a person has typed into the form of a review and not sent: saved while they type, and shown again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from starlette.responses import Response

from retoma.engine import inbox_state
from retoma.records import Review
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import HEADERS, PageContext
from retoma.server.pages.review_form import ACTIONS, HIDDEN_FIELDS, FormInput
from retoma.server.problems import Problem

MAX_DRAFT_BYTES = 512 * 1024


async def save_draft(context: PageContext) -> Response:
    review = await context.client.reviews.get(context.get_path_id("review"))
    if not await keep_input(context, review, context.fields.get("mode", "")):
        raise Problem(413, "FORM_TOO_LARGE", f"a draft has at most {MAX_DRAFT_BYTES:,} bytes")
    return Response(status_code=204, headers=HEADERS)


async def keep_input(context: PageContext, review: Review, action: str) -> bool:
    """Keep the submitted form as the viewer's draft. Return whether it was small enough."""
    typed = [pair for pair in context.form_pairs if pair[0] not in (*HIDDEN_FIELDS, "mode")]
    draft = {"action": action if action in ACTIONS else "", "fields": typed}
    if len(json.dumps(draft)) > MAX_DRAFT_BYTES:
        return False
    await inbox_state.save_draft(context.client.database, review.id, context.viewer, draft)
    return True


async def load_input(context: PageContext, review: Review) -> FormInput:
    """Return the viewer's draft; nothing if there is none, or if it has become their decision."""
    found = await inbox_state.find_draft(context.client.database, review.id, context.viewer)
    if found is None or (not review.is_open and review.decided_by == context.by):
        return FormInput()
    pairs = list(_list_pairs(found.get("fields")))
    items, reasons = (tuple(value for name, value in pairs if name == each) for each in ("items", "reasons"))
    return FormInput(str(found.get("action", "")), dict(pairs), items, reasons)


def _list_pairs(fields: Any) -> Iterable[tuple[str, str]]:
    return ((str(name), str(value)) for name, value in fields or ())


PAGES = (Page("/reviews/{review}/draft", submit=save_draft, submit_scope="reviews:write"),)
