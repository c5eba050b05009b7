"""Every example runs and prints its documented output."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest

from retoma.store.database import Database
from retoma.testing import fresh_database

EXAMPLES = Path(__file__).parents[2] / "examples"
PROMISE = "# prints: "

every_example = pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)


@pytest.fixture(scope="module")
async def database() -> AsyncIterator[Database]:
    """One whose clock is the real one."""
    async with fresh_database() as made:
        yield made


@every_example
async def test_an_example_prints_its_documented_output(
    path: Path, database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RETOMA_DATABASE_URL", database.url)  # for those that use no sandbox
    main = _module(path).main
    await (main() if inspect.iscoroutinefunction(main) else asyncio.to_thread(main))
    assert _lines(capsys.readouterr().out) == _expected_output(path)


@every_example
def test_an_example_is_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    code = [line for line in lines if line.strip() and not line.startswith(PROMISE)]
    assert len(code) < 40


def test_an_example_is_a_standalone_program() -> None:
    path = EXAMPLES / "quickstart.py"
    ended = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert _lines(ended.stdout) == _expected_output(path)


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _expected_output(path: Path) -> list[str]:
    promised = [line.removeprefix(PROMISE) for line in path.read_text().splitlines() if line.startswith(PROMISE)]
    assert promised, f"{path.name} does not end with what it prints"
    return promised


def _lines(printed: str) -> list[str]:
    return [line.rstrip() for line in printed.splitlines()]
