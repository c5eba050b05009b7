"""schemathesis, from the OpenAPI document alone, finds nothing in the routes of the classifier either."""

from __future__ import annotations

from pathlib import Path

import pytest

from retoma import Settings
from retoma.cli.listening import address, bound, serving
from retoma.server import door
from tests.apps.classifier.office import Office
from tests.server.test_schemathesis import schemathesis


async def test_schemathesis_finds_nothing(office: Office, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(door, "FAILURES_PER_MINUTE", 1_000_000)
    settings = Settings(port=0)
    listening = bound(settings, "127.0.0.1")
    async with serving(office.api.server, listening, settings):
        document = f"{address(listening)}/api/v1/openapi.json"
        own = ("--include-path-regex", "^/(projetos|arquivos|execucoes)")
        # That labels are of the taxonomy and files were sent cannot be said in a schema.
        lenient = ("--exclude-checks", "positive_data_acceptance", "--phases", "examples,coverage")
        said = await schemathesis(document, office.api.key or "", tmp_path, *own, *lenient)
    assert (await office.api.get("/projetos")).json()["projetos"], said
