"""A process that has imported what tests need, but nothing of Retoma: its forks begin a test in a moment.

It reads a line for each, `{"sources", "test", "output"}`, and answers with a line when that test run is over.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

PRELOADED = ("asyncpg", "fastapi", "httpx2", "pydantic_settings", "structlog", "uvicorn")
SECONDS = 1800


def main() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(run_test(**json.loads(line)))
        os.waitpid(child, 0)
        print("over", flush=True)


def run_test(sources: str, test: str, output: str) -> int:
    """Run one test on these sources. Ends the process after too long."""
    signal.alarm(SECONDS)
    with Path(output).open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.path.insert(0, sources)
    os.environ["PYTHONPATH"] = sources  # for the processes that a test starts
    return pytest.main([test, "-x", "-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin", "-p", "pytest_timeout"])


if __name__ == "__main__":
    main()
