"""The two panes that show one review: its content with the decision form, and its context."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from starlette.responses import HTMLResponse, Response

from retoma.app import App
from retoma.define.file import File, find_files
from retoma.define.graph import Graph
from retoma.engine.reviews import get_feedback_form, has_form
from retoma.records import Review, Role, Scope, Subject, get_least_role
from retoma.server.pages import forms, review_changes, review_form, review_history
from retoma.server.pages.budget_texts import describe_passed_budget
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import HEADERS, PageContext
from retoma.server.pages.result_changes import Change
from retoma.server.pages.review_drafts import load_input
from retoma.server.pages.review_form import FormInput
from retoma.server.pages.review_summary import build_file_url, describe_decision, get_urgency
from retoma.states import JobState

MAX_ITEMS = 200  # that are offered to be sent back one by one
PLAYABLE_MEDIA = ("audio/", "video/")
CHANGES_MARK = " data-changes"  # of an application's template that shows the changes in its own way
FIELD_CHOICES = "field_choices"  # the key of an application's values: the choices of a field, by its name
COMMENTS_MARK = 'name="comments"'  # of one that has the field for comments


@dataclass(frozen=True)
class Place:
    """Where a review is in the list."""

    number: int
    total: int
    previous: UUID | None
    next: UUID | None


async def show_panes(context: PageContext) -> Response:
    """Answer with both panes of a review, for a page that is open."""
    await context.load_keys()
    review = await context.client.reviews.get(context.get_path_id("review"))
    return HTMLResponse(await render_panes(context, review), headers=HEADERS)


async def render_panes(
    context: PageContext, review: Review, typed: FormInput | None = None, place: Place | None = None
) -> str:
    """Render both panes in the texts and with the templates of the review's application."""
    outer = context.application
    context.use_application_of(review.pipeline)
    try:
        values = await _load(context, review, typed or await load_input(context, review))
        return context.render_to_string("review_panes.html", **values, place=place)
    finally:
        context.application = outer


async def _load(context: PageContext, review: Review, typed: FormInput) -> dict[str, Any]:
    client = context.client
    run, last = await client.runs.get(review.run), await client.runs.get_last_event_id(review.run)
    graph = await client.runs.get_graph(run)
    subjects = await client.reviews.get_subjects(review)
    previous = await _find_previous(context, review, graph, subjects)
    own, feedback = [], []
    may_decide = context.may(Scope.REVIEWS_WRITE, review.tenant)
    can_decide = review.is_open and may_decide
    if can_decide and review.passed_budget is None:
        own = review_form.build_value_fields(context, review, subjects)
        feedback = review_form.build_feedback_fields(context, review)
    own_values = await _load_application_values(context, review)
    fields, feedback_fields = (
        forms.offer_choices(
            forms.visible_fields(review_form.fill_fields(each, typed)), own_values.get(FIELD_CHOICES, {})
        )
        for each in (own, feedback)
    )
    now = await client.now()
    seen: dict[str, Any] = {
        "review": review,
        "run": run,
        "subjects": subjects,
        "previous": previous,
        "now": now,
        "may_decide": may_decide,
        "can_decide": can_decide,
        "comments": await client.reviews.list_comments(review),
        "takes_comments": can_decide and _takes_comments(context, review, subjects),
        # In threads: the comparison of large results takes long enough to delay other requests.
        "edited": await asyncio.to_thread(_compare_edit, context, review, subjects),
    }
    content, aside = _render_application_content(
        context, review, [*fields, *feedback_fields], typed, {**seen, **own_values}
    )
    own_changes = CHANGES_MARK in content
    return {
        **seen,
        "content": content,
        "aside": aside,
        "own_changes": own_changes,
        "own_comments": COMMENTS_MARK in content,
        "requests": await review_changes.list_requests(context, review, previous),
        "step_changes": []
        if own_changes
        else await asyncio.to_thread(review_changes.list_step_changes, context, review, subjects, previous),
        "assignees": await _list_assignees(context, review) if can_decide else None,
        "decided_by_role": get_least_role(Scope.REVIEWS_WRITE),
        "reasons": review_form.list_reasons(context, review),
        "file_url": partial(build_file_url, run),
        "kept": context.application is not None and context.application.files is not None,
        "last_event": last,
        "written": review_form.list_lost_input(context, review, subjects, typed),
        "spent": await client.costs.get_totals(by=(), run=run.id),
        "budget": None
        if review.passed_budget is None
        else describe_passed_budget(context, review.passed_budget, await client.budgets.get_money(review.tenant)),
        "urgency": get_urgency,
        "describe_decision": describe_decision,
        "has_form": has_form(review, context.find_pipeline(review.pipeline)),
        "fields": [each for each in fields if not _contains_field(content, each)],
        "feedback_fields": [each for each in feedback_fields if each.error or not _contains_field(content, each)],
        "invalid_above": [each for each in fields if each.error and _contains_field(content, each)],
        "typed": typed,
        "changed": review_form.list_changed([*own, *feedback], typed),
        "items": await _list_items(context, review, graph) if can_decide else [],
        "history": await review_history.list_history(context, review),
        "feedback_text": review_history.format_review_feedback(context, review),
    }


