"""schemathesis finds no failures in the routes of stories from the OpenAPI document alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from retoma import Settings
from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.server import auth
from tests.apps.stories.story_app import StoryApp
from tests.server.test_schemathesis import schemathesis


async def test_schemathesis_finds_nothing(story_app: StoryApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(auth, "FAILURES_PER_MINUTE", 1_000_000)
    settings = Settings(port=0)
    listening = bind_socket(settings, "127.0.0.1")
    async with run_server(story_app.api.server, listening, settings):
        document = f"{get_address(listening)}/api/v1/openapi.json"
        own = ("--include-path-regex", "^/stories")
        # A schema cannot express that each language is named once.
        lenient = ("--exclude-checks", "positive_data_acceptance")
        output = await schemathesis(document, story_app.api.key or "", tmp_path, *own, *lenient)
    assert (await story_app.api.get("/stories")).json()["stories"], output  # it has ordered a story
