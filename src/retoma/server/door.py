"""Who is let in: callers with a key, pages of a person who logged in, and in development those on this machine."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit
from uuid import UUID

from starlette.requests import Request

from retoma.client import Client
from retoma.engine.keys import is_well_formed
from retoma.errors import Gone, NotFound
from retoma.records import KeyRecord, Scope
from retoma.server.buckets import Buckets
from retoma.server.callers import Caller
from retoma.server.keyring import Keyring
from retoma.server.problems import Problem, slow_down
from retoma.server.sessions import HEADER, Sessions

FAILURES_PER_MINUTE = 30
LOOKUPS_PER_MINUTE = 600  # of what has a key's form, from an address that has shown too many wrong ones
ADMINISTRATOR = "administrator"
SAFE = ("GET", "HEAD")
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


class Door:
    """With `development` a caller on this machine needs no key. Otherwise everyone does, but for our own pages."""

    def __init__(self, client: Client, per_minute: int, sessions: Sessions, *, development: bool) -> None:
        self._client = client
        self._sessions = sessions
        self._development = development
        self._keyring = Keyring(client)
        self._requests = Buckets(per_minute)
        self._failures = Buckets(FAILURES_PER_MINUTE)
        self._lookups = Buckets(LOOKUPS_PER_MINUTE)

    async def admit(self, request: Request, scope: Scope | None) -> Caller:
        """The caller. Raises a Problem: 401 without a valid key, 403 without the scope, 429 when it calls too often."""
        secret = _secret(request)
        if secret is None and self.needs_nothing(request):
            return Caller(self._client, None, frozenset({Scope.ADMIN}), "development")
        if secret is None and await self._is_our_page(request):
            return Caller(self._client, None, frozenset({Scope.ADMIN}), ADMINISTRATOR)
        key = await self._valid(request, secret)
        slow_down(self._requests.take(key.id), "this key makes too many requests")
        by = Caller(self._client, key.tenant, key.scopes, key.name)
        if scope is not None and not by.may(scope):
            raise Problem(403, "SCOPE_MISSING", f"this key lacks the scope {scope}", scope=scope)
        return by

    async def admit_link(self, request: Request, run: UUID, digest: str, expires: int, signature: str) -> Caller:
        """Let in a caller with a signed link to this file. Raises NotFound, Gone, or a Problem (429).

        A valid link is served however many wrong ones came from the same address.
        """
        try:
            await self._client.check_file_link(run, digest, expires, signature)
        except Gone:
            raise
        except NotFound:
            self.check_failures(address_of(request))
            self.note_failure(address_of(request))
            raise
        return Caller(self._client, None, frozenset(), "a signed link")

    async def check_known(self, request: Request) -> None:
        """Raise a Problem unless it comes from a page or with a valid key, whatever that may do, or needs neither."""
        secret = _secret(request)
        if secret is not None or not (self.needs_nothing(request) or await self._sessions.of(request)):
            await self._valid(request, secret)

    def needs_nothing(self, request: Request) -> bool:
        return self._development and is_from_here(request)

    async def _is_our_page(self, request: Request) -> bool:
        """A look needs no token, so that `EventSource` and links can have one; whatever changes something does."""
        is_look, given = request.method in SAFE, request.headers.get(HEADER)
        token = await self._sessions.of(request) if is_look or given is not None else None
        if token is None:
            return False
        if is_look and given is None:
            self._sessions.check_look(request)
        else:
            self._sessions.check_origin(request)
            self._sessions.check_csrf(token, given)
        return True

    async def _valid(self, request: Request, secret: str | None) -> KeyRecord:
        address = address_of(request)
        looked_for = secret if secret is not None and self._is_looked_for(address, secret) else None
        key = None if looked_for is None else await self._keyring.find(looked_for)
        if key is None:
            self.check_failures(address)
            self.note_failure(address)
            raise _unauthorised()
        return key

    def _is_looked_for(self, address: str, secret: str) -> bool:
        """Whoever guesses keys may neither keep the database busy nor lock out the valid ones of a neighbour."""
        if self._failures.wait_for(address) == 0 or self._keyring.was_valid(secret):
            return True
        return is_well_formed(secret) and self._lookups.take(address) == 0

    def check_failures(self, address: str) -> None:
        """Raise a Problem if too much that came from there was refused."""
        slow_down(self._failures.wait_for(address), "too many requests from here were refused")

    def note_failure(self, address: str) -> None:
        self._failures.take(address)


def is_from_here(request: Request) -> bool:
    """Whether a program on this machine calls, and no web page of somebody else's in its browser.

    A page can make a browser call this machine, under its own name by changing where that name leads, or under ours;
    the headers that only a browser can set give it away. A proxy on this machine calls for others.
    """
    headers = request.headers
    if any(name in headers for name in _FORWARDED) or headers.get("sec-fetch-site", "none") not in (
        "none",
        "same-origin",
    ):
        return False
    origin = headers.get("origin")
    names = [
        address_of(request),
        _host(headers.get("host", "")),
        _host(urlsplit(origin).netloc) if origin else "localhost",
    ]
    return all(map(is_loopback, names))


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


def _host(netloc: str) -> str:
    """Without port and brackets; nothing if it cannot be understood."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


def _secret(request: Request) -> str | None:
    """The key that the request shows, in either of the two headers."""
    given = request.headers.get("x-api-key")
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return given
    if given is not None and given != token.strip():
        raise _unauthorised()
    return token.strip()


def _unauthorised() -> Problem:
    return Problem(
        401,
        "KEY_NEEDED",
        "this needs a valid API key in the header X-API-Key, or as a bearer token; `retoma keys create` makes one",
        headers={"WWW-Authenticate": "Bearer"},
    )
