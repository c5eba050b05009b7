"""Reviews and their decisions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from retoma.records import Review, ReviewCount, ReviewMetrics, Subject
from retoma.states import ReviewState
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("reviews")


async def list_reviews(
    database: Database,
    *,
    tenant: int | None = None,
    ids: Sequence[UUID] | None = None,
    run: UUID | None = None,
    pipeline: str | None = None,
    step: str | None = None,
    assignee: str | None = None,
    states: Sequence[ReviewState] | None = None,
    after: Review | None = None,
    limit: int = 50,
) -> list[Review]:
    rows = await database.fetch(
        _SQL["list_reviews"],
        tenant=tenant,
        ids=None if ids is None else list(ids),
        run=run,
        pipeline=pipeline,
        step=step,
        assignee=assignee,
        states=None if states is None else list(states),
        after_at=after.opened_at if after else None,
        after_id=after.id if after else None,
        limit=limit,
    )
    return [_make_review(row) for row in rows]


async def find_by_id_range(database: Database, first: UUID, last: UUID, limit: int) -> list[UUID]:
    return [
        row["id"] for row in await database.fetch(_SQL["find_reviews_by_id_range"], first=first, last=last, limit=limit)
    ]


async def count_open(database: Database, tenant: int | None) -> list[ReviewCount]:
    return [ReviewCount(**row) for row in await database.fetch(_SQL["count_open_reviews"], tenant=tenant)]


async def list_subjects(database: Database, review: UUID) -> list[Subject]:
    rows = await database.fetch(_SQL["list_review_subjects"], review=review)
    return [Subject(row["step"], row["revision"], json.loads(row["output"] or "null")) for row in rows]


async def decide_review(database: Database, review: UUID, **values: Any) -> str | None:
    """Return the outcome of `retoma.decide_review`, or None if there is no such review."""
    row = await database.fetch_one(_SQL["decide_review"], review=review, **values)
    return None if row["outcome"] is None else str(row["outcome"])


async def undo_decision(database: Database, review: UUID, tenant: int | None, by: str) -> bool | None:
    row = await database.fetch_one(_SQL["undo_decision"], review=review, tenant=tenant, by=by)
    return None if row["undone"] is None else bool(row["undone"])


async def claim_review(database: Database, review: UUID, tenant: int | None, by: str, lasts: timedelta) -> str | None:
    row = await database.fetch_one(_SQL["claim_review"], review=review, tenant=tenant, by=by, lasts=lasts)
    return None if row["by"] is None else str(row["by"])


async def assign_review(database: Database, review: UUID, tenant: int | None, assignee: str | None, by: str) -> bool:
    rows = await database.fetch(_SQL["assign_review"], review=review, tenant=tenant, assignee=assignee, by=by)
    return bool(rows)


async def get_metrics(database: Database, pipeline: str, since: datetime) -> ReviewMetrics:
    row = await database.fetch_one(_SQL["get_review_metrics"], pipeline=pipeline, since=since)
    return ReviewMetrics(row["decided"], row["first_decided"], row["approved_at_once"], row["mean_wait"])


def _make_review(row: asyncpg.Record) -> Review:
    plain = dict(row)
    policy = json.loads(plain.pop("policy") or "{}")
    texts = {name: plain.pop(name) for name in ("reason", "value", "feedback")}
    return Review(
        **plain
        | {name: json.loads(text) if text else None for name, text in texts.items()}
        | {
            "state": ReviewState(row["state"]),
            "back_items": tuple(row["back_items"] or ()),
            "can_send_back_to": tuple(policy.get("to") or (() if row["planned"] else (row["step"],))),
            "max_revisions": policy.get("max_revisions"),
            "has_form": bool(row["planned"] and policy.get("form")),
        }
    )
