"""Tenants: the owners of runs (a channel, a blog, a project). Created when first named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("tenants")
DEFAULT = "default"
OwnedKind = Literal["run", "review", "delivery", "endpoint", "schedule"]


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

    async def find_owner(self, kind: OwnedKind, id: UUID | int) -> int | None:  # noqa: A002
        """Return the id of the tenant that owns the object, or None if there is no such object."""
        values = {"uuid": id, "number": None} if isinstance(id, UUID) else {"uuid": None, "number": id}
        found: int | None = await self._database.find_value(_SQL["find_owner"], kind=kind, **values)
        return found

    async def list_names(self) -> list[str]:
        """Return the names of all tenants, in order."""
        return sorted(row["name"] for row in await self._database.fetch(_SQL["list_tenants"]))

    async def get_name(self, number: int) -> str:
        if number not in self._names:
            rows = await self._database.fetch(_SQL["list_tenants"])
            self._names = {row["id"]: row["name"] for row in rows}
        return self._names[number]


def as_filter(tenants: Sequence[int] | None) -> dict[str, int | Sequence[int] | None]:
    """Return the parameters `tenant` and `tenants` of a statement: only one tenant alone is found in order by an index.

    None means all tenants.
    """
    if tenants is not None and len(tenants) == 1:
        return {"tenant": tenants[0], "tenants": None}
    return {"tenant": None, "tenants": tenants}
