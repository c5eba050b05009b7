"""The page of one review: its subject, its forms and its history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from starlette.responses import Response

from retoma import timecodes
from retoma.define.file import File, find_files
from retoma.define.graph import Graph
from retoma.engine.reviews import Decision, get_feedback_form, get_form, has_form
from retoma.errors import (
    AlreadyDecided,
    Conflict,
    FeedbackNotSupported,
    InvalidInput,
    KeyReused,
    RetomaError,
    SendBackNotAllowed,
)
from retoma.records import Review, Run, Subject
from retoma.server.pages import differences, forms, review_history
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import HEADERS, PageContext
from retoma.server.pages.review_summary import build_file_url, describe_decision, explain_conflict, get_urgency
from retoma.states import JobState
from retoma.translations import N_

UNDO_PERIOD = timedelta(seconds=10)
MAX_ITEMS = 200  # that are offered to be sent back one by one
MAX_ASSIGNEE_LENGTH = 200
NO_REVISION = 0  # no revision has this number
FEEDBACK_PREFIX = "feedback"
PLAYABLE_MEDIA = ("audio/", "video/")
HIDDEN_FIELDS = ("csrf", "action", "seen", "key")  # by every form, and typed by nobody
MAX_REPLACED_FILES = 50  # files that are shown next to their previous version
FIELD_LABELS = {
    "notes": N_("Notes"),
    "comments": N_("Timed comments"),
    "to": N_("Send back to"),
    "items": N_("Items"),
}
NOTES_REQUIRED = {
    "send_back": N_("Say what should be improved."),
    "reject": N_("Give a reason for the rejection."),
}


@dataclass(frozen=True)
class RejectedForm:
    """A submitted form that was rejected: its action, its fields and why."""

    action: str
    submitted: Mapping[str, str]
    errors: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    winner: Review | None = None
    items: tuple[str, ...] = ()


async def show_review(context: PageContext, status: int = 200, rejected: RejectedForm | None = None) -> Response:
    client = context.client
    review = await client.reviews.get(context.get_path_id("review"))
    context.use_application_of(review.pipeline)
    run, last = await client.runs.get(review.run), await client.runs.get_last_event_id(review.run)
    graph = await client.runs.get_graph(run)
    subjects = await client.reviews.get_subjects(review)
    previous = await _find_previous(context, review, graph, subjects)
    fields = (
        forms.visible_fields(_fill_fields(_build_fields(context, review, subjects), rejected)) if review.is_open else []
    )
    feedback_fields = forms.visible_fields(_fill_feedback_fields(context, review, rejected)) if review.is_open else []
    now = await client.now()
    seen: dict[str, Any] = {"review": review, "run": run, "subjects": subjects, "previous": previous, "now": now}
    submitted = rejected.submitted if rejected else {}
    content = await _render_application_content(context, [*fields, *feedback_fields], submitted, **seen)
    return context.render(
        "review.html",
        status,
        **seen,
        content=content,
        file_url=lambda file: build_file_url(run, file),
        kept=context.application is not None and context.application.files is not None,
        last_event=last,
        changes={step: differences.diff_results(previous[step].value, subjects[step].value) for step in previous},
        replaced={step: _find_replaced_files(previous[step], subjects[step]) for step in previous},
        edited=_diff_edit(context, review, subjects),
        written=_list_lost_input(context, review, subjects, rejected),
        spent=await client.costs.get_totals(by=(), run=run.id),
        urgency=get_urgency,
        describe_decision=describe_decision,
        has_form=has_form(review, context.find_pipeline(review.pipeline)),
        fields=[each for each in fields if not _contains_field(content, each)],
        feedback_fields=[each for each in feedback_fields if each.error or not _contains_field(content, each)],
        invalid_above=[each for each in fields if each.error and _contains_field(content, each)],
        rejected=rejected,
        items=await _list_items(context, review, graph) if review.is_open else [],
        takes_comments=_takes_comments(context, review, subjects),
        history=await review_history.list_history(context, review),
        feedback_text=review_history.format_review_feedback(context, review),
        next=await _find_next_review(context, review),
    )


async def decide_review(context: PageContext) -> Response:
    """Decide the review. A rejected form is shown again as it was filled in."""
    review = await context.client.reviews.get(context.get_path_id("review"))
    context.use_application_of(review.pipeline)
    action = context.fields.get("action", "")
    if action not in ("approve", "edit", "send_back", "reject"):
        raise InvalidInput(context.gettext("This form does not name an action."))
    fields = await _find_submitted_fields(context, review, action)
    value, errors = forms.parse_form(fields, context.fields)
    if errors:
        return await _show_rejected_form(context, action, 422, errors=context.translate_errors(errors))
    try:
        await context.client.reviews.decide(review.id, _build_decision(context, review, action, value))
    except RetomaError as error:
        return await _explain_refusal(context, action, fields, error)
    return context.redirect(f"/reviews/{review.id}")


async def undo_decision(context: PageContext) -> Response:
    review = context.get_path_id("review")
    try:
        await context.client.reviews.undo(review, by=context.by)
    except Conflict:
        return context.redirect(f"/reviews/{review}", "too_late")
    return context.redirect(f"/reviews/{review}", "undone")


async def claim_review(context: PageContext) -> Response:
    """Show others that this person is reviewing it."""
    review = context.get_path_id("review")
    await context.client.reviews.claim(review, by=context.by)
    return (
        Response(status_code=204, headers=HEADERS)
        if context.fields.get("quiet")
        else context.redirect(f"/reviews/{review}")
    )


async def assign_review(context: PageContext) -> Response:
    review, assignee = context.get_path_id("review"), context.fields.get("assignee", "").strip()[:MAX_ASSIGNEE_LENGTH]
    await context.client.reviews.assign(review, assignee or None, by=context.by)
    return context.redirect(f"/reviews/{review}", "assigned")


def _contains_field(content: str, field: forms.Field) -> bool:
    return f'name="{field.name}"' in content or f'name="{field.name}.' in content


async def _render_application_content(
    context: PageContext,
    fields: list[forms.Field],
    submitted: Mapping[str, str],
    *,
    review: Review,
    run: Run,
    **seen: Any,
) -> str:
    """Render the application's own template for this review, or nothing if it has none."""
    application = context.application
    template = application.review_templates.get(review.step) if application else None
    if application is None or template is None:
        return ""
    own = await application.review_values(context, review) if application.review_values else {}
    return context.render_to_string(
        template,
        review=review,
        run=run,
        submitted=defaultdict(str, {**submitted, **{each.name: each.text for each in fields}}),
        errors=defaultdict(str, {each.name: each.error for each in fields}),
        file_url=lambda file: build_file_url(run, file),
        **seen,
        **own,
    )


