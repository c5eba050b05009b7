"""Every release can upgrade the databases of those before it, and finishes their work."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from retoma.reviews import Decision
from retoma.store.database import Database
from retoma.store.migrate import RELEASE
from retoma.testing import Sandbox, fresh_database, sandbox
from tests.engine.builders import pass_heartbeat_timeout
from tests.store.release_app import Article, build_app

SNAPSHOTS = sorted((Path(__file__).parent / "releases").glob("*.sql.gz"))
TEXT = "OUTLINE OF {0}, PART 1; OUTLINE OF {0}, PART 2; OUTLINE OF {0}, PART 3"


def get_release(snapshot: Path) -> str:
    return snapshot.name.removesuffix(".sql.gz")


@pytest.fixture(params=SNAPSHOTS, ids=get_release)
async def database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """A database as that release left it, upgraded to this one."""
    dumped = gzip.decompress(request.param.read_bytes()).decode()
    async with fresh_database() as made:
        async with made.connection() as connection:
            await connection.execute("drop schema retoma cascade")
            await connection.execute(dumped)
            await connection.execute("reset check_function_bodies")
        await made.upgrade()
        yield made


@pytest.fixture
async def work(database: Database) -> AsyncIterator[Sandbox]:
    async with sandbox(build_app(), database) as opened:
        yield opened


def test_this_release_has_a_snapshot() -> None:
    assert RELEASE in {get_release(snapshot) for snapshot in SNAPSHOTS}, "run `make snapshot`"


async def test_work_of_an_earlier_release_is_finished(work: Sandbox) -> None:
    await pass_heartbeat_timeout(work)
    await work.work()
    for review in await work.client.reviews.list():
        await work.client.reviews.decide(review.id, Decision("approve", by="ana"))
    await work.work()
    for topic in ("ended", "sent back", "in review", "claimed", "new"):
        assert await get_end(work, "article", topic, Article(topic=topic)) == ("completed", TEXT.format(topic.upper()))
    assert await get_end(work, "clip", "parked") == ("completed", "result of work-1")
    assert await get_end(work, "flaky", "flaky") == ("completed", "answer")
    assert await get_end(work, "hopeless", "hopeless") == ("failed", None)


async def test_a_run_of_an_earlier_release_can_be_rerun(work: Sandbox) -> None:
    run = await find_run(work, "article", "ended", Article(topic="ended"))
    await work.client.runs.rerun(run, "section", by="ana")
    assert (await work.client.runs.get(run)).state == "running"
    await work.work()
    assert await get_end(work, "article", "ended", Article(topic="ended")) == ("completed", TEXT.format("ENDED"))


async def test_a_webhook_of_an_earlier_release_is_still_due(work: Sandbox) -> None:
    (delivery,) = await work.client.webhooks.list_deliveries()
    assert (delivery.event, delivery.ended_at) == ("run.completed", None)


async def get_end(work: Sandbox, pipeline: str, key: str, inputs: Article | None = None) -> tuple[str, str | None]:
    """Return the state and the last result of the run with this key."""
    run = await find_run(work, pipeline, key, inputs)
    *_, last = [None, *(await work.client.runs.get_results(run)).values()]
    return (await work.client.runs.get(run)).state, last


async def find_run(work: Sandbox, pipeline: str, key: str, inputs: Article | None = None) -> UUID:
    found = await work.client.start(pipeline, inputs, key=key)
    assert not found.created
    return found.id
