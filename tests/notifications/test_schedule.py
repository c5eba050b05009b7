"""When a notification is sent: digests, quiet hours and time zones, also on days of 23 and 25 hours."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from retoma.errors import InvalidInput
from retoma.records import Channel, Digest, NotificationKind
from tests.conftest import OpenSandbox
from tests.engine.builders import value
from tests.notifications.builders import add_channels, add_person, list_cancelled, list_pending, reviewed, start_review
from tests.notifications.smtp_server import smtp_server

SAO_PAULO, NEW_YORK, KOLKATA = "America/Sao_Paulo", "America/New_York", "Asia/Kolkata"
NIGHT = (time(22), time(7))
LUNCH = (time(12), time(14))


@pytest.mark.parametrize(
    ("digest", "zone", "quiet", "now", "due"),
    [
        ("immediately", "UTC", None, "2030-01-01 12:34", "2030-01-01 12:34"),
        ("hourly", "UTC", None, "2030-01-01 12:34", "2030-01-01 13:00"),
        ("hourly", KOLKATA, None, "2030-01-01 12:34", "2030-01-01 13:00"),
        ("hourly", KOLKATA, None, "2030-01-01 23:59", "2030-01-02 00:00"),
        ("daily", SAO_PAULO, None, "2030-01-01 07:59", "2030-01-01 08:00"),
        ("daily", SAO_PAULO, None, "2030-01-01 08:00", "2030-01-02 08:00"),
        # Quiet hours over midnight, from both sides, and their exact ends.
        ("immediately", SAO_PAULO, NIGHT, "2030-01-01 21:59", "2030-01-01 21:59"),
        ("immediately", SAO_PAULO, NIGHT, "2030-01-01 22:00", "2030-01-02 07:00"),
        ("immediately", SAO_PAULO, NIGHT, "2030-01-02 06:59", "2030-01-02 07:00"),
        ("immediately", SAO_PAULO, NIGHT, "2030-01-02 07:00", "2030-01-02 07:00"),
        ("immediately", "UTC", LUNCH, "2030-01-01 13:00", "2030-01-01 14:00"),
        ("hourly", "UTC", LUNCH, "2030-01-01 11:30", "2030-01-01 14:00"),
        # A daily digest within quiet hours waits for their end.
        ("daily", "UTC", (time(7), time(9)), "2030-01-01 06:00", "2030-01-01 09:00"),
        # New York: the clocks go forward at 2 on 10 March 2030, and back at 2 on 3 November 2030.
        ("daily", NEW_YORK, None, "2030-03-09 09:00", "2030-03-10 08:00"),
        ("daily", NEW_YORK, None, "2030-11-02 09:00", "2030-11-03 08:00"),
        ("immediately", NEW_YORK, NIGHT, "2030-03-09 23:00", "2030-03-10 07:00"),
        ("immediately", NEW_YORK, NIGHT, "2030-11-02 23:00", "2030-11-03 07:00"),
    ],
)
async def test_a_notification_is_due_at_the_persons_time(
    open_sandbox: OpenSandbox, digest: str, zone: str, quiet: tuple[time, time] | None, now: str, due: str
) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        found = await _find_due(sandbox, _local(now, zone), digest, zone, quiet)
        assert found == _local(due, zone)


async def test_a_day_of_23_or_25_hours_is_waited_for_as_it_is(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        for day, hours in (("2030-03-09 08:00", 23), ("2030-11-02 08:00", 25), ("2030-06-01 08:00", 24)):
            now = _local(day, NEW_YORK)
            assert await _find_due(sandbox, now, "daily", NEW_YORK, None) - now == timedelta(hours=hours)


async def test_an_hour_that_comes_twice_has_two_digests(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        first = datetime(2030, 11, 3, 5, 30, tzinfo=UTC)  # 1:30 in New York, for the first time
        assert await _find_due(sandbox, first, "hourly", NEW_YORK, None) == datetime(2030, 11, 3, 6, tzinfo=UTC)


async def test_a_zone_that_the_database_does_not_know_is_utc(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        now = datetime(2030, 1, 1, 12, 34, tzinfo=UTC)
        assert await _find_due(sandbox, now, "daily", "Mars/Base", None) == datetime(2030, 1, 2, 8, tzinfo=UTC)


async def test_a_digest_has_everything_until_its_time(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await add_channels(sandbox, Channel.EMAIL)
        person = await add_person(sandbox, time_zone=SAO_PAULO)
        await sandbox.client.notifications.set_preference(person, Channel.EMAIL, kinds=None, digest=Digest.DAILY)
        for topic in ("first", "second"):
            await start_review(sandbox, topic)
            await sandbox.clock.advance(timedelta(hours=3))
        await sandbox.send_notifications(server.settings())
        assert server.mails == []
        await sandbox.clock.set(_local("2030-01-02 08:00", SAO_PAULO))
        await sandbox.send_notifications(server.settings())
        (mail,) = server.mails
        assert mail["Subject"] == "2 notifications"


async def test_only_the_chosen_kinds_are_sent(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        await add_channels(sandbox, Channel.EMAIL)
        person = await add_person(sandbox)
        await sandbox.client.notifications.set_preference(
            person, Channel.EMAIL, kinds=[NotificationKind.REVIEW_DUE], digest=None
        )
        await start_review(sandbox)
        assert await list_pending(sandbox) == []


async def test_what_is_no_longer_wanted_is_not_sent(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await add_channels(sandbox, Channel.EMAIL)
        person = await add_person(sandbox)
        await start_review(sandbox)
        await sandbox.client.notifications.set_preference(person, Channel.EMAIL, kinds=[], digest=None)
        await sandbox.send_notifications(server.settings())
        assert server.mails == []
        assert await list_cancelled(sandbox) == ["not wanted"]


async def test_people_without_preferences_follow_the_defaults(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        await add_channels(sandbox, Channel.EMAIL)
        await add_person(sandbox)
        await sandbox.client.notifications.set_default(Channel.EMAIL, [NotificationKind.RUN_FAILED], Digest.HOURLY)
        await start_review(sandbox)
        assert await list_pending(sandbox) == []


async def test_a_worker_that_starts_keeps_the_defaults(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        await add_channels(sandbox, Channel.EMAIL)
        await sandbox.client.notifications.set_default(Channel.EMAIL, [], Digest.DAILY)
        await add_channels(sandbox, Channel.EMAIL)
        (default,) = await sandbox.client.notifications.list_channels()
        assert (default.kinds, default.digest) == ((), Digest.DAILY)


async def test_quiet_hours_need_two_different_ends(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        person = await add_person(sandbox)
        for wrong in ((time(22), None), (time(7), time(7))):
            with pytest.raises(InvalidInput):
                await sandbox.client.notifications.set_quiet_hours(person, *wrong)


async def _find_due(
    sandbox: object, now: datetime, digest: str, zone: str, quiet: tuple[time, time] | None
) -> datetime:
    found = await value(
        sandbox,  # type: ignore[arg-type]
        "select retoma.notification_due_at($1, $2, $3, $4, $5)",
        now,
        digest,
        zone,
        *(quiet or (None, None)),
    )
    assert isinstance(found, datetime)
    return found


def _local(text: str, zone: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
