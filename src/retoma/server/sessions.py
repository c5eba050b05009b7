"""Dashboard sessions: login, the session cookie, and the CSRF and origin checks."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from retoma.client import Client
from retoma.engine import accounts, second_factor
from retoma.engine.api_keys import hash_secret
from retoma.engine.second_factor import CodeKind
from retoma.errors import InvalidInput
from retoma.records import Actor, ActorKind, AuditAction, Person, Role
from retoma.server.dev_auth import parse_netloc
from retoma.server.problems import Problem, check_rate
from retoma.server.rate_limit import RateLimiter
from retoma.settings import Settings
from retoma.store import audit_log, people, person_sessions
from retoma.store.audit_log import PendingEntry
from retoma.store.database import Database
from retoma.store.person_sessions import MAX_SESSION_AGE

CSRF_HEADER = "x-retoma-csrf"
CSRF_BYTES = 32
LOGINS_PER_MINUTE = 10  # from one address
CODES_PER_MINUTE = 5  # of one person
TOTAL_LOGINS_PER_MINUTE = 60  # each one hashes a password, which costs time and memory


class Sessions:
    """Manage login sessions. `dev_token` replaces a session's token for the developer, who needs none."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._database = client.database
        self._public_url = urlsplit(settings.public_url or "")
        self._login_limiter = RateLimiter(LOGINS_PER_MINUTE)
        self._total_login_limiter = RateLimiter(TOTAL_LOGINS_PER_MINUTE)
        self._code_limiter = RateLimiter(CODES_PER_MINUTE)
        self._second_factor = settings.second_factor
        self._hashing_slots = asyncio.Semaphore(2)
        self.dev_token = secrets.token_urlsafe(32)

    async def find_person(self, request: Request) -> tuple[str, Person] | None:
        """Return the token and the person of the request's session, or None if it has no live session."""
        token = request.cookies.get(self._cookie_name(request))
        person = None if token is None else await accounts.find_session(self._database, token)
        return None if token is None or person is None else (token, person)

    async def find_live(self, digests: Iterable[bytes]) -> dict[bytes, Person]:
        """Return the person of each digest that belongs to a live session."""
        found = await person_sessions.find_live(self._database, digests)
        known = {each.id: each for each in await people.list_people(self._database, ids=set(found.values()))}
        return {digest: known[person] for digest, person in found.items()}

    async def check_password(self, email: str, password: str, address: str) -> Person | None:
        """Return the person who may log in, or None. Raise a Problem after too many attempts."""
        check_rate(self._login_limiter.take(address), "too many login attempts from this address")
        check_rate(self._total_login_limiter.take("all"), "too many login attempts")
        async with self._hashing_slots:
            return await accounts.check_password(self._database, email, password)

    def check_login_rate(self, request: Request) -> None:
        """Raise a Problem after too many attempts to log in elsewhere."""
        check_rate(self._login_limiter.take(get_address(request)), "too many login attempts from this address")

    def requires_second_factor(self, person: Person) -> bool:
        """Return whether this person must enter a code after the password."""
        match self._second_factor:
            case "everyone":
                return True
            case "administrators":
                return any(grant.role is Role.ADMINISTRATOR for grant in person.roles)
            case "optional":
                return False

    async def check_code(self, person: Person, code: str) -> CodeKind | None:
        """Return which kind of code it is, or None if it is wrong. Raise a Problem after too many attempts."""
        check_rate(self._code_limiter.take(person.id), "too many codes for this account")
        return await second_factor.check_code(self._database, person, code)

    async def confirm_second_factor(self, request: Request, person: Person, secret: str, code: str) -> list[str] | None:
        """Turn on the second factor, and return its recovery codes. None if the code is wrong."""
        check_rate(self._code_limiter.take(person.id), "too many codes for this account")
        recording = self.recording(request, person, "confirm_totp", AuditAction.PERSON_SET_SECOND_FACTOR)
        return await second_factor.confirm(recording, person, secret, code)

    async def renew_recovery_codes(self, request: Request, person: Person) -> list[str] | None:
        recording = self.recording(request, person, "renew_recovery_codes", AuditAction.PERSON_RENEW_RECOVERY_CODES)
        return await second_factor.renew_recovery_codes(recording, person)

    def recording(
        self, request: Request, person: Person, statement: str, action: AuditAction, **details: Any
    ) -> Database:
        """Return the database for something that a person does to the own account, with an entry of the audit log.

        `details` are fields of `PendingEntry`.
        """
        actor = Actor(ActorKind.PERSON, str(person.id), person.name, get_address(request) or None)
        return self._database.recording(PendingEntry((statement,), actor, action, str(person.id), **details))

    async def record_failed_login(self, request: Request, person: Person | None, after: Mapping[str, Any]) -> None:
        """Record that nobody was logged in. What was typed stays out: it may be a password in the wrong field."""
        target, name = (None, "unknown") if person is None else (str(person.id), person.name)
        actor = Actor(ActorKind.PERSON, target or "", name, get_address(request) or None)
        await audit_log.record(
            self._database, PendingEntry((), actor, AuditAction.PERSON_LOG_IN_FAILED, target, after=after)
        )

    async def find_by_email(self, email: str) -> Person | None:
        """Return the person whom a login form names, if there is one."""
        try:
            return await people.find_by_email(self._database, accounts.normalize_email(email))
        except InvalidInput:
            return None

    async def use_link(self, request: Request, token: str, password: str) -> Person | None:
        """Set the password of the link's person. Return None if the link no longer works.

        Raise a Problem after too many attempts.
        """
        check_rate(self._login_limiter.take(get_address(request)), "too many login attempts from this address")
        check_rate(self._total_login_limiter.take("all"), "too many login attempts")
        found = await accounts.find_link(self._database, token)
        if found is None:
            return None
        recording = self.recording(
            request, found[0], "use_link", AuditAction.PERSON_SET_PASSWORD, after={"by": found[1]}
        )
        async with self._hashing_slots:
            return await accounts.use_link(recording, token, password)

    async def open_session(self, person: Person, request: Request, method: str) -> str:
        """Return the token of a new session of a person who has proved by this method who it is."""
        recording = self.recording(
            request,
            person,
            "add_session",
            AuditAction.PERSON_LOG_IN,
            after={"method": method},
            applies=lambda _: True,
        )
        return await accounts.open_session(
            recording, person, address=get_address(request) or None, user_agent=request.headers.get("user-agent")
        )

    async def log_out(self, request: Request, person: Person, token: str) -> None:
        recording = self.recording(request, person, "end_session", AuditAction.PERSON_LOG_OUT, applies=lambda _: True)
        await person_sessions.end_session(recording, hash_secret(token))

    def set_cookie(self, request: Request, response: Response, token: str) -> None:
        response.set_cookie(
            self._cookie_name(request),
            token,
            max_age=int(MAX_SESSION_AGE.total_seconds()),
            secure=self.is_secure(request),
            httponly=True,
            samesite="lax",
        )

    def delete_cookie(self, request: Request, response: Response) -> None:
        secure = self.is_secure(request)
        response.delete_cookie(self._cookie_name(request), secure=secure, httponly=True, samesite="lax")

    def set_short_cookie(
        self, request: Request, response: Response, name: str, value: str, lifetime: timedelta
    ) -> None:
        """Let the browser keep a value while a login is in progress."""
        response.set_cookie(
            self._prefix_cookie(request, name),
            value,
            max_age=int(lifetime.total_seconds()),
            secure=self.is_secure(request),
            httponly=True,
            samesite="lax",
        )

    def read_short_cookie(self, request: Request, name: str) -> str | None:
        return request.cookies.get(self._prefix_cookie(request, name))

    def delete_short_cookie(self, request: Request, response: Response, name: str) -> None:
        response.delete_cookie(
            self._prefix_cookie(request, name), secure=self.is_secure(request), httponly=True, samesite="lax"
        )

    def check_origin(self, request: Request) -> None:
        """Raise a Problem unless a page of this server sent the request."""
        site = request.headers.get("sec-fetch-site")
        origin = request.headers.get("origin")
        is_own = (
            site == "same-origin" if site is not None else origin is not None and self._is_own_origin(request, origin)
        )
        if not is_own:
            raise Problem(
                403,
                "CROSS_ORIGIN_FORM",
                "this form was not sent from a page of this server: open the page and try again",
            )

    def check_read_origin(self, request: Request) -> None:
        """Raise a Problem if a page of another site sent the request. A URL opened directly is allowed."""
        if request.headers.get("sec-fetch-site") != "none" and not _has_no_origin(request):
            self.check_origin(request)

    def check_csrf(self, token: str, csrf: str | None) -> None:
        if not hmac.compare_digest(_derive_csrf(token), _unmask(csrf or "")):
            raise Problem(
                403, "FORM_TOO_OLD", "this form is older than the last login or restart: reload the page and try again"
            )

    def _is_own_origin(self, request: Request, origin: str) -> bool:
        netloc = parse_netloc(origin)
        return netloc != "" and netloc in (request.headers.get("host"), self._public_url.netloc)

    def is_secure(self, request: Request) -> bool:
        """Return whether browsers reach this server over HTTPS."""
        return "https" in (request.url.scheme, self._public_url.scheme)

    def _cookie_name(self, request: Request) -> str:
        return self._prefix_cookie(request, "retoma")

    def _prefix_cookie(self, request: Request, name: str) -> str:
        """Return a name that, over HTTPS, only this host itself can set."""
        return f"__Host-{name}" if self.is_secure(request) else name


def get_address(request: Request) -> str:
    return request.client.host if request.client else ""


def _has_no_origin(request: Request) -> bool:
    """Return whether the request has no origin headers, as from programs and old browsers."""
    return "sec-fetch-site" not in request.headers and "origin" not in request.headers


def csrf_token(token: str) -> str:
    """Return a CSRF token of a session, masked with new random bytes: no two responses contain the same text, so the
    length of a compressed page reveals nothing about it. The session's token cannot be derived from it."""
    mask = secrets.token_bytes(CSRF_BYTES)
    return (mask + _xor(mask, _derive_csrf(token))).hex()


def _derive_csrf(token: str) -> bytes:
    return hashlib.sha256(f"csrf {token}".encode()).digest()


def _unmask(csrf: str) -> bytes:
    """Return the token under its mask, or nothing if the text is not a token."""
    try:
        found = bytes.fromhex(csrf)
    except ValueError:
        return b""
    return _xor(found[:CSRF_BYTES], found[CSRF_BYTES:]) if len(found) == 2 * CSRF_BYTES else b""


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))
