"""What all pages of a server share: the client, authentication, sessions and templates."""

from __future__ import annotations

from functools import partial
from time import monotonic
from types import CodeType
from typing import TYPE_CHECKING
from urllib.parse import quote

from babel.numbers import get_decimal_symbol
from jinja2 import BytecodeCache, ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket

from retoma.app import App
from retoma.client import Client
from retoma.define.file import is_file
from retoma.records import Scope, describe_recorded_error
from retoma.server.auth import Auth
from retoma.server.pages import badges, differences, formats, text_changes
from retoma.server.pages.page import Page
from retoma.server.sessions import Sessions
from retoma.server.signed_values import SignedValues
from retoma.server.single_sign_on import SingleSignOn
from retoma.translations import CATALOGUES, LOCALES, Translator

if TYPE_CHECKING:
    from retoma.server.pages.page_context import PageContext

COUNT_TTL_SECONDS = 1.0  # seconds
MAX_COUNTED_STUCK = 1_000


class PageServices:
    def __init__(
        self,
        app: App | None,
        client: Client,
        auth: Auth,
        sessions: Sessions,
        single_sign_on: SingleSignOn | None = None,
    ) -> None:
        self.app = app
        self.client = client
        self.auth = auth
        self.sessions = sessions
        self.single_sign_on = single_sign_on
        self.signed_values = SignedValues(client)
        self._cached_counts = ((0, 0), -COUNT_TTL_SECONDS)
        self._translators: dict[tuple[str, App | None], Translator] = {}
        self._templates: dict[tuple[str, App | None], Environment] = {}

    async def count_waiting(self, context: PageContext) -> tuple[int, int]:
        """Count the open reviews and the stuck runs that the viewer sees; those of all tenants at most a second ago."""
        if context.caller is None or not context.caller.access.permits(Scope.RUNS_READ):
            return 0, 0
        viewer = context.caller.limit_client(self.client, Scope.RUNS_READ)
        if viewer.allowed_tenants is not None:
            return await _count_waiting(viewer)
        counts, read_at = self._cached_counts
        if monotonic() - read_at >= COUNT_TTL_SECONDS:
            counts = await _count_waiting(viewer)
            self._cached_counts = (counts, monotonic())
        return counts

    @property
    def applications(self) -> tuple[App, ...]:
        return () if self.app is None else self.app.applications

    @property
    def application_pages(self) -> list[tuple[App, Page]]:
        return [(application, page) for application in self.applications for page in application.pages]

    def find_owner(self, pipeline: str) -> App | None:
        """Return the application that defines the pipeline, or None if this server does not serve it."""
        return None if self.app is None else self.app.find_owner(pipeline)

    def get_title(self, application: App | None, language: str) -> str:
        return (
            "Retoma" if application is None else self.get_translator(language, application).gettext(application.title)
        )

    def get_translator(self, language: str, application: App | None) -> Translator:
        """Strings that the application's own catalogue does not have come from Retoma's."""
        key = (language, application)
        if key not in self._translators:
            own = None if application is None else application.locale
            self._translators[key] = Translator(language, [CATALOGUES] if own is None else [own, CATALOGUES])
        return self._translators[key]

    def get_templates(self, language: str, application: App | None) -> Environment:
        key = (language, application)
        if key not in self._templates:
            self._templates[key] = _create_environment(self.get_translator(language, application), application)
        return self._templates[key]


async def _count_waiting(client: Client) -> tuple[int, int]:
    stuck = await client.runs.list_stuck(limit=MAX_COUNTED_STUCK)
    return sum(each.open for each in await client.reviews.count_open()), len(stuck)


class _CompiledTemplates(BytecodeCache):
    """Keep compiled templates in memory: what is compiled for one environment serves the others."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], CodeType | None] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._codes[bucket.key, bucket.checksum] = bucket.code


_COMPILED_TEMPLATES = _CompiledTemplates()


def _create_environment(translator: Translator, application: App | None) -> Environment:
    """Macros see only the globals of their environment, so each language of each application has its own."""
    ours = PackageLoader("retoma.server.pages")
    folder = None if application is None else application.templates
    environment = Environment(
        extensions=["jinja2.ext.i18n"],
        loader=ours if folder is None else ChoiceLoader([ours, FileSystemLoader(folder)]),
        autoescape=True,
        bytecode_cache=_COMPILED_TEMPLATES,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    own_catalogue = None if application is None else application.locale
    own = Translator(translator.language, [] if own_catalogue is None else [own_catalogue])
    # Plain functions, not those of the extension, which take a source string for HTML.
    environment.newstyle_gettext = True  # type: ignore[attr-defined]
    environment.globals.update(
        _=translator.gettext,
        gettext=translator.gettext,
        ngettext=translator.ngettext,
        pgettext=translator.pgettext,
        translate=translator.translate,
        state_name=lambda state: translator.translate(badges.get_state_name(state)),
        static_url=partial(_build_static_url, application),
        badge_style=badges.get_badge_style,
        describe_recorded_error=describe_recorded_error,
        align_entries=text_changes.align_entries,
        compare_texts=text_changes.compare_texts,
    )
    environment.filters.update(
        json=formats.format_json,
        property_name=lambda name: own.gettext(formats.humanize(name)),  # in words of the application only
        round_number=differences.round_number,
        timecode=formats.format_timecode,
        typed_number=lambda text: text.replace(".", get_decimal_symbol(LOCALES[translator.language])),
    )
    environment.tests.update(file=is_file)
    return environment


def _build_static_url(application: App | None, file: str) -> str:
    """Return the address of a file in the application's folder `static`."""
    return f"/static/{file}" if application is None else f"/static/apps/{quote(application.name)}/{file}"
