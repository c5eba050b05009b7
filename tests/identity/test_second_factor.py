"""Codes of an authenticator app: each time step once, and recovery codes."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pyotp.totp import TOTP

from retoma.engine import second_factor
from retoma.engine.second_factor import RECOVERY_CODES, CodeKind
from retoma.records import Person
from retoma.store import people
from retoma.store import second_factor as stored
from retoma.store.database import Database
from retoma.testing import Clock
from tests.conftest import empty_database


async def make_person(database: Database, email: str = "ana@example.com") -> Person:
    person = await people.add_person(database, name="Ana", email=email)
    assert person is not None
    return person


async def enrol(database: Database, person: Person) -> tuple[TOTP, list[str]]:
    totp = TOTP(second_factor.make_secret())
    codes = await second_factor.confirm(database, person, totp.secret, totp.at(await Clock(database).now()))
    assert codes is not None
    return totp, codes


async def test_a_code_is_accepted_once(database: Database) -> None:
    await empty_database(database)
    person, clock = await make_person(database), Clock(database)
    totp, _ = await enrol(database, person)
    used = totp.at(await clock.now())
    assert await second_factor.check_code(database, person, used) is None  # it has confirmed the secret
    await clock.advance(timedelta(seconds=30))
    code = totp.at(await clock.now())
    answers = await asyncio.gather(*(second_factor.check_code(database, person, code) for _ in range(4)))
    assert sorted(answers, key=str) == [None, None, None, CodeKind.APP]


async def test_an_older_code_is_refused_after_a_newer_one(database: Database) -> None:
    await empty_database(database)
    person, clock = await make_person(database), Clock(database)
    totp, _ = await enrol(database, person)
    await clock.advance(timedelta(seconds=90))
    now = await clock.now()
    assert await second_factor.check_code(database, person, totp.at(now)) is CodeKind.APP
    assert await second_factor.check_code(database, person, totp.at(now - timedelta(seconds=30))) is None


async def test_a_phone_may_be_half_a_minute_off_and_no_more(database: Database) -> None:
    await empty_database(database)
    person, clock = await make_person(database), Clock(database)
    totp, _ = await enrol(database, person)
    await clock.advance(timedelta(minutes=10))
    now = await clock.now()
    for off in (-60, 60):
        assert await second_factor.check_code(database, person, totp.at(now + timedelta(seconds=off))) is None
    spaced = totp.at(now - timedelta(seconds=30))
    assert await second_factor.check_code(database, person, f" {spaced[:3]} {spaced[3:]}") is CodeKind.APP


async def test_a_recovery_code_works_once_and_only_for_its_person(database: Database) -> None:
    await empty_database(database)
    person, other = await make_person(database), await make_person(database, "bo@example.com")
    await enrol(database, other)
    _, codes = await enrol(database, person)
    assert len(set(codes)) == RECOVERY_CODES
    assert await second_factor.check_code(database, other, codes[0]) is None
    typed = codes[0].upper().replace("-", " ")
    answers = await asyncio.gather(*(second_factor.check_code(database, person, typed) for _ in range(3)))
    assert sorted(answers, key=str) == [None, None, CodeKind.RECOVERY]
    assert await stored.count_recovery_codes(database, person.id) == RECOVERY_CODES - 1


async def test_new_recovery_codes_replace_the_old_ones(database: Database) -> None:
    await empty_database(database)
    person = await make_person(database)
    _, old = await enrol(database, person)
    new = await second_factor.renew_recovery_codes(database, person)
    assert new is not None
    assert await second_factor.check_code(database, person, old[0]) is None
    assert await second_factor.check_code(database, person, new[0]) is CodeKind.RECOVERY


async def test_nothing_is_on_before_a_code_confirms_it(database: Database) -> None:
    await empty_database(database)
    person = await make_person(database)
    secret = second_factor.make_secret()
    assert await second_factor.confirm(database, person, secret, "000000") is None
    assert await second_factor.check_code(database, person, TOTP(secret).at(await Clock(database).now())) is None
    assert await second_factor.renew_recovery_codes(database, person) is None
    assert not (await people.list_people(database))[0].has_second_factor


async def test_a_confirmed_secret_is_not_replaced(database: Database) -> None:
    await empty_database(database)
    person = await make_person(database)
    totp, _ = await enrol(database, person)
    other = TOTP(second_factor.make_secret())
    code = other.at(await Clock(database).now())
    assert await second_factor.confirm(database, person, other.secret, code) is None
    assert await stored.find_secret(database, person.id) == totp.secret


async def test_removing_it_makes_all_codes_useless(database: Database) -> None:
    await empty_database(database)
    person, clock = await make_person(database), Clock(database)
    totp, codes = await enrol(database, person)
    assert await stored.remove(database, person.id)
    await clock.advance(timedelta(minutes=1))
    for code in (totp.at(await clock.now()), codes[0]):
        assert await second_factor.check_code(database, person, code) is None


async def test_a_disabled_person_has_no_valid_code(database: Database) -> None:
    await empty_database(database)
    person, clock = await make_person(database), Clock(database)
    totp, _ = await enrol(database, person)
    await people.disable_person(database, person.id)
    await clock.advance(timedelta(minutes=1))
    assert await second_factor.check_code(database, person, totp.at(await clock.now())) is None


async def test_recovery_codes_are_stored_as_digests(database: Database) -> None:
    await empty_database(database)
    _, codes = await enrol(database, await make_person(database))
    async with database.connection() as connection:
        rows = await connection.fetch(
            "select encode(digest, 'escape') || encode(digest, 'base64') from retoma.recovery_codes"
        )
    assert not [row for row in rows for code in codes if code in row[0] or code.replace("-", "") in row[0]]
