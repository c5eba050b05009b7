"""The application as `retoma serve retoma_apps.gpu` creates it from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from retoma import App
from retoma.checks import Finding
from retoma_apps.gpu.application import from_environment
from retoma_apps.providers import ffmpeg
from retoma_apps.providers.gpu.local import LocalHost
from retoma_apps.providers.gpu.runpod import RunPodHost
from tests.cli.terminal import Terminal

VARIABLES = (
    "RUNPOD_API_KEY",
    "RUNPOD_ENDPOINT_ID",
    "REDIS_URL",
    "JOB_TIMEOUT_MS",
    "WEBHOOK_RETRY_MAX",
    "RETOMA_PUBLIC_URL",
    "RETOMA_PORT",
    "PORT",
)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_without_a_key_videos_are_rendered_on_this_machine() -> None:
    app = from_environment()
    assert isinstance(app.resources["host"], LocalHost)
    assert app.resources["rules"].offline
    assert app.resources["rules"].poll_interval is None
    assert app.resources["host"].poll_interval.total_seconds() == 1


def test_with_a_key_videos_are_rendered_at_runpod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "rpa_key")
    app = from_environment()
    assert isinstance(app.resources["host"], RunPodHost)
    assert not app.resources["rules"].offline
    assert app.resources["rules"].poll_interval is None
    assert app.resources["host"].poll_interval.total_seconds() == 8


def test_all_operations_share_a_pool_of_three() -> None:
    pools = {pool for pipeline in from_environment().pipelines.values() for pool in pipeline.pools}
    assert [(pool.name, pool.capacity) for pool in pools] == [("gpu", 3)]


def test_the_app_writes_nothing_before_it_is_used(tmp_path: Path) -> None:
    from_environment()
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_explains_redis_and_the_rendering_host(tmp_path: Path) -> None:
    variables = {"RETOMA_DATABASE_URL": "postgresql://me@127.0.0.1:1/none", "RETOMA_APP": "retoma_apps.gpu"}
    output = Terminal(tmp_path, variables | {"REDIS_URL": "redis://localhost"}).run("doctor", stdin="").stdout
    assert "not needed" in output
    assert "PostgreSQL" in output
    assert "ffmpeg version" in output
    assert "offline" in output
    keyed = variables | {"RUNPOD_API_KEY": "rpa_CANARY", "RUNPOD_ENDPOINT_ID": "pod"}
    output = Terminal(tmp_path, keyed).run("doctor", stdin="").stdout
    assert "RunPod API key is set" in output
    assert "CANARY" not in output


def test_the_checks_read_the_settings_where_the_application_reads_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("RUNPOD_API_KEY=rpa_CANARY\nREDIS_URL=redis://localhost\n")
    found = find_by_subject(from_environment())
    assert (found["GPUs"].level, found["GPUs"].advice) == ("warning", "set RUNPOD_ENDPOINT_ID")
    assert found["REDIS_URL"].advice == "remove it"
    monkeypatch.setenv("RUNPOD_ENDPOINT_ID_IMG2VID", "pod")
    gpus = find_by_subject(from_environment())["GPUs"]
    assert (gpus.level, gpus.message) == ("ok", "RunPod API key is set")


def test_an_ffmpeg_that_does_not_run_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (broken := tmp_path / "ffmpeg-broken").write_text("#!/bin/sh\necho ffmpeg version 0\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(ffmpeg, "find_ffmpeg", lambda: str(broken))
    gpus = find_by_subject(from_environment())["GPUs"]
    assert (gpus.level, "does not run" in gpus.message) == ("warning", True)
    assert ffmpeg.check_ffmpeg().level == "warning"


def find_by_subject(app: App) -> dict[str, Finding]:
    assert app.checks is not None
    return {finding.subject: finding for finding in app.checks()}