def _contains_field(content: str, field: forms.Field) -> bool:
    return f'name="{field.name}"' in content or f'name="{field.name}.' in content


async def _load_application_values(context: PageContext, review: Review) -> Mapping[str, Any]:
    """Return the values that the application loads for its templates of this review."""
    application = context.application
    if application is None or application.review_values is None or not any(_get_templates(application, review)):
        return {}
    return await application.review_values(context, review)


def _get_templates(application: App, review: Review) -> tuple[str | None, str | None]:
    """Return the application's own templates: of the content, and of what is shown beside it."""
    return application.review_templates.get(review.step), application.review_asides.get(review.step)


def _render_application_content(
    context: PageContext, review: Review, fields: list[forms.Field], typed: FormInput, seen: Mapping[str, Any]
) -> tuple[str, str]:
    """Render the application's own templates for this review."""
    if context.application is None:
        return "", ""
    values = {
        "submitted": defaultdict(str, {**typed.submitted, **{each.name: each.text for each in fields}}),
        "submitted_items": typed.items,
        "errors": defaultdict(str, {each.name: each.error for each in fields}),
        "file_url": partial(build_file_url, seen["run"]),
        **seen,
    }
    content, aside = (
        context.render_to_string(each, **values) if each else "" for each in _get_templates(context.application, review)
    )
    return content, aside


async def _list_assignees(context: PageContext, review: Review) -> list[tuple[str, str]] | None:
    """Return value and label of each role and person that may decide it; None if there are no accounts."""
    people = await context.client.reviews.list_assignees(review.id)
    if people is None:
        return None
    least = get_least_role(Scope.REVIEWS_WRITE)
    able: list[tuple[str, str]] = [
        *((role, context.get_role_name(role)) for role in Role if role.includes(least)),
        *((each.name, each.name) for each in people),
    ]
    current = review.assignee
    return able if current is None or current in dict(able) else [*able, (current, current)]


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


def _compare_edit(context: PageContext, review: Review, subjects: Mapping[str, Subject]) -> list[Change]:
    """Compare the approved value with the result that a person edited, if they did."""
    if review.value is None or has_form(review, context.find_pipeline(review.pipeline)):
        return []
    current = review_form.list_current_values(review, subjects)
    compare = review_changes.compare_results
    return next((compare(context, review.pipeline, review.step, value, review.value) for value in current), [])


def _takes_comments(context: PageContext, review: Review, subjects: Mapping[str, Subject]) -> bool:
    """Return whether there is audio or video to comment on, the work can be sent back, and the feedback form does not
    say `comments: false`."""
    form = get_feedback_form(review, context.find_pipeline(review.pipeline))
    is_played = any(file.media_type.startswith(PLAYABLE_MEDIA) for file in _list_files(review, subjects))
    return bool(review.can_send_back_to) and is_played and (forms.build_schema(form) or {}).get("comments") is not False


async def _list_items(context: PageContext, review: Review, graph: Graph) -> list[str]:
    """List items of a step to which the review can be sent back."""
    sources = {step.name: step.source for step in graph.steps if step.each}
    source = next((sources[step] for step in review.can_send_back_to if step in sources), None)
    if source is None or review.item:
        return []
    return [item.item for item in await context.client.runs.list_items(review.run, source, limit=MAX_ITEMS)]


PAGES = (Page("/reviews/{review}/panes", show_panes),)
