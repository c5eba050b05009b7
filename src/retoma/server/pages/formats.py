"""Numbers, times and durations as people of a language read them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from retoma.translations import Translator

MAX_JSON_LENGTH = 200_000
NOTHING = "\N{EN DASH}"
_SIZES = ("B", "kB", "MB", "GB", "TB")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Formats:
    def __init__(self, language: str) -> None:
        self.language = language
        self._translator = Translator(language)

    def number(self, value: float) -> str:
        shown = f"{value:,.1f}" if isinstance(value, float) and not value.is_integer() else f"{value:,.0f}"
        return shown.translate(str.maketrans(",.", ".,")) if self.language == "pt" else shown

    def percent(self, share: float) -> str:
        return f"{self.number(share * 100)}%"

    def exact(self, value: float) -> str:
        """With all digits that are not nothing."""
        shown = f"{int(value) if value == int(value) else value:,}"
        return shown.translate(str.maketrans(",.", ".,")) if self.language == "pt" else shown

    def money(self, micros: int) -> str:
        """US dollars, with all that is not nothing."""
        shown = f"{micros / 1_000_000:,.2f}" if micros % 10_000 == 0 else f"{micros / 1_000_000:,.4f}"
        return shown.translate(str.maketrans(",.", ".,")) if self.language == "pt" else shown

    def size(self, count: int) -> str:
        """Bytes in the largest unit of a thousand that fits."""
        shown, unit = float(count), 0
        while shown >= 1000 and unit < len(_SIZES) - 1:
            shown, unit = shown / 1000, unit + 1
        return f"{self.number(round(shown, 1))} {_SIZES[unit]}"

    def duration(self, value: timedelta | float | None) -> str:
        """In its two largest units; less than ten seconds with a tenth."""
        if value is None:
            return NOTHING
        seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
        if seconds < 10:
            return f"{self.number(max(0.0, round(seconds, 1)))} s"
        return " ".join(_split_duration(round(seconds)))

    def between(self, first: datetime | None, last: datetime | None) -> str:
        return NOTHING if first is None or last is None else self.duration(last - first)

    def time(self, at: datetime | None) -> str:
        """In UTC, as logs have it."""
        if at is None:
            return NOTHING
        pattern = "%d/%m/%Y %H:%M:%S" if self.language == "pt" else "%Y-%m-%d %H:%M:%S"
        return f"{at.astimezone(UTC):{pattern}}"

    def ago(self, at: datetime | None, now: datetime) -> str:
        if at is None:
            return NOTHING
        time = self.duration(abs(now - at))
        gettext = self._translator.gettext
        return gettext("in %(time)s", time=time) if at > now else gettext("%(time)s ago", time=time)


def humanize(name: str) -> str:
    """The name of a property, as people read it."""
    return re.sub(r"\burl\b", "URL", name.replace("_", " ").capitalize(), flags=re.IGNORECASE)


def format_json(value: Any) -> str:
    """JSON for people, cut where it is too long to be read."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_JSON_LENGTH else f"{text[:MAX_JSON_LENGTH]}\n…"


def _split_duration(seconds: int) -> list[str]:
    parts: list[str] = []
    for size, name in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count} {name}")
        if len(parts) == 2:
            break
    return [part for part in parts if not part.startswith("0 ")]
