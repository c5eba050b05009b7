"""Numbers, times and durations in the viewer's language and time zone, formatted by Babel."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import lru_cache
from typing import Any

from babel.dates import format_date, format_datetime
from babel.numbers import format_decimal, format_percent, parse_pattern
from babel.units import format_unit
from markupsafe import Markup

from retoma.translations import LOCALES, Translator

MAX_JSON_LENGTH = 200_000
NOTHING = "\N{EN DASH}"
_SIZES = ("B", "kB", "MB", "GB", "TB")
_UNITS = ((86_400, "duration-day"), (3_600, "duration-hour"), (60, "duration-minute"), (1, "duration-second"))
_ROUNDED = "#,##0.#"
_ROUNDED_PATTERN = parse_pattern(_ROUNDED)
_EXACT = parse_pattern("#,##0.####################")
_MONEY = parse_pattern("#,##0.00##")
_TYPED = parse_pattern("0.00########")
_SHARE = parse_pattern("#,##0.#%")
# Static scripts write the same formats (static/time_zone.js).
_TIMES = {
    "en": {"datetime": "yyyy-MM-dd HH:mm:ss", "minute": "yyyy-MM-dd HH:mm", "clock": "HH:mm:ss"},
    "pt": {"datetime": "dd/MM/yyyy HH:mm:ss", "minute": "dd/MM/yyyy HH:mm", "clock": "HH:mm:ss"},
}
_DAYS = {"en": "yyyy-MM-dd", "pt": "dd/MM/yyyy"}


def format_timecode(seconds: float) -> str:
    """Return a place in a recording in minutes and whole seconds, with hours if there are any."""
    minutes, rest = divmod(int(seconds), 60)
    hours, left = divmod(minutes, 60)
    return f"{hours}:{left:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Formats:
    def __init__(self, language: str, zone: tzinfo = UTC) -> None:
        self.language = language
        self._zone = zone
        self._locale = LOCALES[language]
        self._translator = Translator(language)

    def number(self, value: float) -> str:
        """Round to one decimal place."""
        return format_decimal(value, _ROUNDED_PATTERN, self._locale)

    def exact(self, value: float) -> str:
        """Show all digits."""
        return format_decimal(value, _EXACT, self._locale)

    def decimal(self, value: float, places: int) -> str:
        """Show exactly so many decimal places."""
        return format_decimal(value, f"#,##0.{'0' * places}", self._locale)

    def input_number(self, value: float | Decimal) -> str:
        """Show a number as the viewer types it in a form: with two decimal places or more, and ungrouped."""
        return format_decimal(value, _TYPED, self._locale)

    def percent(self, share: float) -> str:
        return format_percent(share, _SHARE, self._locale)

    def money(self, micros: int) -> str:
        """Show US dollars, without the currency, with two to four decimal places."""
        return format_decimal(Decimal(micros) / 1_000_000, _MONEY, self._locale)

    def size(self, count: int) -> str:
        """Show bytes in the largest unit of a thousand that fits."""
        shown, unit = float(count), 0
        while shown >= 1000 and unit < len(_SIZES) - 1:
            shown, unit = shown / 1000, unit + 1
        return f"{self.number(round(shown, 1))} {_SIZES[unit]}"

    def duration(self, value: timedelta | float | None) -> str:
        """Show the two largest units; less than ten seconds with a tenth."""
        if value is None:
            return NOTHING
        seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
        if seconds < 10:
            return _format_unit(max(0.0, round(seconds, 1)), "duration-second", self._locale)
        return " ".join(_format_unit(count, unit, self._locale) for count, unit in _split_duration(round(seconds)))

    def between(self, first: datetime | None, last: datetime | None) -> str:
        return NOTHING if first is None or last is None else self.duration(last - first)

    def ago(self, at: datetime | None, now: datetime) -> str:
        """Return an element with the time since then, or until then; its tooltip has the time in UTC."""
        if at is None:
            return NOTHING
        element = Markup('<time datetime="{}" title="{}">{}</time>')
        return element.format(self.iso(at), self.utc(at), self.ago_text(at, now))

    def ago_text(self, at: datetime, now: datetime) -> str:
        """Return the time since then, or until then, where no element can be."""
        time = self.duration(abs(now - at))
        gettext = self._translator.gettext
        return gettext("in %(time)s", time=time) if at > now else gettext("%(time)s ago", time=time)

    def time(self, at: datetime | None) -> str:
        """Return an element with the date and the time of day; its tooltip has them in UTC."""
        return self._element(at, "datetime")

    def minute(self, at: datetime | None) -> str:
        """Return an element like `time`, without seconds."""
        return self._element(at, "minute")

    def clock(self, at: datetime | None) -> str:
        """Return an element like `time`, with the time of day only."""
        return self._element(at, "clock")

    def clock_text(self, at: datetime) -> str:
        """Return the time of day as text, where no element can be."""
        return self._text(at, "clock")

    def minute_text(self, at: datetime) -> str:
        """Return the date and the time of day as text, which a browser does not convert to its own zone."""
        return self._text(at, "minute")

    def day(self, day: date) -> str:
        """Return a date as text."""
        return format_date(day, _DAYS[self.language], locale=self._locale)

    def iso(self, at: datetime) -> str:
        return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"

    def utc(self, at: datetime) -> str:
        """Return the tooltip of a time."""
        return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

    def _element(self, at: datetime | None, name: str) -> str:
        if at is None:
            return NOTHING
        element = Markup('<time datetime="{}" title="{}" data-format="{}">{}</time>')
        return element.format(self.iso(at), self.utc(at), name, self._text(at, name))

    def _text(self, at: datetime, name: str) -> str:
        return format_datetime(at, _TIMES[self.language][name], tzinfo=self._zone, locale=self._locale)


def humanize(name: str) -> str:
    """Return the name of a property as a label."""
    return re.sub(r"\burl\b", "URL", name.replace("_", " ").capitalize(), flags=re.IGNORECASE)


def format_json(value: Any) -> str:
    """Return indented JSON, cut if it is too long to read."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_JSON_LENGTH else f"{text[:MAX_JSON_LENGTH]}\n…"


@lru_cache(maxsize=4_096)
def _format_unit(count: float, unit: str, locale: str) -> str:
    if unit == "duration-hour" and locale.startswith("pt"):  # CLDR abbreviates two hours as 2 h, and one as 1 horas
        return f"{format_decimal(count, _ROUNDED_PATTERN, locale)} h"
    return format_unit(count, unit, "short", _ROUNDED, locale)


def _split_duration(seconds: int) -> list[tuple[int, str]]:
    parts: list[tuple[int, str]] = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append((count, unit))
        if len(parts) == 2:
            break
    return [part for part in parts if part[0]]
