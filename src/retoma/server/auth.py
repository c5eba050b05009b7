"""Who is let in: callers with a key, pages of a person who logged in, and in development those on this machine."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from uuid import UUID

from starlette.requests import Request

from retoma.client import Client
from retoma.engine import admin_sessions, api_keys
from retoma.engine.api_keys import is_well_formed
from retoma.errors import Gone, NotFound
from retoma.records import KeyRecord, Scope
from retoma.server.dev_auth import DevAuth, DevRefusal
from retoma.server.key_cache import KeyCache
from retoma.server.principal import Credential, Principal
from retoma.server.problems import Problem, check_rate
from retoma.server.rate_limit import RateLimiter
from retoma.server.sessions import CSRF_HEADER, Sessions
from retoma.store import external_work

FAILURES_PER_MINUTE = 30
KEY_LOOKUPS_PER_MINUTE = 600  # of what has a key's form, from an address that has shown too many wrong ones
MAX_CONCURRENT_CALLBACK_LOOKUPS = 2
ADMINISTRATOR = "administrator"
SAFE_METHODS = ("GET", "HEAD")
_DEV_REFUSALS = {
    DevRefusal.PROXIED: "this came through a proxy, and `retoma dev` serves only programs on its own machine; to let "
    "others in, run `retoma serve` and `retoma worker`, and make an API key with `retoma keys create`",
    DevRefusal.NOT_LOCAL: "`retoma dev` serves only programs on its own machine, under that machine's own name; to let "
    "others in, run `retoma serve` and `retoma worker`, and make an API key with `retoma keys create`",
    DevRefusal.NO_TOKEN: "this needs the token of this `retoma dev`, or an API key, in the header X-API-Key; the token "
    "is in the file `dev-key` in RETOMA_HOME, and in the address that `retoma dev` printed when it started",
}


class Auth:
    """With `development` its developer needs no key. Otherwise everyone does, but for our own pages."""

    def __init__(self, client: Client, per_minute: int, sessions: Sessions, *, dev_auth: DevAuth | None = None) -> None:
        self._client = client
        self._sessions = sessions
        self.dev_auth = dev_auth
        self._key_cache = KeyCache(client)
        self._request_limiter = RateLimiter(per_minute)
        self._failure_limiter = RateLimiter(FAILURES_PER_MINUTE)
        self._lookup_limiter = RateLimiter(KEY_LOOKUPS_PER_MINUTE)
        self._callback_lookups = asyncio.Semaphore(MAX_CONCURRENT_CALLBACK_LOOKUPS)

    async def authenticate(self, request: Request, scope: Scope | None) -> Principal:
        """The caller. Raises a Problem: 401 without a valid key, 403 without the scope, 429 when it calls too often."""
        secret = _read_secret(request)
        if self.is_developer(request):
            return Principal(self._client, None, frozenset({Scope.ADMIN}), "development")
        if secret is None and (token := await self._find_page_session(request)) is not None:
            session = Credential("session", admin_sessions.compute_digest(token))
            return Principal(self._client, None, frozenset({Scope.ADMIN}), ADMINISTRATOR, session)
        key = await self._require_valid_key(request, secret)
        check_rate(self._request_limiter.take(key.id), "this key makes too many requests")
        by = Principal(
            self._client, key.tenant, key.scopes, key.name, Credential("key", api_keys.hash_secret(secret or ""))
        )
        if scope is not None and not by.has_scope(scope):
            raise Problem(403, "SCOPE_MISSING", f"this key lacks the scope {scope}", scope=scope)
        return by

    async def authenticate_link(
        self, request: Request, run: UUID, digest: str, expires: int, signature: str
    ) -> Principal:
        """Let in a caller with a signed link to this file. Raises NotFound, Gone, or a Problem (429).

        A valid link is served however many wrong ones came from the same address.
        """
        try:
            await self._client.files.check_link(run, digest, expires, signature)
        except Gone:
            raise
        except NotFound:
            self.check_failures(get_client_address(request))
            self.record_failure(get_client_address(request))
            raise
        return Principal(self._client, None, frozenset(), "a signed link")

    async def check_authenticated(self, request: Request) -> None:
        """Raise a Problem unless it comes from a page or with a valid key, whatever that may do, or needs neither."""
        secret = _read_secret(request)
        if not (self.is_developer(request) or (secret is None and await self._sessions.find_token(request))):
            await self._require_valid_key(request, secret)
        mark_authenticated(request)

    async def check_callback(self, request: Request, token: str) -> None:
        """Raise NotFound, or a Problem after too many wrong tokens, unless there is a callback with this token.

        A valid token is never refused because of wrong ones: those from the same address may be somebody else's. All
        lookups together take few of the database's connections.
        """
        async with self._callback_lookups:
            digest = hashlib.sha256(token.encode(errors="replace")).digest()
            is_known = await external_work.has_callback(self._client.database, digest)
        if not is_known:
            address = get_client_address(request)
            self.check_failures(address)
            self.record_failure(address)
            raise NotFound("there is no such callback")

    async def find_invalid(self, credentials: Iterable[Credential]) -> set[Credential]:
        """Return those that are not valid any more: revoked, expired or logged out."""
        asked = set(credentials)
        of_keys = {each.digest for each in asked if each.kind == "key"}
        of_sessions = {each.digest for each in asked if each.kind == "session"}
        live: set[Credential] = set()
        if of_keys:
            live |= {Credential("key", each) for each in await api_keys.find_live(self._client.database, of_keys)}
        if of_sessions:
            live |= {Credential("session", each) for each in await self._sessions.find_live(of_sessions)}
        return asked - live

    def is_developer(self, request: Request) -> bool:
        """Whether this is the developer of `retoma dev`."""
        return self.dev_auth is not None and self.explain_dev_refusal(request) is None

    def explain_dev_refusal(self, request: Request) -> DevRefusal | None:
        """Return why the request is not the developer's; None without `development`, where nobody is one."""
        if self.dev_auth is None:
            return None
        try:
            return self.dev_auth.explain_refusal(request, _read_secret(request))
        except Problem:  # it shows two keys
            return DevRefusal.NO_TOKEN

    async def _find_page_session(self, request: Request) -> str | None:
        """Return the session's token if a page of ours sent this.

        A look needs no CSRF token, so that `EventSource` and links can have one; whatever changes something does.
        """
        is_look, given = request.method in SAFE_METHODS, request.headers.get(CSRF_HEADER)
        token = await self._sessions.find_token(request) if is_look or given is not None else None
        if token is None:
            return None
        if is_look and given is None:
            self._sessions.check_read_origin(request)
        else:
            self._sessions.check_origin(request)
            self._sessions.check_csrf(token, given)
        mark_authenticated(request)
        return token

    async def _require_valid_key(self, request: Request, secret: str | None) -> KeyRecord:
        address = get_client_address(request)
        looked_for = secret if secret is not None and self._may_look_up(address, secret) else None
        key = None if looked_for is None else await self._key_cache.find(looked_for)
        if key is None:
            self.check_failures(address)
            self.record_failure(address)
            refusal = self.explain_dev_refusal(request)
            raise _unauthorized_problem(None if secret is not None and refusal is DevRefusal.NO_TOKEN else refusal)
        mark_authenticated(request)
        return key

    def _may_look_up(self, address: str, secret: str) -> bool:
        """Whoever guesses keys may neither keep the database busy nor lock out the valid ones of a neighbour."""
        if self._failure_limiter.get_wait(address) == 0 or self._key_cache.was_valid(secret):
            return True
        return is_well_formed(secret) and self._lookup_limiter.take(address) == 0

    def check_failures(self, address: str) -> None:
        """Raise a Problem if too much that came from there was refused."""
        check_rate(self._failure_limiter.get_wait(address), "too many requests from here were refused")

    def record_failure(self, address: str) -> None:
        self._failure_limiter.take(address)


def mark_authenticated(request: Request) -> None:
    """Let the connection of this request stay when room is made for others."""
    if on_known := request.scope.get("state", {}).get("on_known"):
        on_known()


def get_client_address(request: Request) -> str:
    return request.client.host if request.client else ""


def _read_secret(request: Request) -> str | None:
    """The key that the request shows, in either of the two headers."""
    given = request.headers.get("x-api-key")
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return given
    if given is not None and given != token.strip():
        raise _unauthorized_problem()
    return token.strip()


def _unauthorized_problem(refusal: DevRefusal | None = None) -> Problem:
    needed = "this needs a valid API key in the header X-API-Key, or as a bearer token; `retoma keys create` makes one"
    return Problem(
        401,
        "KEY_NEEDED",
        needed if refusal is None else _DEV_REFUSALS[refusal],
        headers={"WWW-Authenticate": "Bearer"},
    )
