"""The wording of definition errors: location, mistake, and the nearest right name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature

from retoma.errors import DefinitionError

MAX_NAME_LENGTH = 100


@dataclass(frozen=True)
class Location:
    """Where a definition is, for its error messages."""

    pipeline: str
    step: str | None = None
    kind: str = "pipeline"

    def error(self, message: str) -> DefinitionError:
        step = f", step {self.step!r}" if self.step else ""
        return DefinitionError(f"{self.kind} {self.pipeline!r}{step}: {message}")


def suggest_name(name: str, known: Collection[str]) -> str:
    """Return a hint about an unknown `name`: the nearest known name, or else all of them."""
    nearest = get_close_matches(name, known, n=1)
    if nearest:
        return f"did you mean {nearest[0]!r}?"
    if known:
        return f"known: {quote_names(known)}"
    return "none is defined"


def list_keyword_options(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names of a function's keyword-only parameters."""
    return tuple(one.name for one in signature(function).parameters.values() if one.kind is one.KEYWORD_ONLY)


def quote_names(names: Collection[str]) -> str:
    return ", ".join(repr(name) for name in names)


def check_name(noun: str, name: object, location: Location, extra_characters: str = "") -> None:
    """Raise DefinitionError unless `name` is a Python identifier, in which `extra_characters` are allowed too."""
    plain = "".join("_" if character in extra_characters else character for character in str(name))
    if not isinstance(name, str) or not plain.isidentifier():
        extra = "".join(f", {character!r}" for character in extra_characters)
        raise location.error(f"{name!r} is not a valid {noun} name: use letters, digits and '_'{extra}, no digit first")
    if len(name) > MAX_NAME_LENGTH:
        raise location.error(f"a {noun} name has at most {MAX_NAME_LENGTH} characters; this one has {len(name)}")
