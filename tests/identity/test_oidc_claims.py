"""Claims of an identity provider: who somebody is, and which roles that gives."""

from __future__ import annotations

from typing import Any

import pytest

from retoma.errors import DefinitionError
from retoma.records import Role
from retoma.server.oidc import Identity, map_roles, parse_role_mapping
from retoma.server.oidc.claims import merge_claims

MAPPING = parse_role_mapping(
    {"editors": ["reviewer@blog", "viewer"], "leads": ["operator@blog"], "cn=admins,ou=it": ["administrator"]}
)


def find_roles(claims: dict[str, Any], claim: str = "groups") -> dict[str | None, Role]:
    return {grant.tenant: grant.role for grant in map_roles(claims, claim, MAPPING)}


def test_each_value_of_the_claim_gives_its_roles() -> None:
    assert find_roles({"groups": ["editors", "strangers", 7]}) == {"blog": Role.REVIEWER, None: Role.VIEWER}
    assert find_roles({"groups": "cn=admins,ou=it"}) == {None: Role.ADMINISTRATOR}


def test_the_highest_role_in_a_tenant_counts() -> None:
    assert find_roles({"groups": ["leads", "editors"]})["blog"] is Role.OPERATOR
    assert find_roles({"groups": ["editors", "leads"]})["blog"] is Role.OPERATOR


@pytest.mark.parametrize("claims", [{}, {"groups": None}, {"groups": 5}, {"groups": {"editors": True}}, {"groups": []}])
def test_a_claim_of_another_shape_gives_no_role(claims: dict[str, Any]) -> None:
    assert find_roles(claims) == {}


def test_dots_reach_into_objects_unless_a_claim_has_that_name() -> None:
    nested = {"realm_access": {"roles": ["leads"]}, "https://example.com/roles": ["editors"]}
    assert find_roles(nested, "realm_access.roles") == {"blog": Role.OPERATOR}
    assert find_roles(nested, "https://example.com/roles")["blog"] is Role.REVIEWER


@pytest.mark.parametrize("role", ["owner", "reviewer@", "", "Administrator"])
def test_an_unknown_role_is_refused_by_name(role: str) -> None:
    with pytest.raises(DefinitionError, match="RETOMA_OIDC_ROLES"):
        parse_role_mapping({"editors": [role]})


@pytest.mark.parametrize("verified", ["true", 1, None, False, "yes"])
def test_only_true_means_that_an_address_is_verified(verified: object) -> None:
    claims = {"sub": "1", "email": "Ana@Example.com", "email_verified": verified}
    identity = Identity.from_claims("https://login.example", claims)
    assert (identity.email, identity.is_email_verified) == ("ana@example.com", False)
    assert Identity.from_claims("https://login.example", claims | {"email_verified": True}).is_email_verified


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"name": " Ana "}, "Ana"),
        ({"name": "", "preferred_username": "ana"}, "ana"),
        ({"email": "ana@example.com"}, "ana@example.com"),
        ({"name": 7}, "s-1"),
    ],
)
def test_the_name_is_the_best_that_the_provider_has(claims: dict[str, Any], name: str) -> None:
    assert Identity.from_claims("https://login.example", {"sub": "s-1", **claims}).name == name


@pytest.mark.parametrize(
    ("id_token", "user_info", "expected"),
    [
        ({"email": "a@x.example", "email_verified": True}, {}, ("a@x.example", True)),
        ({}, {"email": "a@x.example", "email_verified": True}, ("a@x.example", True)),
        ({"email": "a@x.example"}, {"email": "a@x.example", "email_verified": True}, ("a@x.example", True)),
        ({"email": "boss@x.example"}, {"email": "a@x.example", "email_verified": True}, ("boss@x.example", False)),
        ({"email": "boss@x.example"}, {"email_verified": True}, ("boss@x.example", False)),
        ({"email_verified": True}, {"email": "boss@x.example"}, ("boss@x.example", False)),
        (
            {"email": "a@x.example", "email_verified": False},
            {"email": "a@x.example", "email_verified": True},
            ("a@x.example", False),
        ),
    ],
)
def test_an_address_is_verified_only_where_it_was_said(
    id_token: dict[str, Any], user_info: dict[str, Any], expected: tuple[str, bool]
) -> None:
    identity = Identity.from_claims("https://login.example", merge_claims({"sub": "1", **id_token}, user_info))
    assert (identity.email, identity.is_email_verified) == expected
