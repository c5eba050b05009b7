"""The decision form of a review: its fields, what a person has typed into it, and the decision that it makes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal, get_args

from pydantic import ValidationError

from retoma import timecodes
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
from retoma.records import Review, Subject
from retoma.server.pages import forms
from retoma.server.pages.page_context import PageContext
from retoma.server.pages.review_summary import explain_conflict
from retoma.translations import N_

Action = Literal["approve", "edit", "send_back", "reject"]
ACTIONS: tuple[Action, ...] = get_args(Action)
UNDO_PERIOD = timedelta(seconds=10)
NO_REVISION = 0  # no revision has this number
FEEDBACK_PREFIX = "feedback"
HIDDEN_FIELDS = ("csrf", "action", "seen", "key")  # in every form, and typed by nobody
FIELD_LABELS = {
    "notes": N_("Notes"),
    "comments": N_("Timed comments"),
    "to": N_("Send back to"),
    "items": N_("Items"),
    "reasons": N_("Reasons"),
}
NOTES_REQUIRED = {
    "send_back": N_("Say what should be improved."),
    "reject": N_("Give a reason for the rejection."),
}


@dataclass(frozen=True)
class FormInput:
    """What a person has typed into the form. If it was refused: why, or the decision that was made before."""

    action: str = ""
    submitted: Mapping[str, str] = field(default_factory=dict)
    items: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    winner: Review | None = None
    is_conflict: bool = False

    @property
    def mode(self) -> str:
        """The part of the form that is open: `edit`, `send_back`, `reject` or none."""
        return self.action if self.action != "approve" and self.winner is None else ""


def read_action(context: PageContext) -> Action:
    """Return what the submitted form decides, or raise `InvalidInput`."""
    action = next((each for each in ACTIONS if each == context.fields.get("action")), None)
    if action is None:
        raise InvalidInput(context.gettext("This form does not name an action."))
    return action


def read_input(context: PageContext, action: str, **about: Any) -> FormInput:
    """Return the submitted form as it was typed."""
    items, reasons = (tuple(context.get_field_values(name)) for name in ("items", "reasons"))
    return FormInput(action, context.fields, items=items, reasons=reasons, **about)


def build_value_fields(context: PageContext, review: Review, subjects: Mapping[str, Subject]) -> list[forms.Field]:
    """Return the fields of the approved value; none if this server does not know its type."""
    pipeline = context.find_pipeline(review.pipeline)
    form = get_form(review, pipeline)
    if form is None:
        return []
    schema = forms.build_schema(form) or {}
    if has_form(review, pipeline):
        values = [_suggest_values(schema, subjects)]
    else:
        values = list_current_values(review, subjects)
    return forms.set_zone(forms.build_fields(schema, *values, translate=context.gettext), context.time_zone)


def build_feedback_fields(context: PageContext, review: Review) -> list[forms.Field]:
    """Return the fields of the feedback form, besides the notes."""
    form = get_feedback_form(review, context.find_pipeline(review.pipeline))
    if form is None:
        return []
    fields = forms.build_fields(forms.build_schema(form), name=FEEDBACK_PREFIX, translate=context.gettext)
    return forms.set_zone(fields, context.time_zone)


def fill_fields(fields: list[forms.Field], typed: FormInput) -> list[forms.Field]:
    """Fill the fields with the typed text, unless the form did not have them."""
    has_typed = any(each.name in typed.submitted for each in forms.iterate_controls(fields))
    return forms.fill_fields(fields, typed.submitted, typed.errors) if has_typed or typed.errors else fields


def list_changed(fields: list[forms.Field], typed: FormInput) -> list[str]:
    """List the typed fields that differ from those of a new form."""
    initial = {each.name: each.text for each in forms.iterate_controls(fields)}
    return [
        name
        for name, text in typed.submitted.items()
        if name not in ("to", *HIDDEN_FIELDS) and _normalize(text) != _normalize(initial.get(name, ""))
    ]


def _normalize(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def list_current_values(review: Review, subjects: Mapping[str, Subject]) -> list[Any]:
    """Return the value that is approved without an edit, if there is exactly one."""
    if not review.planned:
        return [review.reason["value"]] if "value" in (review.reason or {}) else []
    return [next(iter(subjects.values())).value] if len(subjects) == 1 else []


async def list_submitted_fields(context: PageContext, review: Review, action: Action) -> list[forms.Field]:
    """Return the fields that this action takes of the form."""
    if action == "send_back":
        return build_feedback_fields(context, review)
    return (
        build_value_fields(context, review, await context.client.reviews.get_subjects(review))
        if _takes_value(context, review, action)
        else []
    )


def build_decision(context: PageContext, review: Review, action: Action, value: Any) -> Decision:
    submitted = context.fields
    seen = submitted.get("seen", "")
    decision = Decision(
        "approve" if action == "edit" else action,
        by=context.by,
        seen=int(seen) if seen.isascii() and seen.isdigit() and len(seen) < 10 else NO_REVISION,
        notes=_join_notes(context, review) if action == "send_back" else _get_notes(context),
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


def list_reasons(context: PageContext, review: Review) -> list[tuple[str, str]]:
    """List the reasons that the application offers, translated, each with the steps that it is for."""
    offered = context.application.review_reasons.get(review.step, {}) if context.application else {}
    steps: dict[str, list[str]] = defaultdict(list)
    for step in review.can_send_back_to:
        for reason in offered.get(step, ()):
            steps[context.gettext(reason)].append(step)
    return [(reason, " ".join(each)) for reason, each in steps.items()]


def _join_notes(context: PageContext, review: Review) -> str:
    """Return the selected reasons and the notes, each on its own line."""
    offered = [reason for reason, _ in list_reasons(context, review)]
    chosen = [reason for reason in context.get_field_values("reasons") if reason in offered]
    return "\n".join(filter(None, [*chosen, _get_notes(context)]))


def _get_notes(context: PageContext) -> str:
    return context.fields.get("notes", "").replace("\r\n", "\n").strip()


async def explain_refusal(
    context: PageContext, review: Review, action: Action, fields: list[forms.Field], error: RetomaError
) -> FormInput:
    """Return the form with the reason why it was refused, or raise the error if it is not about the form."""
    match error:
        case AlreadyDecided():
            return read_input(context, action, winner=error.winner, is_conflict=True)
        case KeyReused():  # they went back to their form, and decide otherwise
            return read_input(context, action, winner=await context.client.reviews.get(review.id), is_conflict=True)
        case Conflict():
            return read_input(context, action, error=explain_conflict(context, error), is_conflict=True)
        case SendBackNotAllowed():
            unknown_step = context.gettext(
                "The selected step does not lead to this review, or it does not have the selected items: choose "
                "another step."
            )
            return read_input(context, action, error=unknown_step)
        case FeedbackNotSupported():
            return read_input(context, action, error=context.translate_error(error))
        case InvalidInput():
            errors, cause = context.translate_validation_errors(fields, error), error.__cause__
            if cause and not isinstance(cause, ValidationError) and len(fields) == 1:
                errors = {fields[0].name: str(cause)}
            return read_input(
                context, action, errors=errors, error="" if errors else _explain_invalid(context, action, error)
            )
        case _:
            raise error


def list_lost_input(
    context: PageContext, review: Review, subjects: Mapping[str, Subject], typed: FormInput
) -> list[tuple[str, str]]:
    """List what the second reviewer had filled in, with the label of each field."""
    if review.is_open or not typed.submitted:
        return []
    fields = [*build_value_fields(context, review, subjects), *build_feedback_fields(context, review)]
    labels = {each.name: each.label for each in forms.iterate_controls(fields)}
    labels |= {name: context.translate(label) for name, label in FIELD_LABELS.items()}
    chosen = {
        "items": "\n".join(typed.items),
        "reasons": "\n".join(typed.reasons),
        "to": context.get_step_label(typed.submitted.get("to", "")),
    }
    submitted = {**typed.submitted, **chosen}
    return [
        (labels.get(name) or name, text)
        for name, text in submitted.items()
        if name not in HIDDEN_FIELDS and text.strip()
    ]


def _takes_value(context: PageContext, review: Review, action: Action) -> bool:
    return action == "edit" or (action == "approve" and has_form(review, context.find_pipeline(review.pipeline)))


def _suggest_values(schema: Mapping[str, Any], subjects: Mapping[str, Subject]) -> dict[str, Any]:
    """Return texts and numbers of the subjects under the names of the form's fields."""
    known: dict[str, Any] = {}
    for subject in subjects.values():
        if isinstance(subject.value, dict):
            known = subject.value | known
    names = [name for name, part in schema.get("properties", {}).items() if part.get("default") is None]
    return {name: known[name] for name in names if isinstance(known.get(name), str | int | float)}


def _explain_invalid(context: PageContext, action: Action, error: InvalidInput) -> str:
    no_notes = action in NOTES_REQUIRED and not context.fields.get("notes", "").strip()
    return context.translate(NOTES_REQUIRED[action]) if no_notes else str(error)
