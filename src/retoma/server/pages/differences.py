"""What has changed between two results, line by line, and within a line word by word. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice, zip_longest
from typing import Any, Literal

from retoma.define.file import is_file

MOST_LINES = 1_000
MOST_WORDS = 300  # of one line
MOST_BY_WORDS = 100  # lines
AROUND = 2  # lines that stay the same are shown on each side of a change
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True)
class Piece:
    text: str
    is_changed: bool = False


@dataclass(frozen=True)
class Line:
    """`cut` stands for lines that are left out because nothing changed in them."""

    kind: Literal["same", "add", "del", "cut"]
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class Difference:
    lines: list[Line]
    added: int
    removed: int

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


def between(former: Any, current: Any) -> Difference:
    first, last = _lines(former), _lines(current)
    matcher = SequenceMatcher(None, first, last)
    by_words = sum(i2 - i1 for tag, i1, i2, _, _ in matcher.get_opcodes() if tag == "replace") <= MOST_BY_WORDS
    lines: list[Line] = []
    reached = 0
    for group in matcher.get_grouped_opcodes(AROUND):
        if group[0][1] > reached:
            lines.append(Line("cut"))
        for tag, i1, i2, j1, j2 in group:
            lines += _part(tag, first[i1:i2], last[j1:j2], by_words)
        reached = group[-1][2]
    if lines and reached < len(first):
        lines.append(Line("cut"))
    return Difference(lines, sum(each.kind == "add" for each in lines), sum(each.kind == "del" for each in lines))


def replaced(former: Any, current: Any) -> Iterator[tuple[Any, Any]]:
    """Each file that stood in a result, with what stands in its place now: another file, or None."""
    if is_file(former):
        now = current if is_file(current) else None
        if now is None or now["file"] != former["file"]:
            yield former, now
    elif isinstance(former, dict):
        known = current if isinstance(current, dict) else {}
        for key, each in former.items():
            yield from replaced(each, known.get(key))
    elif isinstance(former, list):
        others = current if isinstance(current, list) else []
        for each, now in zip_longest(former, others[: len(former)]):
            yield from replaced(each, now)


def _part(tag: str, first: list[str], last: list[str], by_words: bool) -> list[Line]:
    if tag == "equal":
        return [_whole("same", line) for line in first]
    if tag == "replace" and by_words and len(first) == len(last):
        return [line for old, new in zip(first, last, strict=True) for line in _changed(old, new)]
    return [*(_whole("del", line) for line in first), *(_whole("add", line) for line in last)]


def _changed(old: str, new: str) -> list[Line]:
    """One line that became another, with the words that did."""
    first, last = _WORDS.findall(old), _WORDS.findall(new)
    if len(first) > MOST_WORDS or len(last) > MOST_WORDS:
        return [_whole("del", old), _whole("add", new)]
    codes = SequenceMatcher(None, first, last).get_opcodes()
    removed = tuple(Piece("".join(first[i1:i2]), tag != "equal") for tag, i1, i2, _, _ in codes if i1 < i2)
    added = tuple(Piece("".join(last[j1:j2]), tag != "equal") for tag, _, _, j1, j2 in codes if j1 < j2)
    return [Line("del", removed), Line("add", added)]


def _whole(kind: Literal["same", "add", "del"], text: str) -> Line:
    return Line(kind, (Piece(text),))


def _lines(value: Any) -> list[str]:
    return list(islice(_told(value), MOST_LINES))


def _told(value: Any, name: str = "", margin: str = "") -> Iterator[str]:
    """As an outline: a name and what it is on a line, and what has parts or lines of its own below it."""
    if is_file(value):
        value = f"{value.get('name') or ''} ({value['file'][:13]})".strip()
    inner = f"{margin}  " if name else margin
    if isinstance(value, dict) and value:
        yield from [f"{margin}{name}:"] if name else []
        for key, each in value.items():
            yield from _told(each, str(key), inner)
    elif isinstance(value, list) and value:
        yield from [f"{margin}{name}:"] if name else []
        for number, each in enumerate(value, 1):
            yield from _told(each, str(number), inner)
    else:
        yield from _leaf(value, name, margin, inner)


def _leaf(value: Any, name: str, margin: str, inner: str) -> Iterator[str]:
    if isinstance(value, float):
        value = _rounded(value)
    lines = value.splitlines() if isinstance(value, str) else [json.dumps(value, ensure_ascii=False, default=str)]
    if name and len(lines) < 2:
        yield f"{margin}{name}: {''.join(lines)}"
        return
    yield from [f"{margin}{name}:"] if name else []
    yield from (f"{inner}{line}" for line in lines)


def _rounded(value: float) -> float:
    """To three places, or three digits of what is less than 1."""
    return round(value, 3) if abs(value) >= 1 else float(f"{value:.3g}")
