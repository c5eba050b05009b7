"""Describe what changed between two results of a step, under the labels of their fields. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

from retoma.define.file import is_file
from retoma.server.pages.forms import make_label, resolve_schema
from retoma.server.pages.text_changes import Piece, align_entries, compare_texts

MAX_CHANGES = 200  # that are listed
MIN_TEXT_WORDS = 3  # of a text that is compared word by word

ChangeKind = Literal["text", "value", "file", "added", "removed", "moved"]
Translate = Callable[[str], str]


@dataclass(frozen=True)
class Change:
    """A field or an entry of a list that changed. `label` names it, as in `Scenes 2, Text`.

    `pieces` are those of a text. Of an entry that moved, `before` and `now` are its numbers, from 1.
    """

    label: str
    kind: ChangeKind
    before: Any = None
    now: Any = None
    pieces: tuple[Piece, ...] = ()


def list_changes(
    previous: Any, current: Any, schema: Mapping[str, Any] | None, translate: Translate = str
) -> list[Change]:
    """List what a reader would notice, without the fields that the schema hides. Without a schema, names are labels."""
    root = schema or {}
    return list(islice(_compare(previous, current, _Node(root, root, translate), ""), MAX_CHANGES))


@dataclass(frozen=True)
class _Node:
    """The part of a schema that describes a value."""

    root: Mapping[str, Any]
    schema: Mapping[str, Any]
    translate: Translate

    @property
    def resolved(self) -> Mapping[str, Any]:
        return resolve_schema(self.root, self.schema)

    def member(self, key: str) -> _Node:
        return replace(self, schema=self.resolved.get("properties", {}).get(key, {}))

    def entry(self) -> _Node:
        return replace(self, schema=self.resolved.get("items") or {})

    def label_of(self, key: str) -> str:
        return self.translate(make_label(key, self.member(key).schema))

    @property
    def is_hidden(self) -> bool:
        return bool(self.schema.get("hidden") or self.resolved.get("hidden"))


def _compare(previous: Any, current: Any, node: _Node, label: str) -> Iterator[Change]:
    if node.is_hidden or previous == current:
        return
    if is_file(previous) or is_file(current):
        yield from _compare_files(previous, current, label)
    elif isinstance(previous, dict) and isinstance(current, dict):
        for key in dict.fromkeys((*current, *previous)):
            inner = f"{label}, {node.label_of(key)}" if label else node.label_of(key)
            yield from _compare(previous.get(key), current.get(key), node.member(key), inner)
    elif isinstance(previous, list) and isinstance(current, list):
        yield from _compare_lists(previous, current, node, label)
    elif _is_text(previous) and _is_text(current):
        yield Change(label, "text", previous, current, compare_texts(previous, current))
    else:
        yield Change(label, "value", previous, current)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value.split()) >= MIN_TEXT_WORDS


def _compare_files(previous: Any, current: Any, label: str) -> Iterator[Change]:
    before, now = (each if is_file(each) else None for each in (previous, current))
    if before is None or now is None or before["file"] != now["file"]:
        yield Change(label, "file", before, now)


def _compare_lists(previous: list[Any], current: list[Any], node: _Node, label: str) -> Iterator[Change]:
    for pair in align_entries(previous, current):
        if pair.before is None:
            assert pair.now is not None
            yield Change(f"{label} {pair.now + 1}".strip(), "added", now=_strip_hidden(current[pair.now], node.entry()))
        elif pair.now is None:
            name = f"{label} {pair.before + 1}".strip()
            yield Change(name, "removed", before=_strip_hidden(previous[pair.before], node.entry()))
        else:
            name = f"{label} {pair.now + 1}".strip()
            if pair.is_moved:
                yield Change(name, "moved", pair.before + 1, pair.now + 1)
            yield from _compare(previous[pair.before], current[pair.now], node.entry(), name)


def _strip_hidden(value: Any, node: _Node) -> Any:
    """Return the value under the labels of its fields, without those that the schema hides."""
    if is_file(value) or not isinstance(value, dict):
        return value
    shown = {key: each for key, each in value.items() if not node.member(key).is_hidden}
    return {node.label_of(key): _strip_hidden(each, node.member(key)) for key, each in shown.items()}
