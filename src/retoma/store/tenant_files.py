"""Which tenants may name which files: the digest of a file gives no access to its content."""

from __future__ import annotations

from collections.abc import Iterable

from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("tenant_files")


async def grant_files(database: Database, tenant: int, digests: Iterable[str]) -> None:
    """Let a tenant name these files in the data of its runs."""
    await database.fetch(_SQL["grant_files"], tenant=tenant, digests=sorted(set(digests)))


async def list_foreign_files(database: Database, tenant: int, digests: Iterable[str]) -> list[str]:
    """Return those of these files that the tenant may not name."""
    return await database.fetch_column(_SQL["list_foreign_files"], tenant=tenant, digests=sorted(set(digests)))
