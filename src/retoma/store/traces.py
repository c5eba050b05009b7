"""What the traces of ended runs consist of, other than what workers and servers have seen themselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("traces")


@dataclass(frozen=True)
class EndedRun:
    """The end of a run at a revision. Earlier ends have traced the revisions before `first_revision`."""

    run: UUID
    at: datetime
    revision: int
    state: str
    first_revision: int


@dataclass(frozen=True)
class RunFacts:
    run_at: datetime
    pipeline: str
    tenant: str
    forked_from: UUID | None
    parent: UUID | None
    parent_revision: int | None


@dataclass(frozen=True)
class EndedReview:
    step: str
    item: str
    revision: int
    opened_at: datetime
    ended_at: datetime
    state: str
    planned: bool


@dataclass(frozen=True)
class LostAttempt:
    step: str
    item: str
    revision: int
    attempt: int
    worker: int
    fence: int
    code: str
    message: str
    started_at: datetime
    at: datetime


async def take_ended_runs(database: Database, limit: int) -> list[EndedRun]:
    """Return ends of runs that no other process has taken or will take, possibly none."""
    return await database.fetch_records(EndedRun, _SQL["take_ended_runs"], limit=limit)


async def find_run(database: Database, run: UUID) -> RunFacts | None:
    """Return the run, or None if it was removed."""
    row = await database.fetchrow(_SQL["describe_run"], run=run)
    return None if row is None else RunFacts(**row)


async def list_revisions(database: Database, ended: EndedRun) -> dict[int, datetime]:
    """Return when each revision began that ended with this end."""
    rows = await database.fetch(_SQL["list_revisions"], **_range(ended))
    return {row["revision"]: row["began_at"] for row in rows}


async def list_reviews(database: Database, ended: EndedRun) -> list[EndedReview]:
    return await database.fetch_records(EndedReview, _SQL["list_reviews"], **_range(ended))


async def list_lost_attempts(database: Database, ended: EndedRun) -> list[LostAttempt]:
    """Return the attempts whose workers died or stopped without reporting them."""
    return await database.fetch_records(LostAttempt, _SQL["list_lost_attempts"], **_range(ended))


def _range(ended: EndedRun) -> dict[str, UUID | int]:
    return {"run": ended.run, "first": ended.first_revision, "last": ended.revision}
