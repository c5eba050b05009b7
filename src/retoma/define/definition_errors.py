"""How a mistake in a definition is worded: where it is, what it is, and the nearest right name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature

from retoma.errors import DefinitionError

MAX_NAME_LENGTH = 100


@dataclass(frozen=True)
class Location:
    """Where a definition stands, so that its mistakes can say so."""

    pipeline: str
    step: str | None = None
    kind: str = "pipeline"

    def error(self, message: str) -> DefinitionError:
        step = f", step {self.step!r}" if self.step else ""
        return DefinitionError(f"{self.kind} {self.pipeline!r}{step}: {message}")


def suggest_name(name: str, known: Collection[str]) -> str:
    """The end of a sentence about an unknown `name`: the nearest known one, or else all of them."""
    nearest = get_close_matches(name, known, n=1)
    if nearest:
        return f"did you mean {nearest[0]!r}?"
    if known:
        return f"known are {quote_names(known)}"
    return "there is nothing to name"


def list_keyword_options(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names of what a function takes by name only."""
    return tuple(one.name for one in signature(function).parameters.values() if one.kind is one.KEYWORD_ONLY)


def quote_names(names: Collection[str]) -> str:
    return ", ".join(repr(name) for name in names)


def check_name(noun: str, name: object, location: Location, extra_characters: str = "") -> None:
    """Names are Python identifiers; the characters of `also` are allowed in them too."""
    plain = "".join("_" if character in extra_characters else character for character in str(name))
    if not isinstance(name, str) or not plain.isidentifier():
        extra = "".join(f", {character!r}" for character in extra_characters)
        raise location.error(f"{name!r} cannot name a {noun}: use letters, digits and '_'{extra}, and no digit first")
    if len(name) > MAX_NAME_LENGTH:
        raise location.error(f"the name of a {noun} has at most {MAX_NAME_LENGTH} characters, not {len(name)}")
