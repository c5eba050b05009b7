"""`client.inbound_events`: events that other systems send, kept once each and read in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from retoma.client.core import Namespace
from retoma.client.validation import check_name
from retoma.errors import Conflict, InvalidInput
from retoma.records import InboundEvent
from retoma.store import inbound_events

MAX_SEQUENCE = 2**63 - 1
Fetch = Callable[[int], Awaitable[Sequence[InboundEvent]]]


class InboundEvents(Namespace):
    """The sender gives each event an id, and numbers the events of a stream from 1.

    They may arrive twice, late, in any order or never; `list` returns them in order, up to the first missing one.
    """

    async def record(self, stream: str, *events: InboundEvent, tenant: str | None = None) -> int:
        """Keep these events of a stream. Return how many of them were new.

        `tenant` is whom the events are about: they are erased with it. All events are removed after a time; one that
        arrives again after its removal is not new.

        Raise Conflict if another event has the number or the id of one of them; the others are kept.
        """
        check_name("stream", stream)
        for event in events:
            check_name("event_id", event.event_id)
            if not 1 <= event.sequence <= MAX_SEQUENCE:
                raise InvalidInput(f"the sequence number of an event is 1 or more, not {event.sequence!r:.40}")
        app = self._core.app_name
        owner = None if tenant is None else await self._core.get_or_create_tenant(tenant)
        added = await inbound_events.record_events(self._database, app, stream, owner, events)
        known = [event for event in events if event.sequence not in added]
        stored = await inbound_events.find_event_ids(self._database, app, stream, [event.sequence for event in known])
        for event in known:
            if stored.get(event.sequence, "") not in (event.event_id, None):
                raise Conflict(
                    f"event {event.event_id!r} came as number {event.sequence} of {stream!r}, but its id or that "
                    "number belongs to another event"
                )
        return len(added)

    async def list(self, stream: str, *, after: int = 0) -> list[InboundEvent]:
        """Return the events of a stream after a number, in order, as far as none is missing.

        Events that were removed after their time are not listed, and not missing.
        """
        return await inbound_events.list_events(self._database, self._core.app_name, stream, after)

    async def fill_gaps(self, stream: str, fetch: Fetch, *, tenant: str | None = None) -> bool:
        """Ask the sender for missing events, and return whether none is missing any more.

        `fetch(after)` returns the events after a number, as many as it likes. Only events before one that has arrived
        are known to be missing: to look for newer ones, fetch and record them yourself. `tenant` is that of `record`.
        """
        asked: set[int] = set()
        while (last := await inbound_events.find_gap(self._database, self._core.app_name, stream)) is not None:
            if last in asked:
                return False
            asked.add(last)
            await self.record(stream, *await fetch(last), tenant=tenant)
        return True
