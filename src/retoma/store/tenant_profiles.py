"""Profiles of tenants in an application."""

from __future__ import annotations

from retoma.records import Profile
from retoma.store.database import Database
from retoma.store.rows import make_record
from retoma.store.statements import statements

_SQL = statements("tenant_profiles")


async def list_profiles(database: Database, app: str, tenant: str | None = None) -> list[Profile]:
    rows = await database.fetch(_SQL["list_profiles"], app=app, tenant=tenant)
    return [make_record(Profile, row, "value") for row in rows]


async def put_profile(database: Database, app: str, tenant: int, value: str, revision: int | None) -> bool:
    """Store a profile. Return False if it is not of that revision; 0 means that there is none yet."""
    if not revision and await database.fetch(_SQL["add_profile"], app=app, tenant=tenant, value=value):
        return True
    if revision == 0:
        return False
    return bool(await database.fetch(_SQL["change_profile"], app=app, tenant=tenant, value=value, revision=revision))


async def drop_profile(database: Database, app: str, tenant: str) -> bool:
    return bool(await database.fetch(_SQL["drop_profile"], app=app, tenant=tenant))
