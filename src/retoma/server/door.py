"""Who is let in: callers with a key, pages of a person who logged in, and in development those on this machine."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from uuid import UUID

from starlette.requests import Request

from retoma.client import Client
from retoma.engine import keys, sessions
from retoma.engine.keys import is_well_formed
from retoma.errors import Gone, NotFound
from retoma.records import KeyRecord, Scope
from retoma.server.buckets import Buckets
from retoma.server.callers import Caller, Credential
from retoma.server.development import Development, Refusal
from retoma.server.keyring import Keyring
from retoma.server.problems import Problem, slow_down
from retoma.server.sessions import HEADER, Sessions
from retoma.store import outside

FAILURES_PER_MINUTE = 30
LOOKUPS_PER_MINUTE = 600  # of what has a key's form, from an address that has shown too many wrong ones
CALLBACK_LOOKUPS_AT_ONCE = 2
ADMINISTRATOR = "administrator"
SAFE = ("GET", "HEAD")
_REFUSED = {
    Refusal.PROXIED: "this came through a proxy, and `retoma dev` serves only programs on its own machine; to let "
    "others in, run `retoma serve` and `retoma worker`, and make an API key with `retoma keys create`",
    Refusal.NOT_LOCAL: "`retoma dev` serves only programs on its own machine, under that machine's own name; to let "
    "others in, run `retoma serve` and `retoma worker`, and make an API key with `retoma keys create`",
    Refusal.NO_TOKEN: "this needs the token of this `retoma dev`, or an API key, in the header X-API-Key; the token is "
    "in the file `dev-key` in RETOMA_HOME, and in the address that `retoma dev` printed when it started",
}


class Door:
    """With `development` its developer needs no key. Otherwise everyone does, but for our own pages."""

    def __init__(
        self, client: Client, per_minute: int, sessions: Sessions, *, development: Development | None = None
    ) -> None:
        self._client = client
        self._sessions = sessions
        self.development = development
        self._keyring = Keyring(client)
        self._requests = Buckets(per_minute)
        self._failures = Buckets(FAILURES_PER_MINUTE)
        self._lookups = Buckets(LOOKUPS_PER_MINUTE)
        self._callback_lookups = asyncio.Semaphore(CALLBACK_LOOKUPS_AT_ONCE)

    async def admit(self, request: Request, scope: Scope | None) -> Caller:
        """The caller. Raises a Problem: 401 without a valid key, 403 without the scope, 429 when it calls too often."""
        secret = _secret(request)
        if self.needs_nothing(request):
            return Caller(self._client, None, frozenset({Scope.ADMIN}), "development")
        if secret is None and (token := await self._session_of_page(request)) is not None:
            session = Credential("session", sessions.digest(token))
            return Caller(self._client, None, frozenset({Scope.ADMIN}), ADMINISTRATOR, session)
        key = await self._valid(request, secret)
        slow_down(self._requests.take(key.id), "this key makes too many requests")
        by = Caller(self._client, key.tenant, key.scopes, key.name, Credential("key", keys.digest(secret or "")))
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
        if not (self.needs_nothing(request) or (secret is None and await self._sessions.of(request))):
            await self._valid(request, secret)
        mark_known(request)

    async def check_callback(self, request: Request, token: str) -> None:
        """Raise NotFound, or a Problem after too many wrong tokens, unless there is a callback with this token.

        A valid token is never refused because of wrong ones: those from the same address may be somebody else's. All
        lookups together take few of the database's connections.
        """
        async with self._callback_lookups:
            digest = hashlib.sha256(token.encode(errors="replace")).digest()
            is_known = await outside.has_callback(self._client.database, digest)
        if not is_known:
            address = address_of(request)
            self.check_failures(address)
            self.note_failure(address)
            raise NotFound("there is no such callback")

    async def find_ended(self, shown: Iterable[Credential]) -> set[Credential]:
        """Return those that are not valid any more: revoked, expired or logged out."""
        asked = set(shown)
        of_keys = {each.digest for each in asked if each.kind == "key"}
        of_sessions = {each.digest for each in asked if each.kind == "session"}
        live: set[Credential] = set()
        if of_keys:
            live |= {Credential("key", each) for each in await keys.find_live(self._client.database, of_keys)}
        if of_sessions:
            live |= {Credential("session", each) for each in await self._sessions.find_live(of_sessions)}
        return asked - live

    def needs_nothing(self, request: Request) -> bool:
        """Whether this is the developer of `retoma dev`."""
        return self.development is not None and self.refusal(request) is None

    def refusal(self, request: Request) -> Refusal | None:
        """Return why the request is not the developer's; None without `development`, where nobody is one."""
        if self.development is None:
            return None
        try:
            return self.development.refusal(request, _secret(request))
        except Problem:  # it shows two keys
            return Refusal.NO_TOKEN

    async def _session_of_page(self, request: Request) -> str | None:
        """Return the session's token if a page of ours sent this.

        A look needs no CSRF token, so that `EventSource` and links can have one; whatever changes something does.
        """
        is_look, given = request.method in SAFE, request.headers.get(HEADER)
        token = await self._sessions.of(request) if is_look or given is not None else None
        if token is None:
            return None
        if is_look and given is None:
            self._sessions.check_look(request)
        else:
            self._sessions.check_origin(request)
            self._sessions.check_csrf(token, given)
        mark_known(request)
        return token

    async def _valid(self, request: Request, secret: str | None) -> KeyRecord:
        address = address_of(request)
        looked_for = secret if secret is not None and self._is_looked_for(address, secret) else None
        key = None if looked_for is None else await self._keyring.find(looked_for)
        if key is None:
            self.check_failures(address)
            self.note_failure(address)
            refusal = self.refusal(request)
            raise _unauthorised(None if secret is not None and refusal is Refusal.NO_TOKEN else refusal)
        mark_known(request)
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


def mark_known(request: Request) -> None:
    """Let the connection of this request stay when room is made for others."""
    if on_known := request.scope.get("state", {}).get("on_known"):
        on_known()


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


def _secret(request: Request) -> str | None:
    """The key that the request shows, in either of the two headers."""
    given = request.headers.get("x-api-key")
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return given
    if given is not None and given != token.strip():
        raise _unauthorised()
    return token.strip()


def _unauthorised(refusal: Refusal | None = None) -> Problem:
    needed = "this needs a valid API key in the header X-API-Key, or as a bearer token; `retoma keys create` makes one"
    return Problem(
        401,
        "KEY_NEEDED",
        needed if refusal is None else _REFUSED[refusal],
        headers={"WWW-Authenticate": "Bearer"},
    )
