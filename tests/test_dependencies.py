"""The packages that Retoma needs."""

from __future__ import annotations

import re
import tomllib
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
