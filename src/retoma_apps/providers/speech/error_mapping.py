"""What the services' answers mean that are no audio; the same for all of them."""

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
    """By the status. `account` has what to mend where a status means that our account is refused."""
    status, pause = answer.status, parse_retry_after(answer)
    if status in account_errors:
        raise ProviderRejected(f"{account_errors[status]}{detail}")
    if status == 429 or (status == 503 and pause is not None):
        raise RateLimited(pause or DEFAULT_RETRY_DELAY, f"{provider} says that these are too many requests{detail}")
    if status in (408, 504):
        raise SpeechUnavailable(f"{provider} gave up waiting for the voice{detail}", "SPEECH_TIMEOUT")
    if status >= 500:
        raise ProviderDown(f"{provider} failed with {status}{detail}")
    if status == 413:
        raise SpeechRefused(f"the text is too long for {provider}: split it{detail}", "SPEECH_TOO_LONG")
    raise SpeechRefused(f"{provider} refuses this request with {status}{detail}", "SPEECH_BAD_REQUEST")