def _list_files(review: Review, subjects: Mapping[str, Subject]) -> Iterator[File]:
    return find_files([*(subject.value for subject in subjects.values()), review.reason])


async def _find_previous(
    context: PageContext, review: Review, graph: Graph, subjects: Mapping[str, Subject]
) -> dict[str, Subject]:
    """Return the previous revision of each subject that has one."""
    each = {step.name for step in graph.steps if step.each}
    found: dict[str, Subject] = {}
    for step, subject in subjects.items():
        for earlier in await context.client.runs.get_step_history(
            review.run, step, review.item if step in each else ""
        ):
            if earlier.revision < subject.revision and earlier.state is JobState.SUCCEEDED:
                found[step] = Subject(step, earlier.revision, earlier.output)
                break
    return found


def _find_replaced_files(previous: Subject, current: Subject) -> list[tuple[Any, Any]]:
    return list(islice(differences.find_replaced_files(previous.value, current.value), MAX_REPLACED_FILES))


def _diff_edit(context: PageContext, review: Review, subjects: Mapping[str, Subject]) -> differences.Difference | None:
    """Compare the approved value with the result that a person edited, if they did."""
    if review.value is None or has_form(review, context.find_pipeline(review.pipeline)):
        return None
    return next((differences.diff_results(value, review.value) for value in _current_values(review, subjects)), None)


