"""The engine's own tests, on servers other than the embedded one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.acceptance.servers import pgbouncer, postgresql_15

PROJECT = Path(__file__).parents[2]
TESTS = ["tests/engine", "tests/worker", "tests/store/test_migrate.py"]


def test_the_engine_works_on_postgresql_15() -> None:
    with postgresql_15() as port:
        run_engine_tests(f"postgresql://retoma@127.0.0.1:{port}/postgres")


def test_the_engine_works_behind_a_transaction_pooler() -> None:
    with postgresql_15() as server, pgbouncer(server) as port:
        run_engine_tests(f"postgresql://retoma@127.0.0.1:{port}/postgres")


def run_engine_tests(url: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *TESTS],
        cwd=PROJECT,
        env=os.environ | {"RETOMA_TEST_DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert ended.returncode == 0, ended.stdout[-4000:]
