"""Who is let in: callers with a key, pages of a person who logged in, and in development those on this machine."""

from __future__ import annotations

from starlette.requests import Request

from retoma.client import Client
from retoma.engine.keys import is_well_formed
from retoma.records import KeyRecord, Scope
from retoma.server.buckets import Buckets
from retoma.server.callers import Caller
from retoma.server.development import Development, Refusal
from retoma.server.keyring import Keyring
from retoma.server.problems import Problem, slow_down
from retoma.server.sessions import HEADER, Sessions

FAILURES_PER_MINUTE = 30
LOOKUPS_PER_MINUTE = 600  # of what has a key's form, from an address that has shown too many wrong ones
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

    async def admit(self, request: Request, scope: Scope | None) -> Caller:
        """The caller. Raises a Problem: 401 without a valid key, 403 without the scope, 429 when it calls too often."""
        secret = _secret(request)
        if self.needs_nothing(request):
            return Caller(self._client, None, frozenset({Scope.ADMIN}), "development")
        if secret is None and await self._is_our_page(request):
            return Caller(self._client, None, frozenset({Scope.ADMIN}), ADMINISTRATOR)
        key = await self._valid(request, secret)
        slow_down(self._requests.take(key.id), "this key makes too many requests")
        by = Caller(self._client, key.tenant, key.scopes, key.name)
        if scope is not None and not by.may(scope):
            raise Problem(403, "SCOPE_MISSING", f"this key lacks the scope {scope}", scope=scope)
        return by

    async def check_known(self, request: Request) -> None:
        """Raise a Problem unless it comes from a page or with a valid key, whatever that may do, or needs neither."""
        secret = _secret(request)
        if self.needs_nothing(request) or (secret is None and await self._sessions.of(request)):
            return
        await self._valid(request, secret)

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
            refusal = self.refusal(request)
            raise _unauthorised(None if secret is not None and refusal is Refusal.NO_TOKEN else refusal)
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
