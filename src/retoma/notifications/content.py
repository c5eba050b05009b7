"""What a message says: one line for each event, in the person's language, with a link to the exact thing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from babel.dates import format_datetime
from babel.numbers import format_decimal

from retoma.app import App
from retoma.records import KIND_NAMES, Notification, NotificationKind
from retoma.translations import CATALOGUES, LANGUAGES, LOCALES, N_, Translator

MAX_LENGTH = 120  # of a title or another text of a user
_TIMES = {"en": "yyyy-MM-dd HH:mm", "pt": "dd/MM/yyyy HH:mm"}
_SPACES = re.compile(r"\s+")
_HIDDEN = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # they change the direction of the text around them


@dataclass(frozen=True)
class Line:
    """One event. Texts are plain and without line breaks; `url` is None if the server's URL is not known."""

    headline: str
    details: tuple[str, ...]
    url: str | None


@dataclass(frozen=True)
class Content:
    """A message before it is written for a channel. `footer` says where the person can change what is sent."""

    subject: str
    lines: tuple[Line, ...]
    footer: str
    footer_url: str | None
    home_url: str | None
    locale: str


@dataclass(frozen=True)
class Reader:
    """The person for whom a message is written. Without a language, it is English; without a time zone, UTC."""

    language: str | None
    time_zone: str | None

    @property
    def known_language(self) -> str:
        return self.language if self.language in LANGUAGES else LANGUAGES[0]

    @property
    def zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(self.time_zone or "UTC")
        except (ZoneInfoNotFoundError, ValueError):
            return ZoneInfo("UTC")


def build_content(
    app: App | None, notifications: Sequence[Notification], reader: Reader, public_url: str | None
) -> Content:
    """Return the content of one message. `public_url` is the server's."""
    translator = Translator(reader.known_language)
    lines = tuple(_build_line(app, each, reader, public_url) for each in notifications)
    if len(lines) == 1:
        subject = " · ".join((lines[0].headline, *lines[0].details[:1]))
    else:
        subject = translator.ngettext("%(count)s notification", "%(count)s notifications", len(lines), count=len(lines))
    return Content(
        subject,
        lines,
        translator.gettext("Change what you receive"),
        _join_url(public_url, "/account/notifications"),
        _join_url(public_url, "/"),
        LOCALES[reader.known_language].replace("_", "-"),
    )


def clean_text(text: str, length: int = MAX_LENGTH) -> str:
    """Return a user's text on one line, cut, and without characters that no reader sees."""
    visible = "".join(" " if unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp") else each for each in text)
    line = _SPACES.sub(" ", _HIDDEN.sub("", visible)).strip()
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _build_line(app: App | None, event: Notification, reader: Reader, public_url: str | None) -> Line:
    owner = app.find_owner(event.pipeline) if app is not None and event.pipeline is not None else None
    own = None if owner is None else owner.locale
    translator = Translator(reader.known_language, [CATALOGUES] if own is None else [own, CATALOGUES])
    headline = translator.translate(KIND_NAMES[event.kind])
    if event.step is not None:
        label = None if owner is None else owner.labels.get(event.step)
        headline = f"{headline}: {event.step if label is None else translator.gettext(label)}"
    return Line(clean_text(headline), tuple(_list_details(event, translator, reader)), _find_url(event, public_url))


def _list_details(event: Notification, translator: Translator, reader: Reader) -> list[str]:
    found = [event.run_title or (str(event.run) if event.run else None), event.item, event.tenant]
    data = event.data or {}
    match event.kind:
        case NotificationKind.REVIEW_DUE if event.due_at is not None:
            found.append(translator.gettext("due %(time)s", time=_format_time(event.due_at, reader)))
        case NotificationKind.RUN_STUCK:
            found.append(data.get("message") or data.get("cause"))
        case NotificationKind.BUDGET:
            amounts = {name: _format_money(data.get(name, 0), reader) for name in ("used", "limit")}
            found[:0] = [data.get("name"), translator.gettext(N_("%(used)s of %(limit)s used"), **amounts)]
        case NotificationKind.TEST:
            found.append(translator.gettext("Notifications arrive here."))
    return [clean_text(str(each)) for each in found if each]


def _format_time(at: datetime, reader: Reader) -> str:
    language = reader.known_language
    shown = format_datetime(at, _TIMES[language], tzinfo=reader.zone, locale=LOCALES[language])
    return f"{shown} ({reader.zone.key})"


def _format_money(micros: int, reader: Reader) -> str:
    return f"US$ {format_decimal(Decimal(micros) / 1_000_000, '#,##0.00', LOCALES[reader.known_language])}"


def _find_url(event: Notification, public_url: str | None) -> str | None:
    """Return the address of the page about this event. A page that is opened changes nothing."""
    if event.review is not None:
        path = f"/reviews/{event.review}"
    elif event.delivery is not None:
        path = f"/deliveries/{event.delivery}"
    elif event.run is not None:
        path = f"/runs/{event.run}"
    else:
        path = "/account/notifications" if event.kind is NotificationKind.TEST else "/budgets"
    return _join_url(public_url, path)


def _join_url(public_url: str | None, path: str) -> str | None:
    return None if public_url is None else public_url.rstrip("/") + path
