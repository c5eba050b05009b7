"""What all pages of a server share: where their data comes from, who may see them, and their templates."""

from __future__ import annotations

from functools import cached_property
from time import monotonic

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined

from retoma.app import App
from retoma.client import Client
from retoma.define.file import is_file
from retoma.records import describe_recorded
from retoma.server.door import Door
from retoma.server.pages import drawing, formats
from retoma.server.pages.page import Page
from retoma.server.sessions import Sessions

LONGEST_KEPT = 1.0  # seconds


class Site:
    def __init__(self, app: App | None, client: Client, door: Door, sessions: Sessions) -> None:
        self.app = app
        self.client = client
        self.door = door
        self.sessions = sessions
        self._open = (0, -LONGEST_KEPT)

    async def open_reviews(self) -> int:
        """How much waits for people, as it was at most a second ago."""
        count, read_at = self._open
        if monotonic() - read_at >= LONGEST_KEPT:
            count = sum(each.open for each in await self.client.review_counts())
            self._open = (count, monotonic())
        return count

    @property
    def name(self) -> str:
        return "Retoma" if self.app is None else self.app.name

    @property
    def own_pages(self) -> tuple[Page, ...]:
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
        made.filters.update(json=formats.pretty, worded=formats.worded)
        made.globals.update(looks=drawing.looks, describe_recorded=describe_recorded)
        made.tests.update(file=is_file)
        return made
