"""What providers answer, which may be anything."""

from __future__ import annotations

from typing import Any

from retoma.outgoing import Response

_LONGEST = 200


def parse_json(answer: Response) -> Any:
    """None if it is no JSON, or too long or too deep to be read."""
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def parse_json_object(answer: Response) -> dict[str, Any] | None:
    told = parse_json(answer)
    return told if isinstance(told, dict) else None


def format_provider_message(message: object, *secrets: str) -> str:
    """A provider's own words for a message: on one line, shortened, and without our secrets if it repeats them."""
    if not isinstance(message, str):
        return ""
    for secret in filter(None, secrets):
        message = message.replace(secret, "...")
    message = " ".join(message.split())
    return f" ({message[:_LONGEST]})" if message else ""
