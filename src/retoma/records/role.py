"""Roles of people, and the scopes that each of them includes."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from retoma.records.api_key import Scope


class Role(StrEnum):
    """What a person may do in a tenant, or in all tenants. Each role includes the one before it."""

    VIEWER = "viewer"
    REVIEWER = "reviewer"
    OPERATOR = "operator"
    ADMINISTRATOR = "administrator"

    @property
    def rank(self) -> int:
        return list(Role).index(self)

    def includes(self, other: Role) -> bool:
        return self.rank >= other.rank


class RoleScopes(NamedTuple):
    """The scopes of a role that is held in one tenant, and those it has in addition if held in all tenants."""

    in_tenant: frozenset[Scope]
    in_all_tenants: frozenset[Scope] = frozenset()


_VIEWER = frozenset({Scope.RUNS_READ})
_REVIEWER = _VIEWER | {Scope.REVIEWS_WRITE}
_OPERATOR = _REVIEWER | {Scope.RUNS_WRITE, Scope.DELIVERIES_READ, Scope.DELIVERIES_WRITE, Scope.POOLS_READ}
_OPERATOR_OF_ALL = frozenset({Scope.POOLS_WRITE, Scope.METRICS_READ})

# The one table of who may do what. A route or page requires a scope, never a role.
ROLE_SCOPES = {
    Role.VIEWER: RoleScopes(_VIEWER),
    Role.REVIEWER: RoleScopes(_REVIEWER),
    Role.OPERATOR: RoleScopes(_OPERATOR, _OPERATOR_OF_ALL),
    Role.ADMINISTRATOR: RoleScopes(
        _OPERATOR
        | {
            Scope.SCHEDULES_WRITE,
            Scope.BUDGETS_WRITE,
            Scope.CONNECTIONS_WRITE,
            Scope.PEOPLE_WRITE,
            Scope.AUDIT_READ,
        },
        _OPERATOR_OF_ALL | {Scope.ADMIN},
    ),
}


def get_role_scopes(role: Role, *, in_all_tenants: bool) -> frozenset[Scope]:
    """Return what the role may do where it is held."""
    scopes = ROLE_SCOPES[role]
    return scopes.in_tenant | scopes.in_all_tenants if in_all_tenants else scopes.in_tenant


def includes_scope(scopes: Iterable[Scope], scope: Scope) -> bool:
    """Return whether these scopes permit it: `admin` includes all."""
    return any(each in (scope, Scope.ADMIN) for each in scopes)


def get_least_role(scope: Scope) -> Role:
    """Return the lowest role that includes the scope, if it is held in all tenants."""
    return next(role for role in Role if includes_scope(get_role_scopes(role, in_all_tenants=True), scope))
