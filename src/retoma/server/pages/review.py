"""One review: what a person is asked about, and how they answer."""

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

from retoma.define.file import File, files_in
from retoma.define.graph import Graph
from retoma.define.pipeline import Pipeline
from retoma.engine.reviews import Decision, feedback_form_of, form_of, has_form
from retoma.errors import AlreadyDecided, CannotFollow, Conflict, InvalidInput, KeyReused, NoWayBack, RetomaError
from retoma.records import Review, Run, Subject
from retoma.server.pages import differences, moments, trail, typed
from retoma.server.pages.asked import at_odds, file_url, first_was, urgency
from retoma.server.pages.page import Page
from retoma.server.pages.visit import HEADERS, Visit
from retoma.states import JobState

UNDO = timedelta(seconds=10)
MOST_ITEMS = 200  # that are offered to be sent back one by one
LONGEST_ASSIGNEE = 200
NONE_SEEN = 0  # no revision has this number
FEEDBACK = "feedback"
PLAYED = ("audio/", "video/")
CARRIED = ("csrf", "act", "seen", "key")  # by every form, and typed by nobody
MOST_REPLACED = 50  # files that are shown beside what they were


@dataclass(frozen=True)
class Answer:
    """What a person sent that could not be taken: which act, at which fields, and why."""

    act: str
    given: Mapping[str, str]
    wrong: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    winner: Review | None = None
    items: tuple[str, ...] = ()


async def show(visit: Visit, status: int = 200, answer: Answer | None = None) -> Response:
    client = visit.client
    review = await client.review(visit.id("review"))
    run, last = await client.show(review.run), await client.last_event(review.run)
    shape = await client.graph(run)
    subjects = await client.subjects(review)
    former = await _former(visit, review, shape, subjects)
    fields = typed.offered(_filled(_fields(visit, review, subjects), answer)) if review.is_open else []
    feedback_fields = typed.offered(_feedback_filled(visit, review, answer)) if review.is_open else []
    now = await client.now()
    seen: dict[str, Any] = {"review": review, "run": run, "subjects": subjects, "former": former, "now": now}
    given = answer.given if answer else {}
    content = _own_content(visit, [*fields, *feedback_fields], given, **seen)
    return visit.show(
        "review.html",
        status,
        **seen,
        content=content,
        file_url=lambda file: file_url(run, file),
        kept=client.app is not None and client.app.files is not None,
        last_event=last,
        changes={step: differences.between(former[step].value, subjects[step].value) for step in former},
        replaced={step: _replaced(former[step], subjects[step]) for step in former},
        edited=_edited(visit, review, subjects),
        written=_written(visit, review, subjects, answer),
        spent=await client.charge_totals(by=(), run=run.id),
        urgency=urgency,
        first_was=first_was,
        has_form=has_form(review, _pipeline(visit, review)),
        fields=[each for each in fields if not _is_in(content, each)],
        feedback_fields=[each for each in feedback_fields if each.wrong or not _is_in(content, each)],
        wrong_above=[each for each in fields if each.wrong and _is_in(content, each)],
        answer=answer,
        items=await _items(visit, review, shape) if review.is_open else [],
        takes_comments=_takes_comments(visit, review, subjects),
        trail=await trail.of_review(visit, review),
        told=trail.of_feedback(visit, review),
        next=await _next(visit, review),
    )


async def decide(visit: Visit) -> Response:
    """What cannot be taken comes back in its form, as it was typed."""
    review = await visit.client.review(visit.id("review"))
    act = visit.fields.get("act", "")
    if act not in ("approve", "edit", "send_back", "reject"):
        raise InvalidInput(visit.say("no act"))
    fields = await _sent(visit, review, act)
    value, wrong = typed.read(fields, visit.fields)
    if wrong:
        return await _bounced(visit, act, 422, wrong=visit.say_wrong(wrong))
    try:
        await visit.client.decide(review.id, _decision(visit, review, act, value))
    except RetomaError as error:
        return await _refused(visit, act, fields, error)
    return visit.go(f"/reviews/{review.id}")


async def undo(visit: Visit) -> Response:
    review = visit.id("review")
    try:
        await visit.client.undo(review, by=visit.by)
    except Conflict:
        return visit.go(f"/reviews/{review}", "too_late")
    return visit.go(f"/reviews/{review}", "undone")


async def claim(visit: Visit) -> Response:
    """Others see from now on that this person looks at it."""
    review = visit.id("review")
    await visit.client.claim_review(review, by=visit.by)
    return Response(status_code=204, headers=HEADERS) if visit.fields.get("quiet") else visit.go(f"/reviews/{review}")


async def assign(visit: Visit) -> Response:
    review, assignee = visit.id("review"), visit.fields.get("assignee", "").strip()[:LONGEST_ASSIGNEE]
    await visit.client.assign_review(review, assignee or None, by=visit.by)
    return visit.go(f"/reviews/{review}", "assigned")


