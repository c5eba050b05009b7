"""Dashboard sessions: login, the session cookie, and the CSRF and origin checks."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from retoma.client import Client
from retoma.engine import admin_sessions
from retoma.server.problems import Problem, check_rate
from retoma.server.rate_limit import RateLimiter
from retoma.settings import Settings
from retoma.store.sessions import MAX_SESSION_AGE

CSRF_HEADER = "x-retoma-csrf"
LOGINS_PER_MINUTE = 10  # from one address
TOTAL_LOGINS_PER_MINUTE = 60  # each one hashes a password, which costs time and memory


class Sessions:
    """Manage login sessions. `dev_token` replaces a session's token for the developer, who needs none."""

    def __init__(self, client: Client, settings: Settings) -> None:
        hashed = settings.admin_password_hash
        self._database = client.database
        self._password_hash = None if hashed is None else hashed.get_secret_value()
        self._public_url = urlsplit(settings.public_url or "")
        self._login_limiter = RateLimiter(LOGINS_PER_MINUTE)
        self._total_login_limiter = RateLimiter(TOTAL_LOGINS_PER_MINUTE)
        self._hashing_slots = asyncio.Semaphore(2)
        self.dev_token = secrets.token_urlsafe(32)

    @property
    def can_log_in(self) -> bool:
        """Return whether an administrator password is configured."""
        return self._password_hash is not None

    async def find_token(self, request: Request) -> str | None:
        """Return the token of the request's session, or None if it has no live session."""
        token = request.cookies.get(self._cookie_name(request))
        if token is None or self._password_hash is None:
            return None
        return token if await admin_sessions.is_live(self._database, token, self._password_hash) else None

    async def find_live(self, digests: Iterable[bytes]) -> set[bytes]:
        """Return the token digests that belong to live sessions."""
        return (
            set()
            if self._password_hash is None
            else await admin_sessions.find_live(self._database, digests, self._password_hash)
        )

    async def log_in(self, password: str, address: str) -> str | None:
        """Return the token of a new session, or None for a wrong password. Raise a Problem after too many attempts."""
        check_rate(self._login_limiter.take(address), "too many login attempts from this address")
        check_rate(self._total_login_limiter.take("all"), "too many login attempts")
        async with self._hashing_slots:
            if self._password_hash is None or not await asyncio.to_thread(
                admin_sessions.verify_password, password, self._password_hash
            ):
                return None
        return await admin_sessions.open_session(self._database, self._password_hash)

    async def log_out(self, token: str) -> None:
        await admin_sessions.end_session(self._database, token)

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
        if not hmac.compare_digest(csrf_token(token).encode(), (csrf or "").encode()):
            raise Problem(
                403, "FORM_TOO_OLD", "this form is older than the last login or restart: reload the page and try again"
            )

    def _is_own_origin(self, request: Request, origin: str) -> bool:
        netloc = urlsplit(origin).netloc
        return netloc != "" and netloc in (request.headers.get("host"), self._public_url.netloc)

    def is_secure(self, request: Request) -> bool:
        """Return whether browsers reach this server over HTTPS."""
        return "https" in (request.url.scheme, self._public_url.scheme)

    def _cookie_name(self, request: Request) -> str:
        return "__Host-retoma" if self.is_secure(request) else "retoma"


def _has_no_origin(request: Request) -> bool:
    """Return whether the request has no origin headers, as from programs and old browsers."""
    return "sec-fetch-site" not in request.headers and "origin" not in request.headers


def csrf_token(token: str) -> str:
    """Return the CSRF token of a session. The session's token cannot be derived from it."""
    return hashlib.sha256(f"csrf {token}".encode()).hexdigest()
