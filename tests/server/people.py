"""People with accounts on the server of a test."""

from __future__ import annotations

from retoma.client import Client
from retoma.engine.accounts import hash_password
from retoma.records import Person, Role
from retoma.store import people

PASSWORD = "a long enough password"
HASH = hash_password(PASSWORD)  # once: it takes 50 ms on purpose
ADMINISTRATOR = "ana@example.com"


async def add_person(
    client: Client, email: str = ADMINISTRATOR, role: Role | None = Role.ADMINISTRATOR, tenant: str | None = None
) -> Person:
    """Create a person with PASSWORD, named after the address: Ana for ana@example.com."""
    made = await client.people.create(email.partition("@")[0].capitalize(), email, role=role, tenant=tenant)
    await people.set_password(client.database, made.id, HASH, grantable=[(None, Role.ADMINISTRATOR)])
    return made


async def ensure_administrator(client: Client) -> None:
    """Create Ana, who administers all tenants, unless she exists."""
    if await people.find_by_email(client.database, ADMINISTRATOR) is None:
        await add_person(client)
