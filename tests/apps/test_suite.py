"""All applications of the package on one server: `retoma serve retoma_apps`."""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import pytest

import retoma_apps
from retoma import App, checks
from retoma.store.database import Database
from retoma.testing import sandbox
from retoma_apps import autowriter, classifier, gpu, stories, videos
from tests.conftest import empty_database
from tests.server.api import an_api


@pytest.fixture
def without_sklearn(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> Any:
        if name == "scikit-learn":
            raise PackageNotFoundError(name)
        return distribution(name)

    monkeypatch.setattr(checks, "distribution", find)
    monkeypatch.delitem(vars(retoma_apps), "app", raising=False)


def test_it_includes_every_application() -> None:
    app: App = retoma_apps.app
    assert app.applications == (videos.app, autowriter.app, classifier.app, gpu.app, stories.app)
    assert retoma_apps.app is app


@pytest.mark.usefixtures("without_sklearn")
def test_an_application_without_its_packages_is_left_out_with_the_command_that_installs_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        app: App = retoma_apps.app
    assert [each.name for each in app.applications] == ["videos", "autowriter", "gpu", "stories"]
    (said,) = caplog.messages
    assert "retoma_apps.classifier is left out, as it needs scikit-learn" in said
    assert "pip install 'retoma[classifier]'" in said
    del vars(retoma_apps)["app"]


@pytest.mark.usefixtures("without_sklearn")
def test_an_application_without_an_extra_is_always_included(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(retoma_apps.APPLICATIONS, "classifier", None)
    assert classifier.app in retoma_apps.app.applications
    del vars(retoma_apps)["app"]


async def test_one_server_has_the_routes_and_pages_of_all(database: Database) -> None:
    await empty_database(database)
    async with an_api(database, application=retoma_apps.app) as api:
        for path in ("/api/v1/videos", "/autowriter/jobs", "/projetos", "/jobs", "/stories"):
            assert (await api.get(path)).status_code == 200, path
        document = (await api.get("/api/v1/openapi.json")).json()
        assert {"/api/v1/videos", "/autowriter/jobs", "/projetos", "/jobs", "/stories"} < set(document["paths"])
        assert (await api.get("/metrics")).text.count("orchestrator_jobs_queued 0.0") == 1


async def test_one_sandbox_serves_the_queues_of_all(database: Database) -> None:
    await empty_database(database)
    async with sandbox(retoma_apps.app, database) as opened, opened.manual_worker() as worker:
        assert len(worker.versions) == len(retoma_apps.app.pipelines) == 10
