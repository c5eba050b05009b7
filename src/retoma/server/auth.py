"""Authenticate requests by API key, by dashboard session, or by the local token of `retoma dev`."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from uuid import UUID

from starlette.requests import Request

from retoma.app import App
from retoma.client import Client
from retoma.engine import api_keys
from retoma.engine.api_keys import is_well_formed
from retoma.errors import Gone, NotFound
from retoma.records import Access, Actor, ActorKind, ApiKey, Person, Scope
from retoma.server.dev_auth import DevAuth, DevRefusal
from retoma.server.key_cache import KeyCache
from retoma.server.principal import Caller, Credential, Principal
from retoma.server.problems import Problem, check_rate
from retoma.server.rate_limit import RateLimiter
from retoma.server.sessions import CSRF_HEADER, Sessions
from retoma.store import external_work
from retoma.store.api_keys import find_live as find_live_keys

FAILURES_PER_MINUTE = 30
KEY_LOOKUPS_PER_MINUTE = 600  # well-formed keys from an address that exceeded FAILURES_PER_MINUTE
MAX_CONCURRENT_CALLBACK_LOOKUPS = 2
SAFE_METHODS = ("GET", "HEAD")
_DEV_REFUSALS = {
    DevRefusal.PROXIED: "the request came through a proxy, but `retoma dev` accepts only local requests; to give "
    "others access, run `retoma serve` and `retoma worker`, and create an API key with `retoma keys create`",
    DevRefusal.NOT_LOCAL: "`retoma dev` accepts only requests from this machine to localhost; to give others access, "
    "run `retoma serve` and `retoma worker`, and create an API key with `retoma keys create`",
    DevRefusal.NO_TOKEN: "send the token of this `retoma dev`, or an API key, in the X-API-Key header; the token is in "
    "the file `dev-key` in RETOMA_HOME and in the URL that `retoma dev` printed at startup",
}


class Auth:
    """Authenticate API keys, dashboard sessions and signed links. With `dev_auth`, the developer needs no key."""

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
        """Return the principal, or raise a Problem: 401 (no valid key), 403 (scope or role missing) or 429."""
        caller = await self._find_caller(request)
        return Principal(caller.limit_client(self._get_client(request), scope), caller)

    async def find_viewer(self, request: Request) -> Caller | None:
        """Return the developer, or the person whose session the browser has; None without one."""
        if self.is_developer(request):
            return self._make_developer(request)
        found = await self._sessions.find_person(request)
        return None if found is None else _make_person_caller(request, *found)

    async def _find_caller(self, request: Request) -> Caller:
        secret = _read_secret(request)
        if self.is_developer(request):
            return self._make_developer(request)
        if secret is None and (found := await self._find_page_session(request)) is not None:
            return _make_person_caller(request, *found)
        key = await self._require_valid_key(request, secret)
        check_rate(self._request_limiter.take(key.id), "this API key has exceeded its rate limit")
        actor = Actor(ActorKind.KEY, str(key.id), key.name, get_client_address(request))
        return Caller(actor, Access.from_key(key), Credential("key", api_keys.hash_secret(secret or "")))

    def _make_developer(self, request: Request) -> Caller:
        name = "" if self.dev_auth is None else self.dev_auth.name
        actor = Actor(ActorKind.DEVELOPER, name, name, get_client_address(request))
        return Caller(actor, Access.full(), token=self._sessions.dev_token)

    def _get_client(self, request: Request) -> Client:
        """Return the client of the application whose route is called, or that of the server."""
        application: App | None = getattr(request.state, "application", None)
        return self._client if application is None else self._client.scope_to(application)

    async def authenticate_link(
        self, request: Request, run: UUID, digest: str, expires: int, signature: str
    ) -> Principal:
        """Return a principal for a valid signed link to this file. Raise NotFound, Gone, or a Problem (429).

        A valid link works no matter how many invalid ones came from the same address.
        """
        try:
            await self._client.files.check_link(run, digest, expires, signature)
        except Gone:
            raise
        except NotFound:
            self._count_failure(get_client_address(request))
            raise
        link = Actor(ActorKind.ENGINE, "link", "a signed link", get_client_address(request))
        return Principal(self._get_client(request), Caller(link, Access()))

    async def check_authenticated(self, request: Request) -> None:
        """Raise a Problem unless the request has a session or a valid key (of any scope), or is the developer's."""
        secret = _read_secret(request)
        if not (self.is_developer(request) or (secret is None and await self._sessions.find_person(request))):
            await self._require_valid_key(request, secret)
        mark_authenticated(request)

    async def check_callback(self, request: Request, token: str) -> None:
        """Raise NotFound if no callback has this token, or a Problem (429) after too many invalid tokens.

        A valid token is never rejected because of invalid ones: they may come from somebody else behind the same
        address. Concurrent lookups are limited to spare the database's connections.
        """
        async with self._callback_lookups:
            digest = hashlib.sha256(token.encode(errors="replace")).digest()
            is_known = await external_work.has_callback(self._client.database, digest)
        if not is_known:
            self._count_failure(get_client_address(request))
            raise NotFound("callback not found")

    async def find_invalid(self, credentials: Iterable[Credential]) -> set[Credential]:
        """Return the credentials that were revoked, expired or logged out, and those whose person has other roles."""
        checked = set(credentials)
        keys = {each.digest for each in checked if each.kind == "key"}
        sessions = {each.digest for each in checked if each.kind == "session"}
        live: set[Credential] = set()
        if keys:
            live |= {Credential("key", digest) for digest in await find_live_keys(self._client.database, keys)}
        if sessions:
            found = await self._sessions.find_live(sessions)
            live |= {Credential("session", digest, person.roles) for digest, person in found.items()}
        return checked - live

    def is_developer(self, request: Request) -> bool:
        """Return whether the request comes from the developer of `retoma dev`."""
        return self.dev_auth is not None and self.explain_dev_refusal(request) is None

    def explain_dev_refusal(self, request: Request) -> DevRefusal | None:
        """Return why the request is not the developer's, or None if it is or if `dev_auth` is off."""
        if self.dev_auth is None:
            return None
        try:
            return self.dev_auth.explain_refusal(request, _read_secret(request))
        except Problem:  # the two headers hold different keys
            return DevRefusal.NO_TOKEN

    async def _find_page_session(self, request: Request) -> tuple[str, Person] | None:
        """Return the session's token and its person if the request comes from a page of the dashboard.

        Reads need no CSRF token, because `EventSource` and links cannot send one. Writes do.
        """
        is_read, csrf = request.method in SAFE_METHODS, request.headers.get(CSRF_HEADER)
        found = await self._sessions.find_person(request) if is_read or csrf is not None else None
        if found is None:
            return None
        if is_read and csrf is None:
            self._sessions.check_read_origin(request)
        else:
            self._sessions.check_origin(request)
            self._sessions.check_csrf(found[0], csrf)
        mark_authenticated(request)
        return found

    async def _require_valid_key(self, request: Request, secret: str | None) -> ApiKey:
        address = get_client_address(request)
        key = None
        if secret is not None and self._may_look_up(address, secret):
            key = await self._key_cache.find(secret)
        if key is None:
            self._count_failure(address)
            refusal = self.explain_dev_refusal(request)
            raise _unauthorized_problem(None if secret is not None and refusal is DevRefusal.NO_TOKEN else refusal)
        mark_authenticated(request)
        return key

    def _may_look_up(self, address: str, secret: str) -> bool:
        """Limit the database load of guessed keys without locking out valid keys behind the same address."""
        if self._failure_limiter.get_wait(address) == 0 or self._key_cache.was_valid(secret):
            return True
        return is_well_formed(secret) and self._lookup_limiter.take(address) == 0

    def _count_failure(self, address: str) -> None:
        """Raise a Problem (429) if too many requests from this address failed authentication."""
        check_rate(self._failure_limiter.take(address), "too many requests from this address failed authentication")


def _make_person_caller(request: Request, token: str, person: Person) -> Caller:
    actor = Actor(ActorKind.PERSON, str(person.id), person.name, get_client_address(request))
    credential = Credential("session", api_keys.hash_secret(token), person.roles)
    return Caller(actor, Access.from_roles(person.roles), credential, person, token)


def mark_authenticated(request: Request) -> None:
    """Keep this connection open when the server drops idle ones to make room."""
    if on_known := request.scope.get("state", {}).get("on_known"):
        on_known()


def get_client_address(request: Request) -> str:
    return request.client.host if request.client else ""


def _read_secret(request: Request) -> str | None:
    """Return the API key from X-API-Key or Authorization. Raise a Problem if they differ."""
    api_key = request.headers.get("x-api-key")
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return api_key
    if api_key is not None and api_key != token.strip():
        raise _unauthorized_problem()
    return token.strip()


def _unauthorized_problem(refusal: DevRefusal | None = None) -> Problem:
    no_key = "send a valid API key in the X-API-Key header or as a bearer token; create one with `retoma keys create`"
    return Problem(
        401,
        "API_KEY_REQUIRED",
        no_key if refusal is None else _DEV_REFUSALS[refusal],
        headers={"WWW-Authenticate": "Bearer"},
    )
