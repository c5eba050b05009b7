"""Ids that people abbreviate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from retoma.store.database import Database
from retoma.store.statements import statements


async def find_by_prefix(
    database: Database,
    noun: Literal["runs", "reviews", "deliveries"],
    prefix: str,
    tenants: Sequence[int] | None,
    limit: int,
) -> list[UUID]:
    """Return the newest ids of these tenants that start with `prefix`, ignoring dashes and case."""
    digits = prefix.strip().lower().replace("-", "")
    if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
        return []
    first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    statement = statements(noun)[f"find_{noun}_by_id_range"]
    return await database.fetch_column(statement, first=first, last=last, tenants=tenants, limit=limit)
