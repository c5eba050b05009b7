"""The claims of an identity provider: who somebody is, and which roles that gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from retoma.errors import DefinitionError
from retoma.records import Role, RoleGrant

_MAX_NAME_LENGTH = 200


@dataclass(frozen=True)
class Identity:
    """Who the provider says that somebody is. Only `issuer` and `subject` together identify an account for good."""

    issuer: str
    subject: str
    email: str | None
    is_email_verified: bool
    name: str
    claims: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_claims(cls, issuer: str, claims: Mapping[str, Any]) -> Identity:
        email = claims.get("email")
        email = email.strip().lower() if isinstance(email, str) and "@" in email else None
        names = (claims.get("name"), claims.get("preferred_username"), email, claims["sub"])
        name = next(each.strip() for each in names if isinstance(each, str) and each.strip())
        # Some providers send the text "true", which is not what the specification says, and does not count.
        verified = claims.get("email_verified") is True
        return cls(issuer, claims["sub"], email, verified, name[:_MAX_NAME_LENGTH], claims)


def merge_claims(id_token: Mapping[str, Any], user_info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims of both; those of the ID token win.

    That an address is verified counts only for the address with which it was said.
    """
    merged = {**user_info, **id_token}
    source = id_token if "email" in id_token else user_info
    other = user_info if source is id_token else id_token
    if "email_verified" in source or other.get("email") == source.get("email"):
        return merged | {"email_verified": source.get("email_verified", other.get("email_verified"))}
    return merged | {"email_verified": False}


def parse_role_mapping(mapping: Mapping[str, Sequence[str]]) -> dict[str, list[RoleGrant]]:
    """Return the grants of each claim value: `reviewer@blog` in one tenant, `viewer` in all.

    Raise DefinitionError for an unknown role.
    """
    return {value: [_parse_grant(text) for text in texts] for value, texts in mapping.items()}


def map_roles(claims: Mapping[str, Any], claim: str, mapping: Mapping[str, Sequence[RoleGrant]]) -> list[RoleGrant]:
    """Return the highest role in each tenant that the values of the claim give. A dotted name reaches into objects."""
    highest: dict[str | None, RoleGrant] = {}
    for value in _read_values(claims, claim):
        for grant in mapping.get(value, ()):
            held = highest.get(grant.tenant)
            if held is None or grant.role.includes(held.role):
                highest[grant.tenant] = grant
    return list(highest.values())


def _parse_grant(text: str) -> RoleGrant:
    role, separator, tenant = text.strip().partition("@")
    if role not in list(Role) or (separator and not tenant):
        raise DefinitionError(
            f"RETOMA_OIDC_ROLES has {text!r:.80}: write a role ({', '.join(Role)}) for all tenants, or ROLE@TENANT"
        )
    return RoleGrant(tenant or None, Role(role), from_claim=True)


def _read_values(claims: Mapping[str, Any], claim: str) -> list[str]:
    found: Any = claims.get(claim)
    if found is None:
        found = claims
        for part in claim.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    values = found if isinstance(found, list) else [found]
    return [each for each in values if isinstance(each, str)]
