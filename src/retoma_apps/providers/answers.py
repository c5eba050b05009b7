"""What providers answer, which may be anything."""

from __future__ import annotations

from typing import Any

from retoma.outgoing import Answer

_LONGEST = 200


def json_of(answer: Answer) -> Any:
    """None if it is no JSON, or too long or too deep to be read."""
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def object_of(answer: Answer) -> dict[str, Any] | None:
    told = json_of(answer)
    return told if isinstance(told, dict) else None


def said(words: object, *secrets: str) -> str:
    """A provider's own words for a message: on one line, shortened, and without our secrets if it repeats them."""
    if not isinstance(words, str):
        return ""
    for secret in filter(None, secrets):
        words = words.replace(secret, "...")
    words = " ".join(words.split())
    return f" ({words[:_LONGEST]})" if words else ""
