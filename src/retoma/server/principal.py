"""Who calls, and what they may do: each route names the scope that its caller needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple
from uuid import UUID

from fastapi import Depends, Query, Security
from fastapi.routing import RouteContext
from fastapi.security import APIKeyHeader, HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials
from starlette.requests import Request

from retoma.client import Client
from retoma.records import Scope

if TYPE_CHECKING:
    from retoma.server.auth import Auth

_API_KEY_HEADER = APIKeyHeader(name="X-API-Key", auto_error=False, description="An API key: `retoma keys create`.")
_BEARER = HTTPBearer(auto_error=False, description="The same key as a bearer token.")
_MAX_EXPIRES = 2**53
_REQUIRED_SCOPES: dict[object, Scope | None] = {}  # by the function that lets a caller pass


class Credential(NamedTuple):
    """What a caller showed, as the database has it."""

    kind: Literal["key", "session"]
    digest: bytes


@dataclass(frozen=True)
class Principal:
    """`tenant` is whose things it may see and touch; None is everyone's. `name` is that of its key. In development a
    caller needs no `credential`."""

    client: Client
    tenant: str | None
    scopes: frozenset[Scope]
    name: str
    credential: Credential | None = None

    def has_scope(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes

    @property
    def sees_stacks(self) -> bool:
        """They tell of the server's files, and so are for keys of all tenants."""
        return self.tenant is None


def require_scope(scope: str | None) -> Any:
    """In a route: `by: Annotated[Caller, caller("runs:write")]`. None lets any valid key pass."""
    needed = None if scope is None else Scope(scope)

    async def admitted(
        request: Request,
        _key: Annotated[str | None, Security(_API_KEY_HEADER)] = None,
        _bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None,
    ) -> Principal:
        door: Auth = request.app.state.auth
        by: Principal = await door.authenticate(request, needed)
        return by

    _REQUIRED_SCOPES[admitted] = needed
    return Depends(admitted)


def require_scope_or_link(scope: str, *, run: str, digest: str) -> Any:
    """The same for a file of a run: a signed link to it, which has not expired, needs no key.

    `run` and `digest` are what the route calls them in its path.
    """
    needed = Scope(scope)

    async def admitted(
        request: Request,
        _key: Annotated[str | None, Security(_API_KEY_HEADER)] = None,
        _bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None,
        expires: Annotated[int, Query(ge=0, le=_MAX_EXPIRES, description="Of a signed link, in Unix seconds.")] = 0,
        signature: Annotated[str | None, Query(max_length=100, description="Of a signed link.")] = None,
    ) -> Principal:
        door: Auth = request.app.state.auth
        if signature is None:
            return await door.authenticate(request, needed)
        of, content = UUID(str(request.path_params[run])), str(request.path_params[digest])
        return await door.authenticate_link(request, of, content, expires, signature)

    _REQUIRED_SCOPES[admitted] = needed
    return Depends(admitted)


async def _allow_anyone() -> None: ...


public = Depends(_allow_anyone)


@dataclass(frozen=True)
class RouteAccess:
    """What a route asks of its caller: nothing, a valid key, or one with a scope."""

    needs_key: bool
    scope: Scope | None


def get_route_access(route: RouteContext) -> RouteAccess | None:
    """None if the route does not say."""
    dependant = getattr(route, "dependant", None)
    calls = [dependency.call for dependency in dependant.dependencies] if dependant else []
    for call in calls:
        if call in _REQUIRED_SCOPES:
            return RouteAccess(needs_key=True, scope=_REQUIRED_SCOPES[call])
    return RouteAccess(needs_key=False, scope=None) if _allow_anyone in calls else None
