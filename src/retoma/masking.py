"""What is kept out of errors, events and log lines: secrets of this process, and for some its stacks."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any
from urllib.parse import quote

from dotenv import dotenv_values

NAMES = ("KEY", "SECRET", "TOKEN", "PASSWORD")
SHORTEST = 8  # characters; a shorter value may be part of any word
LONGEST_WORD = 12


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
        for name, value in {**dotenv_values(".env"), **os.environ}.items()
        if name.upper().endswith(NAMES) and value and _is_secret(value.strip())
        for written in _ways_to_write(value.strip())
    }
    return dict(sorted(names.items(), key=lambda each: len(each[0]), reverse=True))


def _is_secret(value: str) -> bool:
    """Not a word that others write too, such as the usual password of a database at home."""
    return len(value) >= SHORTEST and not (value.isalpha() and value.islower() and len(value) < LONGEST_WORD)


def _ways_to_write(value: str) -> list[str]:
    in_urls = [quote(value, safe=safe, errors="replace") for safe in ("", "/")]
    return [value, repr(value)[1:-1], json.dumps(value)[1:-1], *in_urls]
