"""People in the database: their accounts, roles, passwords and one-use links."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import asyncpg

from retoma.records import LinkPurpose, Person, Role, RoleGrant
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("people")
LAST_ADMINISTRATOR = "last_administrator"
# The highest roles that somebody may give, by tenant; None: in all tenants.
Grantable = Iterable[tuple[int | None, Role]]


async def add_person(
    database: Database,
    *,
    name: str,
    email: str,
    language: str | None = None,
    time_zone: str | None = None,
    invited_by: str | None = None,
) -> Person | None:
    """Return the new person, or None if the address is taken. `email` is in lower case."""
    values = {
        "name": name,
        "email": email,
        "language": language,
        "time_zone": time_zone,
        "invited_by": invited_by,
    }
    number = await database.find_value(_SQL["add_person"], **values)
    return None if number is None else await find_person(database, number)


async def find_person(database: Database, person: int) -> Person | None:
    return next(iter(await list_people(database, ids=[person])), None)


async def find_by_email(database: Database, email: str) -> Person | None:
    """Return the person with this address, which is in lower case."""
    return next(iter(await list_people(database, email=email)), None)


async def list_people(
    database: Database,
    *,
    tenants: Collection[int] | None = None,
    include_disabled: bool = True,
    ids: Collection[int] | None = None,
    email: str | None = None,
    invited_by: str | None = None,
) -> list[Person]:
    """Return people by name; with `tenants`, those with a role there and those whom `invited_by` created."""
    rows = await database.fetch(
        _SQL["list_people"],
        ids=None if ids is None else list(ids),
        email=email,
        include_disabled=include_disabled,
        tenants=None if tenants is None else list(tenants),
        invited_by=invited_by,
    )
    return [_make_record(row) for row in rows]


async def update_profile(
    database: Database, person: int, *, name: str, language: str | None, time_zone: str | None
) -> None:
    await database.fetch(_SQL["update_profile"], person=person, name=name, language=language, time_zone=time_zone)


async def set_role(
    database: Database, person: int, tenant: int | None, role: Role, *, from_claim: bool = False
) -> bool:
    """Give a person this role in the tenant, or in all tenants, in place of the one held there.

    Return False, and change nothing, if nobody would be left who administers all tenants and can log in.
    """
    row = await database.fetch_one(_SQL["set_role"], person=person, tenant=tenant, role=role, from_claim=from_claim)
    return bool(row["outcome"] != LAST_ADMINISTRATOR)


async def remove_role(database: Database, person: int, tenant: int | None) -> bool:
    """Return False as `set_role` does."""
    return bool(await database.fetch_value(_SQL["remove_role"], person=person, tenant=tenant) != LAST_ADMINISTRATOR)


async def disable_person(database: Database, person: int) -> bool:
    """Disable a person: sessions end, and links that were not used stop working. Return False as `set_role` does."""
    return bool(await database.fetch_value(_SQL["disable_person"], person=person) != LAST_ADMINISTRATOR)


async def enable_person(database: Database, person: int) -> None:
    await database.fetch(_SQL["enable_person"], person=person)


async def has_administrator(database: Database) -> bool:
    """Return whether an enabled person is administrator of all tenants."""
    return bool(await database.find_value(_SQL["has_administrator"]))


async def find_password_hash(database: Database, person: int) -> str | None:
    """Return the hash of an enabled person, or None if there is none."""
    found: str | None = await database.find_value(_SQL["find_password_hash"], person=person)
    return found


async def set_password(
    database: Database,
    person: int,
    password_hash: str,
    *,
    kept_session: bytes | None = None,
    grantable: Grantable | None = None,
) -> None:
    """Set the password, and end all sessions except the one with the digest `kept_session`.

    `grantable` is what the chooser of the password may grant; None if the person chose it, who knew the previous one.
    """
    await database.fetch(
        _SQL["set_password"],
        person=person,
        password_hash=password_hash,
        kept_session=kept_session,
        grantable=None if grantable is None else _encode(grantable),
    )


async def add_link(
    database: Database,
    digest: bytes,
    person: int,
    purpose: LinkPurpose,
    *,
    created_by: str,
    valid_for: timedelta,
    grantable: Grantable = (),
) -> datetime:
    """Add a link that works once, and return when it expires. Earlier links of the person stop working.

    `grantable` is what its creator may give: a role beyond that makes the link and its password useless.
    """
    expires_at: datetime = await database.find_value(
        _SQL["add_link"],
        digest=digest,
        person=person,
        purpose=purpose,
        created_by=created_by,
        valid_for=valid_for,
        grantable=_encode(grantable),
    )
    return expires_at


async def find_link(database: Database, digest: bytes) -> tuple[Person, LinkPurpose] | None:
    """Return whose link it is and its purpose, if it still works."""
    row = await database.fetchrow(_SQL["find_link"], digest=digest)
    person = None if row is None else await find_person(database, row["person"])
    return None if row is None or person is None else (person, LinkPurpose(row["purpose"]))


async def use_link(database: Database, digest: bytes, password_hash: str) -> int | None:
    """Use up the link: set the password of its person and return the number, or None if the link no longer works."""
    found: int | None = await database.find_value(_SQL["use_link"], digest=digest, password_hash=password_hash)
    return found


def _encode(grantable: Grantable) -> str:
    return json.dumps([{"tenant": tenant, "role": str(role)} for tenant, role in grantable])


def _make_record(row: asyncpg.Record) -> Person:
    roles = tuple(
        RoleGrant(each["tenant"], Role(each["role"]), each["from_claim"]) for each in json.loads(row["roles"])
    )
    return Person(**{**row, "roles": roles})
