"""When the next attempt is, and what ends the attempts: pure rules first, then a sender that follows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from retoma.define.webhook import SCHEDULES
from retoma.store.deliveries import ClaimedDelivery
from retoma.webhooks import delivery_retries
from retoma.webhooks.delivery_retries import (
    DeliveryOutcome,
    decide_after_failure,
    decide_after_response,
    parse_retry_after,
)
from tests.conftest import OpenSandbox
from tests.receiver import receiver, respond_with
from tests.webhooks.builders import get_delivery, one_step, run_to_end, send_until_done

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
ENDLESS = "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"
DEAD_URL = "http://127.0.0.1:9/hook"


def a_delivery(tries: int, *, schedule: str = "short", retries: int | None = None) -> ClaimedDelivery:
    return ClaimedDelivery(
        id=uuid4(),
        attempt=tries,
        schedule_attempt=tries,
        run=uuid4(),
        seq=1,
        event="run.ended",
        schedule=schedule,
        retries=retries,
        body=None,
        created_at=NOW,
        endpoint=1,
        url=DEAD_URL,
        now=NOW,
        secret="",
        previous_secret=None,
    )


@pytest.mark.parametrize(
    ("schedule", "attempts", "longest", "in_all"),
    [
        ("standard", 14, timedelta(hours=24), timedelta(hours=75, minutes=36, seconds=30)),
        ("short", 5, timedelta(seconds=16), timedelta(seconds=30)),
    ],
)
def test_a_schedule_has_its_number_of_attempts(
    schedule: str, attempts: int, longest: timedelta, in_all: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_retries, "JITTER", (1.0, 1.0))
    decisions = [decide_after_failure(a_delivery(tries, schedule=schedule)) for tries in range(1, attempts + 1)]
    assert [decision.outcome for decision in decisions] == [DeliveryOutcome.RETRY] * (attempts - 1) + [
        DeliveryOutcome.DEAD
    ]
    delays = [decision.delay for decision in decisions]
    assert (max(delays), sum(delays, timedelta())) == (longest, in_all)


def test_the_standard_schedule_is_the_promised_one() -> None:
    minute, hour = 60, 3600
    assert SCHEDULES["standard"] == (
        *(0, 2, 4, 8, 16),
        *(minute, 5 * minute, 30 * minute),
        *(2 * hour, 5 * hour, 10 * hour, 14 * hour, 20 * hour, 24 * hour),
    )
    assert SCHEDULES["short"] == SCHEDULES["standard"][:5]


def test_waits_are_spread_and_never_shorter_than_the_schedule() -> None:
    waits = {decide_after_failure(a_delivery(5, schedule="standard")).delay.total_seconds() for _ in range(50)}
    assert len(waits) > 40
    assert all(60 <= wait <= 72 for wait in waits)


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_retries_are_the_attempts_after_the_first(retries: int) -> None:
    outcomes = [decide_after_failure(a_delivery(tries, retries=retries)).outcome for tries in range(1, 5)]
    assert outcomes[:retries] == [DeliveryOutcome.RETRY] * retries
    assert outcomes[retries] is DeliveryOutcome.DEAD


def test_any_2xx_is_a_delivery_and_nothing_else_is() -> None:
    delivered = [
        status
        for status in range(100, 600)
        if decide_after_response(a_delivery(1), status, None).outcome is DeliveryOutcome.DELIVERED
    ]
    assert delivered == list(range(200, 300))


@pytest.mark.parametrize(
    "status", [100, 199, 300, 301, 302, 307, 308, 400, 401, 403, 404, 409, 422, 429, 500, 502, 599]
)
def test_every_other_response_is_retried(status: int) -> None:
    assert decide_after_response(a_delivery(1), status, None).outcome is DeliveryOutcome.RETRY


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("Tue, 01 Jan 2030 12:00:30 GMT", 30),
        ("Tue, 01 Jan 2030 11:00:00 GMT", 0),
        ("999999", 3600),
        ("9" * 400, 3600),
        ("Wed, 01 Jan 2040 12:00:00 GMT", 3600),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date_and_capped(message: str, seconds: int) -> None:
    assert parse_retry_after(message, NOW) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "message", [None, "", "soon", "-5", "1.5", "٣", "Tue, 99 Jan 2030 12:00:30 GMT", "\x00", ENDLESS]
)
def test_an_unreadable_retry_after_is_ignored(message: str | None) -> None:
    assert parse_retry_after(message, NOW) is None


def test_retry_after_lengthens_the_wait_and_never_shortens_it() -> None:
    long = decide_after_response(a_delivery(1), 429, timedelta(seconds=30))
    short = decide_after_response(a_delivery(4), 500, timedelta(seconds=1))
    assert (long.delay, long.pause) == (timedelta(seconds=30), timedelta(seconds=30))
    assert short.delay >= timedelta(seconds=16)
    assert short.pause is None


async def test_a_dead_receiver_is_tried_by_the_schedule_and_then_given_up(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        run = await run_to_end(sandbox, DEAD_URL, schedule="short")
        waits = await send_until_done(sandbox, run)
        delivery = await get_delivery(sandbox, run)
    expected = SCHEDULES["short"]
    assert all(least <= wait.total_seconds() <= least * 1.2 for least, wait in zip(expected, waits, strict=True))
    assert (str(delivery.state), delivery.attempt, len(delivery.attempts)) == ("dead", 5, 5)
    assert "cannot be reached" in (delivery.error or "")


async def test_the_whole_standard_schedule_ends_in_the_dead_letters(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        run = await run_to_end(sandbox, DEAD_URL)
        waits = await send_until_done(sandbox, run)
    assert len(waits) == 14
    assert timedelta(hours=75) < sum(waits, timedelta()) < timedelta(hours=92)


@pytest.mark.parametrize(
    ("status", "attempts"),
    [(500, 5), (404, 5), (409, 5), (429, 5), (400, 3), (401, 3), (403, 3), (422, 3), (410, 1)],
)
async def test_a_4xx_is_tried_three_times_a_temporary_error_to_the_end_and_410_disables_the_endpoint(
    status: int, attempts: int, open_sandbox: OpenSandbox
) -> None:
    async with open_sandbox(one_step()) as sandbox, receiver(*[respond_with(status)] * 9) as listener:
        run = await run_to_end(sandbox, listener.url, schedule="short")
        await send_until_done(sandbox, run)
        (endpoint,) = await sandbox.client.webhooks.list_endpoints()
        assert str((await get_delivery(sandbox, run)).state) == "dead"
    assert len(listener.requests) == attempts
    assert (endpoint.disabled_at is not None) == (status == 410)


async def test_a_receiver_that_is_not_ready_yet_gets_the_delivery_later(open_sandbox: OpenSandbox) -> None:
    """Like n8n, which returns 404 and 409 until its workflow waits for the call."""
    async with open_sandbox(one_step()) as sandbox, receiver(respond_with(404), respond_with(409)) as listener:
        run = await run_to_end(sandbox, listener.url)
        await send_until_done(sandbox, run)
        delivery = await get_delivery(sandbox, run)
    assert [attempt.status for attempt in delivery.attempts] == [404, 409, 200]
    assert str(delivery.state) == "delivered"
