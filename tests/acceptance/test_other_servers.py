"""The engine's own tests, on servers other than the embedded one: a few of each file.

The others would call the same functions of the database again, and these are what a server may refuse.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.servers import pgbouncer, postgresql_15

pytestmark = pytest.mark.timeout(2400)  # each runs hundreds of tests, one after the other

PROJECT = Path(__file__).parents[2]
ENGINE = ["tests/engine", "tests/worker", "tests/webhooks", "tests/notifications", "tests/identity"]
NO_SERVER_MATTERS = "--ignore=tests/worker/test_isolation.py"  # for what happens in a child process

# tests/backups/test_drill.py restores to a PostgreSQL 15.
CALLED_BY_A_RESTORE = {
    "begin_restored_state",
    "drop_held",
    "end_leases_of_old_machine",
    "enqueue_all_pending_events",
    "explain_left_runs",
    "hold_outbox",
    "release_held",
}
# They contain nothing but a refusal or one statement.
SIMPLE = {"delete_audit_entries", "record_files_of_row", "refuse_event_change", "remove_role", "take_ended_runs"}


def test_migrations_and_workers_need_no_pooler_and_no_newer_postgresql(tmp_path: Path) -> None:
    with postgresql_15() as port:
        run_tests("tests/worker", on=port, folder=tmp_path)
        run_tests("tests/store/test_migrate.py", on=port)


def test_the_engine_works_on_postgresql_15_behind_a_transaction_pooler(tmp_path: Path) -> None:
    with postgresql_15() as server, pgbouncer(server) as port:
        uncalled = run_tests(*ENGINE, on=port, folder=tmp_path)
        run_tests("tests/store/test_migrate.py", on=port)
    assert set(uncalled) <= CALLED_BY_A_RESTORE | SIMPLE


def run_tests(*tests: str, on: int, folder: Path | None = None) -> list[str]:
    """Run a sample of these tests, or all without a folder. Return the functions that a sample has not called."""
    uncalled = folder and folder / "uncalled"
    plugin = ["-p", "tests.acceptance.sample_of_tests"] if uncalled else []
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin, NO_SERVER_MATTERS, *tests],
        cwd=PROJECT,
        env=os.environ
        | {
            "RETOMA_TEST_DATABASE_URL": f"postgresql://retoma@127.0.0.1:{on}/postgres",
            "UNCALLED_FUNCTIONS": str(uncalled),
        },
        capture_output=True,
        text=True,
        timeout=2300,
    )
    assert ended.returncode == 0, ended.stdout[-4000:]
    return uncalled.read_text().splitlines() if uncalled else []
