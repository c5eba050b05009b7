"""The inbox: the reviews of all applications in the order of the work, beside the one that is being read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any
from uuid import UUID

from markupsafe import Markup
from starlette.responses import Response

from retoma.define.file import find_files
from retoma.records import InboxCount, InboxEntry, Review, UndoableDecision
from retoma.server.pages.keys import show_space
from retoma.server.pages.page_context import PageContext
from retoma.server.pages.review_form import FormInput
from retoma.server.pages.review_panes import Place, render_panes
from retoma.server.pages.review_summary import build_file_url, get_urgency
from retoma.states import ReviewState

PAGE_SIZE = 100
MAX_PICTURES = 60  # of a grid
FILTERS = ("application", "pipeline", "step", "tenant", "assignee", "state", "q", "overdue", "view")
MINE, NOBODY = "me", "nobody"
DECIDED = (ReviewState.APPROVED, ReviewState.SENT_BACK, ReviewState.REJECTED, ReviewState.EXPIRED)


@dataclass(frozen=True)
class Choice:
    """A value of a filter, with how many reviews it leaves."""

    value: str
    label: str
    count: int
    overdue: int = 0


async def show_inbox(context: PageContext) -> Response:
    """Show the list, and the first review of it."""
    return await render_inbox(context)


async def show_review(context: PageContext) -> Response:
    """Show one review beside the list."""
    return await render_inbox(context, await context.client.reviews.get(context.get_path_id("review")))


async def render_inbox(
    context: PageContext,
    review: Review | None = None,
    typed: FormInput | None = None,
    status: int = 200,
    *,
    preview: Mapping[str, Any] | None = None,
    batch: Mapping[str, Any] | None = None,
) -> Response:
    """Render the page. Without a review it shows the first one of the list, which a phone leaves to a tap.

    `preview` and `batch` take the place of the review: what would be approved at once, or what came of it.
    """
    await context.load_keys()
    client, counts = context.client, await _count(context)
    offset = context.get_query_number("offset", 0)
    after = context.get_query_id("after") if _shows_open(context) else None
    start = {"after": after} if after else {"offset": offset}
    found = await list_entries(context, limit=PAGE_SIZE + 1, **start)
    entries = _group_by_kind(found[:PAGE_SIZE])
    is_chosen = review is not None
    is_list = preview is None and batch is None and context.query.get("view") != "grid"
    if review is None and is_list and entries and entries[0].is_open:
        review = await client.reviews.get(entries[0].id)
    matching = [each for each in _leave_overdue(context, counts) if _matches(context, each)]
    total = sum(each.open for each in matching) if _shows_open(context) else len(entries)
    panes = (
        ""
        if review is None
        else await render_panes(context, review, typed, _find_place(entries, review, offset, total))
    )
    if "q" not in context.query:
        context.open_review_count = sum(each.open for each in counts)
    return context.render(
        "inbox.html",
        status,
        review=review,
        is_chosen=is_chosen or not is_list,
        panes=Markup(panes),  # noqa: S704  (rendered by our own templates, with every value escaped)
        groups=[(kind, list(rows)) for kind, rows in groupby(entries, key=lambda each: each.kind)],
        kind_counts={
            kind: sum(each.open for each in matching if each.kind == kind) for kind in {e.kind for e in entries}
        },
        total=total,
        choices=_build_choices(context, _leave_overdue(context, counts)),
        shows_open=_shows_open(context),
        is_filtered=any(value for name, value in read_filters(context).items() if name != "view"),
        offset=offset,
        earlier=max(0, offset - PAGE_SIZE) if offset else None,
        later=_find_later(context, entries, offset) if len(found) > PAGE_SIZE else None,
        toasts=group_decisions(await client.reviews.list_undoable(by=context.by)),
        preview=preview,
        batch=batch,
        grid=await load_grid(context, entries) if context.query.get("view") == "grid" else None,
        urgency=get_urgency,
        show_space=show_space,
        now=await client.now(),
    )


async def list_entries(
    context: PageContext, *, after: UUID | None = None, offset: int = 0, limit: int
) -> list[InboxEntry]:
    """List the reviews of the filter that the address names. Open ones can be listed `after` another."""
    query, state = context.query, context.query.get("state", "")
    ended = [each for each in ReviewState if each == state and each is not ReviewState.OPEN]
    return await context.client.reviews.list_inbox(
        tenant=query.get("tenant") or None,
        pipeline=context.get_query_pipelines(),
        step=query.get("step") or None,
        assignees=_read_assignees(context),
        person=_find_chosen_person(context),
        title=query.get("q", "").strip() or None,
        states=list(DECIDED) if state == "decided" else ended or [ReviewState.OPEN],
        kinds=list_kinds(context),
        overdue=bool(query.get("overdue")),
        after=after,
        offset=offset,
        limit=limit,
    )


async def load_grid(context: PageContext, entries: Sequence[InboxEntry]) -> dict[UUID, str]:
    """Return the address of the first picture under each review that has one."""
    found: dict[UUID, str] = {}
    for entry in entries[:MAX_PICTURES]:
        review = await context.client.reviews.get(entry.id)
        subjects = await context.client.reviews.get_subjects(review)
        files = find_files([*(each.value for each in subjects.values()), review.reason])
        picture = next((each for each in files if each.media_type.startswith("image/")), None)
        if picture is not None:
            found[entry.id] = build_file_url(entry.run, picture)
    return found


def _group_by_kind(entries: Sequence[InboxEntry]) -> list[InboxEntry]:
    """Put reviews of a kind together, in the order in which the kinds occur. Decided ones are listed by time."""
    kinds = list(dict.fromkeys(each.kind for each in entries))
    return sorted(entries, key=lambda each: kinds.index(each.kind))


async def find_next(context: PageContext, after: UUID) -> UUID | None:
    """Return the review of the filter to read after this one, which may no longer be in the list."""
    following = await list_entries(context, after=after, limit=1) if _shows_open(context) else []
    left = following or await list_entries(context, limit=2)
    return next((each.id for each in left if each.id != after), None)


def read_filters(context: PageContext) -> dict[str, str]:
    return {name: context.query.get(name, "") for name in FILTERS}


def list_kinds(context: PageContext) -> list[tuple[str, str]]:
    """List pipelines and steps in the order of the work."""
    return [
        (pipeline.name, step)
        for application in context.services.applications
        for pipeline in application.own_pipelines.values()
        for step in pipeline.steps
    ]


def group_decisions(decisions: Sequence[UndoableDecision]) -> list[list[UndoableDecision]]:
    """Group decisions that were made together, the latest first."""
    groups: dict[str, list[UndoableDecision]] = {}
    for each in decisions:
        groups.setdefault(each.key, []).append(each)
    return list(groups.values())


async def _count(context: PageContext) -> list[InboxCount]:
    return await context.client.reviews.count_inbox(title=context.query.get("q", "").strip() or None)


def _shows_open(context: PageContext) -> bool:
    return context.query.get("state", "") in ("", ReviewState.OPEN)


def _read_assignees(context: PageContext) -> list[str] | None:
    chosen = context.query.get("assignee", "")
    if chosen == MINE:
        return _list_own_names(context)
    return None if not chosen else ["" if chosen == NOBODY else chosen]


def _find_chosen_person(context: PageContext) -> int | None:
    """Return the viewer's number if the filter names the viewer, whom no namesake and no new name changes."""
    return context.person.id if context.person and context.query.get("assignee") == MINE else None


