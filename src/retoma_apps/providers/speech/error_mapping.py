"""Map error answers of all speech services to exceptions."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from datetime import timedelta
from typing import NoReturn

from retoma import ProviderDown, ProviderRejected, RateLimited
from retoma.outgoing import NoResponse, Response
from retoma_apps.providers.retry_after import parse_retry_after
from retoma_apps.providers.speech.errors import SpeechRefused, SpeechUnavailable

DEFAULT_RETRY_DELAY = timedelta(seconds=10)


async def translate_no_answer(provider: str, call: Awaitable[Response]) -> Response:
    try:
        return await call
    except NoResponse as error:
        if isinstance(error.__cause__, TimeoutError):
            raise SpeechUnavailable(f"{provider} did not answer: {error}", "SPEECH_TIMEOUT") from error
        raise ProviderDown(f"{provider} did not answer: {error}") from error


def raise_error(provider: str, answer: Response, account_errors: Mapping[int, str], detail: str) -> NoReturn:
    """Raise by the status. `account_errors` has the message, with the fix, for each status that rejects our account."""
    status, pause = answer.status, parse_retry_after(answer)
    if status in account_errors:
        raise ProviderRejected(f"{account_errors[status]}{detail}")
    if status == 429 or (status == 503 and pause is not None):
        raise RateLimited(pause or DEFAULT_RETRY_DELAY, f"{provider} is rate limiting us{detail}")
    if status in (408, 504):
        raise SpeechUnavailable(f"{provider} timed out{detail}", "SPEECH_TIMEOUT")
    if status >= 500:
        raise ProviderDown(f"{provider} failed with {status}{detail}")
    if status == 413:
        raise SpeechRefused(f"the text is too long for {provider}: split it{detail}", "SPEECH_TOO_LONG")
    raise SpeechRefused(f"{provider} rejected this request with {status}{detail}", "SPEECH_BAD_REQUEST")
