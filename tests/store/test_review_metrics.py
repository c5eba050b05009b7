"""Metrics of reviewers: waits, first-pass approval, decisions per hour, and load."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from retoma import Pipeline, hours
from retoma.engine.reviews import Decision
from retoma.states import ReviewState
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def reviewed(**policy: Any) -> Pipeline:
    pipeline = Pipeline("article")

    @pipeline.step
    async def draft() -> str:
        return "text"

    pipeline.review("approved", of=draft, send_back_to=draft, **policy)
    return pipeline


async def open_reviews(sandbox: Sandbox, count: int, **options: Any) -> list[UUID]:
    for _ in range(count):
        await sandbox.client.start("article", **options)
    await sandbox.work(advance_clock=False)
    return [each.id for each in await sandbox.client.reviews.list()]


async def decide(sandbox: Sandbox, review: UUID, action: str, by: str) -> None:
    await sandbox.client.reviews.decide(
        review, Decision(action, by=by, seen=1, notes="no" if action != "approve" else "")
    )


async def test_each_reviewer_has_waits_shares_and_decisions_per_hour(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        found = await open_reviews(sandbox, 4)
        await sandbox.clock.advance(timedelta(hours=1))
        await decide(sandbox, found[0], "approve", "Ana")
        await decide(sandbox, found[1], "send_back", "Ana")
        await sandbox.clock.advance(timedelta(hours=2))
        await decide(sandbox, found[2], "approve", "Ana")
        await decide(sandbox, found[3], "approve", "Bia")
        together, ana, bia = await sandbox.client.metrics.list_reviewers(NOON)
        assert (together.reviewer, together.decided, together.in_time) == (None, 4, 2)
        assert (ana.reviewer, ana.decided, ana.active_hours, ana.decisions_per_hour) == ("Ana", 3, 2, 1.5)
        assert (ana.median_wait, ana.first_pass_share, ana.in_time_share) == (3600, 2 / 3, 2 / 3)
        assert (bia.reviewer, bia.median_wait, bia.first_pass_share) == ("Bia", 3 * 3600, 1)


async def test_a_deadline_takes_the_place_of_the_target(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed(due=hours(5))) as sandbox:
        (review,) = await open_reviews(sandbox, 1)
        await sandbox.clock.advance(timedelta(hours=4))
        await decide(sandbox, review, "approve", "Ana")
        together, *_ = await sandbox.client.metrics.list_reviewers(NOON)
        assert together.in_time == 1


async def test_a_second_review_of_the_same_work_is_no_first_pass(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        (review,) = await open_reviews(sandbox, 1)
        await decide(sandbox, review, "send_back", "Ana")
        await sandbox.work(advance_clock=False)
        (again,) = await sandbox.client.reviews.list(states=[ReviewState.OPEN])
        await sandbox.client.reviews.decide(again.id, Decision("approve", by="Ana", seen=again.revision))
        _, ana = await sandbox.client.metrics.list_reviewers(NOON)
        assert (ana.decided, ana.first_decided, ana.approved_at_once) == (2, 1, 0)


async def test_the_load_counts_claimed_reviews(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        first, *_ = await open_reviews(sandbox, 3)
        await sandbox.client.reviews.claim(first, by="Ana")
        together, ana = await sandbox.client.metrics.list_reviewers(NOON)
        assert (together.open, ana.reviewer, ana.open, ana.decided) == (3, "Ana", 1, 0)


async def test_metrics_are_of_the_chosen_time_tenant_and_pipeline(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        (review,) = await open_reviews(sandbox, 1, tenant="blog")
        await decide(sandbox, review, "approve", "Ana")
        chosen: list[dict[str, Any]] = [{"tenant": "other"}, {"pipeline": "film"}]
        for options in chosen:
            together, *people = await sandbox.client.metrics.list_reviewers(NOON, **options)
            assert (together.decided, people) == (0, [])
        (later, *_) = await sandbox.client.metrics.list_reviewers(NOON + timedelta(seconds=1))
        assert later.decided == 0
        (mine, *_) = await sandbox.client.metrics.list_reviewers(NOON, tenant="blog", pipeline="article")
        assert mine.decided == 1


async def test_days_follow_the_calendar_of_the_time_zone(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        first, second = await open_reviews(sandbox, 2)
        await sandbox.clock.set(datetime(2030, 1, 2, 2, tzinfo=UTC))
        await decide(sandbox, first, "approve", "Ana")
        await sandbox.clock.set(datetime(2030, 1, 2, 4, tzinfo=UTC))
        await decide(sandbox, second, "approve", "Ana")
        days = await sandbox.client.metrics.list_review_days(NOON, "America/Sao_Paulo")
        assert [(each.day, each.decided) for each in days] == [(date(2030, 1, 1), 1), (date(2030, 1, 2), 1)]
        assert [each.day for each in await sandbox.client.metrics.list_review_days(NOON)] == [date(2030, 1, 2)]
