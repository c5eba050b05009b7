"""Sessions of people: the cookie that holds one, and the proof that a request was meant by the person behind it."""

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
from retoma.engine import sessions
from retoma.server.buckets import Buckets
from retoma.server.problems import Problem, slow_down
from retoma.settings import Settings

HEADER = "x-retoma-csrf"
TRIES_PER_MINUTE = 10  # from one address
TRIES_OF_ALL_PER_MINUTE = 60  # each costs time and memory


class Sessions:
    """`nobody` stands for the session of a visitor who needs none: development on this machine."""

    def __init__(self, client: Client, settings: Settings) -> None:
        hashed = settings.admin_password_hash
        self._database = client.database
        self._hashed = None if hashed is None else hashed.get_secret_value()
        self._public = urlsplit(settings.public_url or "")
        self._tries = Buckets(TRIES_PER_MINUTE)
        self._all_tries = Buckets(TRIES_OF_ALL_PER_MINUTE)
        self._checking = asyncio.Semaphore(2)
        self.nobody = secrets.token_urlsafe(32)

    @property
    def is_possible(self) -> bool:
        """Whether there is a password to log in with."""
        return self._hashed is not None

    async def of(self, request: Request) -> str | None:
        """The token of the live session that this request shows."""
        token = request.cookies.get(self._cookie(request))
        if token is None or self._hashed is None:
            return None
        return token if await sessions.is_live(self._database, token, self._hashed) else None

    async def find_live(self, digests: Iterable[bytes]) -> set[bytes]:
        """Return those of these digests of tokens whose sessions are live."""
        return set() if self._hashed is None else await sessions.find_live(self._database, digests, self._hashed)

    async def open(self, password: str, address: str) -> str | None:
        """The token of a new session; None if this is not the password. Raises a Problem after too many tries."""
        slow_down(self._tries.take(address), "too many tries to log in came from here")
        slow_down(self._all_tries.take("all"), "there are too many tries to log in")
        async with self._checking:
            if self._hashed is None or not await asyncio.to_thread(sessions.is_right, password, self._hashed):
                return None
        return await sessions.opened(self._database, self._hashed)

    async def end(self, token: str) -> None:
        await sessions.ended(self._database, token)

    def keep(self, request: Request, response: Response, token: str) -> None:
        response.set_cookie(
            self._cookie(request),
            token,
            max_age=int(sessions.LONGEST.total_seconds()),
            secure=self.is_secure(request),
            httponly=True,
            samesite="lax",
        )

    def forget(self, request: Request, response: Response) -> None:
        secure = self.is_secure(request)
        response.delete_cookie(self._cookie(request), secure=secure, httponly=True, samesite="lax")

    def check_origin(self, request: Request) -> None:
        """Raise a Problem unless a page of ours sent this."""
        site = request.headers.get("sec-fetch-site")
        origin = request.headers.get("origin")
        ours = site == "same-origin" if site is not None else origin is not None and self._is_ours(request, origin)
        if not ours:
            raise _foreign()

    def check_look(self, request: Request) -> None:
        """Raise a Problem if another site's page sent this. A person who opened the address did not."""
        if request.headers.get("sec-fetch-site") != "none" and not _says_nothing(request):
            self.check_origin(request)

    def check_csrf(self, token: str, given: str | None) -> None:
        if not hmac.compare_digest(csrf(token).encode(), (given or "").encode()):
            raise Problem(
                403, "FORM_TOO_OLD", "this form is from before the last login or start: reload the page and try again"
            )

    def _is_ours(self, request: Request, origin: str) -> bool:
        named = urlsplit(origin)
        return named.netloc != "" and named.netloc in (request.headers.get("host"), self._public.netloc)

    def is_secure(self, request: Request) -> bool:
        """Whether people reach us through https."""
        return "https" in (request.url.scheme, self._public.scheme)

    def _cookie(self, request: Request) -> str:
        return "__Host-retoma" if self.is_secure(request) else "retoma"


def _says_nothing(request: Request) -> bool:
    """Whether it does not say where it comes from, as programs and old browsers do not."""
    return "sec-fetch-site" not in request.headers and "origin" not in request.headers


def _foreign() -> Problem:
    return Problem(403, "FOREIGN_FORM", "this was not sent from a page of this server: open the page and try again")


def csrf(token: str) -> str:
    """What forms of this session carry. The token cannot be found from it."""
    return hashlib.sha256(f"csrf {token}".encode()).hexdigest()
