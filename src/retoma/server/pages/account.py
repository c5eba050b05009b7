"""A person's own account: profile, password and sessions."""

from __future__ import annotations

from zoneinfo import available_timezones

from starlette.responses import Response

from retoma.engine import accounts
from retoma.engine.api_keys import hash_secret
from retoma.errors import Conflict, InvalidInput, NotFound
from retoma.records import AuditAction, Person
from retoma.server.auth import get_client_address
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext, parse_number
from retoma.store import person_sessions
from retoma.translations import LANGUAGES


async def show_account(context: PageContext, status: int = 200, **errors: str) -> Response:
    if context.person is None:
        return context.redirect("/")  # `retoma dev` has no accounts
    person = context.person
    database = context.services.client.database
    return context.render(
        "account.html",
        status,
        person=person,
        sessions=await person_sessions.list_sessions(database, person.id, hash_secret(context.token or "")),
        languages=LANGUAGES,
        time_zones=sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/")),
        least=accounts.MIN_PASSWORD_LENGTH,
        errors=errors,
        now=await context.services.client.now(),
    )


async def change_profile(context: PageContext) -> Response:
    person, fields = _require_person(context), context.fields
    try:
        await context.own_client.people.update_profile(
            person.email,
            name=fields.get("name", ""),
            language=fields.get("language") or None,
            time_zone=fields.get("time_zone") or None,
        )
    except (Conflict, InvalidInput) as error:
        return await show_account(context, 422, profile=context.translate_error(error))
    return context.redirect("/account", "profile_saved")


async def change_password(context: PageContext) -> Response:
    person, fields, sessions = _require_person(context), context.fields, context.services.sessions
    address = get_client_address(context.request)
    if await sessions.check_password(person.email, fields.get("current", ""), address) is None:
        return await show_account(context, 422, current=context.gettext("The password is not correct."))
    if fields.get("password", "") != fields.get("again", ""):
        return await show_account(context, 422, password=context.gettext("The two passwords differ."))
    try:
        recording = sessions.recording(
            context.request, person, "set_password", AuditAction.PERSON_SET_PASSWORD, applies=lambda _: True
        )
        await accounts.set_password(recording, person.id, fields.get("password", ""), kept_token=context.token)
    except InvalidInput as error:
        return await show_account(context, 422, password=context.translate_error(error))
    return context.redirect("/account", "password_changed")


async def end_session(context: PageContext) -> Response:
    """End one session, or with no number all except this one."""
    person = _require_person(context)
    number = parse_number(context.fields.get("session", ""), 0)
    recording = context.services.sessions.recording(
        context.request,
        person,
        "end_sessions_of",
        AuditAction.PERSON_END_SESSIONS,
        after={"session": number or "others"},
    )
    await person_sessions.end_sessions(recording, person.id, id=number or None, kept=hash_secret(context.token or ""))
    return context.redirect("/account", "session_ended")


def _require_person(context: PageContext) -> Person:
    if context.person is None:
        raise NotFound(context.gettext("`retoma dev` has no accounts: you are logged in as %(name)s.", name=context.by))
    return context.person


PAGES = (
    Page("/account", show_account, change_profile, scope=None, submit_scope=None),
    Page("/account/password", show_account, change_password, scope=None, submit_scope=None),
    Page("/account/sessions", show_account, end_session, scope=None, submit_scope=None),
)
