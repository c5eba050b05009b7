"""The keys of a fan-out's items, which stay the same across attempts and revisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import isclass
from typing import Any
from unicodedata import category
from uuid import UUID

from pydantic import BaseModel

from retoma.define.definition_errors import Location, quote_names, suggest_name
from retoma.errors import describe_error

Key = str | Callable[[Any], Any]
"""Determines an item's key: the name of its attribute or dict key, or a function of the item."""

Keys = Key | Sequence[Key | None] | None
"""The type of `key=`: one key for a single source, or a list with one for each of several sources."""

MAX_KEY_LENGTH = 200
SEPARATOR = "|"


def parse_keys(value: Keys, elements: Mapping[str, Any], location: Location) -> tuple[Key | None, ...] | None:
    """Return one key per source, or None if there is no key. `elements` are the element types by source."""
    if value is None:
        return None
    keys = (value,) if isinstance(value, str) or callable(value) else tuple(value)
    if len(keys) != len(elements):
        raise location.error(f"key= has {len(keys)} entries; pass one for each of {quote_names(elements)}, or None")
    for key, (source, element) in zip(keys, elements.items(), strict=True):
        _check_key_field(key, source, element, location)
    return keys


def _check_key_field(key: Key | None, source: str, element: Any, location: Location) -> None:
    if not isinstance(key, str) or not (isclass(element) and issubclass(element, BaseModel)):
        return
    if key not in element.model_fields and not hasattr(element, key):
        raise location.error(
            f"key= names {key!r}, which an element of {source!r} does not have; "
            f"{suggest_name(key, element.model_fields)}"
        )


@dataclass(frozen=True)
class ItemSet:
    """The items of all `each` steps over the same sources, and how their keys are computed.

    With one source an item is an element of its list; with several it is a list with one element of each.
    """

    source: str
    sources: tuple[str, ...]
    keys: tuple[Key | None, ...]

    def compute_keys(self, items: object) -> tuple[str, ...]:
        """Return one key per item, in order. Raise ValueError if the list cannot be fanned out."""
        elements = self._check_is_list(items)
        return self._check_distinct(map(SEPARATOR.join, zip(*self._compute_columns(elements), strict=True)))

    def check_source(self, name: str, items: object) -> None:
        """Raise ValueError if these results of step `name` cannot be fanned out."""
        if name == self.source:
            self.compute_keys(items)
        elif name in self.sources:
            key = self.keys[self.sources.index(name)]
            self._check_distinct(self._compute_column(self._check_is_list(items), key, _count_distinct_positions()))

    def _check_distinct(self, keys: Iterable[str]) -> tuple[str, ...]:
        seen: dict[str, None] = {}
        for position, key in enumerate(keys):
            self._check_key(key, position)
            if key in seen:
                raise ValueError(f"two items of {self.source!r} have the key {key!r}; {self._advice}")
            seen[key] = None
        return tuple(seen)

    def _compute_columns(self, elements: Sequence[Any]) -> Iterator[list[str]]:
        if len(self.sources) == 1:
            yield self._compute_column(elements, self.keys[0], lambda index, _: index)
            return
        for part, key in enumerate(self.keys):
            yield self._compute_column([element[part] for element in elements], key, _count_distinct_positions())

    def _compute_column(self, elements: Sequence[Any], key: Key | None, position_of: PositionOf) -> list[str]:
        if key is None:
            return [_compute_default_key(element, index, position_of) for index, element in enumerate(elements)]
        return [self._compute_explicit_key(key, element, index) for index, element in enumerate(elements)]

    def _compute_explicit_key(self, key: Key, element: Any, position: int) -> str:
        value = (
            self._call_key_function(key, element, position)
            if callable(key)
            else self._look_up_key(key, element, position)
        )
        text = _format_key(value)
        if text is None:
            raise ValueError(
                f"the key of item {position} of {self.source!r} is {value!r}; a key must be a str, int or UUID"
            )
        return text

    def _call_key_function(self, key: Callable[[Any], object], element: Any, position: int) -> object:
        try:
            return key(element)
        except Exception as error:
            raise ValueError(f"key= failed for item {position} of {self.source!r}: {describe_error(error)}") from error

    def _look_up_key(self, key: str, element: Any, position: int) -> Any:
        try:
            return element[key] if isinstance(element, Mapping) else getattr(element, key)
        except (KeyError, AttributeError):
            raise ValueError(
                f"item {position} of {self.source!r} has no {key!r}, which key= names as its key"
            ) from None

    def _check_is_list(self, items: object) -> Sequence[Any]:
        if not isinstance(items, Sequence) or isinstance(items, str | bytes):
            raise ValueError(
                f"{self.source!r} returned {type(items).__name__}; the source of an each step must return a list"
            )
        return items

    def _check_key(self, key: str, position: int) -> None:
        what = f"the key of item {position} of {self.source!r}"
        if not key:
            raise ValueError(f"{what} is empty; {self._advice}")
        if len(key) > MAX_KEY_LENGTH:
            raise ValueError(f"{what} is longer than {MAX_KEY_LENGTH} characters; {self._advice}")
        if any(category(character) == "Cc" for character in key):
            raise ValueError(f"{what} has a control character; {self._advice}")

    @property
    def _advice(self) -> str:
        return "set a key= on the each step that is short and unique for every item"


PositionOf = Callable[[int, Any], int]


def _compute_default_key(element: Any, index: int, position_of: PositionOf) -> str:
    text = _format_key(element)
    return str(position_of(index, element)) if text is None else text


def _count_distinct_positions() -> PositionOf:
    """Number the elements of a cross product, in which each occurs many times, by their first occurrence."""
    positions: dict[str, int] = {}
    return lambda index, element: positions.setdefault(repr(element), len(positions))


def _format_key(value: Any) -> str | None:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__repr__(value)
    return str(value) if isinstance(value, UUID) else None
