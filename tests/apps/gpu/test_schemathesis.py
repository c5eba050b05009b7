"""schemathesis finds no failures in the orchestrator's routes from the OpenAPI document alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from retoma import Settings
from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.server import auth
from tests.apps.gpu.conftest import OpenGpuApp
from tests.server.test_schemathesis import schemathesis


async def test_schemathesis_finds_nothing(
    open_gpu_app: OpenGpuApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(auth, "FAILURES_PER_MINUTE", 1_000_000)
    async with open_gpu_app() as gpu_app:
        settings = Settings(port=0)
        listening = bind_socket(settings, "127.0.0.1")
        async with run_server(gpu_app.api.server, listening, settings):
            document = f"{get_address(listening)}/api/v1/openapi.json"
            own = ("--include-path-regex", "^/(video|jobs|files)")
            # A schema cannot express that ids differ and that exactly one of two fields is set.
            lenient = ("--exclude-checks", "positive_data_acceptance")
            output = await schemathesis(document, gpu_app.api.key or "", tmp_path, *own, *lenient)
        assert len(await gpu_app.client.runs.list(limit=100)) > 5, output
