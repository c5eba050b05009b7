"""People, their roles and their sessions in the database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from retoma.records import LinkPurpose, Person, Role, RoleGrant
from retoma.store import people, person_sessions
from retoma.store.database import Database
from retoma.store.tenants import Tenants
from tests.conftest import empty_database


@pytest.fixture(autouse=True)
async def _no_people(database: Database) -> None:
    await empty_database(database)


async def _add(database: Database, name: str = "Ana Souza", email: str = "ana@example.com") -> Person:
    added = await people.add_person(database, name=name, email=email)
    assert added is not None
    return added


async def test_a_person_is_found_by_address(database: Database) -> None:
    ana = await _add(database)
    assert await people.find_by_email(database, "ana@example.com") == ana
    assert await people.find_by_email(database, "bea@example.com") is None


async def test_an_address_belongs_to_one_person(database: Database) -> None:
    await _add(database)
    assert await people.add_person(database, name="Another Ana", email="ana@example.com") is None


async def test_a_person_has_one_role_in_each_tenant(database: Database) -> None:
    ana, tenant = await _add(database), await Tenants(database).get_or_create_id("blog")
    await people.set_role(database, ana.id, tenant, Role.VIEWER)
    await people.set_role(database, ana.id, tenant, Role.OPERATOR)
    await people.set_role(database, ana.id, None, Role.VIEWER)
    found = await people.find_person(database, ana.id)
    assert found is not None
    assert found.roles == (RoleGrant(None, Role.VIEWER), RoleGrant("blog", Role.OPERATOR))


async def test_a_role_can_be_removed(database: Database) -> None:
    ana = await _add(database)
    await people.set_role(database, ana.id, None, Role.VIEWER)
    await people.remove_role(database, ana.id, None)
    found = await people.find_person(database, ana.id)
    assert found is not None
    assert found.roles == ()


async def test_people_are_listed_by_the_tenants_of_their_roles(database: Database) -> None:
    ana, bea, _ = [await _add(database, name, f"{name}@example.com") for name in ("ana", "bea", "eva")]
    tenant = await Tenants(database).get_or_create_id("blog")
    other = await Tenants(database).get_or_create_id("channel")
    await people.set_role(database, ana.id, tenant, Role.VIEWER)
    await people.set_role(database, bea.id, None, Role.VIEWER)
    assert [each.name for each in await people.list_people(database, tenants=[tenant])] == ["ana", "bea"]
    assert [each.name for each in await people.list_people(database, tenants=[other])] == ["bea"]


async def test_a_disabled_person_has_no_session(database: Database) -> None:
    ana = await _add(database)
    await person_sessions.add_session(database, b"1", ana.id, address=None, user_agent=None)
    assert await person_sessions.use_session(database, b"1") == ana.id
    await people.disable_person(database, ana.id)
    assert await person_sessions.use_session(database, b"1") is None
    assert await person_sessions.find_live(database, [b"1"]) == {}
    await people.enable_person(database, ana.id)
    assert await person_sessions.use_session(database, b"1") is None


async def test_a_link_works_once(database: Database) -> None:
    ana = await _add(database)
    await people.add_link(database, b"1", ana.id, LinkPurpose.INVITE, created_by="tests", valid_for=timedelta(hours=1))
    assert await people.find_link(database, b"1") == (ana, LinkPurpose.INVITE)
    assert await people.use_link(database, b"1", "hash") == ana.id
    assert await people.use_link(database, b"1", "hash") is None
    assert await people.find_link(database, b"1") is None


async def test_a_new_link_replaces_the_one_before(database: Database) -> None:
    ana = await _add(database)
    for digest in (b"1", b"2"):
        await people.add_link(
            database, digest, ana.id, LinkPurpose.RESET, created_by="tests", valid_for=timedelta(hours=1)
        )
    assert await people.find_link(database, b"1") is None
    assert await people.use_link(database, b"2", "hash") == ana.id
