"""All pages of AutoWriter, and where their templates and styles are."""

from __future__ import annotations

from pathlib import Path

from retoma.server import Page
from retoma_apps.autowriter.pages import article, articles, blogs, imports, revisions
from retoma_apps.autowriter.pages.articles import ArticleListPage

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"


def create_pages() -> list[Page]:
    """Return the pages. An article's address matches any name, so it comes last."""
    return [
        *ArticleListPage().pages,
        *articles.PAGES,
        *imports.PAGES,
        *blogs.PAGES,
        *article.PAGES,
        *revisions.PAGES,
    ]
