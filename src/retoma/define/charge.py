"""What an attempt has used of a provider, as a step tells it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from retoma.define.mistakes import LONGEST_NAME
from retoma.errors import DefinitionError

MOST_TOKENS = 10**9
MOST_UNITS = 10**7
MOST_MICROS = 10**13


@dataclass(frozen=True)
class Charge:
    """Tokens or units of `what` (a model, a voice, a machine). `micros` are millionths of a US dollar; without them the
    table of prices tells what it costs."""

    provider: str
    what: str
    tokens_in: int = 0
    tokens_out: int = 0
    units: float = 0
    micros: int | None = None

    def __post_init__(self) -> None:
        for name in ("provider", "what"):
            _check_text(name, getattr(self, name))
        _check_whole("tokens_in", self.tokens_in, MOST_TOKENS)
        _check_whole("tokens_out", self.tokens_out, MOST_TOKENS)
        if self.micros is not None:
            _check_whole("micros", self.micros, MOST_MICROS)
        if isinstance(self.units, bool) or not isinstance(self.units, int | float) or not isfinite(self.units):
            raise _wrong("units", self.units, "a number")
        if not 0 <= self.units <= MOST_UNITS:
            raise _wrong("units", self.units, f"0 to {MOST_UNITS:,}")


def _check_text(name: str, given: object) -> None:
    broken = not isinstance(given, str) or not 0 < len(given) <= LONGEST_NAME
    if broken or any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in str(given)):
        raise _wrong(name, given, f"1 to {LONGEST_NAME} characters of text")


def _check_whole(name: str, given: object, most: int) -> None:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= most:
        raise _wrong(name, given, f"a whole number from 0 to {most:,}")


def _wrong(name: str, given: object, wanted: str) -> DefinitionError:
    return DefinitionError(f"charge({name}={given!r:.40}): give {wanted}")
