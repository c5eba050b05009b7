"""schemathesis, from the OpenAPI document alone, finds nothing in the routes of the orchestrator either."""

from __future__ import annotations

from pathlib import Path

import pytest

from retoma import Settings
from retoma.cli.listening import address, bound, serving
from retoma.server import door
from tests.apps.gpu.conftest import OpenStudio
from tests.server.test_schemathesis import schemathesis


async def test_schemathesis_finds_nothing(
    open_studio: OpenStudio, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(door, "FAILURES_PER_MINUTE", 1_000_000)
    async with open_studio() as studio:
        settings = Settings(port=0)
        listening = bound(settings, "127.0.0.1")
        async with serving(studio.api.server, listening, settings):
            document = f"{address(listening)}/api/v1/openapi.json"
            own = ("--include-path-regex", "^/(video|jobs|files)")
            # That ids differ and that one of two fields is given cannot be said in a schema.
            lenient = ("--exclude-checks", "positive_data_acceptance")
            said = await schemathesis(document, studio.api.key or "", tmp_path, *own, *lenient)
        assert len(await studio.client.runs(limit=100)) > 5, said
