"""Chats: Slack-compatible incoming webhooks, and the Bot API of Telegram."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from markupsafe import Markup, escape

from retoma.errors import NoResponse, UnsafeUrl
from retoma.notifications.attempt import DELIVERED, Attempt, disable_address, give_up, retry
from retoma.notifications.content import Content, Line
from retoma.outgoing import Guard, HttpClient, Response
from retoma.store.notifications import ClaimedMessage
from retoma.webhooks.delivery_retries import MAX_PAUSE, parse_retry_after

TIMEOUT = 10.0
MAX_RESPONSE_BYTES = 64_000
MAX_LINES = 10
MAX_TELEGRAM_LENGTH = 4_096  # of the text without markup, in UTF-16 code units
# The descriptions with which Telegram says that a chat does not exist, or no longer under this number.
_NO_SUCH_CHAT = ("chat not found", "peer_id_invalid", "user not found", "upgraded to a supergroup", "chat_id is empty")
_SLACK_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class SlackChannel:
    """Posts to the person's own webhook, through the guard that protects private hosts."""

    def __init__(self, outgoing: HttpClient) -> None:
        self._outgoing = outgoing

    async def send(self, message: ClaimedMessage, content: Content) -> Attempt:
        body = {"text": format_slack(content), "unfurl_links": False, "unfurl_media": False}
        try:
            response = await self._outgoing.request(
                "POST", message.address or "", json=body, timeout=TIMEOUT, limit=MAX_RESPONSE_BYTES
            )
        except UnsafeUrl as refused:
            return give_up(str(refused))
        except NoResponse as error:
            return retry(message, str(error))
        return self._judge(message, response)

    def _judge(self, message: ClaimedMessage, response: Response) -> Attempt:
        if response.is_success:
            return DELIVERED
        error = f"the webhook answered {response.status} {response.text[:200]}"
        match response.status:
            case 403 | 404 | 410:  # removed, forbidden, or its channel is archived
                return disable_address(error)
            case 429 | 503:
                return retry(message, error, wait=parse_retry_after(response.headers.get("retry-after"), message.now))
            case status if 400 <= status < 500 and status != 408:
                return give_up(error)
        return retry(message, error)


class TelegramChannel:
    """Sends as the bot of the settings. The API's host is the operator's choice, so it may be private."""

    def __init__(self, outgoing: HttpClient, api_url: str, token: str) -> None:
        self._outgoing = outgoing
        self._url = f"{api_url.rstrip('/')}/bot{token}/sendMessage"

    @staticmethod
    def open_client(api_url: str) -> HttpClient:
        """Return a client that reaches this API, and no private host besides."""
        return HttpClient(Guard().with_origin_of(api_url))

    async def send(self, message: ClaimedMessage, content: Content) -> Attempt:
        body = {
            "chat_id": message.address,
            "text": format_telegram(content),
            "parse_mode": "HTML",
            "link_preview_options": {"is_disabled": True},
        }
        try:
            response = await self._outgoing.request(
                "POST", self._url, json=body, timeout=TIMEOUT, limit=MAX_RESPONSE_BYTES
            )
        except NoResponse as error:
            return retry(message, str(error))
        return self._judge(message, response)

    def _judge(self, message: ClaimedMessage, response: Response) -> Attempt:
        answer = _parse_answer(response)
        if response.is_success and answer.get("ok") is True:
            return DELIVERED
        error = f"Telegram answered {response.status} {str(answer.get('description') or response.text)[:200]}"
        match response.status:
            case 403:  # the person has blocked the bot, or removed it from the group
                return disable_address(error)
            case 400:  # also for a text that Telegram does not take, which says nothing about the address
                is_gone = any(each in error.lower() for each in _NO_SUCH_CHAT)
                return disable_address(error) if is_gone else give_up(error)
            case 429:
                return retry(message, error, wait=_get_retry_after(answer))
        return retry(message, error)


def format_slack(content: Content) -> str:
    shown = content.lines[:MAX_LINES]
    return "\n\n".join([*map(_format_slack_line, shown), *_count_rest(content, len(shown))])


def _format_slack_line(line: Line) -> str:
    details = _escape_slack(_join_details(line))
    # A vertical bar would end the address of a link.
    link = (
        f"<{line.url}|{_escape_slack(line.headline).replace('|', '/')}>" if line.url else _escape_slack(line.headline)
    )
    return f"*{link}*\n{details}"


def _escape_slack(text: str) -> str:
    return text.translate(_SLACK_ESCAPES)


def format_telegram(content: Content) -> str:
    """Return as many lines as fit."""
    shown = content.lines[:MAX_LINES]
    while len(shown) > 1 and _measure_telegram(content, shown) > MAX_TELEGRAM_LENGTH:
        shown = shown[:-1]
    return str(Markup("\n\n").join([*map(_format_telegram_line, shown), *_count_rest(content, len(shown))]))


def _measure_telegram(content: Content, lines: Sequence[Line]) -> int:
    """Return the length of the text as Telegram counts it: without markup."""
    texts = [f"{line.headline}\n{_join_details(line)}" for line in lines]
    return len("\n\n".join([*texts, *_count_rest(content, len(lines))]).encode("utf-16-le")) // 2


def _format_telegram_line(line: Line) -> Markup:
    headline = Markup('<a href="{}">{}</a>').format(line.url, line.headline) if line.url else escape(line.headline)
    return Markup("<b>{}</b>\n{}").format(headline, _join_details(line))


def _join_details(line: Line) -> str:
    return " · ".join(line.details)


def _count_rest(content: Content, shown: int) -> list[str]:
    """Return how many lines were left out, and where the rest is."""
    rest = len(content.lines) - shown
    return [f"+ {rest}" + (f": {content.home_url}" if content.home_url else "")] if rest > 0 else []


def _parse_answer(response: Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _get_retry_after(answer: dict[str, Any]) -> timedelta | None:
    parameters = answer.get("parameters")
    seconds = parameters.get("retry_after") if isinstance(parameters, dict) else None
    return min(timedelta(seconds=seconds), MAX_PAUSE) if isinstance(seconds, int) and 0 <= seconds < 10**6 else None
