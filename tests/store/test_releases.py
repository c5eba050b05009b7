"""Every release can upgrade the databases of those before it, and finishes their work."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from retoma.backups import CopyFiles, create_backup
from retoma.reviews import Decision
from retoma.store.database import Database
from retoma.store.migrate import RELEASE
from retoma.store.postgres_programs import choose_programs
from retoma.testing import Sandbox, fresh_database, sandbox
from tests.backups.builders import ANA, empty_database, open_files, restore
from tests.engine.builders import pass_heartbeat_timeout
from tests.environment import PROJECT
from tests.store.release_app import Article, build_app

SNAPSHOTS = sorted((Path(__file__).parent / "releases").glob("*.sql.gz"))
PAGE = PROJECT / "docs" / "backup.md"
ROLLBACK = re.compile(r"^```sh\n(psql .*?)^```", re.DOTALL | re.MULTILINE)
TEXT = "OUTLINE OF {0}, PART 1; OUTLINE OF {0}, PART 2; OUTLINE OF {0}, PART 3"


def get_release(snapshot: Path) -> str:
    return snapshot.name.removesuffix(".sql.gz")


@pytest.fixture(params=SNAPSHOTS, ids=get_release)
async def earlier_database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """A database as that release left it."""
    dumped = gzip.decompress(request.param.read_bytes()).decode()
    async with fresh_database() as made:
        async with made.connection() as connection:
            await connection.execute("drop schema retoma cascade")
            await connection.execute(dumped)
            await connection.execute("reset check_function_bodies")
        yield made


@pytest.fixture
async def database(earlier_database: Database) -> Database:
    """A database as that release left it, upgraded to this one."""
    await earlier_database.upgrade()
    return earlier_database


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


async def test_work_in_a_backup_of_an_earlier_release_is_finished(earlier_database: Database, tmp_path: Path) -> None:
    path = await back_up(earlier_database, tmp_path)
    async with empty_database() as target:
        restored = await restore(target, open_files(tmp_path / "new"), path)
        # A worker held a job, and a webhook was due.
        assert (restored.database.jobs, restored.database.held) == (1, 1)
        async with sandbox(build_app(), target) as opened:
            await test_work_of_an_earlier_release_is_finished(opened)


async def test_a_rollback_brings_back_exactly_the_earlier_database(earlier_database: Database, tmp_path: Path) -> None:
    """By the commands of docs/backup.md. What the code of that release does with it is tested by that release."""
    before = await dump_script(earlier_database)
    files = open_files(tmp_path)
    poster = await files.save(b"a poster")
    path = await back_up(earlier_database, tmp_path, CopyFiles.COPY)
    await earlier_database.upgrade()
    async with sandbox(build_app(), earlier_database) as opened:
        await opened.work()
    await files.set_aside(poster.file)
    await files.delete_aside(poster.file)
    assert await dump_script(earlier_database) != before
    await asyncio.to_thread(run_rollback, earlier_database, path, tmp_path)
    assert await dump_script(earlier_database) == before
    assert await files.load(poster) == b"a poster"


async def test_functions_of_an_earlier_release_stay_callable(earlier_database: Database) -> None:
    """Its workers keep running while the schema is upgraded."""
    known = await list_functions(earlier_database)
    await earlier_database.upgrade()
    assert known - await list_functions(earlier_database) == set()


async def back_up(database: Database, folder: Path, copy: CopyFiles = CopyFiles.NONE) -> Path:
    files = open_files(folder)
    await create_backup(database, files, folder / "backup", actor=ANA, copy=copy)
    return folder / "backup"


def run_rollback(database: Database, backup: Path, home: Path) -> None:
    """Run the commands of the page that go back to 0.1.0rc1."""
    commands = ROLLBACK.search(PAGE.read_text())
    assert commands is not None
    variables = {
        "RETOMA_DATABASE_URL": database.url,
        "RETOMA_HOME": str(home),
        "PATH": f"{choose_programs(15).folder}:{os.defpath}",
    }
    script = commands[1].replace("retoma-2030-01-31", str(backup))
    subprocess.run(["sh", "-u", "-c", script], env=variables, check=True, capture_output=True)


async def list_functions(database: Database) -> set[str]:
    """The functions with the types of their arguments."""
    async with database.connection() as connection:
        found = await connection.fetch(
            "select oid::regprocedure::text as name from pg_proc where pronamespace = 'retoma'::regnamespace"
        )
    return {row["name"] for row in found}


async def dump_script(database: Database) -> list[str]:
    """The whole schema and its data, as SQL."""
    programs = choose_programs(15)
    process = programs.start(
        "pg_dump", "--schema=retoma", "--no-owner", "--no-privileges", url=database.url, stdout=subprocess.PIPE
    )
    dumped, _ = await asyncio.to_thread(process.communicate)
    assert process.returncode == 0
    return [line for line in dumped.decode().splitlines() if not line.startswith(("\\restrict", "\\unrestrict"))]


async def get_end(work: Sandbox, pipeline: str, key: str, inputs: Article | None = None) -> tuple[str, str | None]:
    """Return the state and the last result of the run with this key."""
    run = await find_run(work, pipeline, key, inputs)
    *_, last = [None, *(await work.client.runs.get_results(run)).values()]
    return (await work.client.runs.get(run)).state, last


async def find_run(work: Sandbox, pipeline: str, key: str, inputs: Article | None = None) -> UUID:
    found = await work.client.start(pipeline, inputs, key=key)
    assert not found.created
    return found.id
