"""The inputs of scheduled runs: JSON in which strings may have placeholders such as `{{ due_date }}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any
from zoneinfo import ZoneInfo

from retoma.define.definition_errors import quote_names
from retoma.errors import InvalidInput
from retoma.translations import N_

_PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
PLACEHOLDERS = ("due_at", "due_date", "previous_due_at", "schedule")
MAX_DEPTH = 50


@dataclass(frozen=True)
class Occurrence:
    """What the placeholders stand for. Times are written in the schedule's time zone."""

    schedule: str
    due_at: datetime
    previous_due_at: datetime
    time_zone: str = "UTC"

    @property
    def values(self) -> Mapping[str, str]:
        zone = ZoneInfo(self.time_zone)
        due_at = self.due_at.astimezone(zone)
        return {
            "due_at": due_at.isoformat(),
            "due_date": due_at.date().isoformat(),
            "previous_due_at": self.previous_due_at.astimezone(zone).isoformat(),
            "schedule": self.schedule,
        }


def check_template(template: Any, depth: int = 0) -> None:
    """Raise InvalidInput for an unknown placeholder, naming the nearest."""
    if depth > MAX_DEPTH:
        raise InvalidInput(f"the inputs are nested more than {MAX_DEPTH} levels deep")
    match template:
        case str():
            for name in _PLACEHOLDER.findall(template):
                if name not in PLACEHOLDERS:
                    raise _build_error(name)
        case Mapping():
            for key, value in template.items():
                check_template(key, depth + 1)
                check_template(value, depth + 1)
        case list() | tuple():
            for value in template:
                check_template(value, depth + 1)


def _build_error(name: str) -> InvalidInput:
    shown = f"{name!r:.80}"
    near = get_close_matches(name[:80], PLACEHOLDERS, n=1)
    if near:
        return InvalidInput(
            N_("there is no placeholder %(name)s; did you mean %(near)s?"), name=shown, near=repr(near[0])
        )
    known = quote_names(PLACEHOLDERS)
    return InvalidInput(N_("there is no placeholder %(name)s; known: %(known)s"), name=shown, known=known)


def render(template: Any, occurrence: Occurrence) -> Any:
    """Return the template with its placeholders replaced."""
    return _render(template, occurrence.values)


def _render(template: Any, values: Mapping[str, str]) -> Any:
    match template:
        case str():
            return _PLACEHOLDER.sub(lambda found: values[found[1]], template)
        case Mapping():
            return {_render(key, values): _render(value, values) for key, value in template.items()}
        case list() | tuple():
            return [_render(value, values) for value in template]
        case _:
            return template
