"""Make records from rows."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from retoma.store.database import Row

Record = TypeVar("Record")


def make_record(kind: type[Record], row: Row | dict[str, Any], /, *json_columns: str, **changes: Any) -> Record:
    """Return the row as a record: with parsed JSON in `json_columns`, and with other values for `changes`."""
    return kind(**{**row, **{name: parse_json(row[name]) for name in json_columns}, **changes})


def parse_json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
