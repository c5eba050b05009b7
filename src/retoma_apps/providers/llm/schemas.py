"""Convert JSON schemas to the form that providers accept."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

# At least one provider rejects each of these in a strict schema.
_UNSUPPORTED_KEYWORDS = frozenset(
    (
        "default",
        "format",
        "pattern",
        *("minLength", "maxLength", "minItems", "maxItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    )
)


def strict_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema for strict output: every field is required, and no others are allowed.

    Limits are left out: state them in the prompt, and validate the answer.
    """
    strict: dict[str, Any] = _strict(schema.model_json_schema())
    return strict


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(each) for each in node]
    if not isinstance(node, dict):
        return node
    # A field may have the name of a keyword: its value is then a schema.
    strict = {
        name: _strict(each)
        for name, each in node.items()
        if name not in _UNSUPPORTED_KEYWORDS or isinstance(each, dict)
    }
    if isinstance(strict.get("properties"), dict):
        strict |= {"additionalProperties": False, "required": list(strict["properties"])}
    return strict
