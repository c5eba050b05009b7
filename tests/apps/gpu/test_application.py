"""The application as `retoma serve retoma_apps.gpu` creates it from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from retoma_apps.gpu.application import from_environment
from retoma_apps.providers.gpu import LocalHost, RunPodHost
from tests.cli.terminal import Terminal

VARIABLES = ("RUNPOD_API_KEY", "JOB_TIMEOUT_MS", "WEBHOOK_RETRY_MAX", "RETOMA_PUBLIC_URL", "RETOMA_PORT", "PORT")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_without_a_key_the_work_is_done_on_this_machine() -> None:
    app = from_environment()
    assert isinstance(app.resources["host"], LocalHost)
    assert app.resources["rules"].offline
    assert app.resources["rules"].poll_interval.total_seconds() == 1


def test_with_a_key_it_is_done_at_runpod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "rpa_key")
    app = from_environment()
    assert isinstance(app.resources["host"], RunPodHost)
    assert not app.resources["rules"].offline
    assert app.resources["rules"].poll_interval.total_seconds() == 8


def test_all_operations_share_a_pool_of_three() -> None:
    pools = {pool for pipeline in from_environment().pipelines.values() for pool in pipeline.pools}
    assert [(pool.name, pool.capacity) for pool in pools] == [("gpu", 3)]


def test_it_writes_nothing_before_it_is_used(tmp_path: Path) -> None:
    from_environment()
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_explains_redis_and_the_rendering_host(tmp_path: Path) -> None:
    unreachable = {"RETOMA_DATABASE_URL": "postgresql://me@127.0.0.1:1/none", "REDIS_URL": "redis://localhost"}
    said = Terminal(tmp_path, unreachable).run("doctor").stdout
    assert "not needed" in said
    assert "PostgreSQL" in said
    assert "offline" in said
    keyed = unreachable | {"RUNPOD_API_KEY": "rpa_CANARY", "RUNPOD_ENDPOINT_ID": "pod"}
    said = Terminal(tmp_path, keyed).run("doctor").stdout
    assert "RunPod API key is set" in said
    assert "CANARY" not in said
