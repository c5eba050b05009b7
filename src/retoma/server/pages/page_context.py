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
from retoma.engine import inbox_state
from retoma.errors import InvalidInput, NotFound, RetomaError
from retoma.records import Person, Role, Scope
from retoma.server.pages import badges, multipart
from retoma.server.pages.formats import Formats
from retoma.server.pages.forms import Field, FieldError, map_validation_errors
from retoma.server.pages.keys import DEFAULT_KEYS, KEY_ACTIONS, KeyAction, describe_key, merge_keys
from retoma.server.pages.multipart import UploadedFile, parse_multipart
from retoma.server.pages.page import Page
from retoma.server.principal import Caller
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

# Address, icon, name and scope of each entry of the navigation.
NAVIGATION = (
    ("/", "home", N_("Home"), Scope.RUNS_READ),
    ("/reviews", "inbox", N_("Reviews"), Scope.RUNS_READ),
    ("/runs", "runs", N_("Runs"), Scope.RUNS_READ),
    ("/stuck", "stuck", N_("Stuck"), Scope.RUNS_READ),
    ("/queues", "queue", N_("Operations"), Scope.POOLS_READ),
    ("/deliveries", "send", N_("Deliveries"), Scope.DELIVERIES_READ),
    ("/people", "people", N_("People"), Scope.PEOPLE_WRITE),
)
PHONE_NAVIGATION = ("/", "/reviews", "/runs", "/stuck")  # in the bar of a phone; the rest is behind "More"
# The tabs of the pages for operators, with their scopes. The entry of the navigation is the first of them.
OPERATIONS = (
    ("/queues", N_("Queues"), Scope.POOLS_READ),
    ("/pools", N_("Pools"), Scope.POOLS_READ),
    ("/workers", N_("Workers"), Scope.POOLS_READ),
    ("/schedules", N_("Schedules"), Scope.RUNS_READ),
    ("/retries", N_("Retries"), Scope.RUNS_READ),
    ("/dead-letters", N_("Dead letters"), Scope.DELIVERIES_READ),
    ("/bulk-actions", N_("Bulk actions"), Scope.RUNS_READ),
    ("/budgets", N_("Budgets"), Scope.RUNS_READ),
    ("/connections", N_("Connections"), Scope.CONNECTIONS_WRITE),
    ("/charts", N_("Charts"), Scope.METRICS_READ),
    ("/retention", N_("Retention"), Scope.ADMIN),
)
# The outcome of an action, by the name that the address of the next page carries.
NOTICES = {
    "cancelled": N_("The run is being cancelled."),
    "run_erased": N_("The run is erased. Files that only it referred to are deleted within three days."),
    "resumed": N_("The run has been resumed."),
    "resumed_no_worker": N_(
        "The run is resumed, but no worker is running for it. It continues when you start one: retoma worker APP"
    ),
    "rerun": N_("The failed jobs are being rerun."),
    "rerun_started": N_("The rerun has started."),
    "nothing_to_rerun": N_("There was nothing to rerun."),
    "orphan_resolved": N_("The outcome of the call has been recorded."),
    "forked": N_("This is the new run."),
    "undone": N_("The decision has been undone."),
    "too_late": N_("Too late: the decision has already taken effect."),
    "nothing_chosen": N_("Nothing was selected."),
    "assigned": N_("The review has been assigned."),
    "assignee_unknown": N_("Not assigned: choose a role, or the e-mail address or name of a person who may decide it."),
    "edited": N_("The result is saved, and dependent steps are being rerun."),
    "skipped": N_("The item has been skipped."),
    "sent_again": N_("The webhook will be sent again."),
    "retried_now": N_("The job starts now."),
    "bulk_aborted": N_("Aborted. What is done stays done; the rest was left alone."),
    "schedule_created": N_("The schedule is created."),
    "schedule_changed": N_("The schedule has been changed."),
    "schedule_paused": N_("The schedule is paused. It starts nothing until you resume it."),
    "schedule_resumed": N_("The schedule starts runs again."),
    "schedule_triggered": N_("The schedule has started this run."),
    "schedule_deleted": N_("The schedule is deleted. Its runs stay."),
    "queue_limited": N_("The limit of the queue has been updated."),
    "queue_paused": N_("The queue is paused. Its running jobs finish."),
    "queue_resumed": N_("The queue starts jobs again."),
    "draining": N_("The worker finishes its jobs and exits."),
    "pool_set": N_("The capacity has been updated."),
    "budget_set": N_("The budget is set. Steps that wait because of it continue if it allows them now."),
    "budget_removed": N_("The budget is removed. Steps that wait because of it continue."),
    "connection_set": N_("The connection is saved. Test it before you rely on it."),
    "connection_deleted": N_("The connection is deleted."),
    "money_set": N_("The currency and the time zone are set."),
    "keys_saved": N_("Your keys have been saved."),
    "notifications_saved": N_("Your choice is saved."),
    "test_sent": N_("The test is on its way. Its outcome appears below the channel."),
    "notification_resent": N_("The message will be sent again."),
    "logged_out": N_("You have logged out."),
    "login_expired": N_("The login took too long. Log in again."),
    "second_factor_removed": N_("The second factor is off."),
    "setup_expired": N_("That took too long. Start again."),
    "person_unlinked": N_("The account is unlinked from single sign-on."),
    "profile_saved": N_("Your profile has been saved."),
    "password_changed": N_("Your password has been changed, and all other browsers are logged out."),
    "session_ended": N_("Logged out there."),
    "sessions_ended": N_("The person is logged out everywhere."),
    "role_changed": N_("The role has been changed. It applies at once."),
    "person_disabled": N_("The account is disabled, and the person is logged out."),
    "person_enabled": N_("The account is enabled."),
    "rule_set": N_("The rule has been saved. It applies from the next pass."),
    "rule_removed": N_("The rule has been removed."),
}