def _list_lost_input(
    context: PageContext, review: Review, subjects: Mapping[str, Subject], rejected: RejectedForm | None
) -> list[tuple[str, str]]:
    """List what the second reviewer had filled in, with the label of each field."""
    if rejected is None or rejected.winner is None:
        return []
    fields = [*_build_fields(context, review, subjects), *_build_feedback_fields(context, review)]
    labels = {each.name: each.label for each in forms.iterate_controls(fields)}
    labels |= {name: context.translate(label) for name, label in FIELD_LABELS.items()}
    chosen = {"items": "\n".join(rejected.items), "to": context.get_step_label(rejected.submitted.get("to", ""))}
    submitted = {**rejected.submitted, **chosen}
    return [
        (labels.get(name) or name, text)
        for name, text in submitted.items()
        if name not in HIDDEN_FIELDS and text.strip()
    ]


def _build_fields(context: PageContext, review: Review, subjects: Mapping[str, Subject]) -> list[forms.Field]:
    """Return the fields of the approved value; none if this server does not know its type."""
    pipeline = context.find_pipeline(review.pipeline)
    form = get_form(review, pipeline)
    if form is None:
        return []
    schema = forms.build_schema(form) or {}
    if has_form(review, pipeline):
        return forms.build_fields(schema, _suggest_values(schema, subjects), translate=context.gettext)
    return forms.build_fields(schema, *_current_values(review, subjects), translate=context.gettext)


def _build_feedback_fields(context: PageContext, review: Review) -> list[forms.Field]:
    """Return the fields of the feedback form, besides the notes."""
    form = get_feedback_form(review, context.find_pipeline(review.pipeline))
    return (
        []
        if form is None
        else forms.build_fields(forms.build_schema(form), name=FEEDBACK_PREFIX, translate=context.gettext)
    )


def _takes_comments(context: PageContext, review: Review, subjects: Mapping[str, Subject]) -> bool:
    """Return whether there is audio or video to comment on and the feedback form does not say `comments: false`."""
    form = get_feedback_form(review, context.find_pipeline(review.pipeline))
    is_played = any(file.media_type.startswith(PLAYABLE_MEDIA) for file in _list_files(review, subjects))
    return is_played and (forms.build_schema(form) or {}).get("comments") is not False


def _fill_feedback_fields(context: PageContext, review: Review, rejected: RejectedForm | None) -> list[forms.Field]:
    fields = _build_feedback_fields(context, review)
    return (
        forms.fill_fields(fields, rejected.submitted, rejected.errors)
        if rejected and rejected.action == "send_back"
        else fields
    )


async def _find_submitted_fields(context: PageContext, review: Review, action: str) -> list[forms.Field]:
    """Return the fields of the submitted form."""
    if action == "send_back":
        return _build_feedback_fields(context, review)
    return (
        _build_fields(context, review, await context.client.reviews.get_subjects(review))
        if _takes_value(context, review, action)
        else []
    )


def _current_values(review: Review, subjects: Mapping[str, Subject]) -> list[Any]:
    """Return the value that is approved without an edit, if there is exactly one."""
    if not review.planned:
        return [review.reason["value"]] if "value" in (review.reason or {}) else []
    return [next(iter(subjects.values())).value] if len(subjects) == 1 else []


def _suggest_values(schema: Mapping[str, Any], subjects: Mapping[str, Subject]) -> dict[str, Any]:
    """Return texts and numbers of the subjects under the names of the form's fields."""
    known: dict[str, Any] = {}
    for subject in subjects.values():
        if isinstance(subject.value, dict):
            known = subject.value | known
    names = [name for name, part in schema.get("properties", {}).items() if part.get("default") is None]
    return {name: known[name] for name in names if isinstance(known.get(name), str | int | float)}


