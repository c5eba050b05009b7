"""What the audit log keeps of values: enough to see what changed, without secrets, and never all of a long text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from retoma.masking import is_secret_name, mask_json, mask_secrets

MAX_LENGTH = 4_000  # characters of JSON
_START_LENGTH = 500
HIDDEN = "***"


def summarize(value: Any) -> Any:
    """Return the value as JSON without secrets that this process knows; of a long one, its size and its beginning."""
    plain = mask_json(_hide_named_secrets(to_jsonable_python(value, fallback=str)))
    text = json.dumps(plain, ensure_ascii=False)
    if len(text) <= MAX_LENGTH:
        return plain
    return {"characters": len(text), "starts_with": mask_secrets(text)[:_START_LENGTH]}


def _hide_named_secrets(value: Any) -> Any:
    """Replace the values of fields that are named as secrets, such as `api_key`."""
    match value:
        case dict():
            return {
                name: HIDDEN if _is_hidden(name, each) else _hide_named_secrets(each) for name, each in value.items()
            }
        case list():
            return [_hide_named_secrets(each) for each in value]
        case _:
            return value


def _is_hidden(name: str, value: Any) -> bool:
    return isinstance(value, str) and value != "" and is_secret_name(name)


def keep_set(**values: Any) -> dict[str, Any]:
    """Return the values that are set, each summarized."""
    return {name: summarize(value) for name, value in values.items() if value not in (None, "", (), [], {})}


def list_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parts of two objects in which they differ, each summarized."""
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return _summarize_fields(before, changed), _summarize_fields(after, changed)


def _summarize_fields(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {
        name: HIDDEN if _is_hidden(name, values[name]) else summarize(values[name]) for name in names if name in values
    }
