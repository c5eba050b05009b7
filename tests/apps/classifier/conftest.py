from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from retoma.store.database import Database
from tests.apps.classifier.classifier_app import ClassifierApp, running_classifier_app
from tests.conftest import empty_database

OpenClassifierApp = Callable[..., AbstractAsyncContextManager[ClassifierApp]]


@pytest.fixture
async def open_classifier_app(database: Database, tmp_path: Path) -> OpenClassifierApp:
    """`open_classifier_app(offline=...)`: the classifier on an empty database, with a stand-in for OpenRouter."""
    await empty_database(database)

    def opened(**options: object) -> AbstractAsyncContextManager[ClassifierApp]:
        return running_classifier_app(database, tmp_path, **options)  # type: ignore[arg-type]

    return opened


@pytest.fixture
async def classifier_app(open_classifier_app: OpenClassifierApp) -> AsyncIterator[ClassifierApp]:
    async with open_classifier_app() as made:
        yield made
