"""schemathesis finds no failures in the classifier's routes from the OpenAPI document alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from retoma import Settings
from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.server import auth
from tests.apps.classifier.classifier_app import ClassifierApp
from tests.server.test_schemathesis import schemathesis


async def test_schemathesis_finds_nothing(
    classifier_app: ClassifierApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(auth, "FAILURES_PER_MINUTE", 1_000_000)
    settings = Settings(port=0)
    listening = bind_socket(settings, "127.0.0.1")
    async with run_server(classifier_app.api.server, listening, settings):
        document = f"{get_address(listening)}/api/v1/openapi.json"
        own = ("--include-path-regex", "^/(projetos|arquivos|execucoes)")
        # A schema cannot express that labels are in the taxonomy and files were uploaded.
        lenient = ("--exclude-checks", "positive_data_acceptance", "--phases", "examples,coverage")
        output = await schemathesis(document, classifier_app.api.key or "", tmp_path, *own, *lenient)
    assert (await classifier_app.api.get("/projetos")).json()["projetos"], output
