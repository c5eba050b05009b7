"""Compare two results line by line, and changed lines word by word. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, Literal

from retoma.define.file import is_file

MAX_LINES = 1_000
MAX_WORDS_PER_LINE = 300  # of one line
MAX_LINES_BY_WORD = 100  # lines
MAX_WORD_PAIRS = 500_000  # words of one line times words of the other, over all lines: a tenth of a second
CONTEXT_LINES = 2  # lines that stay the same are shown on each side of a change
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True)
class Piece:
    text: str
    is_changed: bool = False


@dataclass(frozen=True)
class Line:
    """`cut` replaces unchanged lines that are omitted."""

    kind: Literal["same", "add", "del", "cut"]
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class Difference:
    lines: list[Line]
    added: int
    removed: int

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


def diff_results(previous: Any, current: Any) -> Difference:
    """Compare two results. Large ones take half a second: on a server, call it in a thread."""
    first, last = _to_lines(previous), _to_lines(current)
    matcher = SequenceMatcher(None, first, last)
    replaced = sum(i2 - i1 for tag, i1, i2, _, _ in matcher.get_opcodes() if tag == "replace")
    comparison = _WordComparison(MAX_WORD_PAIRS if replaced <= MAX_LINES_BY_WORD else 0)
    lines: list[Line] = []
    reached = 0
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        if group[0][1] > reached:
            lines.append(Line("cut"))
        for tag, i1, i2, j1, j2 in group:
            lines += _diff_block(tag, first[i1:i2], last[j1:j2], comparison)
        reached = group[-1][2]
    if lines and reached < len(first):
        lines.append(Line("cut"))
    return Difference(lines, sum(each.kind == "add" for each in lines), sum(each.kind == "del" for each in lines))


def _diff_block(tag: str, first: list[str], last: list[str], comparison: _WordComparison) -> list[Line]:
    if tag == "equal":
        return [_make_line("same", line) for line in first]
    if tag == "replace" and len(first) == len(last) and comparison.pairs_left > 0:
        return [line for old, new in zip(first, last, strict=True) for line in comparison.diff_words(old, new)]
    return [*(_make_line("del", line) for line in first), *(_make_line("add", line) for line in last)]


class _WordComparison:
    """Compares lines word by word, until it has compared `pairs_left` pairs of words: results are untrusted."""

    def __init__(self, pairs_left: int) -> None:
        self.pairs_left = pairs_left

    def diff_words(self, old: str, new: str) -> list[Line]:
        first, last = _split_words(old), _split_words(new)
        self.pairs_left -= len(first) * len(last)
        if self.pairs_left < 0 or max(len(first), len(last)) > MAX_WORDS_PER_LINE:
            return [_make_line("del", old), _make_line("add", new)]
        codes = SequenceMatcher(None, first, last).get_opcodes()
        removed = tuple(Piece("".join(first[i1:i2]), tag != "equal") for tag, i1, i2, _, _ in codes if i1 < i2)
        added = tuple(Piece("".join(last[j1:j2]), tag != "equal") for tag, _, _, j1, j2 in codes if j1 < j2)
        return [Line("del", removed), Line("add", added)]


def _split_words(line: str) -> list[str]:
    """Return the words, and one more than may be compared if there are too many."""
    return [found[0] for found in islice(_WORDS.finditer(line), MAX_WORDS_PER_LINE + 1)]


def _make_line(kind: Literal["same", "add", "del"], text: str) -> Line:
    return Line(kind, (Piece(text),))


def _to_lines(value: Any) -> list[str]:
    return list(islice(_outline(value), MAX_LINES))


def _outline(value: Any, name: str = "", margin: str = "") -> Iterator[str]:
    """Yield an outline: a name and its value per line, nested values and long texts indented below."""
    if is_file(value):
        value = f"{value.get('name') or ''} ({value['file'][:13]})".strip()
    inner = f"{margin}  " if name else margin
    if isinstance(value, dict) and value:
        yield from [f"{margin}{name}:"] if name else []
        for key, each in value.items():
            yield from _outline(each, str(key), inner)
    elif isinstance(value, list) and value:
        yield from [f"{margin}{name}:"] if name else []
        for number, each in enumerate(value, 1):
            yield from _outline(each, str(number), inner)
    else:
        yield from _outline_leaf(value, name, margin, inner)


def _outline_leaf(value: Any, name: str, margin: str, inner: str) -> Iterator[str]:
    if isinstance(value, float):
        value = round_number(value)
    lines = value.splitlines() if isinstance(value, str) else [json.dumps(value, ensure_ascii=False, default=str)]
    if name and len(lines) < 2:
        yield f"{margin}{name}: {''.join(lines)}"
        return
    yield from [f"{margin}{name}:"] if name else []
    yield from (f"{inner}{line}" for line in lines)


def round_number(value: float) -> float:
    """Round to three decimal places, or to three significant digits below 1."""
    return round(value, 3) if abs(value) >= 1 else float(f"{value:.3g}")
