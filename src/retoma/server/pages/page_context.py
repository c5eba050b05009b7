"""The context of one request for a page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlencode
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo, available_timezones

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from retoma.app import App
from retoma.client import Client
from retoma.define.pipeline import Pipeline
from retoma.errors import InvalidInput, NotFound, RetomaError
from retoma.server.auth import ADMINISTRATOR
from retoma.server.pages import badges, multipart
from retoma.server.pages.formats import Formats
from retoma.server.pages.forms import Field, FieldError, map_validation_errors
from retoma.server.pages.multipart import UploadedFile, parse_multipart
from retoma.server.pages.page import Page
from retoma.server.problems import Problem
from retoma.server.request_limits import PAGE_HEADERS, body_too_large
from retoma.server.sessions import csrf_token
from retoma.translations import LANGUAGES, N_, Message, Translator

if TYPE_CHECKING:
    from retoma.server.pages.page_services import PageServices

HEADERS = {**PAGE_HEADERS, "Vary": "Cookie, Accept-Language"}
THEMES = ("auto", "light", "dark")
TIME_ZONE_COOKIE = "retoma-time-zone"
COOKIE_SECONDS = 365 * 86_400
MAX_INLINE_PARSE_BYTES = 64 * 1024  # bytes; a longer form is parsed in a thread

# Address, icon and name of each entry of the navigation.
NAVIGATION = (
    ("/", "home", N_("Home")),
    ("/reviews", "inbox", N_("Reviews")),
    ("/runs", "runs", N_("Runs")),
    ("/stuck", "stuck", N_("Stuck")),
    ("/queues", "queue", N_("Operations")),
    ("/deliveries", "send", N_("Deliveries")),
)
# The tabs of the pages for operators. The entry of the navigation is the first of them.
OPERATIONS = (
    ("/queues", N_("Queues")),
    ("/pools", N_("Pools")),
    ("/workers", N_("Workers")),
    ("/retries", N_("Retries")),
    ("/dead-letters", N_("Dead letters")),
    ("/bulk-actions", N_("Bulk actions")),
    ("/charts", N_("Charts")),
)
# The outcome of an action, by the name that the address of the next page carries.
NOTICES = {
    "cancelled": N_("The run is being cancelled."),
    "resumed": N_("The run has been resumed."),
    "resumed_no_worker": N_(
        "The run is resumed, but no worker is running for it. It continues when you start one: retoma worker APP"
    ),
    "rerun": N_("The failed jobs are being rerun."),
    "rerun_started": N_("The rerun has started."),
    "nothing_to_rerun": N_("There was nothing to rerun."),
    "orphan_resolved": N_("It is recorded what became of the call."),
    "forked": N_("This is the new run."),
    "undone": N_("The decision has been undone."),
    "too_late": N_("Too late: the decision has already taken effect."),
    "nothing_chosen": N_("Nothing was selected."),
    "assigned": N_("The review has been assigned."),
    "edited": N_("The result is saved, and dependent steps are being rerun."),
    "skipped": N_("The item has been skipped."),
    "sent_again": N_("The webhook will be sent again."),
    "retried_now": N_("The job starts now."),
    "bulk_aborted": N_("Aborted. What is done stays done; the rest was left alone."),
    "queue_limited": N_("The limit of the queue has been updated."),
    "queue_paused": N_("The queue is paused. Its running jobs finish."),
    "queue_resumed": N_("Jobs of the queue start again."),
    "draining": N_("The worker finishes its jobs and exits."),
    "pool_set": N_("The capacity has been updated."),
    "logged_out": N_("You have logged out."),
}


class FormLimits(NamedTuple):
    size: int  # in bytes
    fields: int


AUTHENTICATED_FORM_LIMITS = FormLimits(2 * 1024 * 1024, 10_000)
PUBLIC_FORM_LIMITS = FormLimits(16 * 1024, 20)  # anyone may send the login form


def get_form_limits(page: Page) -> FormLimits:
    """Return the limits of a form that only people who are logged in can send."""
    return AUTHENTICATED_FORM_LIMITS._replace(size=AUTHENTICATED_FORM_LIMITS.size + page.max_upload)


Chosen = TypeVar("Chosen", bound=StrEnum)


class PageContext:
    """`token` is the session's; without one, only public pages are shown.

    `application` is the one that the page belongs to or is about: its templates, texts and client are used.
    """

    def __init__(
        self, services: PageServices, request: Request, token: str | None, application: App | None = None
    ) -> None:
        self.services = services
        self.request = request
        self.token = token
        self.application = application
        self.fields: dict[str, str] = {}
        self.files: dict[str, UploadedFile] = {}
        self._form_pairs: list[tuple[str, str]] = []
        self.open_review_count = 0  # shown in the navigation
        self.by = ADMINISTRATOR
        self.path = request.url.path  # of the page that is shown; a rejected form is shown on another page's path

    @property
    def client(self) -> Client:
        return self.services.client if self.application is None else self.services.client.scope_to(self.application)

    def use_application_of(self, pipeline: str) -> None:
        """Show this page in the texts and with the templates of the application that defines the pipeline."""
        self.application = self.services.find_owner(pipeline)

    @property
    def query(self) -> dict[str, str]:
        """The query parameters; the last value of each name."""
        return {name: value for name, value in self.request.query_params.items() if "\0" not in value}

    @cached_property
    def language(self) -> str:
        chosen = self.request.query_params.get("lang") or self.request.cookies.get("retoma-language")
        return chosen if chosen in LANGUAGES else _negotiate_language(self.request.headers.get("accept-language", ""))

    @cached_property
    def theme(self) -> str:
        chosen = self.request.query_params.get("theme") or self.request.cookies.get("retoma-theme")
        return chosen if chosen in THEMES else "auto"

    @cached_property
    def formats(self) -> Formats:
        return Formats(self.language, self.time_zone)

    @cached_property
    def time_zone(self) -> ZoneInfo:
        """The zone that the viewer's browser reported in a cookie (static/time_zone.js); UTC until then."""
        name = self.request.cookies.get(TIME_ZONE_COOKIE, "")
        return ZoneInfo(name) if name in _list_time_zones() else ZoneInfo("UTC")

    def get_path_id(self, name: str) -> UUID:
        """Return the id in the path, or raise `NotFound` if it is not one."""
        try:
            return UUID(self.request.path_params[name])
        except ValueError:
            raise NotFound(self.gettext("This is not a valid id.")) from None

    def get_query_id(self, name: str) -> UUID | None:
        """Return the id in the query, or None if it has none. Raise `NotFound` if it is not one."""
        try:
            return UUID(self.query[name]) if self.query.get(name) else None
        except ValueError:
            raise NotFound(self.gettext("This is not a valid id.")) from None

    def get_query_number(self, name: str, default: int) -> int:
        return parse_number(self.query.get(name, ""), default)

    def find_pipeline(self, name: str) -> Pipeline | None:
        """Return the pipeline, or None if this server does not define it."""
        return self.client.app.pipelines.get(name) if self.client.app else None

    def get_query_choice(self, name: str, kind: type[Chosen]) -> Chosen | None:
        """Return the member that the query names, or None."""
        return next((each for each in kind if each == self.query.get(name)), None)

    @property
    def translator(self) -> Translator:
        return self.services.get_translator(self.language, self.application)

    def gettext(self, message: str, /, **values: Any) -> str:
        """Return the message in the viewer's language: the application's catalogue wins over Retoma's."""
        return self.translator.gettext(message, **values)

    def ngettext(self, singular: str, plural: str, number: int, /, **values: Any) -> str:
        return self.translator.ngettext(singular, plural, number, **values)

    def pgettext(self, context: str, message: str, /, **values: Any) -> str:
        return self.translator.pgettext(context, message, **values)

    def translate(self, message: str | Message, /, **values: Any) -> str:
        """Translate a message that `N_` or `NP_` marked."""
        return self.translator.translate(message, **values)

    def translate_error(self, error: RetomaError) -> str:
        """Return the message of an error as a sentence. One that no catalogue has stays English."""
        sentence = self.gettext(error.message, **error.values) if error.message else ""
        return sentence[:1].upper() + sentence[1:]

    def get_state_name(self, state: str) -> str:
        return self.translate(badges.get_state_name(state))

    @property
    def title(self) -> str:
        """The title of the page's application, or of all that this server serves."""
        return self.services.get_title(self.application or self.services.app, self.language)

    def get_step_label(self, step: str, pipeline: str | None = None) -> str:
        """Return the label that an application gives a step; by default the step's name.

        The application is the one of this page or, with `pipeline`, the one that defines it.
        """
        application = self.application if pipeline is None else self.services.find_owner(pipeline)
        label = None if application is None else application.labels.get(step)
        return step if label is None else self.services.get_translator(self.language, application).gettext(label)

    def get_query_pipelines(self) -> str | list[str] | None:
        """Return the pipelines that the query names: one by `pipeline`, or all of one `application`."""
        if self.query.get("pipeline"):
            return self.query["pipeline"]
        name = self.query.get("application")
        application = next((each for each in self.services.applications if each.name == name), None)
        return None if application is None else list(application.own_pipelines)

    def list_application_titles(self) -> list[tuple[str, str]]:
        """Return name and title of each application; none if there is only one, as no list needs to be split."""
        found = [(each.name, self.services.get_title(each, self.language)) for each in self.services.applications]
        return found if len(found) > 1 else []

    def describe_pipeline(self, pipeline: str) -> str:
        """Return the pipeline's name, with the title of its application if there are several."""
        application = self.services.find_owner(pipeline)
        if application is None or len(self.services.applications) == 1:
            return pipeline
        return f"{self.services.get_title(application, self.language)} · {pipeline}"

    def translate_errors(self, errors: Mapping[str, FieldError]) -> dict[str, str]:
        """Return the messages by the names of their fields."""
        return {name: self._translate_field_error(each) for name, each in errors.items()}

    def translate_validation_errors(self, fields: Sequence[Field], error: InvalidInput) -> dict[str, str]:
        """Return the messages of pydantic's errors by the names of their fields; none if there is another cause."""
        cause = error.__cause__
        found = map_validation_errors(fields, self.fields, cause) if isinstance(cause, ValidationError) else {}
        return self.translate_errors(found)

    def _translate_field_error(self, error: FieldError) -> str:
        shown = {
            name: self.formats.exact(each) if isinstance(each, int | float) else each
            for name, each in error.values.items()
        }
        sentence = self.gettext(error.message, **shown)
        return f"{error.path}: {sentence}" if error.path else sentence

    async def read_form(self, limits: FormLimits = AUTHENTICATED_FORM_LIMITS) -> None:
        """Read the form, after checking that a page of this server sent it."""
        self.services.sessions.check_origin(self.request)
        body = await self.request.body()
        if len(body) > limits.size:
            raise body_too_large(limits.size)
        if self._is_form and body.count(b"&") >= limits.fields:
            raise Problem(413, "FORM_TOO_LARGE", f"the form has more than {limits.fields:,} fields")
        if self._media_type == multipart.MEDIA_TYPE:
            content_type = self.request.headers["content-type"]
            form = await asyncio.to_thread(parse_multipart, content_type, body, limits.fields)
            self._form_pairs, self.files = form.fields, form.files
        elif self._is_form and len(body) > MAX_INLINE_PARSE_BYTES:
            self._form_pairs = await asyncio.to_thread(_parse_form, body)
        elif self._is_form:
            self._form_pairs = _parse_form(body)
        self.fields = dict(self._form_pairs)

    def get_field_values(self, name: str) -> list[str]:
        """Return all values that the form has under this name."""
        return [value for field, value in self._form_pairs if field == name]

    def check_form(self) -> None:
        """Raise a `Problem` unless the form belongs to this session."""
        self.services.sessions.check_csrf(self.token or "", self.fields.get("csrf"))

    @property
    def _is_form(self) -> bool:
        return self._media_type == "application/x-www-form-urlencoded"

    @property
    def _media_type(self) -> str:
        return self.request.headers.get("content-type", "").partition(";")[0].strip().lower()

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a page. Values are escaped."""
        response = HTMLResponse(self.render_to_string(template, **values), status, HEADERS)
        for name, chosen, kept in (("lang", self.language, "retoma-language"), ("theme", self.theme, "retoma-theme")):
            if name in self.request.query_params:
                response.set_cookie(kept, chosen, max_age=COOKIE_SECONDS, httponly=True, samesite="lax")
        return response

    @property
    def operation_tabs(self) -> list[tuple[str, str]]:
        """Path and name of each page for operators."""
        return [(path, self.translate(name)) for path, name in OPERATIONS]

    @property
    def nav_path(self) -> str:
        """The path that decides which entry of the navigation is the current one."""
        section = "/" + self.path.strip("/").partition("/")[0]
        return OPERATIONS[0][0] if section in dict(OPERATIONS) else self.path

    def render_to_string(self, template: str, **values: Any) -> str:
        """Render a template to HTML."""
        ours = {"context": self, "f": self.formats, "here": self.path, "nav": self._build_nav()}
        return self.services.get_templates(self.language, self.application).get_template(template).render(values | ours)

    def redirect(self, path: str, notice: str | None = None, *, anchor: str = "", **query: str) -> Response:
        """Redirect to a page after an action. `notice` names the message there, and is never text: a key of `NOTICES`,
        which `base.html` shows, or a name that the page's own template shows."""
        encoded = urlencode({name: value for name, value in (query | {"notice": notice}).items() if value})
        target = f"{path}?{encoded}" if encoded else path
        return RedirectResponse(f"{target}#{anchor}" if anchor else target, 303, HEADERS)

    @property
    def csrf_token(self) -> str:
        return "" if self.token is None else csrf_token(self.token)

    def new_idempotency_key(self) -> str:
        """Return the idempotency key of one form: if it is sent twice, its action happens once."""
        return uuid4().hex

    @property
    def idempotency_key(self) -> str | None:
        """The idempotency key of the submitted form."""
        return self.fields.get("key") or None

    @property
    def notice(self) -> str | None:
        """The message of `NOTICES` that the address names, or None. Never text of the address: anyone can write one."""
        name = self.query.get("notice", "")
        return self.translate(NOTICES[name]) if name in NOTICES else None

    def with_query(self, **changes: object) -> str:
        """Return the address of this page with other query parameters; None removes one."""
        return self.link_to(self.path, **changes)

    def link_to(self, path: str, **changes: object) -> str:
        """Return the address of another page with the query parameters of this one, such as its filter."""
        kept = {name: value for name, value in self.query.items() if name not in ("notice", "lang", "theme")}
        merged = {name: value for name, value in (kept | changes).items() if value not in (None, "")}
        return f"{path}?{urlencode(merged)}" if merged else path

    def _build_nav(self) -> list[tuple[str, str, str, int]]:
        """Return path, icon, name and number of open reviews of each entry."""
        waiting = {"/reviews": self.open_review_count}
        ours = [(path, icon, self.translate(name), waiting.get(path, 0)) for path, icon, name in NAVIGATION]
        own = [
            (page.path, "doc", self.services.get_translator(self.language, application).gettext(page.nav), 0)
            for application, page in self.services.application_pages
            if page.nav
        ]
        return [*ours[:1], *own, *ours[1:]]


def parse_number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else default


@cache
def _list_time_zones() -> frozenset[str]:
    """Only a known name may reach `ZoneInfo`, which looks for a file of that name."""
    return frozenset(available_timezones())


def _parse_form(form: bytes) -> list[tuple[str, str]]:
    return parse_qsl(form.decode(errors="replace"), keep_blank_values=True)


def _negotiate_language(header: str) -> str:
    """Return the first supported language of the browser's list."""
    wanted = (part.partition(";")[0].strip().lower()[:2] for part in header.split(","))
    return next((language for language in wanted if language in LANGUAGES), LANGUAGES[0])
