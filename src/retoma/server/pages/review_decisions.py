"""What a reviewer does with one review: decide, undo, claim, assign."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from starlette.responses import HTMLResponse, JSONResponse, Response

from retoma.client.reviews import REVIEW_CLAIM
from retoma.errors import Conflict, InvalidInput, NotFound, RetomaError
from retoma.records import Review
from retoma.server.pages import forms, inbox, review_drafts, review_form
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import HEADERS, NOTICES, PageContext, parse_number
from retoma.server.pages.review_form import FormInput
from retoma.server.pages.review_panes import render_panes

MAX_ASSIGNEE_LENGTH = 200
NO_COMMENT = 10**9  # no comment has this position


async def decide_review(context: PageContext) -> Response:
    """Decide the review. A refused form is shown again as it was filled in."""
    review = await context.client.reviews.get(context.get_path_id("review"))
    context.use_application_of(review.pipeline)
    action = review_form.read_action(context)
    if review.is_open:  # an undo gives back everything that was typed
        await review_drafts.keep_input(context, review, action)
    fields = await review_form.list_submitted_fields(context, review, action)
    value, errors = forms.parse_form(fields, context.fields)
    if errors:
        refused = review_form.read_input(context, action, errors=context.translate_errors(errors))
        return await _show_refused(context, review, refused)
    try:
        decided = await context.client.reviews.decide(
            review.id, review_form.build_decision(context, review, action, value)
        )
    except RetomaError as error:
        return await _show_refused(
            context, review, await review_form.explain_refusal(context, review, action, fields, error)
        )
    return await _show_decided(context, decided)


async def undo_decision(context: PageContext) -> Response:
    review = context.get_path_id("review")
    try:
        await context.client.reviews.undo(review, by=context.by)
    except Conflict:
        return _answer_undo(context, review, "too_late", 409)
    return _answer_undo(context, review, "undone", 200)


async def claim_review(context: PageContext) -> Response:
    """Show others that this person is reviewing it, or no longer."""
    review = context.get_path_id("review")
    duration = timedelta() if context.fields.get("release") else REVIEW_CLAIM
    await context.client.reviews.claim(review, by=context.by, duration=duration)
    return (
        Response(status_code=204, headers=HEADERS)
        if context.fields.get("quiet")
        else context.redirect(f"/reviews/{review}", **inbox.read_filters(context))
    )


async def assign_review(context: PageContext) -> Response:
    review, assignee = context.get_path_id("review"), context.fields.get("assignee", "").strip()[:MAX_ASSIGNEE_LENGTH]
    try:
        await context.client.reviews.assign(review, assignee or None, by=context.by)
    except InvalidInput:
        return context.redirect(f"/reviews/{review}", "assignee_unknown", **inbox.read_filters(context))
    return context.redirect(f"/reviews/{review}", "assigned", **inbox.read_filters(context))


async def set_comment_resolved(context: PageContext) -> Response:
    """Mark a comment of an earlier revision as resolved, or as open again."""
    review, fields = context.get_path_id("review"), context.fields
    try:
        sent_back, position = UUID(fields.get("of", "")), parse_number(fields.get("position", ""), NO_COMMENT)
    except ValueError:
        raise NotFound(context.gettext("This is not a valid id.")) from None
    await context.client.reviews.resolve_comment(
        sent_back, position, by=context.by, resolved=bool(fields.get("resolved"))
    )
    return context.redirect(f"/reviews/{review}", anchor="carried", **inbox.read_filters(context))


async def _show_refused(context: PageContext, review: Review, typed: FormInput) -> Response:
    """Show the form again. A page that is open gets only its panes."""
    status = 409 if typed.is_conflict else 422
    current = typed.winner or review
    if not context.wants_json:
        context.application = None
        return await inbox.render_inbox(context, current, typed, status)
    return HTMLResponse(await render_panes(context, current, typed), status, HEADERS)


async def _show_decided(context: PageContext, decided: Review) -> Response:
    """Open the next review of the filter. A page that is open does so itself."""
    if context.wants_json:
        undoable = [
            each for each in await context.client.reviews.list_undoable(by=context.by) if each.entry.id == decided.id
        ]
        toast = (
            context.render_to_string("undo_toast.html", decisions=undoable, now=await context.client.now())
            if undoable
            else ""
        )
        return JSONResponse({"review": str(decided.id), "state": decided.state, "toast": toast}, headers=HEADERS)
    context.application = None
    following = await inbox.find_next(context, decided.id)
    return context.redirect(f"/reviews/{following}" if following else "/reviews", **inbox.read_filters(context))


def _answer_undo(context: PageContext, review: UUID, notice: str, status: int) -> Response:
    if context.wants_json:
        return JSONResponse({"notice": context.translate(NOTICES[notice])}, status, HEADERS)
    return context.redirect(f"/reviews/{review}", notice, **inbox.read_filters(context))


# Reloading a refused form shows the review.
PAGES = (
    Page("/reviews/{review}", inbox.show_review, decide_review, submit_scope="reviews:write"),
    Page("/reviews/{review}/undo", submit=undo_decision, submit_scope="reviews:write"),
    Page("/reviews/{review}/claim", submit=claim_review, submit_scope="reviews:write"),
    Page("/reviews/{review}/assign", submit=assign_review, submit_scope="reviews:write"),
    Page("/reviews/{review}/comments", submit=set_comment_resolved, submit_scope="reviews:write"),
)