def _is_mine(context: PageContext, count: InboxCount) -> bool:
    if context.person and count.assigned_person is not None:
        return count.assigned_person == context.person.id
    return count.assignee in _list_own_names(context)


def _list_own_names(context: PageContext) -> list[str]:
    """List the assignees that stand for the viewer: their name and their roles."""
    return [context.by, *(sorted({grant.role for grant in context.person.roles}) if context.person else [])]


def _leave_overdue(context: PageContext, counts: Sequence[InboxCount]) -> list[InboxCount]:
    """Return the counts of the reviews that the filter leaves: of the overdue ones, if it asks for them."""
    is_asked = bool(context.query.get("overdue"))
    return [replace(each, open=each.overdue) for each in counts if each.overdue] if is_asked else list(counts)


def _matches(context: PageContext, count: InboxCount, *, but: str = "") -> bool:
    """Return whether all filters but one let these reviews through."""
    query, pipelines, assignees = context.query, context.get_query_pipelines(), _read_assignees(context)
    names = [pipelines] if isinstance(pipelines, str) else pipelines
    return (
        (but == "tenant" or query.get("tenant") in (None, "", count.tenant))
        and (but == "assignee" or assignees is None or _is_assigned(context, count, assignees))
        and (but == "kind" or query.get("step") in (None, "", count.step))
        and (names is None or but == "kind" or count.pipeline in names)
    )


def _is_assigned(context: PageContext, count: InboxCount, assignees: Sequence[str]) -> bool:
    if context.query.get("assignee") == MINE:
        return _is_mine(context, count)
    return (count.assignee or "") in assignees


def _build_choices(context: PageContext, counts: Sequence[InboxCount]) -> dict[str, list[Choice]]:
    """Return the values of each filter that occur under the other filters."""
    order = {kind: number for number, kind in enumerate(list_kinds(context))}
    kinds = sorted({each.kind for each in counts}, key=lambda kind: (order.get(kind, len(order)), kind))
    tenants = sorted({each.tenant for each in counts})
    people = sorted({each.assignee for each in counts if each.assignee})

    def count(but: str, **wanted: Any) -> list[InboxCount]:
        return [
            each
            for each in counts
            if _matches(context, each, but=but) and all(getattr(each, name) == value for name, value in wanted.items())
        ]

    def choose(value: str, label: str, found: Sequence[InboxCount]) -> Choice:
        return Choice(value, label, sum(each.open for each in found), sum(each.overdue for each in found))

    return {
        "kind": [
            choose("\n".join(kind), context.get_step_label(kind[1], kind[0]), count("kind", kind=kind))
            for kind in kinds
        ],
        "tenant": [choose(name, name, count("tenant", tenant=name)) for name in tenants],
        "assignee": [
            choose(MINE, context.gettext("Mine"), [each for each in count("assignee") if _is_mine(context, each)]),
            choose(NOBODY, context.gettext("Unassigned"), count("assignee", assignee=None)),
            *(choose(name, name, count("assignee", assignee=name)) for name in people if name != context.by),
        ],
    }


def _find_later(context: PageContext, entries: Sequence[InboxEntry], offset: int) -> dict[str, Any]:
    """Return where the next part of the list begins. Open reviews leave the list as they are decided, so only the last
    one says where it continues; its offset is only the number that is shown."""
    return {"offset": offset + PAGE_SIZE, "after": entries[-1].id if _shows_open(context) else None}


def _find_place(entries: Sequence[InboxEntry], review: Review, offset: int, total: int) -> Place | None:
    ids = [each.id for each in entries]
    if review.id not in ids:
        return None
    number = ids.index(review.id)
    return Place(
        number=offset + number + 1,
        total=total,
        previous=ids[number - 1] if number else None,
        next=ids[number + 1] if number + 1 < len(ids) else None,
    )
