"""No table grows without bound: each says on a page what bounds it."""

from __future__ import annotations

import re
from pathlib import Path

from retoma.store.database import Database

CLOCK_OF_TESTS = "clock"
PAGE = Path(__file__).parents[2] / "docs" / "retention.md"


async def test_every_table_says_what_bounds_it(database: Database) -> None:
    async with database.connection() as connection:
        tables = await connection.fetch(
            "select relname from pg_class where relnamespace = 'retoma'::regnamespace and relkind in ('r', 'p')"
        )
    section = PAGE.read_text(encoding="utf-8").partition("## What bounds each table")[2]
    listed = re.findall(r"^\| `(\w+)` \| \S", section, re.MULTILINE)
    assert sorted(row["relname"] for row in tables if row["relname"] != CLOCK_OF_TESTS) == listed
