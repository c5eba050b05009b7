"""`client.notifications`: what people are notified of, and the messages that were sent to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import time
from typing import Any
from uuid import UUID

from retoma.client.audit_values import HIDDEN, keep_set
from retoma.client.core import Namespace
from retoma.errors import Conflict, InvalidInput, NotFound
from retoma.records import (
    CHOSEN_KINDS,
    AuditAction,
    Channel,
    ChannelDefault,
    ChannelPreference,
    Digest,
    MessageState,
    NotificationKind,
    NotificationMessage,
    NotificationSettings,
)
from retoma.store import notifications
from retoma.translations import N_

MAX_ADDRESS_LENGTH = 500


class Notifications(Namespace):
    async def list_channels(self) -> list[ChannelDefault]:
        """Return the channels that a worker can send through, with the defaults for people without preferences."""
        return await notifications.list_channel_defaults(self._database)

    async def set_default(self, channel: Channel, kinds: Collection[NotificationKind], digest: Digest) -> None:
        """Set the preferences of people who have none of their own. Raise NotFound if no worker has this channel."""
        known = next((each for each in await self.list_channels() if each.channel == channel), None)
        recording = self._recording(
            "set_channel_default",
            AuditAction.NOTIFICATION_SET_DEFAULT,
            channel,
            before=None if known is None else {"kinds": known.kinds, "digest": known.digest},
            after={"kinds": _order(kinds), "digest": digest},
            applies=bool,
        )
        if not await notifications.set_channel_default(recording, channel, _order(kinds), digest):
            raise NotFound(N_("no worker has the settings of this channel"))

    async def get_settings(self, person: int) -> NotificationSettings:
        """Return the preferences of a person."""
        found = await notifications.get_settings(self._database, person)
        if found is None:
            raise NotFound(f"there is no person {person}")
        return found

    async def set_preference(
        self,
        person: int,
        channel: Channel,
        *,
        kinds: Collection[NotificationKind] | None,
        digest: Digest | None,
        address: str | None = None,
    ) -> None:
        """Set what a person receives through a channel; None means the default.

        `address` is the URL of a Slack webhook or the number of a Telegram chat. Raise UnsafeUrl for a URL that must
        not be called, and InvalidInput for another wrong address.
        """
        known = (await self.get_settings(person)).get_channel(channel)
        wanted = ChannelPreference(
            channel, None if kinds is None else _order(kinds), digest, self._check(channel, address)
        )
        recording = self._recording(
            "set_preference",
            AuditAction.PERSON_SET_NOTIFICATIONS,
            person,
            before=_describe(known),
            after=_describe(wanted) | ({} if wanted.address == known.address else {"address_changed": True}),
            applies=lambda _: True,
        )
        await notifications.set_preference(recording, person, wanted)

    async def set_quiet_hours(self, person: int, quiet_from: time | None, quiet_until: time | None) -> None:
        """Send nothing between these times of the day, in the person's time zone. Without times, there are none."""
        if (quiet_from is None) != (quiet_until is None) or (quiet_from is not None and quiet_from == quiet_until):
            raise InvalidInput(N_("quiet hours need a start and a different end"))
        known = await self.get_settings(person)
        recording = self._recording(
            "set_quiet_hours",
            AuditAction.PERSON_SET_NOTIFICATIONS,
            person,
            before={"quiet_from": known.quiet_from, "quiet_until": known.quiet_until},
            after={"quiet_from": quiet_from, "quiet_until": quiet_until},
            applies=lambda _: True,
        )
        await notifications.set_quiet_hours(recording, person, quiet_from, quiet_until)

    async def send_test(self, person: int, channel: Channel) -> None:
        """Send a test message at once. Raise Conflict if there is no address, or an earlier test is on its way."""
        if not await notifications.notify_test(self._database, person, channel):
            raise Conflict(N_("save an address first, or wait until the last test has been sent"))

    async def report_budget(self, key: str, *, name: str, used: int, limit: int, tenant: str | None = None) -> None:
        """Notify the operators that a budget is nearly used up, once for each `key`. Amounts are in millionths of a US
        dollar."""
        data: dict[str, Any] = {"name": name, "used": used, "limit": limit}
        await notifications.notify_of_budget(self._database, await self._core.find_tenant_id(tenant), key, data)

    async def list_messages(
        self, *, person: int | None = None, states: Sequence[MessageState] | None = None, limit: int = 50
    ) -> list[NotificationMessage]:
        """Return messages to one person or to all, newest first."""
        return await notifications.list_messages(self._database, person=person, states=states, limit=limit)

    async def resend(self, message: UUID | None = None) -> int:
        """Send a dead message again, or all of them; return how many."""
        recording = self._recording(
            "resend_messages", AuditAction.NOTIFICATION_RESEND, message, applies=lambda rows: bool(rows and rows[0][0])
        )
        return await notifications.resend_messages(recording, message)

    def _check(self, channel: Channel, address: str | None) -> str | None:
        match channel:
            case Channel.EMAIL:
                return None  # always the person's own
            case Channel.SLACK if address is not None:
                self._core.guard.check(address[: MAX_ADDRESS_LENGTH + 1], "address")
            case Channel.TELEGRAM if address is not None and not address.removeprefix("-").isdecimal():
                raise InvalidInput(N_("the chat ID of Telegram must be a number"))
        if address is not None and len(address) > MAX_ADDRESS_LENGTH:
            raise InvalidInput(N_("the address is too long"))
        return address


def _describe(preference: ChannelPreference) -> dict[str, Any]:
    """Return what the audit log keeps. An address may be a secret."""
    address = None if preference.address is None else HIDDEN
    return keep_set(channel=preference.channel, kinds=preference.kinds, digest=preference.digest, address=address)


def _order(kinds: Collection[NotificationKind]) -> tuple[NotificationKind, ...]:
    return tuple(kind for kind in CHOSEN_KINDS if kind in kinds)
