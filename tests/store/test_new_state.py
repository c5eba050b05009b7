"""A later release can add a state of a run as docs/state-machines.md says, to new and to existing databases."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from importlib.resources import as_file, files
from pathlib import Path
from textwrap import dedent
from uuid import UUID

import asyncpg
import pytest

from retoma import App, Pipeline
from retoma.store import migrate
from retoma.store.database import Database
from retoma.testing import fresh_database, sandbox

PAGE = Path(__file__).parents[2] / "docs" / "state-machines.md"
SQL_BLOCK = re.compile(r"^ *```sql\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
REFUSED_TRANSITION = "a run cannot change from {} to {}"


@pytest.fixture(params=["existing", "new"])
async def database(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Database]:
    """A database of a release with the state `archived`, upgraded from this release or created by that one."""
    async with fresh_database() as made:
        if request.param == "new":
            async with made.connection() as connection:
                await connection.execute("drop schema retoma cascade")
        add_state(tmp_path / "store")
        monkeypatch.setattr(migrate, "_STORE", tmp_path / "store")
        assert (await made.upgrade())[-2:] == ["9999_archived_runs", "functions"]
        yield made


@pytest.fixture
async def run(database: Database) -> UUID:
    """A running run whose facts, here its title, make it archived."""
    pipeline = Pipeline("one")

    @pipeline.step
    async def answer() -> int:
        return 42

    async with sandbox(App("any", pipelines=[pipeline]), database) as working:
        started = (await working.client.start(pipeline)).id
    await execute(database, f"update retoma.runs set title = 'old' where id = '{started}'")
    return started


async def test_a_run_takes_a_new_final_state(database: Database, run: UUID) -> None:
    await execute(database, f"select retoma.refresh_run_state(now(), array['{run}'::uuid])")
    async with database.connection() as connection:
        row = await connection.fetchrow(
            "select state, ended_at is not null as ended from retoma.runs where id = $1", run
        )
    assert row is not None
    assert tuple(row) == ("archived", True)


async def test_a_run_in_a_new_state_makes_only_its_transitions(database: Database, run: UUID) -> None:
    await set_state(database, run, "archived", ended=True)
    with pytest.raises(asyncpg.CheckViolationError, match=REFUSED_TRANSITION.format("archived", "stuck")):
        await set_state(database, run, "stuck", ended=False)
    await set_state(database, run, "running", ended=False)
    await set_state(database, run, "paused", ended=False)
    with pytest.raises(asyncpg.CheckViolationError, match=REFUSED_TRANSITION.format("paused", "archived")):
        await set_state(database, run, "archived", ended=True)


async def test_a_run_in_a_new_final_state_has_an_end_time(database: Database, run: UUID) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="ended_at_is_set_when_final"):
        await set_state(database, run, "archived", ended=False)


def add_state(store: Path) -> None:
    """Copy the SQL of this release, and follow steps 1 to 4 of the page."""
    with as_file(files("retoma.store")) as ours:
        shutil.copytree(ours, store, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    migration = "".join(dedent(block) for block in SQL_BLOCK.findall(PAGE.read_text()))
    assert "archived" in migration
    (store / "migrations" / "9999_archived_runs.sql").write_text(migration)
    functions = store / "sql" / "functions"
    replace(functions / "transitions.sql", "('run', 'running', '{", "('run', 'running', '{archived, ")
    replace(
        functions / "transitions.sql",
        "('run', 'cancelling',",
        "('run', 'archived', '{running}'), ('run', 'cancelling',",
    )
    replace(
        functions / "run_state.sql",
        "  return case\n    -- It",
        "  return case when p_run.title = 'old' then 'archived'\n    -- It",
    )
    replace(functions / "run_state.sql", "'rejected', 'cancelled');", "'rejected', 'cancelled', 'archived');")


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, f"{file.name} does not have this once: {old}"
    file.write_text(text.replace(old, new))


async def set_state(database: Database, run: UUID, state: str, *, ended: bool) -> None:
    ended_at = "now()" if ended else "null"
    await execute(database, f"update retoma.runs set state = '{state}', ended_at = {ended_at} where id = '{run}'")


async def execute(database: Database, sql: str) -> None:
    async with database.connection() as connection:
        await connection.execute(sql)
