"""A plugin of pytest that runs a few tests of each file, each with the first of its parameters.

It writes the names of the functions in the database that none of these tests has called to the file
UNCALLED_FUNCTIONS.
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

# They call functions that the others do not.
ALWAYS = {
    "test_a_dead_message_can_be_sent_again",
    "test_a_paused_schedule_starts_nothing_and_says_so_when_it_is_resumed",
    "test_a_reservation_that_no_worker_has_checked_for_long_blocks_nobody",
    "test_a_returning_worker_ends_the_stuck_episode_before_any_action",
    "test_a_run_that_has_not_ended_by_its_deadline_fails",
    "test_a_stuck_run_fails_after_the_maximum_number_of_resumes",
    "test_an_isolated_rerun_leaves_dependents_stale_until_they_rerun",
    "test_erasing_a_run_erases_its_children",
    "test_one_tenant_is_erased_at_once",
    "test_raising_a_budget_lets_the_job_continue",
}

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
        by_file[item.path].setdefault(item.nodeid.partition("[")[0].rpartition("::")[2], item)
    kept = [tests[name] for tests in by_file.values() for name in tests if name in ALWAYS | _spread(list(tests))]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def _spread(names: list[str]) -> set[str]:
    """Return the first name, the last one, and some between them."""
    return {names[number * (len(names) - 1) // (TESTS_PER_FILE - 1)] for number in range(TESTS_PER_FILE)}


@pytest.fixture(scope="session", autouse=True)
async def _list_uncalled_functions(database: Database) -> AsyncIterator[None]:
    yield
    async with database.connection() as connection:
        found = await connection.fetch(UNCALLED)
    names = "\n".join(row["proname"] for row in found)
    await asyncio.to_thread(Path(os.environ["UNCALLED_FUNCTIONS"]).write_text, names)
