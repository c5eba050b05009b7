"""Parse provider responses. A response may contain anything."""

from __future__ import annotations

from typing import Any

from retoma.outgoing import Response

_LONGEST = 200


def parse_json(answer: Response) -> Any:
    """Return None if the body is not JSON, or is truncated or too deeply nested to parse."""
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def parse_json_object(answer: Response) -> dict[str, Any] | None:
    body = parse_json(answer)
    return body if isinstance(body, dict) else None


def format_provider_message(message: object, *secrets: str) -> str:
    """Return a provider's message in parentheses, on one line and shortened, with our secrets removed."""
    if not isinstance(message, str):
        return ""
    for secret in filter(None, secrets):
        message = message.replace(secret, "...")
    message = " ".join(message.split())
    return f" ({message[:_LONGEST]})" if message else ""
