"""Passwords, sessions and one-use links of people. Their secrets are stored only as digests."""

from __future__ import annotations

import asyncio
import re
import secrets
from datetime import timedelta
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from retoma.engine.api_keys import hash_secret
from retoma.errors import InvalidInput
from retoma.records import LinkPurpose, NewAccountLink, Person
from retoma.store import people, person_sessions
from retoma.store.database import Database
from retoma.store.people import Grantable
from retoma.translations import N_

MIN_PASSWORD_LENGTH = 12
MAX_PASSWORD_LENGTH = 1_000
MAX_EMAIL_LENGTH = 320
MAX_USER_AGENT_LENGTH = 300
LINK_LIFETIMES = {LinkPurpose.INVITE: timedelta(days=7), LinkPurpose.RESET: timedelta(hours=24)}
_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)*")


def normalize_email(email: str) -> str:
    """Return the address as it is stored. Raise InvalidInput if it cannot be one."""
    plain = email.strip().lower()
    if len(plain) > MAX_EMAIL_LENGTH or not plain.isprintable() or not _EMAIL.fullmatch(plain):
        raise InvalidInput(N_("not an e-mail address: %(email)s"), email=f"{email!r:.80}")
    return plain


def hash_password(password: str) -> str:
    """Return the argon2id hash. Raise InvalidInput for a password of the wrong length."""
    check_password_length(password)
    return PasswordHasher().hash(password)


def check_password_length(password: str) -> None:
    if not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        raise InvalidInput(
            N_("use a password of %(least)s to %(most)s characters"),
            least=MIN_PASSWORD_LENGTH,
            most=MAX_PASSWORD_LENGTH,
        )


def verify_password(password: str, password_hash: str | None) -> bool:
    """Return whether the password is right. Takes 50 ms and 64 MiB on purpose: call it in a thread, and rarely.

    It takes as long without a hash, so the time does not reveal who has an account.
    """
    if len(password) > MAX_PASSWORD_LENGTH:
        return False
    try:
        return PasswordHasher().verify(password_hash or _make_unknown_hash(), password) and password_hash is not None
    except (VerificationError, InvalidHashError):
        return False


@cache
def _make_unknown_hash() -> str:
    """Return the hash of a password that nobody knows."""
    return PasswordHasher().hash(secrets.token_urlsafe(32))


async def check_password(database: Database, email: str, password: str) -> Person | None:
    """Return the person if the password is right and the account is not disabled."""
    try:
        person = await people.find_by_email(database, normalize_email(email))
    except InvalidInput:
        person = None
    hashed = None if person is None else await people.find_password_hash(database, person.id)
    is_right = await asyncio.to_thread(verify_password, password, hashed)
    return person if is_right else None


async def set_password(
    database: Database,
    person: int,
    password: str,
    *,
    kept_token: str | None = None,
    grantable: Grantable | None = None,
) -> None:
    """Set the password, and end all sessions of the person except that of `kept_token`.

    `grantable` is what the chooser of the password may grant; None if the person chose it.
    """
    hashed = await asyncio.to_thread(hash_password, password)
    kept = None if kept_token is None else hash_secret(kept_token)
    await people.set_password(database, person, hashed, kept_session=kept, grantable=grantable)


async def open_session(database: Database, person: Person, *, address: str | None, user_agent: str | None) -> str:
    """Return the token of a new session."""
    token = secrets.token_urlsafe(32)
    browser = None if user_agent is None else user_agent[:MAX_USER_AGENT_LENGTH]
    await person_sessions.add_session(
        database, hash_secret(token), person.id, address=address or None, user_agent=browser
    )
    return token


async def find_session(database: Database, token: str) -> Person | None:
    """Return the person whose session is live, and record its use."""
    number = await person_sessions.use_session(database, hash_secret(token))
    return None if number is None else await people.find_person(database, number)


async def create_link(
    database: Database, person: Person, purpose: LinkPurpose, created_by: str, grantable: Grantable
) -> NewAccountLink:
    """Create a link with which the person sets a password, once. Earlier links stop working.

    `grantable` is what its creator may give.
    """
    token = secrets.token_urlsafe(32)
    expires_at = await people.add_link(
        database,
        hash_secret(token),
        person.id,
        purpose,
        created_by=created_by,
        valid_for=LINK_LIFETIMES[purpose],
        grantable=grantable,
    )
    return NewAccountLink(person, purpose, expires_at, token)


async def find_link(database: Database, token: str) -> tuple[Person, LinkPurpose] | None:
    """Return whose link it is and its purpose, if it still works."""
    return await people.find_link(database, hash_secret(token))


async def use_link(database: Database, token: str, password: str) -> Person | None:
    """Set the password of the link's person. Return None if the link no longer works."""
    hashed = await asyncio.to_thread(hash_password, password)
    number = await people.use_link(database, hash_secret(token), hashed)
    return None if number is None else await people.find_person(database, number)
