"""Print tables for people, and JSON and CSV for programs. Text from users is never interpreted as markup."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from retoma.cli.options import DetailFormat, ListFormat
from retoma.csv_cells import format_csv
from retoma.terminal import escape_text, shorten

Row = Mapping[str, Any]
_UNLIMITED_WIDTH = 1_000  # output that is not a terminal is never truncated
_UNSAFE_IN_JSON = re.compile(r"[\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]")

_STATES_BY_COLOUR = {
    "green": ("completed", "succeeded", "delivered", "ok", "approved"),
    "cyan": ("running", "sending", "open"),
    "blue": ("pending", "ready", "due"),
    "magenta": ("paused", "needs_review"),
    "yellow": ("sent_back", "completed_with_errors", "warning", "cancelling", "stuck"),
    "red": ("failed", "rejected", "quarantined", "dead", "disabled", "problem"),
    "dim": ("cancelled", "expired", "withdrawn", "skipped"),
}
_COLOURS = {state: colour for colour, states in _STATES_BY_COLOUR.items() for state in states}


@dataclass(frozen=True)
class Column:
    """A column of a table. `formatter` formats the value for people; with `max_length`, any value is truncated."""

    key: str
    title: str = ""
    formatter: Callable[[Any], Text | str] = str
    max_length: int | None = None

    def format(self, value: Any) -> Text:
        if value is None:
            return Text()
        text = self.formatter(value) if self.max_length is None else format_value(value, self.max_length)
        return text if isinstance(text, Text) else Text(escape_text(text))


def stdout() -> Console:
    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _UNLIMITED_WIDTH)


def stderr() -> Console:
    return Console(stderr=True, highlight=False, markup=False, width=None if sys.stderr.isatty() else _UNLIMITED_WIDTH)


def print_rows(
    records: Sequence[Any], columns: Sequence[Column], output: ListFormat, empty: str = "", *, next_page: str = ""
) -> None:
    """Print rows or records. For a table, print `empty` on stderr if it has none, otherwise `next_page`."""
    rows = [record if isinstance(record, Mapping) else vars(record) for record in records]
    if output is ListFormat.JSON:
        print(to_json(rows, indent=2))
    elif output is ListFormat.JSONL:
        for row in rows:
            print(to_json(row))
    elif output is ListFormat.CSV:
        _print_csv(rows, columns)
    elif rows:
        stdout().print(make_table(rows, columns))
        if next_page:
            stderr().print(next_page)
    else:
        stderr().print(empty)


def print_result(value: Any, text: Text | str, output: DetailFormat) -> None:
    """Print the value as JSON, or the text for people."""
    if output is DetailFormat.JSON:
        print(to_json(value))
    else:
        stdout().print(text, soft_wrap=True)


def make_table(rows: Sequence[Row], columns: Sequence[Column]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column.title or column.key, overflow="fold" if number == 0 else "ellipsis", no_wrap=number > 0)
    for row in rows:
        table.add_row(*(column.format(row.get(column.key)) for column in columns))
    return table


def to_json(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=to_plain)
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def to_plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


def format_state(value: Any) -> Text:
    return Text(str(value), style=_COLOURS.get(str(value), ""))


def format_time(value: datetime | None) -> str:
    return "" if value is None else value.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def format_zoned_time(value: datetime) -> str:
    """Return the local time with its zone, for a sentence."""
    return value.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def format_duration(value: timedelta | float | None) -> str:
    """Return `84 ms`, `1.2 s`, `12 s`, `3 min 20 s`, `2 h 5 min` or `3 d 4 h`."""
    if value is None:
        return ""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, smaller_size, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def format_value(value: Any, length: int = 100) -> str:
    """Format any value on one line, truncated to `length`."""
    return shorten(escape_text(value if isinstance(value, str) else to_json(value)), length)


def _print_csv(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    keys = list(rows[0]) if rows else [column.key for column in columns]
    sys.stdout.write(format_csv([keys, *([_format_csv_cell(row[key]) for key in keys] for row in rows)]))


def _format_csv_cell(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else to_json(value) if isinstance(value, dict | list) else to_plain(value)
    return escape_text(str(text)) if not isinstance(text, str) or not text.isprintable() else text
