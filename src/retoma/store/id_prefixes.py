"""Ids that people abbreviate."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from retoma.store.database import Database
from retoma.store.statements import statements


async def find_by_prefix(
    database: Database, noun: Literal["runs", "reviews", "deliveries"], prefix: str, limit: int
) -> list[UUID]:
    """Return the newest ids that start with `prefix`, ignoring dashes and case."""
    digits = prefix.strip().lower().replace("-", "")
    if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
        return []
    first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    return await database.fetch_column(
        statements(noun)[f"find_{noun}_by_id_range"], first=first, last=last, limit=limit
    )
