"""All error codes of the application: their class, whether they are retried, what happens next, and who acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from retoma_apps.providers.wordpress import CODES

ErrorClass = Literal["input", "provider", "content", "credentials", "rate_limit", "wordpress", "conflict", "internal"]
Actor = Literal["caller", "nobody", "operator", "editor", "developer"]


@dataclass(frozen=True)
class ErrorCode:
    """`is_retried` says whether the engine repeats the failed call without a person, `actor` who acts if that is not
    enough."""

    code: str
    error_class: ErrorClass
    is_retried: bool
    next_action: str
    actor: Actor


_TABLE = (
    ErrorCode("CSV_INVALID", "input", False, "fix the file or the request", "caller"),
    ErrorCode("BLOG_NOT_FOUND", "input", False, "create the blog, or correct its id", "caller"),
    ErrorCode("LLM_TIMEOUT", "provider", True, "retry twice, then the next provider", "nobody"),
    ErrorCode(
        "LLM_INVALID_JSON", "provider", True, "repair the answer once, retry twice, then the next provider", "nobody"
    ),
    ErrorCode("LLM_CONTENT_FILTERED", "content", False, "change the request, or use another model", "caller"),
    ErrorCode(
        "LLM_TOO_LONG", "provider", False, "use a model that accepts longer texts, then rerun the step", "operator"
    ),
    ErrorCode("LLM_NO_SUCH_MODEL", "provider", False, "set AUTOWRITER_MODEL to another model, then resume", "operator"),
    ErrorCode("LLM_BAD_REQUEST", "provider", False, "report what the provider objects to", "developer"),
    ErrorCode("KEYWORDS_API_FAIL", "provider", True, "retry twice, then the next provider", "nobody"),
    ErrorCode(
        "IMAGE_API_FAIL",
        "provider",
        True,
        "retry twice, then the next provider; without one, publish without the image and ask a person",
        "nobody",
    ),
    ErrorCode("IMAGE_CONTENT_FILTERED", "content", False, "publish without the image and ask a person", "editor"),
    ErrorCode("IMAGE_BAD_REQUEST", "provider", False, "publish without the image and ask a person", "editor"),
    ErrorCode("KEYWORDS_BAD_REQUEST", "provider", False, "report what the provider objects to", "developer"),
    ErrorCode("QUALITY_GATE_FAIL", "content", False, "rerun the part that failed, or change the request", "editor"),
    ErrorCode("TIMEOUT", "provider", True, "retry twice, then the next provider", "nobody"),
    ErrorCode("BUDGET", "provider", False, "raise the budget, or decide the review", "operator"),
    ErrorCode("COST_LIMIT", "provider", False, "check why the step is so expensive, then rerun it", "operator"),
    ErrorCode("TOTAL_TIMEOUT", "provider", False, "check why all providers fail, then rerun the step", "operator"),
    ErrorCode("WP_PUBLISH_FAIL", "wordpress", True, "retry twice, then fail", "nobody"),
    ErrorCode(
        "WP_REJECTED",
        "wordpress",
        False,
        "check the server of the site: it rejected the request before the plugin received it",
        "operator",
    ),
    ErrorCode(
        "NO_MODEL",
        "credentials",
        False,
        "set the API key of a provider, or choose a theme that has facts, then resume",
        "operator",
    ),
    ErrorCode("ERROR", "internal", True, "retry twice, then fail; report the message", "developer"),
    ErrorCode("QUARANTINED", "internal", False, "find out why the step kills its worker, then resume", "developer"),
)
_PLUGIN_CLASSES: dict[str, ErrorClass] = {
    "AUTH_FAILED": "credentials",
    "HMAC_INVALID": "credentials",
    "RATE_LIMIT": "rate_limit",
    "IDEMPOTENCY_DUPLICATE": "conflict",
    "STALE_REVISION": "conflict",
    "POST_EDITED": "conflict",
    "POST_DELETED": "conflict",
}
_PLUGIN_TABLE = (
    ErrorCode(code, _PLUGIN_CLASSES.get(code, "wordpress"), rule.retryable, rule.next_action, rule.who_acts)
    for code, rule in CODES.items()
)
ERROR_CODES = {each.code: each for each in (*_PLUGIN_TABLE, *_TABLE)}

# Codes of the clients of providers, by the code under which callers know them.
_STANDARD_CODES = {
    "LLM_UNAVAILABLE": "LLM_TIMEOUT",
    "LLM_ERROR": "LLM_TIMEOUT",
    "LLM_INVALID_ANSWER": "LLM_INVALID_JSON",
    "LLM_CUT_SHORT": "LLM_INVALID_JSON",
    "PUBLISH_FAILED": "WP_PUBLISH_FAIL",
}
_CODE_BY_PREFIX = {"IMAGE_": "IMAGE_API_FAIL", "KEYWORDS_": "KEYWORDS_API_FAIL", "WP_": "WP_PUBLISH_FAIL"}


def standard_code(code: str) -> str:
    """Return the code of the table for a code of a provider. A code that the table lacks is returned unchanged."""
    code = _STANDARD_CODES.get(code, code)
    if code in ERROR_CODES:
        return code
    return next((standard for prefix, standard in _CODE_BY_PREFIX.items() if code.startswith(prefix)), code)
