"""The second factor: codes of an authenticator app (TOTP), each accepted once, and recovery codes."""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from enum import StrEnum

from pyotp import random_base32
from pyotp.totp import TOTP

from retoma.engine.api_keys import hash_secret
from retoma.records import Person
from retoma.store import clock, second_factor
from retoma.store.database import Database

ISSUER = "Retoma"
RECOVERY_CODES = 10
_RECOVERY_BYTES = 10  # of each code: no dictionary helps against 80 random bits, so a plain digest is enough
_STEPS_OFF = 1  # the clock of a phone may be 30 seconds off
_NOT_IN_A_CODE = re.compile(r"[\s-]+")


class CodeKind(StrEnum):
    APP = "app"
    RECOVERY = "recovery_code"


def make_secret() -> str:
    """Return a secret for an authenticator app, to be confirmed by a code. Nothing is stored until then."""
    return random_base32()


def build_uri(secret: str, person: Person) -> str:
    """Return the address that an authenticator app reads from a QR code."""
    return TOTP(secret).provisioning_uri(name=person.email, issuer_name=ISSUER)


async def confirm(database: Database, person: Person, secret: str, code: str) -> list[str] | None:
    """Turn on the second factor by its first code. Return the recovery codes, or None if the code is wrong."""
    step = await _find_step(database, secret, code)
    if step is None:
        return None
    codes, digests = _generate_recovery_codes()
    return codes if await second_factor.set_secret(database, person.id, secret, step, digests) else None


async def check_code(database: Database, person: Person, code: str) -> CodeKind | None:
    """Accept a code of the app or a recovery code, once. Return which it was, or None if it is wrong or was used."""
    secret = await second_factor.find_secret(database, person.id)
    if secret is None:
        return None
    step = await _find_step(database, secret, code)
    if step is not None:
        return CodeKind.APP if await second_factor.use_step(database, person.id, step) else None
    is_recovery = await second_factor.use_recovery_code(database, person.id, _hash_recovery_code(code))
    return CodeKind.RECOVERY if is_recovery else None


async def renew_recovery_codes(database: Database, person: Person) -> list[str] | None:
    """Return new recovery codes in place of all earlier ones. None if the person has no second factor."""
    codes, digests = _generate_recovery_codes()
    return codes if await second_factor.renew_recovery_codes(database, person.id, digests) else None


async def _find_step(database: Database, secret: str, code: str) -> int | None:
    """Return the time step that the code is of, if that is now."""
    totp, plain = TOTP(secret), _NOT_IN_A_CODE.sub("", code)
    current = totp.timecode(await clock.now(database))
    steps = range(current - _STEPS_OFF, current + _STEPS_OFF + 1)
    return next((step for step in steps if _is_same(totp.generate_otp(step), plain)), None)


def _is_same(code: str, given: str) -> bool:
    return hmac.compare_digest(code.encode(), given.encode(errors="replace"))


def _generate_recovery_codes() -> tuple[list[str], list[bytes]]:
    codes = [_format_recovery_code(secrets.token_bytes(_RECOVERY_BYTES)) for _ in range(RECOVERY_CODES)]
    return codes, [_hash_recovery_code(code) for code in codes]


def _format_recovery_code(random: bytes) -> str:
    text = base64.b32encode(random).decode().lower()
    return "-".join(text[at : at + 4] for at in range(0, len(text), 4))


def _hash_recovery_code(code: str) -> bytes:
    return hash_secret(_NOT_IN_A_CODE.sub("", code).lower())
