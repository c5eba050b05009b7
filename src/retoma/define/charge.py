"""A charge: what an attempt has used of a provider, as a step reports it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from retoma.define.definition_errors import MAX_NAME_LENGTH
from retoma.errors import DefinitionError

MAX_TOKENS = 10**9
MAX_UNITS = 10**7
MAX_MICROS = 10**13


@dataclass(frozen=True)
class Charge:
    """Tokens or units of `resource` (a model, a voice, a machine). `micros` is the cost in millionths of a US dollar;
    without it the price list determines the cost."""

    provider: str
    resource: str
    tokens_in: int = 0
    tokens_out: int = 0
    units: float = 0
    micros: int | None = None

    def __post_init__(self) -> None:
        for name in ("provider", "resource"):
            _check_text(name, getattr(self, name))
        _check_whole("tokens_in", self.tokens_in, MAX_TOKENS)
        _check_whole("tokens_out", self.tokens_out, MAX_TOKENS)
        if self.micros is not None:
            _check_whole("micros", self.micros, MAX_MICROS)
        if isinstance(self.units, bool) or not isinstance(self.units, int | float) or not isfinite(self.units):
            raise _invalid_charge("units", self.units, "a number")
        if not 0 <= self.units <= MAX_UNITS:
            raise _invalid_charge("units", self.units, f"0 to {MAX_UNITS:,}")


def _check_text(name: str, value: object) -> None:
    broken = not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH
    if broken or any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in str(value)):
        raise _invalid_charge(name, value, f"1 to {MAX_NAME_LENGTH} characters of text")


def _check_whole(name: str, value: object, maximum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise _invalid_charge(name, value, f"a whole number from 0 to {maximum:,}")


def _invalid_charge(name: str, value: object, expected: str) -> DefinitionError:
    return DefinitionError(f"charge({name}={value!r:.40}): pass {expected}")
