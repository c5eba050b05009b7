"""Write the database of this release, with open work, to tests/store/releases/VERSION.sql.gz: `make snapshot`.

Later releases are tested by upgrading it. Write it once, when the release is tagged, and never change it.
"""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
from pathlib import Path

from retoma.store import embedded
from retoma.store.database import Database
from retoma.store.migrate import RELEASE
from retoma.testing import sandbox
from tests.store.release_app import build_app, open_work

SNAPSHOT = Path(__file__).parents[1] / f"tests/store/releases/{RELEASE}.sql.gz"
PSQL_ONLY = ("--", "\\", "SET ", "SELECT pg_catalog.set_config")


async def main() -> None:
    if SNAPSHOT.exists():
        sys.exit(f"{SNAPSHOT.name} exists: a snapshot is never changed")
    async with sandbox(build_app()) as work, open_work(work):
        dumped = await asyncio.to_thread(dump, work.database)
    SNAPSHOT.parent.mkdir(exist_ok=True)
    SNAPSHOT.write_bytes(gzip.compress(dumped.encode(), mtime=0))


def dump(database: Database) -> str:
    """Return the database as statements that any client can execute: without psql's commands and session settings."""
    program = embedded.find_programs() / "pg_dump"
    options = ["--schema=retoma", "--inserts", "--no-owner", "--no-privileges", "--no-comments"]
    done = subprocess.run([program, *options, database.url], capture_output=True, text=True, check=True)  # noqa: S603
    kept = [line for line in done.stdout.splitlines() if not line.startswith(PSQL_ONLY)]
    return "\n".join(["SET check_function_bodies = off;", *kept])


if __name__ == "__main__":
    asyncio.run(main())
