"""The sender of notifications: claims due messages, leaves out what no longer matters, sends and records them.

A message whose sender died between sending and recording is sent again; an e-mail has the same Message-ID then.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

from retoma.app import App
from retoma.encryption import Keyring
from retoma.engine.outbox_sender import OutboxSender
from retoma.engine.settings_services import use_smtp_connection
from retoma.engine.tenant_resources import decrypt
from retoma.errors import ConnectionKeyMissing, DatabaseUnavailable, DefinitionError, InvalidInput
from retoma.logs import get_logger
from retoma.masking import hide_folders, mask_secrets
from retoma.notifications.attempt import Attempt, ChannelSender, give_up, retry
from retoma.notifications.chat_channels import SlackChannel, TelegramChannel
from retoma.notifications.content import Content, Reader, build_content
from retoma.notifications.email_channel import EmailChannel
from retoma.outgoing import HttpClient
from retoma.records import CHOSEN_KINDS, Channel, MessageState
from retoma.settings import Settings
from retoma.store import connections, notifications
from retoma.store.connections import ConnectionKey, EncryptedConnection
from retoma.store.database import Database
from retoma.store.notifications import ClaimedMessage
from retoma.tracebacks import release_frames

log = get_logger(__name__)
SMTP = ConnectionKey(None, "smtp")
LEASE = timedelta(seconds=60)
CONCURRENCY = 16
MAX_PER_CHANNEL = 4
MAX_STORED_LENGTH = 1_000
CLEAN_UP_SECONDS = 3_600.0
MAX_DELETED = 10_000


class NotificationSender(OutboxSender[ClaimedMessage]):
    """Sends notifications until `stop`, through the channels of this process.

    E-mail goes through the connection `smtp` or, without one, through the SMTP server of the settings.
    """

    def __init__(
        self,
        app: App | None,
        database: Database,
        settings: Settings,
        channels: dict[Channel, ChannelSender],
        keyring: Keyring,
    ) -> None:
        super().__init__(database, concurrency=CONCURRENCY)
        self._app = app
        self._settings = settings
        self._channels = channels
        self._keyring = keyring
        self._email_of_settings = channels.get(Channel.EMAIL)
        self._smtp_version: int | None = None
        self._cleaned_at = -CLEAN_UP_SECONDS

    async def register(self) -> None:
        """Let people choose the channels of this process."""
        await self._read_smtp_connection()
        for channel in self._channels:
            await notifications.add_channel(self._database, channel, CHOSEN_KINDS)

    def _log_delay(self, error: Exception) -> None:
        log.warning("notifications_delayed", message="could not claim due notifications; retrying", error=error)

    async def _claim_due(self, room: int) -> list[ClaimedMessage]:
        if time.monotonic() - self._cleaned_at >= CLEAN_UP_SECONDS:
            await notifications.delete_old(self._database, MAX_DELETED)
            self._cleaned_at = time.monotonic()
        await self._read_smtp_connection()
        return await notifications.claim_messages(self._database, list(self._channels), room, MAX_PER_CHANNEL, LEASE)

    async def _read_smtp_connection(self) -> None:
        """Use the connection `smtp` if it has changed. If it cannot be used, no e-mail is sent until it changes: what
        the settings say is not what people have entered."""
        found = await connections.find(self._database, SMTP)
        version = None if found is None else found.version
        if version == self._smtp_version:
            return
        email = self._email_of_settings if found is None else self._open_email_channel(found)
        self._channels.pop(Channel.EMAIL, None)
        if email is not None:
            self._channels[Channel.EMAIL] = email
            await notifications.add_channel(self._database, Channel.EMAIL, CHOSEN_KINDS)
        self._smtp_version = version

    def _open_email_channel(self, found: EncryptedConnection) -> EmailChannel | None:
        try:
            values = {**found.settings, **decrypt(found, self._keyring)}
            return EmailChannel(use_smtp_connection(self._settings, values))
        except (ConnectionKeyMissing, DefinitionError, InvalidInput) as error:
            log.error(
                "smtp_connection_unusable",
                message="no e-mail is sent: the connection smtp cannot be used; enter it again",
                error=error,
            )
            return None

    async def _send(self, message: ClaimedMessage) -> None:
        try:
            events = await notifications.prepare_message(self._database, message)
            if not events:
                log.info("notification_cancelled", message="a notification was no longer needed", **_describe(message))
                return
            reader = Reader(message.language, message.time_zone)
            content = build_content(self._app, events, reader, self._settings.public_url)
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
        channel = self._channels.get(message.channel)
        if channel is None:
            return retry(message, "the connection smtp was deleted, or cannot be used")
        try:
            return await channel.send(message, content)
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
    app: App | None, database: Database, settings: Settings, outgoing: HttpClient, keyring: Keyring
) -> AsyncIterator[NotificationSender]:
    """Yield the sender with the channels that the settings allow. Slack needs none: its URLs are the people's own."""
    channels: dict[Channel, ChannelSender] = {Channel.SLACK: SlackChannel(outgoing)}
    async with AsyncExitStack() as stack:
        if settings.smtp_host is not None:
            channels[Channel.EMAIL] = EmailChannel(settings)
        if (token := settings.read_telegram_bot_token()) is not None:
            client = await stack.enter_async_context(TelegramChannel.open_client(settings.telegram_api_url))
            channels[Channel.TELEGRAM] = TelegramChannel(client, settings.telegram_api_url, token)
        yield NotificationSender(app, database, settings, channels, keyring)


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
