"""All pages of AutoWriter, and where their templates and styles are."""

from __future__ import annotations

from pathlib import Path

from retoma_apps.autowriter.pages import article, articles, blogs, imports, revisions

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"
# An article's address matches any name, so it comes last.
PAGES = (*articles.PAGES, *imports.PAGES, *blogs.PAGES, *article.PAGES, *revisions.PAGES)
