"""Reviews and their decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from retoma.records import Review, ReviewComment, ReviewCount, ReviewMetrics, Role, Subject
from retoma.states import ReviewState
from retoma.store.database import Database
from retoma.store.rows import make_record, parse_json
from retoma.store.statements import statements
from retoma.store.tenants import as_filter

_SQL = statements("reviews")


@dataclass(frozen=True)
class ReviewFilter:
    """`after_at` and `after_id` are `opened_at` and the id of the last review of the previous page."""

    tenants: Sequence[int] | None = None
    ids: Sequence[UUID] | None = None
    run: UUID | None = None
    pipelines: Sequence[str] | None = None
    step: str | None = None
    assignee: str | None = None
    states: Sequence[ReviewState] | None = None
    after_at: datetime | None = None
    after_id: UUID | None = None
    limit: int = 50


async def list_reviews(database: Database, wanted: ReviewFilter) -> list[Review]:
    return [
        _make_review(row)
        for row in await database.fetch(_SQL["list_reviews"], **vars(wanted) | as_filter(wanted.tenants))
    ]


async def count_open(database: Database, tenants: Sequence[int] | None = None) -> list[ReviewCount]:
    return await database.fetch_records(ReviewCount, _SQL["count_open_reviews"], tenants=tenants)


async def list_subjects(database: Database, review: UUID) -> list[Subject]:
    rows = await database.fetch(_SQL["list_review_subjects"], review=review)
    return [Subject(row["step"], row["revision"], parse_json(row["output"])) for row in rows]


async def list_comments(
    database: Database, run: UUID, item: str, before_revision: int, limit: int
) -> list[ReviewComment]:
    wanted = {"run": run, "item": item, "revision": before_revision, "limit": limit}
    return await database.fetch_records(ReviewComment, _SQL["list_review_comments"], **wanted)


async def set_comment_resolved(database: Database, review: UUID, position: int, by: str, resolved: bool) -> bool:
    """Return whether there is such a comment; one that is not resolved may also not exist."""
    if resolved:
        return bool(await database.fetch(_SQL["resolve_comment"], review=review, position=position, by=by))
    await database.fetch(_SQL["reopen_comment"], review=review, position=position)
    return True


async def decide_review(database: Database, review: UUID, **values: Any) -> str | None:
    """Return the outcome of `retoma.decide_review`, or None if there is no such review."""
    outcome: str | None = await database.fetch_value(_SQL["decide_review"], review=review, **values)
    return outcome


async def undo_decision(database: Database, review: UUID, tenant: int | None, by: str) -> bool | None:
    undone: bool | None = await database.fetch_value(_SQL["undo_decision"], review=review, tenant=tenant, by=by)
    return undone


async def claim_review(
    database: Database, review: UUID, tenant: int | None, by: str, person: int | None, lasts: timedelta
) -> str | None:
    values = {"review": review, "tenant": tenant, "by": by, "person": person, "lasts": lasts}
    row = await database.fetch_one(_SQL["claim_review"], **values)
    return None if row["by"] is None else str(row["by"])


async def assign_review(
    database: Database,
    review: UUID,
    tenant: int | None,
    assignee: str | None,
    by: str,
    *,
    person: int | None = None,
    role: Role | None = None,
) -> bool:
    """Assign an open review to a person or a role, whose name is the `assignee`."""
    values = {"review": review, "tenant": tenant, "assignee": assignee, "by": by, "person": person, "role": role}
    return bool(await database.fetch(_SQL["assign_review"], **values))


async def get_metrics(
    database: Database, pipeline: str, since: datetime, tenants: Sequence[int] | None
) -> ReviewMetrics:
    values = {"pipeline": pipeline, "since": since, "tenants": tenants}
    return ReviewMetrics(**await database.fetch_one(_SQL["get_review_metrics"], **values))


def _make_review(row: asyncpg.Record) -> Review:
    policy = parse_json(row["policy"]) or {}
    return make_record(
        Review,
        {name: value for name, value in row.items() if name not in ("policy", "budget")},
        *("reason", "value", "feedback"),
        state=ReviewState(row["state"]),
        back_items=tuple(row["back_items"] or ()),
        can_send_back_to=_list_targets(row, policy),
        max_revisions=policy.get("max_revisions"),
        has_form=bool(row["planned"] and policy.get("form")),
    )


def _list_targets(row: asyncpg.Record, policy: dict[str, Any]) -> tuple[str, ...]:
    """Return the steps that the work can be sent back to. A job that waits because of a budget has done none."""
    if row["budget"] is not None:
        return ()
    return tuple(policy.get("to") or (() if row["planned"] else (row["step"],)))
