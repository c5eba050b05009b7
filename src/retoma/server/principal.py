"""The authenticated caller of a route, and the scope that each route requires."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple
from uuid import UUID

from fastapi import Depends, Query, Security
from fastapi.routing import RouteContext
from fastapi.security import APIKeyHeader, HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials
from starlette.requests import Request

from retoma.client import Client
from retoma.records import (
    CROSS_TENANT_SCOPES,
    Access,
    Actor,
    ActorKind,
    Person,
    RoleGrant,
    Scope,
    get_least_role,
)
from retoma.server.problems import Problem
from retoma.store.tenants import DEFAULT

if TYPE_CHECKING:
    from retoma.app import App
    from retoma.server.auth import Auth

_API_KEY_HEADER = APIKeyHeader(
    name="X-API-Key", auto_error=False, description="An API key, created with `retoma keys create`."
)
_BEARER = HTTPBearer(auto_error=False, description="The same API key as a bearer token.")
_MAX_EXPIRES = 2**53
_REQUIRED_SCOPES: dict[object, Scope | None] = {}  # by dependency function


class Credential(NamedTuple):
    """An API key or session, identified by the digest that the database stores.

    With `roles`, those of the session's person: a stream ends if they change.
    """

    kind: Literal["key", "session"]
    digest: bytes
    roles: tuple[RoleGrant, ...] = ()


@dataclass(frozen=True)
class Caller:
    """An authenticated caller, before anything is required of it.

    `credential` is None for the developer of `retoma dev` and for signed links. `token` is that of a session.
    """

    actor: Actor
    access: Access
    credential: Credential | None = None
    person: Person | None = None
    token: str | None = field(default=None, repr=False)

    def limit_client(self, client: Client, scope: Scope | None) -> Client:
        """Return the client for the tenants in which the caller has this scope. Raise a Problem if there is none."""
        tenants = self.access.find_tenants(scope)
        acting = client.acting_as(self.actor, self.access)
        if tenants is None:
            return acting
        if not tenants and scope is not None:
            raise self._describe_missing(scope)
        visible = self.access.find_tenants(Scope.RUNS_READ)
        return acting.limit_to(tenants, visible=visible, scope=scope)

    def _describe_missing(self, scope: Scope) -> Problem:
        if self.actor.kind is not ActorKind.PERSON:
            return Problem(403, "SCOPE_MISSING", f"this API key lacks the scope {scope}", scope=scope)
        role = get_least_role(scope)
        where = " in all tenants" if scope in CROSS_TENANT_SCOPES else ""
        detail = f"this takes the role {role}{where}, or a higher one: ask an administrator"
        return Problem(403, "ROLE_MISSING", detail, role=role)


@dataclass(frozen=True)
class Principal:
    """The authenticated caller of a route. Its `client` is limited to the tenants in which it may call the route."""

    client: Client
    caller: Caller

    @property
    def name(self) -> str:
        """The name of the person or of the API key."""
        return self.caller.actor.name

    @property
    def author(self) -> str:
        """Who acts, for the history of a run: a key is named as one."""
        return f"key {self.name}" if self.caller.actor.kind is ActorKind.KEY else self.name

    @property
    def credential(self) -> Credential | None:
        return self.caller.credential

    def has_scope(self, scope: Scope) -> bool:
        return self.caller.access.permits(scope)

    def for_scope(self, scope: Scope) -> Principal:
        """Return the same caller where it has this scope too. Raise a Problem if that is nowhere."""
        return replace(self, client=self.caller.limit_client(self.client, scope))

    @property
    def sees_all_tenants(self) -> bool:
        return self.client.allowed_tenants is None

    def sees(self, tenant: str) -> bool:
        """Return whether the route may be called for this tenant."""
        allowed = self.client.allowed_tenants
        return allowed is None or tenant in allowed

    def choose_tenant(self, requested: str | None, default: str = DEFAULT) -> str:
        """Return the tenant of something new: the requested one, or the caller's only one. Raise a Problem without one.

        The client raises AccessDenied if the caller may not act on it.
        """
        allowed = self.client.allowed_tenants
        if requested is not None or allowed is None:
            return requested or default
        if len(allowed) == 1:
            return next(iter(allowed))
        raise Problem(422, "TENANT_REQUIRED", f"name the tenant: one of {', '.join(sorted(allowed))}")

    @property
    def application(self) -> App:
        """The application that the called route belongs to."""
        assert self.client.app is not None
        return self.client.app

    @property
    def sees_stacks(self) -> bool:
        """Stack traces reveal paths on the server, so only principals with access to all tenants see them."""
        return self.sees_all_tenants


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
