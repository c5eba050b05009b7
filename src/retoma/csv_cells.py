"""CSV that spreadsheets open without running formulas in it, whatever separator they expect."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

# A spreadsheet with the separator `;` ends a cell there even if it is quoted, and the rest may be a formula, too.
# Spreadsheets also read full-width signs as operators.
_FORMULA = re.compile(r"(^|[;|\t\r\n])(?=\s*[=+\-@＝＋－＠]|[\t\r])")  # noqa: RUF001


def format_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Return these rows as CSV with every cell quoted, in which no text is read as a formula."""
    lines = io.StringIO()
    csv.writer(lines, quoting=csv.QUOTE_ALL).writerows([_escape_cell(each) for each in row] for row in rows)
    return lines.getvalue()


def _escape_cell(value: Any) -> Any:
    """Prefix text that would be a formula with an apostrophe. Numbers stay, also negative ones."""
    return _FORMULA.sub(r"\1'", value) if isinstance(value, str) else value
