"""Whom a single sign-on logs in: by subject for good, by a verified address the first time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from retoma.records import LinkPurpose, Role
from retoma.store import audit_log, people, person_sessions, second_factor, single_sign_on
from retoma.store.audit_log import AuditFilter
from retoma.store.database import Database
from retoma.store.tenants import Tenants
from tests.conftest import empty_database

ISSUER = "https://login.example"
EVERYTHING = [(None, Role.ADMINISTRATOR)]


async def sign_on(database: Database, subject: str = "s-1", **changes: Any) -> str:
    """Return the outcome of a login with a verified address."""
    values: dict[str, Any] = {
        "issuer": ISSUER,
        "email": "ana@example.com",
        "is_email_verified": True,
        "name": "Ana",
        "may_create": True,
        "roles": [(None, Role.VIEWER)],
    }
    outcome, _ = await single_sign_on.sign_on(database, subject=subject, **{**values, **changes})
    return outcome


async def add_link(database: Database, digest: bytes, person: int) -> None:
    day = timedelta(days=1)
    await people.add_link(
        database, digest, person, LinkPurpose.RESET, created_by="tests", valid_for=day, grantable=EVERYTHING
    )


async def list_entries(database: Database, action: str) -> list[Mapping[str, Any]]:
    """Return what these entries of the audit log have as `after`."""
    return [entry.after or {} for entry in await audit_log.list_entries(database, AuditFilter(action=action))]


async def list_roles(database: Database) -> dict[str | None, Role]:
    (person,) = await people.list_people(database)
    return {grant.tenant: grant.role for grant in person.roles}


async def test_the_first_login_creates_the_account_and_later_ones_find_it(database: Database) -> None:
    await empty_database(database)
    assert await sign_on(database) == "created"
    assert await sign_on(database, email="new@example.com", is_email_verified=False) == "known"
    (person,) = await people.list_people(database)
    assert (person.name, person.email, person.has_password) == ("Ana", "ana@example.com", False)


async def test_first_logins_at_the_same_time_create_one_account(database: Database) -> None:
    await empty_database(database)
    outcomes = await asyncio.gather(*(sign_on(database) for _ in range(4)))
    assert sorted(outcomes) == ["created", "known", "known", "known"]
    assert len(await people.list_people(database)) == 1


async def test_an_unknown_person_is_refused_unless_accounts_are_created(database: Database) -> None:
    await empty_database(database)
    assert await sign_on(database, may_create=False) == "unknown_person"
    assert await people.list_people(database) == []


async def test_an_existing_account_is_linked_by_its_verified_address(database: Database) -> None:
    await empty_database(database)
    await people.add_person(database, name="Ana Lima", email="ana@example.com")
    assert await sign_on(database, may_create=False) == "linked"
    assert await sign_on(database, may_create=False) == "known"
    assert [person.name for person in await people.list_people(database)] == ["Ana Lima"]


async def test_linking_ends_every_credential_that_somebody_else_may_know(database: Database) -> None:
    """The person who invited the boss has used the link, logged in and set up a phone of their own."""
    await empty_database(database)
    boss = await people.add_person(database, name="Ana Lima", email="ana@example.com")
    assert boss is not None
    await people.set_password(database, boss.id, "hash", grantable=EVERYTHING)
    await person_sessions.add_session(database, b"session", boss.id, address=None, user_agent=None)
    await add_link(database, b"link", boss.id)
    await second_factor.set_secret(database, boss.id, "SEED", 1, [b"code"])
    assert await sign_on(database, roles=[(None, Role.ADMINISTRATOR)]) == "linked"
    assert await people.find_password_hash(database, boss.id) is None
    assert await person_sessions.use_session(database, b"session") is None
    assert await people.find_link(database, b"link") is None
    assert await second_factor.find_secret(database, boss.id) is None
    assert await second_factor.count_recovery_codes(database, boss.id) == 0
    (linked,) = await list_entries(database, "person.link")
    assert linked["ended"] == ["password", "second factor", "sessions", "links"]


async def test_a_later_login_ends_nothing(database: Database) -> None:
    await empty_database(database)
    await sign_on(database)
    (ana,) = await people.list_people(database)
    await people.set_password(database, ana.id, "hash", grantable=EVERYTHING)
    assert await sign_on(database) == "known"
    assert await people.find_password_hash(database, ana.id) == "hash"


async def test_a_claim_ends_a_password_from_somebody_who_could_not_give_that_role(database: Database) -> None:
    """An administrator of the blog has reset the password of somebody who is promoted by claims afterwards."""
    await empty_database(database)
    blog = await Tenants(database).get_or_create_id("blog")
    await sign_on(database, roles=[(blog, Role.VIEWER)])
    (ana,) = await people.list_people(database)
    await people.set_password(database, ana.id, "hash", grantable=[(blog, Role.ADMINISTRATOR)])
    await sign_on(database, roles=[(blog, Role.OPERATOR)])
    assert await people.find_password_hash(database, ana.id) == "hash"
    await sign_on(database, roles=[(blog, Role.OPERATOR), (None, Role.ADMINISTRATOR)])
    assert await people.find_password_hash(database, ana.id) is None


async def test_what_a_login_changes_has_entries(database: Database) -> None:
    await empty_database(database)
    blog = await Tenants(database).get_or_create_id("blog")
    await sign_on(database, roles=[(blog, Role.OPERATOR), (None, Role.VIEWER)], address="192.0.2.7")
    await sign_on(database, roles=[(blog, Role.OPERATOR), (None, Role.VIEWER)])
    await sign_on(database, roles=[(blog, Role.REVIEWER)])
    found = (await audit_log.list_entries(database, AuditFilter(object_kind="person")))[::-1]
    assert {(entry.actor_kind, entry.actor_name) for entry in found} == {("engine", "single sign-on")}
    assert [(entry.action, entry.tenant, (entry.before or {}).get("role"), entry.address) for entry in found] == [
        ("person.create", None, None, "192.0.2.7"),
        ("person.set_role", None, None, "192.0.2.7"),
        ("person.set_role", "blog", None, "192.0.2.7"),
        ("person.remove_role", None, "viewer", None),
        ("person.set_role", "blog", "operator", None),
    ]


async def test_a_new_account_of_the_same_name_is_told_apart_by_its_address(database: Database) -> None:
    await empty_database(database)
    await people.add_person(database, name="ana", email="other@example.com")
    assert await sign_on(database) == "created"
    assert {each.name for each in await people.list_people(database)} == {"ana", "Ana (ana@example.com)"}


async def test_an_address_that_is_not_verified_links_and_creates_nothing(database: Database) -> None:
    await empty_database(database)
    await people.add_person(database, name="Ana", email="ana@example.com")
    assert await sign_on(database, is_email_verified=False) == "email_not_verified"
    assert await sign_on(database, email=None) == "email_not_verified"
    assert await sign_on(database, email="eve@example.com", is_email_verified=False) == "email_not_verified"
    assert await sign_on(database) == "linked"


async def test_the_address_of_an_account_that_another_subject_has_is_refused(database: Database) -> None:
    await empty_database(database)
    await sign_on(database, "s-1")
    assert await sign_on(database, "s-2") == "email_of_another"


async def test_after_a_change_of_the_provider_the_address_links_again(database: Database) -> None:
    await empty_database(database)
    await sign_on(database, "s-1")
    assert await sign_on(database, "x-9", issuer="https://new.example") == "linked"
    assert await sign_on(database, "s-1") == "linked"


async def test_an_unlinked_account_is_linked_by_the_next_login(database: Database) -> None:
    await empty_database(database)
    await sign_on(database, "s-1")
    (person,) = await people.list_people(database)
    assert await single_sign_on.unlink_person(database, person.id)
    assert not await single_sign_on.unlink_person(database, person.id)
    assert await sign_on(database, "s-2") == "linked"


async def test_a_disabled_person_is_refused_and_gets_no_role(database: Database) -> None:
    await empty_database(database)
    await sign_on(database)
    (person,) = await people.list_people(database)
    await people.disable_person(database, person.id)
    for subject in ("s-1", "s-1"):
        assert await sign_on(database, subject, roles=[(None, Role.ADMINISTRATOR)]) == "disabled"
    assert await list_roles(database) == {None: Role.VIEWER}


async def test_an_account_that_was_disabled_before_its_first_login_is_not_linked(database: Database) -> None:
    await empty_database(database)
    person = await people.add_person(database, name="Ana", email="ana@example.com")
    assert person is not None
    await people.disable_person(database, person.id)
    assert await sign_on(database) == "disabled"
    assert not await single_sign_on.unlink_person(database, person.id)


async def test_roles_follow_the_claim_at_every_login(database: Database) -> None:
    await empty_database(database)
    blog = await Tenants(database).get_or_create_id("blog")
    await sign_on(database, roles=[(blog, Role.OPERATOR), (None, Role.VIEWER)])
    assert await list_roles(database) == {"blog": Role.OPERATOR, None: Role.VIEWER}
    await sign_on(database, roles=[(blog, Role.REVIEWER)])
    assert await list_roles(database) == {"blog": Role.REVIEWER}


async def test_a_claim_that_gives_no_role_any_more_ends_the_access(database: Database) -> None:
    await empty_database(database)
    await sign_on(database)
    assert await sign_on(database, roles=[]) == "no_role"
    assert await list_roles(database) == {}


async def test_nobody_without_a_role_gets_an_account(database: Database) -> None:
    await empty_database(database)
    assert await sign_on(database, roles=[]) == "no_role"
    assert await people.list_people(database) == []


async def test_a_role_that_an_administrator_gave_stays(database: Database) -> None:
    await empty_database(database)
    person = await people.add_person(database, name="Ana", email="ana@example.com")
    assert person is not None
    await people.set_role(database, person.id, None, Role.OPERATOR)
    for claimed in ([(None, Role.ADMINISTRATOR)], [], None):
        assert await sign_on(database, roles=claimed) in ("linked", "known")
        assert await list_roles(database) == {None: Role.OPERATOR}