async def _list_items(context: PageContext, review: Review, graph: Graph) -> list[str]:
    """List items of a step to which the review can be sent back."""
    sources = {step.name: step.source for step in graph.steps if step.each}
    source = next((sources[step] for step in review.can_send_back_to if step in sources), None)
    if source is None or review.item:
        return []
    return [item.item for item in await context.client.runs.list_items(review.run, source, limit=MAX_ITEMS)]


async def _find_next_review(context: PageContext, review: Review) -> UUID | None:
    """Return another open review, of the same kind if possible."""
    for step in (review.step, None):
        for each in await context.client.reviews.list(step=step, limit=2):
            if each.id != review.id:
                return each.id
    return None


def _takes_value(context: PageContext, review: Review, action: str) -> bool:
    return action == "edit" or (action == "approve" and has_form(review, context.find_pipeline(review.pipeline)))


def _build_decision(context: PageContext, review: Review, action: str, value: Any) -> Decision:
    submitted = context.fields
    seen = submitted.get("seen", "")
    decision = Decision(
        "approve" if action == "edit" else action,
        by=context.by,
        seen=int(seen) if seen.isascii() and seen.isdigit() and len(seen) < 10 else NO_REVISION,
        notes=submitted.get("notes", "").replace("\r\n", "\n").strip(),
        key=context.idempotency_key,
        via="page",
        undo=UNDO_PERIOD,
    )
    if _takes_value(context, review, action):
        return replace(decision, value=value)
    if action == "send_back":
        comments = list(timecodes.parse_comments(submitted.get("comments", "")))
        items = context.get_field_values("items") or None
        return replace(decision, to=submitted.get("to") or None, items=items, comments=comments, extra=value)
    return decision


async def _explain_refusal(
    context: PageContext, action: str, fields: list[forms.Field], error: RetomaError
) -> Response:
    about: dict[str, Any]
    match error:
        case AlreadyDecided():
            about = {"winner": error.winner}
        case KeyReused():  # they went back to their form, and decide otherwise
            about = {"winner": await context.client.reviews.get(context.get_path_id("review"))}
        case Conflict():
            about = {"error": explain_conflict(context, error)}
        case SendBackNotAllowed():
            unknown_step = context.gettext(
                "The selected step does not lead to this review, or it does not have the selected items: choose "
                "another step."
            )
            about = {"error": unknown_step}
        case FeedbackNotSupported():
            about = {"error": context.translate_error(error)}
        case InvalidInput():
            errors, cause = context.translate_validation_errors(fields, error), error.__cause__
            if cause and not isinstance(cause, ValidationError) and len(fields) == 1:
                errors = {fields[0].name: str(cause)}
            about = {"errors": errors, "error": "" if errors else _explain_invalid(context, action, error)}
        case _:
            raise error
    return await _show_rejected_form(context, action, 409 if isinstance(error, Conflict) else 422, **about)


async def _show_rejected_form(context: PageContext, action: str, status: int, **about: Any) -> Response:
    return await show_review(
        context, status, RejectedForm(action, context.fields, items=tuple(context.get_field_values("items")), **about)
    )


def _explain_invalid(context: PageContext, action: str, error: InvalidInput) -> str:
    no_notes = action in NOTES_REQUIRED and not context.fields.get("notes", "").strip()
    return context.translate(NOTES_REQUIRED[action]) if no_notes else str(error)


def _fill_fields(fields: list[forms.Field], rejected: RejectedForm | None) -> list[forms.Field]:
    """Fill the fields with the submitted text, unless another form was submitted."""
    if rejected is None or rejected.action not in ("approve", "edit"):
        return fields
    has_typed = any(each.name in rejected.submitted for each in forms.iterate_controls(fields))
    return forms.fill_fields(fields, rejected.submitted, rejected.errors) if has_typed else fields


# Reloading a rejected form shows the review.
PAGES = (
    Page("/reviews/{review}", show_review, decide_review),
    Page("/reviews/{review}/undo", submit=undo_decision),
    Page("/reviews/{review}/claim", submit=claim_review),
    Page("/reviews/{review}/assign", submit=assign_review),
)
