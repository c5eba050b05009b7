"""Facts that applications store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import UUID

from retoma.records import Fact
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("facts")


async def remember(
    database: Database, app: str, tenant: int, language: str, run: UUID, facts: Sequence[Fact], about: str
) -> None:
    await database.fetch(
        _SQL["remember"],
        app=app,
        tenant=tenant,
        language=language,
        run=run,
        about=about,
        text=[fact.text for fact in facts],
        source=[json.dumps(fact.source) for fact in facts],
        confidence=[fact.confidence for fact in facts],
    )


async def recall(database: Database, app: str, tenant: int, language: str, query: str, limit: int) -> list[Fact]:
    rows = await database.fetch(_SQL["recall"], app=app, tenant=tenant, language=language, query=query, limit=limit)
    return [Fact(row["text"], json.loads(row["source"]), row["confidence"]) for row in rows]