ROLE_NAMES = {
    Role.VIEWER: N_("Viewer"),
    Role.REVIEWER: N_("Reviewer"),
    Role.OPERATOR: N_("Operator"),
    Role.ADMINISTRATOR: N_("Administrator"),
}


NOTHING_DONE = (
    "too_late",
    "assignee_unknown",
    "nothing_chosen",
    "nothing_to_rerun",
)  # notices about an action that changed nothing


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
    """`caller` is the person who is logged in, or the developer; without one, only public pages are shown.

    `application` is the one that the page belongs to or is about: its templates, texts and client are used.
    """

    def __init__(
        self, services: PageServices, request: Request, caller: Caller | None, application: App | None = None
    ) -> None:
        self.services = services
        self.request = request
        self.caller = caller
        self.application = application
        self._client: Client | None = None
        self.fields: dict[str, str] = {}
        self.files: dict[str, UploadedFile] = {}
        self._form_pairs: list[tuple[str, str]] = []
        self.open_review_count = self.stuck_count = 0  # shown in the navigation
        self.keys = DEFAULT_KEYS  # by action
        self.path = request.url.path  # of the page that is shown; a rejected form is shown on another page's path

    @property
    def viewer(self) -> str:
        """The key under which the pages keep what belongs to the viewer, such as drafts."""
        assert self.caller is not None
        return f"{self.caller.actor.kind}:{self.caller.actor.id}"

    @property
    def client(self) -> Client:
        """The client for the tenants in which the viewer may see this page, or send its form."""
        assert self._client is not None, "a public page has no client"
        return self._client if self.application is None else self._client.scope_to(self.application)

    @property
    def own_client(self) -> Client:
        """The client for the viewer's own account, which may have roles in any tenant."""
        assert self.caller is not None
        return self.services.client.acting_as(self.caller.actor)

    def limit_client(self, scope: Scope | None) -> None:
        """Give the page a client for the tenants in which the viewer has this scope. Raise a Problem without any."""
        assert self.caller is not None
        self._client = self.caller.limit_client(self.services.client, scope)

    @property
    def token(self) -> str | None:
        """The token of the session."""
        return None if self.caller is None else self.caller.token

    @property
    def person(self) -> Person | None:
        """The person who is logged in; None for the developer."""
        return None if self.caller is None else self.caller.person

    @property
    def by(self) -> str:
        """The name of the viewer."""
        return "" if self.caller is None else self.caller.actor.name

    def may(self, scope: str, tenant: str | None = None) -> bool:
        """Return whether the viewer has this scope in the tenant; without one, in any."""
        return self.caller is not None and self.caller.access.permits(Scope(scope), tenant)

    def use_application_of(self, pipeline: str) -> None:
        """Show this page in the texts and with the templates of the application that defines the pipeline."""
        self.application = self.services.find_owner(pipeline)

    @property
    def query(self) -> dict[str, str]:
        """The query parameters; the last value of each name."""
        return {name: value for name, value in self.request.query_params.items() if "\0" not in value}

    @cached_property
    def language(self) -> str:
        own = None if self.person is None else self.person.language
        chosen = self.request.query_params.get("lang") or own or self.request.cookies.get("retoma-language")
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
        """The viewer's own zone, or the one that the browser reported in a cookie (static/time_zone.js), or UTC."""
        own = None if self.person is None else self.person.time_zone
        name = own or self.request.cookies.get(TIME_ZONE_COOKIE, "")
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

    def get_role_name(self, role: Role) -> str:
        return self.translate(ROLE_NAMES[role])

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
        """Return the pipelines that the query names: one by `pipeline`, or all of one `application`.

        Raise NotFound if there is no such application: without this filter, everything would match.
        """
        if self.query.get("pipeline"):
            return self.query["pipeline"]
        name = self.query.get("application")
        application = next((each for each in self.services.applications if each.name == name), None)
        if name and application is None:
            raise NotFound(self.gettext("There is no such application."))
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

    @property
    def form_pairs(self) -> list[tuple[str, str]]:
        """Name and value of each field of the form, in its order."""
        return list(self._form_pairs)

    def get_field_values(self, name: str) -> list[str]:
        """Return all values that the form has under this name."""
        return [value for field, value in self._form_pairs if field == name]

    def check_form(self) -> None:
        """Raise a `Problem` unless the form belongs to this session."""
        self.services.sessions.check_csrf(self.token or "", self.fields.get("csrf"))

    @property
    def wants_json(self) -> bool:
        """Whether a script of an open page sent the request, which replaces parts of it, and not the page."""
        return self.request.headers.get("accept", "").startswith("application/json")

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
        return [(path, self.translate(name)) for path, name, scope in OPERATIONS if self.may(scope)]

    @property
    def nav_path(self) -> str:
        """The path that decides which entry of the navigation is the current one."""
        section = "/" + self.path.strip("/").partition("/")[0]
        return OPERATIONS[0][0] if section in [path for path, _, _ in OPERATIONS] else self.path

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

    @cached_property
    def csrf_token(self) -> str:
        return "" if self.token is None else csrf_token(self.token)

    def new_idempotency_key(self) -> str:
        """Return the idempotency key of one form: if it is sent twice, its action happens once."""
        return uuid4().hex

    @property
    def idempotency_key(self) -> str | None:
        """The idempotency key of the submitted form."""
        return self.fields.get("key") or None

    async def load_keys(self) -> None:
        """Load the viewer's own keys, for pages that show or use them."""
        settings = await inbox_state.get_settings(self.client.database, self.viewer)
        self.keys = merge_keys(settings.get("keys") or {})

    def describe_key(self, action: str) -> str:
        return describe_key(self.keys[action])

    @property
    def key_actions(self) -> tuple[KeyAction, ...]:
        return KEY_ACTIONS

    @property
    def notice(self) -> str | None:
        """The message of `NOTICES` that the address names, or None. Never text of the address: anyone can write one."""
        name = self.query.get("notice", "")
        return self.translate(NOTICES[name]) if name in NOTICES else None

    @property
    def notice_colour(self) -> str:
        return "warn" if self.query.get("notice") in NOTHING_DONE else "ok"

    def with_query(self, **changes: object) -> str:
        """Return the address of this page with other query parameters; None removes one."""
        return self.link_to(self.path, **changes)

    def link_to(self, path: str, **changes: object) -> str:
        """Return the address of another page with the query parameters of this one, such as its filter."""
        kept = {name: value for name, value in self.query.items() if name not in ("notice", "lang", "theme")}
        merged = {name: value for name, value in (kept | changes).items() if value not in (None, "")}
        return f"{path}?{urlencode(merged)}" if merged else path

    def choose_phone_nav(self, nav: Sequence[tuple[str, str, str, int]]) -> list[tuple[str, str, str, int]]:
        """Return the entries of the navigation that the bar of a phone has room for; the others are behind "More"."""
        return [each for each in nav if each[0] in PHONE_NAVIGATION]

    def _build_nav(self) -> list[tuple[str, str, str, int]]:
        """Return path, icon, name and number of each entry: open reviews, and runs that are stuck."""
        waiting = {"/reviews": self.open_review_count, "/stuck": self.stuck_count}
        ours = [
            (path, icon, self.translate(name), waiting.get(path, 0))
            for path, icon, name, scope in NAVIGATION
            if self.may(scope)
        ]
        own = [
            (page.path, "doc", self.services.get_translator(self.language, application).gettext(page.nav), 0)
            for application, page in self.services.application_pages
            if page.nav and (page.scope is None or self.may(page.scope))
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
