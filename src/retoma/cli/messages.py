"""Messages of the terminal, in the language that LC_ALL, LC_MESSAGES or LANG names."""

from __future__ import annotations

import os
from typing import Any

from retoma.translations import Translator


def get_language() -> str:
    """Return `pt` or `en`."""
    locale = next((os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), "")
    return "pt" if locale.lower().startswith("pt") else "en"


def gettext(message: str, /, **values: Any) -> str:
    return Translator(get_language()).gettext(message, **values)


def format_decimal(number: float) -> str:
    """Return the number with one digit after the decimal separator."""
    return f"{number:.1f}".replace(".", "," if get_language() == "pt" else ".")
