"""CSV that spreadsheets open without running anything in it, whatever separator they expect."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

# A spreadsheet whose separator is `;` ends a cell there although it is quoted, and what follows may be a formula too.
# Spreadsheets also read the wide signs as operators.
_FORMULA = re.compile(r"(^|[;|\t\r\n])(?=\s*[=+\-@＝＋－＠]|[\t\r])")  # noqa: RUF001


def format_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Return these rows as lines of CSV with every cell quoted, in which no text is taken for a formula."""
    lines = io.StringIO()
    csv.writer(lines, quoting=csv.QUOTE_ALL).writerows([_escape_cell(each) for each in row] for row in rows)
    return lines.getvalue()


def _escape_cell(value: Any) -> Any:
    """Text that would be a formula gets an apostrophe, which keeps it text. A number is none, also below zero."""
    return _FORMULA.sub(r"\1'", value) if isinstance(value, str) else value
