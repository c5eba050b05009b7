"""People: their accounts, roles and sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from retoma.records.api_key import Scope
from retoma.records.role import Role, get_role_scopes, includes_scope


@dataclass(frozen=True)
class RoleGrant:
    """A role in one tenant; without a tenant, in all. `from_claim`: single sign-on gave it."""

    tenant: str | None
    role: Role
    from_claim: bool = False

    def permits(self, scope: Scope) -> bool:
        return includes_scope(get_role_scopes(self.role, in_all_tenants=self.tenant is None), scope)


@dataclass(frozen=True)
class Person:
    """An account. Without `language` or `time_zone`, the browser's are used. One that was disabled cannot log in."""

    id: int
    name: str
    email: str
    language: str | None
    time_zone: str | None
    has_password: bool
    has_second_factor: bool
    is_linked: bool  # to an account of the identity provider
    created_at: datetime
    disabled_at: datetime | None
    roles: tuple[RoleGrant, ...]


class LinkPurpose(StrEnum):
    INVITE = "invite"
    RESET = "reset"


@dataclass(frozen=True)
class NewAccountLink:
    """`token` is the secret part of the link. It is not stored, so it can only be shown now."""

    person: Person
    purpose: LinkPurpose
    expires_at: datetime
    token: str = field(repr=False)


@dataclass(frozen=True)
class PersonSession:
    """A logged-in browser. `used_at` is coarse. `is_current`: it is the one that asks."""

    id: int
    address: str | None
    user_agent: str | None
    created_at: datetime
    used_at: datetime
    is_current: bool = False
