"""What the pages keep for a person who reviews: drafts, the results of batches, and settings.

`person` names the viewer, as the pages do; the caller checks that they may see the review.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from retoma.store import inbox
from retoma.store.database import Database


async def save_draft(database: Database, review: UUID, person: str, draft: Mapping[str, Any]) -> None:
    """Keep what a person has typed into the form of a review, for 30 days."""
    await inbox.save_draft(database, review, person, draft)


async def find_draft(database: Database, review: UUID, person: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = await inbox.get_draft(database, review, person)
    return found


async def save_batch(database: Database, batch: UUID, person: str, outcomes: Sequence[Mapping[str, Any]]) -> None:
    """Keep the results of several decisions, for 30 days. The first call for a batch counts."""
    await inbox.save_batch(database, batch, person, list(outcomes))


async def find_batch(database: Database, batch: UUID, person: str) -> list[dict[str, Any]] | None:
    """Return the results of a batch, or None if this person made none with this id."""
    found: list[dict[str, Any]] | None = await inbox.get_batch(database, batch, person)
    return found


async def save_settings(database: Database, person: str, settings: Mapping[str, Any]) -> None:
    await inbox.save_settings(database, person, settings)


async def get_settings(database: Database, person: str) -> dict[str, Any]:
    found: dict[str, Any] | None = await inbox.get_settings(database, person)
    return found or {}
