"""The packages that Retoma needs."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
BROKER_CLIENTS = {
    "redis",
    "celery",
    "kombu",
    "pika",
    "aio-pika",
    "aiokafka",
    "kafka-python",
    "nats-py",
    "pyzmq",
    "valkey",
}


def test_no_dependency_is_a_client_of_a_message_broker() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *(each for some in project["optional-dependencies"].values() for each in some)]
    locked = (ROOT / "requirements" / "run.txt").read_text()
    names = {
        re.split(r"[^\w.-]", each)[0].lower() for each in [*listed, *re.findall(r"^[\w.-]+", locked, re.MULTILINE)]
    }
    assert "asyncpg" in names
    assert names & BROKER_CLIENTS == set()


def test_the_source_imports_only_what_users_install() -> None:
    """Tools of tests may contain libraries under the GPL, as PyAV does: importing one here would bind users to it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *(each for some in project["optional-dependencies"].values() for each in some)]
    locked = re.findall(r"^[\w.-]+", (ROOT / "requirements" / "run.txt").read_text(), re.MULTILINE)
    installed = {_normalise(name) for name in [*(re.split(r"[^\w.-]", each)[0] for each in listed), *locked]}
    distributions = packages_distributions()
    imported = {name for path in (ROOT / "src").rglob("*.py") for name in _list_packages(ast.parse(path.read_text()))}
    assert "asyncpg" in imported
    own = {"retoma", "retoma_apps", *sys.stdlib_module_names}
    assert [
        name
        for name in sorted(imported - own)
        if installed.isdisjoint(map(_normalise, distributions.get(name, [name])))
    ] == []


def _list_packages(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
