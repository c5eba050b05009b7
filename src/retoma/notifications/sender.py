"""The sender of notifications: claims due messages, leaves out what no longer matters, sends and records them.

A message whose sender died between sending and recording is sent again; an e-mail has the same Message-ID then.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

from retoma.app import App
from retoma.engine.outbox_sender import OutboxSender
from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.masking import hide_folders, mask_secrets
from retoma.notifications.attempt import Attempt, ChannelSender, give_up, retry
from retoma.notifications.chat_channels import SlackChannel, TelegramChannel
from retoma.notifications.content import Content, Reader, build_content
from retoma.notifications.email_channel import EmailChannel
from retoma.outgoing import HttpClient
from retoma.records import CHOSEN_KINDS, Channel, MessageState
from retoma.settings import Settings
from retoma.store import notifications
from retoma.store.database import Database
from retoma.store.notifications import ClaimedMessage
from retoma.tracebacks import release_frames

log = get_logger(__name__)
LEASE = timedelta(seconds=60)
CONCURRENCY = 16
MAX_PER_CHANNEL = 4
MAX_STORED_LENGTH = 1_000
CLEAN_UP_SECONDS = 3_600.0
MAX_DELETED = 10_000


class NotificationSender(OutboxSender[ClaimedMessage]):
    """Sends notifications until `stop`, through the channels of this process."""

    def __init__(
        self, app: App | None, database: Database, settings: Settings, channels: dict[Channel, ChannelSender]
    ) -> None:
        super().__init__(database, concurrency=CONCURRENCY)
        self._app = app
        self._public_url = settings.public_url
        self._channels = channels
        self._cleaned_at = -CLEAN_UP_SECONDS

    async def register(self) -> None:
        """Let people choose the channels of this process."""
        for channel in self._channels:
            await notifications.add_channel(self._database, channel, CHOSEN_KINDS)

    def _log_delay(self, error: Exception) -> None:
        log.warning("notifications_delayed", message="could not claim due notifications; retrying", error=error)

    async def _claim_due(self, room: int) -> list[ClaimedMessage]:
        if time.monotonic() - self._cleaned_at >= CLEAN_UP_SECONDS:
            await notifications.delete_old(self._database, MAX_DELETED)
            self._cleaned_at = time.monotonic()
        return await notifications.claim_messages(self._database, list(self._channels), room, MAX_PER_CHANNEL, LEASE)

    async def _send(self, message: ClaimedMessage) -> None:
        try:
            events = await notifications.prepare_message(self._database, message)
            if not events:
                log.info("notification_cancelled", message="a notification was no longer needed", **_describe(message))
                return
            reader = Reader(message.language, message.time_zone)
            content = build_content(self._app, events, reader, self._public_url)
            await self._record(message, await self._attempt(message, content))
        except DatabaseUnavailable as error:
            log.warning(
                "notification_not_recorded",
                message="could not record a notification: the database is unreachable; it will be sent again",
                **_describe(message),
                error=error,
            )
        except Exception as error:
            log.exception(
                "notification_crashed",
                message="an unexpected error prevented recording a notification; it will be sent again",
                **_describe(message),
                error=error,
            )
            release_frames(error)

    async def _attempt(self, message: ClaimedMessage, content: Content) -> Attempt:
        if message.address is None:
            return give_up("the person has removed the address")
        try:
            return await self._channels[message.channel].send(message, content)
        except Exception as unforeseen:
            # Count it as a failed attempt: a message without a recorded outcome would be sent forever.
            log.exception(
                "notification_send_crashed",
                message="an unexpected error prevented sending a notification",
                **_describe(message),
                error=unforeseen,
            )
            release_frames(unforeseen)
            return retry(message, f"an unexpected error on this side: {type(unforeseen).__name__}: {unforeseen}")

    async def _record(self, message: ClaimedMessage, attempt: Attempt) -> None:
        error = _make_storable(attempt.error, message)
        decision = attempt.decision
        state = await notifications.record_attempt(
            self._database,
            message,
            outcome=decision.outcome,
            delay=decision.delay,
            pause=decision.pause,
            error=error,
        )
        about = _describe(message)
        match state:
            case None:
                log.warning(
                    "notification_attempt_rejected",
                    message="discarded a late attempt: another sender has claimed the notification",
                    **about,
                )
            case MessageState.SENT:
                log.info("notification_sent", message="sent a notification", **about)
            case MessageState.DEAD:
                log.error("notification_dead", message="gave up on a notification", **about, error=error)
            case _:
                wait = round(decision.delay.total_seconds(), 1)
                log.warning(
                    "notification_failed",
                    message="a notification could not be sent; retrying later",
                    **about,
                    error=error,
                    retry_in_seconds=wait,
                )


@asynccontextmanager
async def open_sender(
    app: App | None, database: Database, settings: Settings, outgoing: HttpClient
) -> AsyncIterator[NotificationSender]:
    """Yield the sender with the channels that the settings allow. Slack needs none: its URLs are the people's own."""
    channels: dict[Channel, ChannelSender] = {Channel.SLACK: SlackChannel(outgoing)}
    async with AsyncExitStack() as stack:
        if settings.smtp_host is not None:
            channels[Channel.EMAIL] = EmailChannel(settings)
        if (token := settings.read_telegram_bot_token()) is not None:
            client = await stack.enter_async_context(TelegramChannel.open_client(settings.telegram_api_url))
            channels[Channel.TELEGRAM] = TelegramChannel(client, settings.telegram_api_url, token)
        yield NotificationSender(app, database, settings, channels)


def _describe(message: ClaimedMessage) -> dict[str, object]:
    """Return what the log says of a message. Addresses stay out: that of Slack is a secret."""
    return {
        "notification": str(message.id),
        "person": message.person,
        "channel": message.channel.value,
        "attempt": message.attempt,
    }


def _make_storable(text: str | None, message: ClaimedMessage) -> str | None:
    """Mask secrets: a server may repeat what it received, such as our URL."""
    if text is None:
        return None
    if message.channel is Channel.SLACK and message.address:
        text = text.replace(message.address, "[URL]")
    return hide_folders(mask_secrets(text)).replace("\0", "")[:MAX_STORED_LENGTH]
