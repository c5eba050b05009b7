"""Facts that applications store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import UUID

from retoma.records import Fact
from retoma.store.database import Database
from retoma.store.rows import make_record
from retoma.store.statements import statements

_SQL = statements("tenant_facts")


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
    return [make_record(Fact, row, "source") for row in rows]
