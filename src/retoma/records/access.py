"""What a caller may do, and in which tenants: the same for people and API keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from retoma.records.api_key import ApiKey, Scope
from retoma.records.person import RoleGrant
from retoma.records.role import get_role_scopes, includes_scope


@dataclass(frozen=True)
class Access:
    """Scopes that hold in all tenants, and scopes that hold in one."""

    everywhere: frozenset[Scope] = frozenset()
    by_tenant: Mapping[str, frozenset[Scope]] = field(default_factory=dict)

    @classmethod
    def from_roles(cls, roles: Iterable[RoleGrant]) -> Access:
        everywhere: frozenset[Scope] = frozenset()
        by_tenant: dict[str, frozenset[Scope]] = {}
        for grant in roles:
            scopes = get_role_scopes(grant.role, in_all_tenants=grant.tenant is None)
            if grant.tenant is None:
                everywhere |= scopes
            else:
                by_tenant[grant.tenant] = scopes
        return cls(everywhere, by_tenant)

    @classmethod
    def from_key(cls, key: ApiKey) -> Access:
        return cls(key.scopes) if key.tenant is None else cls(by_tenant={key.tenant: key.scopes})

    @classmethod
    def full(cls) -> Access:
        return cls(frozenset({Scope.ADMIN}))

    def find_tenants(self, scope: Scope | None) -> frozenset[str] | None:
        """Return the tenants in which this scope holds, or any scope if it is None. None means all tenants."""
        if _permits(self.everywhere, scope):
            return None
        return frozenset(tenant for tenant, scopes in self.by_tenant.items() if _permits(scopes, scope))

    def includes(self, grant: RoleGrant) -> bool:
        """Return whether all that this role may do is permitted where it is held."""
        scopes = get_role_scopes(grant.role, in_all_tenants=grant.tenant is None)
        held = (
            self.everywhere if grant.tenant is None else self.everywhere | self.by_tenant.get(grant.tenant, frozenset())
        )
        return all(includes_scope(held, scope) for scope in scopes)

    def permits(self, scope: Scope | None, tenant: str | None = None) -> bool:
        """Return whether the scope holds in this tenant; without one, in any."""
        tenants = self.find_tenants(scope)
        return tenants is None or (bool(tenants) if tenant is None else tenant in tenants)


def _permits(scopes: frozenset[Scope], scope: Scope | None) -> bool:
    return bool(scopes) if scope is None else includes_scope(scopes, scope)
