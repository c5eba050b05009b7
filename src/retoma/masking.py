"""What is kept out of errors, events and log lines: secrets of this process's environment, and for some its stacks."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any
from urllib.parse import quote

NAMES = ("KEY", "SECRET", "TOKEN", "PASSWORD")
SHORTEST = 8  # characters; a shorter value may be part of any word


def masked(text: str) -> str:
    """The same text, with the name of its variable in place of each secret. Cut only what is masked."""
    for written, name in _secrets().items():
        text = text.replace(written, f"[{name}]")
    return text


def without_stack(said: Any) -> Any:
    """What an event says, but for where in this server's files an error was met."""
    return {name: each for name, each in said.items() if name != "stack"} if isinstance(said, dict) else said


@cache
def _secrets() -> dict[str, str]:
    """Names of variables by how their values may be written: the longest first, as one may be part of another."""
    names = {
        written: name
        for name, value in os.environ.items()
        if name.upper().endswith(NAMES) and len(value.strip()) >= SHORTEST
        for written in _ways_to_write(value.strip())
    }
    return dict(sorted(names.items(), key=lambda each: len(each[0]), reverse=True))


def _ways_to_write(value: str) -> list[str]:
    in_urls = [quote(value, safe=safe, errors="replace") for safe in ("", "/")]
    return [value, repr(value)[1:-1], json.dumps(value)[1:-1], *in_urls]
