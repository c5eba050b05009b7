"""Map the plugin's errors to exceptions, by the table of its codes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NoReturn

from retoma import GiveUp
from retoma.errors import ProviderDown, ProviderRejected, RateLimited, RetryLater
from retoma.outgoing import Response
from retoma_apps.providers.responses import format_provider_message, parse_json_object
from retoma_apps.providers.retry_after import parse_retry_after
from retoma_apps.providers.wordpress.codes import CODES, CodeRule
from retoma_apps.providers.wordpress.errors import PostChanged, PublicationFailed, SiteRejected

DEFAULT_RETRY_DELAY = timedelta(seconds=30)
_NO_PLUGIN = "rest_no_route"


def read_code(answer: Response) -> str:
    """Return the code of an unsuccessful answer, or "" if the plugin did not send it."""
    code = (parse_json_object(answer) or {}).get("code")
    return code if isinstance(code, str) else ""


def raise_error(answer: Response, site: str, secret: str) -> NoReturn:
    """Raise the error for an unsuccessful answer. Its message never contains `secret`."""
    body, code = parse_json_object(answer) or {}, read_code(answer)
    why = format_provider_message(body.get("message"), secret)
    if code in CODES:
        _raise_code(answer, code, CODES[code], f"{site} answered {code}{why}", _read_data(body))
    if code == _NO_PLUGIN:
        raise ProviderRejected(f"{site} does not have the plugin AutoWriter: install and activate it")
    if answer.status == 429:
        raise RateLimited(parse_retry_after(answer) or DEFAULT_RETRY_DELAY, f"{site} is rate limiting us{why}")
    if answer.status >= 500 or answer.status == 408:
        raise ProviderDown(f"{site} failed with {answer.status}{why}")
    if 300 <= answer.status < 400:
        raise ProviderRejected(f"{site} redirects to another address: set WORDPRESS_BASE_URL to that one")
    if answer.status in (401, 403):
        raise ProviderRejected(f"{site} refused the request before the plugin saw it: allow autowriter/v1 there{why}")
    raise GiveUp(f"{site} rejected the request with {answer.status}{why}", "WP_REJECTED")


def _raise_code(answer: Response, code: str, rule: CodeRule, reason: str, data: dict[str, Any]) -> NoReturn:
    message = f"{reason}; {rule.next_action}"
    if rule.error is RateLimited:
        raise RateLimited(parse_retry_after(answer) or DEFAULT_RETRY_DELAY, message)
    if rule.error is SiteRejected:
        raise SiteRejected(message, code)
    if rule.error is PublicationFailed:
        raise PublicationFailed(message, code)
    if rule.error is PostChanged:
        edited = data.get("edited")
        raise PostChanged(message, code, tuple(map(str, edited)) if isinstance(edited, list) else ())
    if data.get("retryable") is True:  # another request with the same key is in progress
        raise RetryLater(parse_retry_after(answer) or DEFAULT_RETRY_DELAY, reason)
    raise GiveUp(message, code)


def _read_data(body: dict[str, Any]) -> dict[str, Any]:
    data = body.get("data")
    return data if isinstance(data, dict) else {}
