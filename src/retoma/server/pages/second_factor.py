"""The second factor: enter its code to log in, set it up with an authenticator app, and remove it."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import NamedTuple

import segno
from markupsafe import Markup
from starlette.responses import Response

from retoma.engine import second_factor
from retoma.engine.api_keys import hash_secret
from retoma.errors import Conflict, NotFound
from retoma.records import Person
from retoma.server.auth import get_client_address
from retoma.server.pages.login_session import open_session
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.store import people, person_sessions
from retoma.store import second_factor as stored_factor

CODE_PATH = "/login/code"
ENROL_PATH = "/login/second-factor"
ACCOUNT_PATH = "/account/second-factor"
PURPOSE = "second factor"
OFFER_PURPOSE = "second factor to confirm"
TIME_TO_ENTER = timedelta(minutes=10)
TIME_TO_SET_UP = timedelta(minutes=15)
FRESH_LOGIN = timedelta(minutes=15)
_COOKIE = "retoma-second-factor"


class PendingLogin(NamedTuple):
    """A person who has proved the password, and the path that the browser asked for."""

    person: Person
    to: str


async def ask_for_code(context: PageContext, person: Person, to: str) -> Response | None:
    """Return the next step for a person who has proved the password, or None if the password is enough."""
    sessions = context.services.sessions
    if not person.has_second_factor and not sessions.requires_second_factor(person):
        return None
    values = {"person": person.id, "to": to, "password": await _digest_password(context, person)}
    kept = await context.services.signed_values.sign(PURPOSE, values, TIME_TO_ENTER)
    response = context.redirect(CODE_PATH if person.has_second_factor else ENROL_PATH)
    sessions.set_short_cookie(context.request, response, _COOKIE, kept, TIME_TO_ENTER)
    return response


async def show_code(context: PageContext) -> Response:
    pending = await _find_pending(context)
    return context.redirect("/login") if pending is None else context.render("login_code.html", is_wrong=False)


async def enter_code(context: PageContext) -> Response:
    pending, sessions = await _find_pending(context), context.services.sessions
    if pending is None:
        return context.redirect("/login", "login_expired")
    kind = await sessions.check_code(pending.person, context.fields.get("code", ""))
    if kind is None:
        await sessions.record_failed_login(context.request, pending.person, {"failure": "wrong_code"})
        return context.render("login_code.html", 401, is_wrong=True)
    response = await open_session(context, pending.person, pending.to, f"password and {kind}")
    sessions.delete_short_cookie(context.request, response, _COOKIE)
    return response


async def show_required(context: PageContext) -> Response:
    pending = await _find_pending(context)
    if pending is None:
        return context.redirect("/login")
    if pending.person.has_second_factor:  # another tab has just confirmed it
        return context.redirect(CODE_PATH)
    return await _offer(context, pending.person, ENROL_PATH)


async def confirm_required(context: PageContext) -> Response:
    """Set up the second factor that the settings require, and log in."""
    pending = await _find_pending(context)
    if pending is None:
        return context.redirect("/login", "login_expired")
    codes = await _confirm(context, pending.person, ENROL_PATH)
    if isinstance(codes, Response):
        return codes
    opened = await open_session(context, pending.person, pending.to, "password and app")
    response = context.render("recovery_codes.html", codes=codes, next=opened.headers["location"])
    response.raw_headers += [header for header in opened.raw_headers if header[0] == b"set-cookie"]
    context.services.sessions.delete_short_cookie(context.request, response, _COOKIE)
    return response


async def show_own(context: PageContext) -> Response:
    person = _require_person(context)
    return await (_render_own(context, person) if person.has_second_factor else _render_start(context, person))


async def change_own(context: PageContext) -> Response:
    """Set up a second factor; or with a code, renew the recovery codes or remove the second factor."""
    person, sessions = _require_person(context), context.services.sessions
    if not person.has_second_factor:
        return await _set_up_own(context, person)
    if await sessions.check_code(person, context.fields.get("code", "")) is None:
        return await _render_own(context, person, is_wrong=True)
    if context.fields.get("action") == "renew":
        codes = await sessions.renew_recovery_codes(context.request, person)
        return context.render("recovery_codes.html", codes=codes, next=ACCOUNT_PATH)
    if sessions.requires_second_factor(person):
        raise Conflict(context.gettext("This server requires a second factor."))
    await context.own_client.people.remove_second_factor(person.email)
    return context.redirect("/account", "second_factor_removed")


async def _set_up_own(context: PageContext, person: Person) -> Response:
    """Offer a secret after the person has proved their identity, because somebody else may use their open browser."""
    if "offer" in context.fields:
        codes = await _confirm(context, person, ACCOUNT_PATH)
        if isinstance(codes, Response):
            return codes
        return context.render("recovery_codes.html", codes=codes, next=ACCOUNT_PATH)
    if not await _proves_to_be(context, person):
        return await _render_start(context, person, is_wrong=True)
    return await _offer(context, person, ACCOUNT_PATH)


async def _proves_to_be(context: PageContext, person: Person) -> bool:
    """Return whether the form has the password. Without a password, the browser must have logged in just now."""
    if not person.has_password:
        return await _has_just_logged_in(context, person)
    password, address = context.fields.get("password", ""), get_client_address(context.request)
    return await context.services.sessions.check_password(person.email, password, address) is not None


async def _has_just_logged_in(context: PageContext, person: Person) -> bool:
    database, now = context.services.client.database, await context.services.client.now()
    sessions = await person_sessions.list_sessions(database, person.id, hash_secret(context.token or ""))
    return any(each.is_current and now - each.created_at <= FRESH_LOGIN for each in sessions)


async def _render_start(context: PageContext, person: Person, *, is_wrong: bool = False) -> Response:
    return context.render(
        "second_factor_start.html",
        422 if is_wrong else 200,
        is_wrong=is_wrong,
        has_password=person.has_password,
        may_start=person.has_password or await _has_just_logged_in(context, person),
    )


async def _offer(context: PageContext, person: Person, action: str) -> Response:
    """Show a new secret. Only this page has it, so nobody who opened it earlier knows the one that is confirmed."""
    secret = second_factor.make_secret()
    values = {"person": person.id, "secret": secret, "password": await _digest_password(context, person)}
    offer = await context.services.signed_values.sign(OFFER_PURPOSE, values, TIME_TO_SET_UP)
    return _render_setup(context, person, action, secret, offer)


async def _confirm(context: PageContext, person: Person, action: str) -> list[str] | Response:
    """Return the recovery codes, or the page to answer with if the code is wrong or the offer has expired."""
    offer = context.fields.get("offer", "")
    values = await context.services.signed_values.read(OFFER_PURPOSE, offer)
    expected = (person.id, await _digest_password(context, person))
    if values is None or (values["person"], values["password"]) != expected:
        return context.redirect(action, "setup_expired")
    sessions, code = context.services.sessions, context.fields.get("code", "")
    codes = await sessions.confirm_second_factor(context.request, person, values["secret"], code)
    return codes or _render_setup(context, person, action, values["secret"], offer, is_wrong=True)


def _render_setup(
    context: PageContext, person: Person, action: str, secret: str, offer: str, *, is_wrong: bool = False
) -> Response:
    return context.render(
        "second_factor_setup.html",
        401 if is_wrong else 200,
        action=action,
        is_required=action == ENROL_PATH,
        is_wrong=is_wrong,
        offer=offer,
        secret=" ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
        picture=draw_qr_code(second_factor.build_uri(secret, person)),
    )


async def _render_own(context: PageContext, person: Person, *, is_wrong: bool = False) -> Response:
    return context.render(
        "second_factor.html",
        422 if is_wrong else 200,
        is_wrong=is_wrong,
        left=await stored_factor.count_recovery_codes(context.services.client.database, person.id),
        is_required=context.services.sessions.requires_second_factor(person),
    )


def draw_qr_code(text: str) -> Markup:
    """Return an SVG element. Cameras need dark on light, whatever the theme."""
    drawn = segno.make(text, error="m").svg_inline(
        scale=4, omitsize=True, svgclass=None, lineclass=None, dark="#000", light="#fff"
    )
    return Markup(drawn)  # noqa: S704  (of squares only: the text is not in it)


async def _find_pending(context: PageContext) -> PendingLogin | None:
    """Return the login in progress, unless the password has changed or the person was disabled meanwhile."""
    kept = context.services.sessions.read_short_cookie(context.request, _COOKIE)
    values = await context.services.signed_values.read(PURPOSE, kept)
    person = None if values is None else await people.find_person(context.services.client.database, values["person"])
    if values is None or person is None or person.disabled_at is not None:
        return None
    is_same = values["password"] == await _digest_password(context, person)
    return PendingLogin(person, values["to"]) if is_same else None


async def _digest_password(context: PageContext, person: Person) -> str:
    hashed = await people.find_password_hash(context.services.client.database, person.id)
    return hashlib.sha256(f"{PURPOSE} {hashed}".encode()).hexdigest()


def _require_person(context: PageContext) -> Person:
    if context.person is None:
        raise NotFound(context.gettext("`retoma dev` has no accounts: you are logged in as %(name)s.", name=context.by))
    return context.person


PAGES = (
    Page(CODE_PATH, show_code, enter_code, is_public=True),
    Page(ENROL_PATH, show_required, confirm_required, is_public=True),
    Page(ACCOUNT_PATH, show_own, change_own, scope=None, submit_scope=None),
)
