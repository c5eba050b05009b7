"""Named statements of `sql/<noun>.sql`. Parameters are written `:name` and bound by name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


@dataclass(frozen=True)
class Statement:
    """`sql` has numbered parameters; `parameters` are their names in that order."""

    name: str
    sql: str
    parameters: tuple[str, ...]

    def bind(self, values: dict[str, Any]) -> list[Any]:
        if values.keys() != set(self.parameters):
            raise TypeError(f"{self.name} takes {', '.join(self.parameters)}, not {', '.join(values)}")
        return [values[name] for name in self.parameters]


@cache
def statements(noun: str) -> dict[str, Statement]:
    """Return the statements of `sql/<noun>.sql` by name."""
    text = (files("retoma.store") / "sql" / f"{noun}.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: _statement(name, body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _statement(name: str, body: str) -> Statement:
    parameters = tuple(dict.fromkeys(_PARAMETER.findall(body)))
    sql = _PARAMETER.sub(lambda match: f"${parameters.index(match[1]) + 1}", body)
    return Statement(name, sql.strip(), parameters)
