"""Tenants: the owners of runs (a channel, a blog, a project). Created when first named."""

from __future__ import annotations

from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("tenants")
DEFAULT = "default"


class Tenants:
    """Ids and names of tenants. They never change, so each is looked up once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}

    async def get_or_create_id(self, name: str) -> int:
        """Return the tenant's id. Create the tenant if it is new."""
        found = await self.find_id(name)
        if found is None:
            await self._database.fetch(_SQL["add_tenant"], name=name)
            found = await self.find_id(name)
            assert found is not None
        return found

    async def find_id(self, name: str) -> int | None:
        """Return the tenant's id, or None if there is no such tenant."""
        if name not in self._ids:
            found: int | None = await self._database.find_value(_SQL["find_tenant"], name=name)
            if found is None:
                return None
            self._ids[name] = found
        return self._ids[name]

    async def get_name(self, number: int) -> str:
        if number not in self._names:
            rows = await self._database.fetch(_SQL["list_tenants"])
            self._names = {row["id"]: row["name"] for row in rows}
        return self._names[number]
