"""All pages of the classifier, and where their templates, scripts and styles are."""

from __future__ import annotations

from pathlib import Path

from retoma.server import Page
from retoma_apps.classifier.pages import execution
from retoma_apps.classifier.pages.projects import ProjectPages
from retoma_apps.classifier.projects import OfflineAccuracies

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"


def create_pages(accuracies: OfflineAccuracies, *, is_offline: bool) -> list[Page]:
    return [*execution.PAGES, *ProjectPages(accuracies, is_offline=is_offline).pages]
