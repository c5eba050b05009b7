"""The authenticated caller of a route, and the scope that each route requires."""

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
    from retoma.app import App
    from retoma.server.auth import Auth

_API_KEY_HEADER = APIKeyHeader(
    name="X-API-Key", auto_error=False, description="An API key, created with `retoma keys create`."
)
_BEARER = HTTPBearer(auto_error=False, description="The same API key as a bearer token.")
_MAX_EXPIRES = 2**53
_NOBODY = ""  # no tenant has an empty name
_REQUIRED_SCOPES: dict[object, Scope | None] = {}  # by dependency function


class Credential(NamedTuple):
    """An API key or session, identified by the digest that the database stores."""

    kind: Literal["key", "session"]
    digest: bytes


@dataclass(frozen=True)
class Principal:
    """The authenticated caller. `tenant` limits its access; None means all tenants. `name` is the API key's name.

    `credential` is None for the developer of `retoma dev` and for signed links.
    """

    client: Client
    tenant: str | None
    scopes: frozenset[Scope]
    name: str
    credential: Credential | None = None

    def has_scope(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def limit_to(self, tenant: str | None) -> str | None:
        """Return the tenant whose objects a list may contain, if it should be limited to `tenant`; None means all."""
        if self.tenant is None:
            return tenant
        return self.tenant if tenant in (None, self.tenant) else _NOBODY

    @property
    def application(self) -> App:
        """The application that the called route belongs to."""
        assert self.client.app is not None
        return self.client.app

    @property
    def sees_stacks(self) -> bool:
        """Stack traces reveal paths on the server, so only principals with access to all tenants see them."""
        return self.tenant is None


def require_scope(scope: str | None) -> Any:
    """Return a dependency for a route: `by: Annotated[Principal, require_scope("runs:write")]`.

    `None` accepts any valid key.
    """
    required = None if scope is None else Scope(scope)

    async def authenticate(
        request: Request,
        _key: Annotated[str | None, Security(_API_KEY_HEADER)] = None,
        _bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None,
    ) -> Principal:
        auth: Auth = request.app.state.auth
        by: Principal = await auth.authenticate(request, required)
        return by

    _REQUIRED_SCOPES[authenticate] = required
    return Depends(authenticate)


def require_scope_or_link(scope: str, *, run: str, digest: str) -> Any:
    """Return the same dependency for a file of a run. A signed link that has not expired needs no key.

    `run` and `digest` are the names of the route's path parameters.
    """
    required = Scope(scope)

    async def authenticate(
        request: Request,
        _key: Annotated[str | None, Security(_API_KEY_HEADER)] = None,
        _bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)] = None,
        expires: Annotated[
            int, Query(ge=0, le=_MAX_EXPIRES, description="Expiry of a signed link, in Unix seconds.")
        ] = 0,
        signature: Annotated[str | None, Query(max_length=100, description="Signature of a signed link.")] = None,
    ) -> Principal:
        auth: Auth = request.app.state.auth
        if signature is None:
            return await auth.authenticate(request, required)
        run_id, content = UUID(str(request.path_params[run])), str(request.path_params[digest])
        return await auth.authenticate_link(request, run_id, content, expires, signature)

    _REQUIRED_SCOPES[authenticate] = required
    return Depends(authenticate)


async def _allow_anyone() -> None: ...


public = Depends(_allow_anyone)


@dataclass(frozen=True)
class RouteAccess:
    """What a route requires: nothing, a valid key, or a key with a scope."""

    needs_key: bool
    scope: Scope | None


def get_route_access(route: RouteContext) -> RouteAccess | None:
    """Return the declared access of the route, or None if it declares none."""
    dependant = getattr(route, "dependant", None)
    calls = [dependency.call for dependency in dependant.dependencies] if dependant else []
    for call in calls:
        if call in _REQUIRED_SCOPES:
            return RouteAccess(needs_key=True, scope=_REQUIRED_SCOPES[call])
    return RouteAccess(needs_key=False, scope=None) if _allow_anyone in calls else None
