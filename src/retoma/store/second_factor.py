"""The second factor of people: the secret of an authenticator app, and recovery codes."""

from __future__ import annotations

from collections.abc import Sequence

from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("second_factor")


async def find_secret(database: Database, person: int) -> str | None:
    """Return the secret in base32 of a person who is not disabled, or None without a second factor."""
    found: bytes | None = await database.find_value(_SQL["find_totp"], person=person)
    return None if found is None else found.decode()


async def set_secret(database: Database, person: int, secret: str, step: int, digests: Sequence[bytes]) -> bool:
    """Set the secret, whose code of this time step counts as used, and the digests of the recovery codes.

    Return False if the person has a second factor.
    """
    values = {"person": person, "secret": secret.encode(), "step": step, "digests": list(digests)}
    return bool(await database.fetch(_SQL["confirm_totp"], **values))


async def use_step(database: Database, person: int, step: int) -> bool:
    """Return whether the code of this time step is accepted: neither it nor a later one was used before."""
    return bool(await database.fetch(_SQL["use_totp_step"], person=person, step=step))


async def use_recovery_code(database: Database, person: int, digest: bytes) -> bool:
    return bool(await database.fetch(_SQL["use_recovery_code"], person=person, digest=digest))


async def count_recovery_codes(database: Database, person: int) -> int:
    count: int = await database.fetch_value(_SQL["count_recovery_codes"], person=person)
    return count


async def renew_recovery_codes(database: Database, person: int, digests: Sequence[bytes]) -> bool:
    """Return False if the person has no second factor."""
    return bool(await database.fetch(_SQL["renew_recovery_codes"], person=person, digests=list(digests)))


async def remove(database: Database, person: int) -> bool:
    """Remove the secret and the recovery codes. Return False if there was none."""
    return bool(await database.fetch(_SQL["remove_second_factor"], person=person))
