"""Metrics of reviews and of the people who decide them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from retoma.metrics import ReviewDay, ReviewerMetrics, ReviewStepMetrics
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("review_metrics")


async def list_reviewers(
    database: Database,
    since: datetime,
    target: timedelta,
    tenants: Sequence[int] | None = None,
    pipelines: Sequence[str] | None = None,
) -> list[ReviewerMetrics]:
    """Return the row of all decisions first, and then that of each person, who decided most first."""
    return await database.fetch_records(
        ReviewerMetrics, _SQL["list_reviewers"], since=since, target=target, tenants=tenants, pipelines=pipelines
    )


async def list_days(
    database: Database,
    since: datetime,
    zone: str,
    tenants: Sequence[int] | None = None,
    pipelines: Sequence[str] | None = None,
) -> list[ReviewDay]:
    """Return the days that have decisions, in their order."""
    return await database.fetch_records(
        ReviewDay, _SQL["list_review_days"], since=since, zone=zone, tenants=tenants, pipelines=pipelines
    )


async def list_steps(database: Database, window: timedelta) -> list[ReviewStepMetrics]:
    """Return the steps with decisions within the last `window`."""
    return await database.fetch_records(ReviewStepMetrics, _SQL["list_review_steps"], window=window)
