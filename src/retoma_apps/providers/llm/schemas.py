"""JSON schemas as providers want them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

# Each is refused by some provider in a strict schema.
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
    """The JSON schema as providers want it for strict output: every field is required, and no other is allowed.

    Limits are left out: say them in words, and check the answer.
    """
    made: dict[str, Any] = _strict(schema.model_json_schema())
    return made


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(each) for each in node]
    if not isinstance(node, dict):
        return node
    # A field may have the name of a limit: then what stands behind it is a schema.
    made = {
        name: _strict(each)
        for name, each in node.items()
        if name not in _UNSUPPORTED_KEYWORDS or isinstance(each, dict)
    }
    if isinstance(made.get("properties"), dict):
        made |= {"additionalProperties": False, "required": list(made["properties"])}
    return made
