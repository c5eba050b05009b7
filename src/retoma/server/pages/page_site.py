"""What all pages of a server share: the client, authentication, sessions and templates."""

from __future__ import annotations

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
from retoma.translations import CATALOGUES, Translator

COUNT_TTL_SECONDS = 1.0  # seconds


class PageSite:
    def __init__(self, app: App | None, client: Client, auth: Auth, sessions: Sessions) -> None:
        self.app = app
        self.client = client
        self.auth = auth
        self.sessions = sessions
        self._cached_count = (0, -COUNT_TTL_SECONDS)
        self._templates: dict[str, Environment] = {}

    async def count_open_reviews(self) -> int:
        """Count open reviews; the number is at most a second old."""
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

    def get_translator(self, language: str) -> Translator:
        """Strings that the application's own catalogue does not have come from Retoma's."""
        own = None if self.app is None else self.app.locale
        return Translator(language, [CATALOGUES] if own is None else [own, CATALOGUES])

    def get_templates(self, language: str) -> Environment:
        if language not in self._templates:
            self._templates[language] = self._create_environment(self.get_translator(language))
        return self._templates[language]

    def _create_environment(self, translator: Translator) -> Environment:
        """Macros see only the globals of their environment, so each language has its own."""
        ours = PackageLoader("retoma.server.pages")
        folder = None if self.app is None else self.app.templates
        made = Environment(
            extensions=["jinja2.ext.i18n"],
            loader=ours if folder is None else ChoiceLoader([ours, FileSystemLoader(folder)]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        # Plain functions, not those of the extension, which take a source string for HTML.
        made.newstyle_gettext = True  # type: ignore[attr-defined]
        made.globals.update(
            _=translator.gettext,
            gettext=translator.gettext,
            ngettext=translator.ngettext,
            pgettext=translator.pgettext,
            translate=translator.translate,
            state_name=lambda state: translator.translate(badges.STATE_NAMES[state]),
        )
        made.filters.update(json=formats.format_json, humanize=formats.humanize)
        made.globals.update(badge_style=badges.get_badge_style, describe_recorded_error=describe_recorded_error)
        made.tests.update(file=is_file)
        return made
