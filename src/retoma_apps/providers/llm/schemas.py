"""JSON schemas as providers want them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def strict_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema as providers want it for strict output: every field is required, and no other is allowed."""
    made = schema.model_json_schema()
    _tighten(made)
    return made


def _tighten(node: Any) -> None:
    if isinstance(node, list):
        for each in node:
            _tighten(each)
    if not isinstance(node, dict):
        return
    if isinstance(node.get("properties"), dict):
        node["additionalProperties"] = False
        node["required"] = list(node["properties"])
    for each in node.values():
        _tighten(each)
