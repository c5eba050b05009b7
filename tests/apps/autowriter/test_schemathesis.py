"""schemathesis finds no failures in AutoWriter's routes from the OpenAPI document alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from retoma import Settings
from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.server import auth
from tests.apps.autowriter.writer_app import WriterApp
from tests.server.test_schemathesis import schemathesis


async def test_schemathesis_finds_nothing(
    writer_app: WriterApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(auth, "FAILURES_PER_MINUTE", 1_000_000)
    settings = Settings(port=0)
    listening = bind_socket(settings, "127.0.0.1")
    async with run_server(writer_app.api.server, listening, settings):
        document = f"{get_address(listening)}/api/v1/openapi.json"
        own = ("--include-path-regex", "^/autowriter")
        # A schema cannot express which blogs exist, that a body is a CSV file, and that one of three fields is set.
        lenient = ("--exclude-checks", "positive_data_acceptance")
        output = await schemathesis(document, writer_app.api.key or "", tmp_path, *own, *lenient)
    profiles = await writer_app.client.tenants.list_profiles()
    assert sum(profile.revision for profile in profiles) > 1, output  # it has created or changed a blog
