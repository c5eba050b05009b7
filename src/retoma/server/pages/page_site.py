"""What all pages of a server share: where their data comes from, who may see them, and their templates."""

from __future__ import annotations

from functools import cached_property
from time import monotonic

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined

from retoma.app import App
from retoma.client import Client
from retoma.define.file import is_file
from retoma.records import describe_recorded_error
from retoma.server.auth import Auth
from retoma.server.pages import badges, formats
from retoma.server.pages.page import Page
from retoma.server.sessions import Sessions

COUNT_TTL_SECONDS = 1.0  # seconds


class PageSite:
    def __init__(self, app: App | None, client: Client, auth: Auth, sessions: Sessions) -> None:
        self.app = app
        self.client = client
        self.auth = auth
        self.sessions = sessions
        self._cached_count = (0, -COUNT_TTL_SECONDS)

    async def count_open_reviews(self) -> int:
        """How much waits for people, as it was at most a second ago."""
        count, read_at = self._cached_count
        if monotonic() - read_at >= COUNT_TTL_SECONDS:
            count = sum(each.open for each in await self.client.reviews.count_open())
            self._cached_count = (count, monotonic())
        return count

    @property
    def name(self) -> str:
        return "Retoma" if self.app is None else self.app.name

    @property
    def application_pages(self) -> tuple[Page, ...]:
        return () if self.app is None else self.app.pages

    @cached_property
    def templates(self) -> Environment:
        ours = PackageLoader("retoma.server.pages")
        folder = None if self.app is None else self.app.templates
        made = Environment(
            loader=ours if folder is None else ChoiceLoader([ours, FileSystemLoader(folder)]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        made.filters.update(json=formats.format_json, humanize=formats.humanize)
        made.globals.update(badge_style=badges.get_badge_style, describe_recorded_error=describe_recorded_error)
        made.tests.update(file=is_file)
        return made