def _pipeline(visit: Visit, review: Review) -> Pipeline | None:
    app = visit.client.app
    return app.pipelines.get(review.pipeline) if app else None


def _is_in(content: str, field: typed.Field) -> bool:
    return f'name="{field.name}"' in content or f'name="{field.name}.' in content


def _own_content(
    visit: Visit, fields: list[typed.Field], given: Mapping[str, str], *, review: Review, run: Run, **seen: Any
) -> str:
    """What the application's own template makes of it; nothing where it has none."""
    app = visit.client.app
    template = app.review_templates.get(review.step) if app and review.planned else None
    if template is None:
        return ""
    return visit.part(
        template,
        review=review,
        run=run,
        given=defaultdict(str, {**given, **{each.name: each.typed for each in fields}}),
        wrong=defaultdict(str, {each.name: each.wrong for each in fields}),
        file_url=lambda file: file_url(run, file),
        **seen,
    )


def _files(review: Review, subjects: Mapping[str, Subject]) -> Iterator[File]:
    return files_in([*(subject.value for subject in subjects.values()), review.reason])


async def _former(visit: Visit, review: Review, shape: Graph, subjects: Mapping[str, Subject]) -> dict[str, Subject]:
    """What each subject was before it was made anew, where it was."""
    each = {step.name for step in shape.steps if step.each}
    found: dict[str, Subject] = {}
    for step, subject in subjects.items():
        for made in await visit.client.made(review.run, step, review.item if step in each else ""):
            if made.revision < subject.revision and made.state is JobState.SUCCEEDED:
                found[step] = Subject(step, made.revision, made.output)
                break
    return found


def _replaced(former: Subject, current: Subject) -> list[tuple[Any, Any]]:
    return list(islice(differences.replaced(former.value, current.value), MOST_REPLACED))


def _edited(visit: Visit, review: Review, subjects: Mapping[str, Subject]) -> differences.Difference | None:
    """How what was approved differs from what stood, where a person edited that."""
    if review.value is None or has_form(review, _pipeline(visit, review)):
        return None
    return next((differences.between(value, review.value) for value in _standing(review, subjects)), None)


def _written(
    visit: Visit, review: Review, subjects: Mapping[str, Subject], answer: Answer | None
) -> list[tuple[str, str]]:
    """What a person had typed or chosen who came second, with the label of each field."""
    if answer is None or answer.winner is None:
        return []
    fields = [*_fields(visit, review, subjects), *_feedback_fields(visit, review)]
    labels = {each.name: each.label for each in typed.controls(fields)}
    labels |= {name: visit.say(f"written {name}") for name in ("notes", "comments", "to", "items")}
    chosen = {"items": "\n".join(answer.items), "to": visit.label(answer.given.get("to", ""))}
    given = {**answer.given, **chosen}
    return [(labels.get(name) or name, text) for name, text in given.items() if name not in CARRIED and text.strip()]


def _fields(visit: Visit, review: Review, subjects: Mapping[str, Subject]) -> list[typed.Field]:
    """What approval gives, to be filled in or changed. None where this server does not know its type."""
    pipeline = _pipeline(visit, review)
    form = form_of(review, pipeline)
    if form is None:
        return []
    schema = typed.schema_of(form)
    if has_form(review, pipeline):
        return typed.fields_of(schema, _suggested(schema, subjects), language=visit.language)
    return typed.fields_of(schema, *_standing(review, subjects), language=visit.language)


def _feedback_fields(visit: Visit, review: Review) -> list[typed.Field]:
    """What may be filled in to send it back, beside notes."""
    form = feedback_form_of(review, _pipeline(visit, review))
    return [] if form is None else typed.fields_of(typed.schema_of(form), name=FEEDBACK, language=visit.language)


def _takes_comments(visit: Visit, review: Review, subjects: Mapping[str, Subject]) -> bool:
    """Whether something is played whose moments can be named, unless the feedback form says `comments: false`."""
    form = feedback_form_of(review, _pipeline(visit, review))
    is_played = any(file.media_type.startswith(PLAYED) for file in _files(review, subjects))
    return is_played and (form is None or typed.schema_of(form).get("comments") is not False)


def _feedback_filled(visit: Visit, review: Review, answer: Answer | None) -> list[typed.Field]:
    fields = _feedback_fields(visit, review)
    return typed.filled(fields, answer.given, answer.wrong) if answer and answer.act == "send_back" else fields


async def _sent(visit: Visit, review: Review, act: str) -> list[typed.Field]:
    """The fields of the form that a person has sent."""
    if act == "send_back":
        return _feedback_fields(visit, review)
    return _fields(visit, review, await visit.client.subjects(review)) if _is_filled_in(visit, review, act) else []


