"""The private hosts that the server accepts in URLs, for the workers that will call them."""

from __future__ import annotations

from collections.abc import Iterable

from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("allowed_hosts")


async def replace(database: Database, hosts: Iterable[str]) -> None:
    """Record the hosts of the server that starts, in place of those of the one before."""
    await database.fetch(_SQL["replace_allowed_hosts"], hosts=sorted(set(hosts)))


async def listed(database: Database) -> list[str]:
    return [row["host"] for row in await database.fetch(_SQL["list_allowed_hosts"])]
