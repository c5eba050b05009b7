"""Map YouTube's errors to exceptions: what waits, for how long, and what a person can do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from retoma import GiveUp
from retoma.errors import ProviderDown, ProviderRejected, RateLimited
from retoma.outgoing import Response
from retoma_apps.providers.responses import format_provider_message, parse_json_object
from retoma_apps.providers.retry_after import get_response_time, parse_retry_after

UPLOAD_LIMIT_DELAY = timedelta(hours=24)
DEFAULT_RETRY_DELAY = timedelta(minutes=1)
_QUOTA = ("quotaExceeded", "dailyLimitExceeded")
_TOO_FAST = ("rateLimitExceeded", "userRateLimitExceeded")
VIDEO_REASONS = ("forbiddenPrivacySetting", "forbiddenLicenseSetting", "forbiddenEmbedSetting")
_ACCOUNT_ERRORS = {
    "youtubeSignupRequired": "the account has no YouTube channel: create one",
    "accessNotConfigured": "the YouTube Data API is disabled for this client: enable it in Google's console",
    "insufficientPermissions": "the refresh token lacks a scope: ask the owner to consent to `youtube`",
}
_FORBIDDEN_MESSAGE = (
    "YouTube does not allow this for our account: check that the channel is verified and that its owner has consented "
    "to `youtube`"
)


def raise_error(
    answer: Response, secrets: Sequence[str] = (), video_reasons: Sequence[str] = VIDEO_REASONS
) -> NoReturn:
    """Raise the error for an unsuccessful answer. Its message contains none of `secrets`, even if YouTube's does.

    A 403 for one of `video_reasons` concerns only this video, not the whole account.
    """
    reason, why = _error_reason(answer), format_provider_message(_error_object(answer).get("message"), *secrets)
    if reason in _QUOTA:
        raise RateLimited(until_midnight(answer), f"today's YouTube quota is used up{why}")
    if reason == "uploadLimitExceeded":
        raise RateLimited(UPLOAD_LIMIT_DELAY, f"the channel has reached its upload limit for 24 hours{why}")
    if answer.status == 429 or reason in _TOO_FAST:
        raise RateLimited(parse_retry_after(answer) or DEFAULT_RETRY_DELAY, f"YouTube is rate limiting us{why}")
    if answer.status >= 500 or answer.status == 408:
        raise ProviderDown(f"YouTube failed with {answer.status}{why}")
    if answer.status == 401:
        raise ProviderRejected(f"YouTube rejected our access token, even a new one{why}")
    if answer.status == 403 and reason not in video_reasons:
        raise ProviderRejected(f"{_ACCOUNT_ERRORS.get(reason, _FORBIDDEN_MESSAGE)}{why}")
    raise GiveUp(f"YouTube rejected this with {answer.status}{why}", "YOUTUBE_REFUSED")


def until_midnight(answer: Response) -> timedelta:
    """Return the time until quotas reset: midnight in California, by YouTube's clock."""
    now = (get_response_time(answer) or datetime.now(UTC)).astimezone(_pacific_zone())
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return max(midnight.astimezone(UTC) - now.astimezone(UTC), DEFAULT_RETRY_DELAY)


def _pacific_zone() -> tzinfo:
    """Fall back to winter time without a time zone database: an hour late in summer, never too early."""
    try:
        return ZoneInfo("America/Los_Angeles")
    except ZoneInfoNotFoundError:
        return timezone(timedelta(hours=-8))


def _error_reason(answer: Response) -> str:
    errors = _error_object(answer).get("errors")
    first = errors[0] if isinstance(errors, list) and errors else None
    reason = first.get("reason") if isinstance(first, dict) else None
    return reason if isinstance(reason, str) else ""


def _error_object(answer: Response) -> dict[str, Any]:
    error = (parse_json_object(answer) or {}).get("error")
    return error if isinstance(error, dict) else {}