def _standing(review: Review, subjects: Mapping[str, Subject]) -> list[Any]:
    """The value that is approved if nobody changes it."""
    if not review.planned:
        return [review.reason["value"]] if "value" in (review.reason or {}) else []
    return [next(iter(subjects.values())).value] if len(subjects) == 1 else []


def _suggested(schema: Mapping[str, Any], subjects: Mapping[str, Subject]) -> dict[str, Any]:
    """Texts and numbers that the subjects have under the names of the form's fields."""
    known: dict[str, Any] = {}
    for subject in subjects.values():
        if isinstance(subject.value, dict):
            known = subject.value | known
    names = [name for name, part in schema.get("properties", {}).items() if part.get("default") is None]
    return {name: known[name] for name in names if isinstance(known.get(name), str | int | float)}


async def _items(visit: Visit, review: Review, shape: Graph) -> list[str]:
    """Items of a step that work may go back to."""
    sources = {step.name: step.source for step in shape.steps if step.each}
    source = next((sources[step] for step in review.may_go_back_to if step in sources), None)
    if source is None or review.item:
        return []
    return [item.item for item in await visit.client.items(review.run, source, limit=MOST_ITEMS)]


async def _next(visit: Visit, review: Review) -> UUID | None:
    """Another that waits, of the same kind if there is one."""
    for step in (review.step, None):
        for each in await visit.client.reviews(step=step, limit=2):
            if each.id != review.id:
                return each.id
    return None


def _is_filled_in(visit: Visit, review: Review, act: str) -> bool:
    return act == "edit" or (act == "approve" and has_form(review, _pipeline(visit, review)))


def _decision(visit: Visit, review: Review, act: str, value: Any) -> Decision:
    given = visit.fields
    seen = given.get("seen", "")
    decision = Decision(
        "approve" if act == "edit" else act,
        by=visit.by,
        seen=int(seen) if seen.isascii() and seen.isdigit() and len(seen) < 10 else NONE_SEEN,
        notes=given.get("notes", "").replace("\r\n", "\n").strip(),
        key=visit.key,
        via="page",
        undo=UNDO,
    )
    if _is_filled_in(visit, review, act):
        return replace(decision, value=value)
    if act == "send_back":
        comments = list(moments.read(given.get("comments", "")))
        items = visit.several("items") or None
        return replace(decision, to=given.get("to") or None, items=items, comments=comments, extra=value)
    return decision


async def _refused(visit: Visit, act: str, fields: list[typed.Field], error: RetomaError) -> Response:
    match error:
        case AlreadyDecided():
            return await _bounced(visit, act, 409, winner=error.winner)
        case KeyReused():  # they went back to their form, and decide otherwise
            return await _bounced(visit, act, 409, winner=await visit.client.review(visit.id("review")))
        case Conflict():
            return await _bounced(visit, act, 409, why=at_odds(visit, error))
        case NoWayBack():
            return await _bounced(visit, act, 422, why=visit.say("no way back"))
        case CannotFollow():
            return await _bounced(visit, act, 422, why=error.pt if visit.language == "pt" else str(error))
        case InvalidInput():
            wrong = _complaints(visit, fields, error)
            return await _bounced(visit, act, 422, wrong=wrong, why="" if wrong else _why(visit, act, error))
        case _:
            raise error


async def _bounced(visit: Visit, act: str, status: int, **about: Any) -> Response:
    return await show(visit, status, Answer(act, visit.fields, items=tuple(visit.several("items")), **about))


def _why(visit: Visit, act: str, error: InvalidInput) -> str:
    no_notes = act in ("send_back", "reject") and not visit.fields.get("notes", "").strip()
    return visit.say(f"notes needed {act}") if no_notes else str(error)


def _complaints(visit: Visit, fields: list[typed.Field], error: InvalidInput) -> dict[str, str]:
    """What the type of the value says of each field."""
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return {fields[0].name: str(cause)} if cause and len(fields) == 1 else {}
    return visit.say_wrong(typed.complaints(fields, visit.fields, cause))


def _filled(fields: list[typed.Field], answer: Answer | None) -> list[typed.Field]:
    """As a person left it; who sent another form has typed nothing here."""
    if answer is None or answer.act not in ("approve", "edit"):
        return fields
    has_typed = any(each.name in answer.given for each in typed.controls(fields))
    return typed.filled(fields, answer.given, answer.wrong) if has_typed else fields


# Whoever reloads a form that bounced sees the review.
PAGES = (
    Page("/reviews/{review}", show, decide),
    Page("/reviews/{review}/undo", act=undo),
    Page("/reviews/{review}/claim", act=claim),
    Page("/reviews/{review}/assign", act=assign),
)
