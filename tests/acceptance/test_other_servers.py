"""The engine's own tests, on servers other than the embedded one, each with the first of its parameters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.servers import pgbouncer, postgresql_15

pytestmark = pytest.mark.timeout(2400)  # each runs a thousand tests, one after the other

PROJECT = Path(__file__).parents[2]
WORKERS = ["tests/worker", "tests/store/test_migrate.py"]
PLUGINS = ["-p", "no:cacheprovider", "-p", "tests.acceptance.sample_of_tests"]
IN_CHILDREN = "--ignore=tests/worker/test_isolation.py"  # no server changes what happens there


def test_workers_work_on_postgresql_15_without_the_features_a_pooler_blocks() -> None:
    with postgresql_15() as port:
        run_tests(*WORKERS, on=port)


def test_the_engine_works_on_postgresql_15_behind_a_transaction_pooler() -> None:
    with postgresql_15() as server, pgbouncer(server) as port:
        run_tests("tests/engine", *WORKERS, on=port)


def run_tests(*tests: str, on: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS, IN_CHILDREN, *tests],
        cwd=PROJECT,
        env=os.environ | {"RETOMA_TEST_DATABASE_URL": f"postgresql://retoma@127.0.0.1:{on}/postgres"},
        capture_output=True,
        text=True,
        timeout=2300,
    )
    assert ended.returncode == 0, ended.stdout[-4000:]
