"""Shared by the tests of notifications: people, a pipeline with a review, and what was recorded."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from retoma import GiveUp, Pipeline
from retoma.records import Channel, Digest, NotificationKind, Role
from retoma.store import notifications, people
from retoma.testing import Sandbox
from tests.engine.builders import rows

ALL_KINDS = tuple(NotificationKind)


class Article(BaseModel):
    topic: str


def reviewed(**policy: Any) -> Pipeline:
    pipeline = Pipeline("article", Article, title="{topic}")

    @pipeline.step
    async def draft(topic: str) -> str:
        return f"about {topic}"

    pipeline.review("approved_draft", of=draft, **policy)
    return pipeline


def failing() -> Pipeline:
    pipeline = Pipeline("fails")

    @pipeline.step
    async def broken() -> int:
        raise GiveUp("no more")

    return pipeline


async def add_channels(sandbox: Sandbox, *channels: Channel) -> None:
    """Register channels as a worker does when it starts; by default all."""
    for channel in channels or Channel:
        await notifications.add_channel(sandbox.database, channel, ALL_KINDS)


async def add_person(
    sandbox: Sandbox,
    name: str = "Ana",
    *,
    role: Role = Role.REVIEWER,
    tenant: str | None = None,
    language: str | None = None,
    time_zone: str | None = None,
) -> int:
    """Add a person with this role, in one tenant or in all. The address is the name's at example.com."""
    person = await people.add_person(
        sandbox.database, name=name, email=f"{name.lower()}@example.com", language=language, time_zone=time_zone
    )
    assert person is not None
    owner = None if tenant is None else await sandbox.client._core.tenants.get_or_create_id(tenant)
    await people.set_role(sandbox.database, person.id, owner, role)
    return person.id


async def start_review(sandbox: Sandbox, topic: str = "bonds", **options: Any) -> UUID:
    """Start a run and work until its review is open. Return the review."""
    run = await sandbox.client.start("article", {"topic": topic}, **options)
    await sandbox.work(advance_clock=False)
    (review,) = await sandbox.client.reviews.list(run=run.id)
    return review.id


async def list_pending(sandbox: Sandbox, person: int | None = None) -> list[str]:
    """The kinds of notifications that are not sent or cancelled, by their order."""
    found = await rows(
        sandbox,
        "select kind from retoma.notifications where ended_at is null and ($1::int is null or person = $1) order by id",
        person,
    )
    return [row["kind"] for row in found]


async def list_cancelled(sandbox: Sandbox) -> list[str]:
    """Why notifications were cancelled."""
    found = await rows(
        sandbox,
        "select cancelled_because as why from retoma.notifications where cancelled_because is not null order by id",
    )
    return [row["why"] for row in found]


async def use_channel(
    sandbox: Sandbox, person: int, channel: Channel, address: str | None = None, digest: Digest = Digest.IMMEDIATELY
) -> None:
    """Let a person receive everything through this channel."""
    await sandbox.client.notifications.set_preference(person, channel, kinds=ALL_KINDS, digest=digest, address=address)


async def skip_minutes(sandbox: Sandbox, minutes: float) -> None:
    await sandbox.clock.advance(timedelta(minutes=minutes))
