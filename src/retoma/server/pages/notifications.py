"""What a person is notified of, and for administrators the defaults and the messages of all people."""

from __future__ import annotations

from datetime import time
from typing import Any

from starlette.responses import Response

from retoma.errors import Conflict, InvalidInput, NotFound, RetomaError, UnsafeUrl
from retoma.records import CHOSEN_KINDS, KIND_NAMES, Channel, Digest, MessageState, NotificationKind, Person, Scope
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.translations import N_

MAX_MESSAGES = 50
CHANNEL_NAMES = {Channel.EMAIL: N_("E-mail"), Channel.SLACK: N_("Slack"), Channel.TELEGRAM: N_("Telegram")}
DIGEST_NAMES = {
    Digest.IMMEDIATELY: N_("immediately"),
    Digest.HOURLY: N_("once an hour"),
    Digest.DAILY: N_("once a day, at 8 in the morning"),
}
MESSAGE_STATES = {
    MessageState.DUE: (N_("waiting to be sent"), "wait", "clock"),
    MessageState.SENDING: (N_("being sent"), "run", "run"),
    MessageState.SENT: (N_("sent"), "ok", "check"),
    MessageState.DEAD: (N_("not sent"), "fail", "fail"),
    MessageState.CANCELLED: (N_("no longer needed"), "", "dash"),
}


async def show_preferences(context: PageContext, status: int = 200, error: str = "") -> Response:
    person, client = _require_person(context), context.own_client
    messages = await client.notifications.list_messages(person=person.id, limit=MAX_MESSAGES)
    return context.render(
        "account_notifications.html",
        status,
        person=person,
        settings=await client.notifications.get_settings(person.id),
        channels=await client.notifications.list_channels(),
        last={channel: next((each for each in messages if each.channel == channel), None) for channel in Channel},
        error=error,
        now=await client.now(),
        **_names(),
    )


async def save_channel(context: PageContext) -> Response:
    person, client, channel = _require_person(context), context.own_client, _read_channel(context)
    known = (await client.notifications.get_settings(person.id)).get_channel(channel)
    follows_default = "default" in context.fields
    try:
        await client.notifications.set_preference(
            person.id,
            channel,
            kinds=None if follows_default else _read_kinds(context),
            digest=None if follows_default else _read_digest(context),
            # The page does not show a saved address: an empty field keeps it.
            address=None if "remove" in context.fields else context.fields.get("address", "").strip() or known.address,
        )
    except (InvalidInput, UnsafeUrl) as error:
        return await show_preferences(context, 422, _explain(context, error))
    return context.redirect("/account/notifications", "notifications_saved")


async def save_quiet_hours(context: PageContext) -> Response:
    person = _require_person(context)
    try:
        hours = [_read_time(context.fields.get(name, "")) for name in ("from", "until")]
        await context.own_client.notifications.set_quiet_hours(person.id, *hours)
    except InvalidInput as error:
        return await show_preferences(context, 422, _explain(context, error))
    return context.redirect("/account/notifications", "notifications_saved")


async def send_test(context: PageContext) -> Response:
    person = _require_person(context)
    try:
        await context.own_client.notifications.send_test(person.id, _read_channel(context))
    except Conflict as error:
        return await show_preferences(context, 409, _explain(context, error))
    return context.redirect("/account/notifications", "test_sent")


async def show_defaults(context: PageContext) -> Response:
    client = context.client
    return context.render(
        "notifications.html",
        channels=await client.notifications.list_channels(),
        messages=await client.notifications.list_messages(limit=MAX_MESSAGES),
        now=await client.now(),
        **_names(),
    )


async def save_default(context: PageContext) -> Response:
    await context.client.notifications.set_default(_read_channel(context), _read_kinds(context), _read_digest(context))
    return context.redirect("/notifications", "notifications_saved")


async def resend_message(context: PageContext) -> Response:
    await context.client.notifications.resend(context.get_path_id("message"))
    return context.redirect("/notifications", "notification_resent")


def _names() -> dict[str, Any]:
    return {
        "kinds": CHOSEN_KINDS,
        "digests": list(Digest),
        "kind_names": KIND_NAMES,
        "channel_names": CHANNEL_NAMES,
        "digest_names": DIGEST_NAMES,
        "message_states": MESSAGE_STATES,
    }


def _require_person(context: PageContext) -> Person:
    if context.person is None:
        raise NotFound(context.gettext("`retoma dev` has no accounts: you are logged in as %(name)s.", name=context.by))
    return context.person


def _read_channel(context: PageContext) -> Channel:
    found = next((each for each in Channel if each == context.fields.get("channel")), None)
    if found is None:
        raise NotFound(context.gettext("There is no such channel."))
    return found


def _read_kinds(context: PageContext) -> list[NotificationKind]:
    chosen = set(context.get_field_values("kind"))
    return [kind for kind in CHOSEN_KINDS if kind in chosen]


def _read_digest(context: PageContext) -> Digest:
    return next((each for each in Digest if each == context.fields.get("digest")), Digest.IMMEDIATELY)


def _read_time(text: str) -> time | None:
    try:
        return time.fromisoformat(text) if text else None
    except ValueError:
        raise InvalidInput(N_("enter a time of day, such as 22:00")) from None


def _explain(context: PageContext, error: RetomaError) -> str:
    return context.translate_error(error) or str(error)


PAGES = (
    Page("/account/notifications", show_preferences, save_channel, scope=None, submit_scope=None),
    Page("/account/notifications/quiet-hours", submit=save_quiet_hours, scope=None, submit_scope=None),
    Page("/account/notifications/test", submit=send_test, scope=None, submit_scope=None),
    Page("/notifications", show_defaults, save_default, scope=Scope.ADMIN, submit_scope=Scope.ADMIN),
    Page("/notifications/{message}/resend", submit=resend_message, scope=Scope.ADMIN, submit_scope=Scope.ADMIN),
)
