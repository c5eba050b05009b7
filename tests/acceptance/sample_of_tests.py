"""A plugin of pytest that runs a few tests of each file, each with the first of its parameters.

It writes the functions of the database that none of them has called to the file of UNCALLED_FUNCTIONS.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retoma.store.database import Database

TESTS_PER_FILE = 3

# Only functions in this language are counted: the planner copies many of the others into the statements that call them.
UNCALLED = """
    select p.proname
      from pg_proc p
      join pg_language l on l.oid = p.prolang
     where p.pronamespace = 'retoma'::regnamespace and l.lanname = 'plpgsql'
       and not exists (select from pg_stat_user_functions f where f.funcid = p.oid)
     order by p.proname
"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    by_file: defaultdict[Path, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        by_file[item.path].setdefault(item.nodeid.partition("[")[0], item)
    kept = [item for tests in by_file.values() for item in _select_evenly(list(tests.values()))]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def _select_evenly(tests: list[pytest.Item]) -> list[pytest.Item]:
    if len(tests) <= TESTS_PER_FILE:
        return tests
    return [tests[number * (len(tests) - 1) // (TESTS_PER_FILE - 1)] for number in range(TESTS_PER_FILE)]


@pytest.fixture(scope="session", autouse=True)
async def _list_uncalled_functions(database: Database) -> AsyncIterator[None]:
    yield
    async with database.connection() as connection:
        found = await connection.fetch(UNCALLED)
    names = "\n".join(row["proname"] for row in found)
    await asyncio.to_thread(Path(os.environ["UNCALLED_FUNCTIONS"]).write_text, names)
