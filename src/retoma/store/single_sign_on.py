"""People whom an identity provider has identified."""

from __future__ import annotations

from collections.abc import Sequence

from retoma.records import Role
from retoma.store.database import Database, is_duplicate
from retoma.store.statements import statements

_SQL = statements("single_sign_on")
_MAX_ATTEMPTS = 3


async def sign_on(
    database: Database,
    *,
    issuer: str,
    subject: str,
    email: str | None,
    is_email_verified: bool,
    name: str,
    may_create: bool,
    roles: Sequence[tuple[int | None, Role]] | None,
    address: str | None = None,
) -> tuple[str, int | None]:
    """Return the outcome of `retoma.sign_on`, and the person. Roles are by tenant; None: they are not from claims.

    `address` is that of the browser, for the audit log.
    """
    values = {
        "issuer": issuer,
        "subject": subject,
        "email": email,
        "is_email_verified": is_email_verified,
        "name": name,
        "may_create": may_create,
        "tenants": None if roles is None else [tenant for tenant, _ in roles],
        "roles": None if roles is None else [str(role) for _, role in roles],
        "address": address,
    }
    for attempt in range(_MAX_ATTEMPTS):
        try:
            row = await database.fetch_one(_SQL["sign_on"], **values)
            break
        except Exception as error:
            # The same person logs in twice for the first time.
            if not is_duplicate(error) or attempt == _MAX_ATTEMPTS - 1:
                raise
    return row["outcome"], row["person"]


async def unlink_person(database: Database, person: int) -> bool:
    """Forget which account of the provider is this person's. Return False if there is none."""
    return bool(await database.fetch(_SQL["unlink_person"], person=person))
