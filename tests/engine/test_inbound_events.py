"""Events of other systems: kept once, read in order, and asked for if one is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from retoma import App, Client, Pipeline
from retoma.engine.retention import remove_due
from retoma.errors import Conflict, InvalidInput
from retoma.records import InboundEvent
from retoma.settings import RetentionTimes
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import value

STREAM = "post 7"
KEPT = timedelta(days=1095)
DAY = timedelta(days=1)


def event(sequence: int, event_id: str | None = None) -> InboundEvent:
    return InboundEvent(event_id or f"event-{sequence}", sequence, {"kind": f"kind {sequence}"})


def make_pipeline() -> Pipeline:
    pipeline = Pipeline("nothing")

    @pipeline.step
    async def done() -> None: ...

    return pipeline


async def list_numbers(sandbox: Sandbox, after: int = 0) -> list[int]:
    return [each.sequence for each in await sandbox.client.inbound_events.list(STREAM, after=after)]


async def test_an_event_that_arrives_twice_counts_once(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        inbound = sandbox.client.inbound_events
        assert await inbound.record(STREAM, event(1)) == 1
        assert await inbound.record(STREAM, event(1), event(2)) == 1
        (first, second) = await inbound.list(STREAM)
        assert (first.event_id, first.body) == ("event-1", {"kind": "kind 1"})
        assert second.received_at == await sandbox.clock.now()


async def test_concurrent_copies_of_an_event_count_once(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        copies = [sandbox.client.inbound_events.record(STREAM, event(1), event(2)) for _ in range(20)]
        assert sum(await asyncio.gather(*copies)) == 2


async def test_events_are_read_in_the_order_of_their_numbers(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        for number in (3, 1, 2):
            await sandbox.client.inbound_events.record(STREAM, event(number))
        assert await list_numbers(sandbox) == [1, 2, 3]
        assert await list_numbers(sandbox, after=1) == [2, 3]


async def test_an_event_is_read_only_after_all_before_it(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.inbound_events.record(STREAM, event(1), event(3), event(4))
        assert (await list_numbers(sandbox), await list_numbers(sandbox, after=1)) == ([1], [])


async def test_missing_events_are_fetched_from_the_sender(open_sandbox: OpenSandbox) -> None:
    asked: list[int] = []

    async def fetch(after: int) -> Sequence[InboundEvent]:
        asked.append(after)
        return [event(after + 1), event(after + 2)]

    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.inbound_events.record(STREAM, event(3), event(6), event(8))
        assert await sandbox.client.inbound_events.fill_gaps(STREAM, fetch)
        assert (await list_numbers(sandbox), asked) == ([1, 2, 3, 4, 5, 6, 7, 8], [0, 3, 6])


async def test_a_sender_that_lost_an_event_is_asked_once(open_sandbox: OpenSandbox) -> None:
    asked: list[int] = []

    async def fetch(after: int) -> Sequence[InboundEvent]:
        asked.append(after)
        return []

    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.inbound_events.record(STREAM, event(2))
        assert not await sandbox.client.inbound_events.fill_gaps(STREAM, fetch)
        assert asked == [0]


@pytest.mark.parametrize("other", [event(1, "another"), event(2, "event-1")])
async def test_another_event_with_the_same_number_or_id_is_refused(
    other: InboundEvent, open_sandbox: OpenSandbox
) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.inbound_events.record(STREAM, event(1))
        with pytest.raises(Conflict, match="belongs to another event"):
            await sandbox.client.inbound_events.record(STREAM, other, event(3))
        assert await list_numbers(sandbox) == [1]


@pytest.mark.parametrize("wrong", [event(0), event(-1), event(2**63), event(1, "x" * 501), event(1, "a\0b")])
async def test_an_event_that_cannot_be_stored_is_refused(wrong: InboundEvent, open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        with pytest.raises(InvalidInput):
            await sandbox.client.inbound_events.record(STREAM, wrong)


async def test_applications_do_not_see_each_others_events(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.inbound_events.record(STREAM, event(1))
        other = Client(App("other", pipelines=[make_pipeline()]), sandbox.database)
        assert await other.inbound_events.list(STREAM) == []
        await other.close()


async def remove_after(sandbox: Sandbox, time: timedelta) -> None:
    await sandbox.clock.advance(time)
    await remove_due(sandbox.database, RetentionTimes(), at_once=True)


async def test_an_event_is_removed_three_years_after_it_arrived(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.inbound_events.record(STREAM, event(1), event(2))
        await remove_after(sandbox, KEPT - DAY)
        assert await list_numbers(sandbox) == [1, 2]
        await sandbox.client.inbound_events.record(STREAM, event(3))
        await remove_after(sandbox, 2 * DAY)
        assert await list_numbers(sandbox) == [3]


async def test_an_event_that_was_removed_is_still_known(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        inbound = sandbox.client.inbound_events
        await inbound.record(STREAM, event(1), event(2))
        await remove_after(sandbox, KEPT + DAY)
        assert await inbound.record(STREAM, event(1), event(2), event(3)) == 1
        assert await list_numbers(sandbox) == [3]


async def test_removed_events_are_no_gap(open_sandbox: OpenSandbox) -> None:
    asked: list[int] = []

    async def fetch(after: int) -> Sequence[InboundEvent]:
        asked.append(after)
        return [event(number) for number in range(1, 5)]

    async with open_sandbox(make_pipeline()) as sandbox:
        inbound = sandbox.client.inbound_events
        await inbound.record(STREAM, event(1), event(2))
        await remove_after(sandbox, KEPT + DAY)
        await inbound.record(STREAM, event(4))
        assert await inbound.fill_gaps(STREAM, fetch)
        assert (await list_numbers(sandbox), asked) == ([3, 4], [2])


async def test_an_event_that_arrives_again_during_its_removal_is_known(open_sandbox: OpenSandbox) -> None:
    """Two connections: the removal has not committed when the event arrives."""
    async with open_sandbox(make_pipeline()) as sandbox:
        inbound = sandbox.client.inbound_events
        await inbound.record(STREAM, event(1))
        await sandbox.clock.advance(KEPT + DAY)
        async with sandbox.database.connection() as removing:
            async with removing.transaction():
                await removing.execute(
                    "select retoma.remove_inbound_events(retoma.now(), retoma.now() - $1::interval, 100)", KEPT
                )
                arriving = asyncio.create_task(inbound.record(STREAM, event(1)))
                async with asyncio.timeout(10):
                    while not await removing.fetchval(IS_ANY_BLOCKED):
                        assert not arriving.done()
            assert await arriving == 0
        assert await list_numbers(sandbox) == []


IS_ANY_BLOCKED = "select exists (select from pg_stat_activity where pg_backend_pid() = any (pg_blocking_pids(pid)))"


async def test_a_stream_is_forgotten_three_years_after_its_last_removal(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_pipeline()) as sandbox:
        await sandbox.client.inbound_events.record(STREAM, event(1))
        await remove_after(sandbox, KEPT + DAY)
        assert await value(sandbox, "select count(*) from retoma.inbound_streams") == 1
        await remove_after(sandbox, KEPT + DAY)
        assert await value(sandbox, "select count(*) from retoma.inbound_streams") == 0
