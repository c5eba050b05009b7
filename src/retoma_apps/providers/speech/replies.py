"""What the services' answers mean that are no audio; the same for all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from datetime import timedelta
from typing import NoReturn

from retoma import ProviderDown, ProviderRefuses, RateLimited
from retoma.outgoing import Answer, NoAnswer
from retoma_apps.providers.pauses import asked_pause
from retoma_apps.providers.speech.errors import SpeechRefused, SpeechUnavailable

USUAL_PAUSE = timedelta(seconds=10)


async def answered(who: str, call: Awaitable[Answer]) -> Answer:
    try:
        return await call
    except NoAnswer as error:
        if isinstance(error.__cause__, TimeoutError):
            raise SpeechUnavailable(f"{who} did not answer: {error}", "SPEECH_TIMEOUT") from error
        raise ProviderDown(f"{who} did not answer: {error}") from error


def fail(who: str, answer: Answer, account: Mapping[int, str], why: str) -> NoReturn:
    """By the status. `account` has what to mend where a status means that our account is refused."""
    status, pause = answer.status, asked_pause(answer)
    if status in account:
        raise ProviderRefuses(f"{account[status]}{why}")
    if status == 429 or (status == 503 and pause is not None):
        raise RateLimited(pause or USUAL_PAUSE, f"{who} says that these are too many requests{why}")
    if status in (408, 504):
        raise SpeechUnavailable(f"{who} gave up waiting for the voice{why}", "SPEECH_TIMEOUT")
    if status >= 500:
        raise ProviderDown(f"{who} failed with {status}{why}")
    if status == 413:
        raise SpeechRefused(f"the text is too long for {who}: split it{why}", "SPEECH_TOO_LONG")
    raise SpeechRefused(f"{who} refuses this request with {status}{why}", "SPEECH_BAD_REQUEST")
