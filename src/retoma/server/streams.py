"""Live event streams: one reader per process, and a small buffer per stream."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from retoma.engine.background_loops import run_with_restarts
from retoma.engine.live_events import LiveEventReader
from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.records import LiveEvent
from retoma.server.principal import Credential
from retoma.server.problems import Problem
from retoma.states import RunState
from retoma.store import event_stream
from retoma.store.database import Database
from retoma.store.tenants import Tenants

log = get_logger(__name__)
FindInvalid = Callable[[Iterable[Credential]], Awaitable[set[Credential]]]

SECONDS_BETWEEN_PINGS = 15
SECONDS_BETWEEN_SLOTS = 1.0
SECONDS_BETWEEN_CHECKS = 2.0  # of credentials
MAX_STREAM_SECONDS = 900  # then the client reconnects
MAX_BACKLOG_BYTES = 256 * 1024  # buffered for a slow client before it is cut off
MAX_STREAMS = 20_000
MAX_IDLE_READS = 150  # reads without a stream before the reader stops
MAX_EVENTS_BEHIND = 100_000  # events of all runs that a reconnecting client may catch up on
DATABASE_RETRY_SECONDS = 1.0
MAX_CATCH_UP_POLLS = 100  # for this process to reach an event that another one already sent
CATCH_UP_POLL_SECONDS = 0.02
STATE_QUERY_TIMEOUT_SECONDS = 1.0


def encode_event(event: LiveEvent) -> bytes:
    """Encode an event. JSON has no raw line breaks, so text from users cannot end the frame."""
    data = {name: getattr(event, name) for name in _EVENT_FIELDS}
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.kind.encode(), msgspec.json.encode(data))


_EVENT_FIELDS = ("id", "run", "run_title", "at", "kind", "revision", "attempt", "step", "item", "data")


def encode_ping(through: int, run: UUID | None = None, state: RunState | None = None) -> bytes:
    """Encode a ping with the last event up to which nothing is missing and, for one run, its state."""
    data: dict[str, Any] = {"through": through}
    if state is not None:
        data |= {"run": run, "state": state}
    return b"id: %d\nevent: ping\ndata: %s\n\n" % (through, msgspec.json.encode(data))


@dataclass(slots=True, eq=False)
class Stream:
    """The unsent events of one client. Events up to `starts_after` are not in its buffer."""

    key: Hashable
    run: UUID | None
    tenants: frozenset[int] | None
    starts_after: int
    credential: Credential | None = None
    pings_left: int = MAX_STREAM_SECONDS // SECONDS_BETWEEN_PINGS
    is_cut: bool = False
    is_over: bool = False
    abort: Callable[[], None] | None = None
    _chunks: list[bytes] = field(default_factory=list)
    _size: int = 0
    _waker: asyncio.Future[None] | None = None

    def put(self, chunk: bytes) -> None:
        """Queue a chunk. Cut off a client that is too far behind; it can reconnect for the rest."""
        if self.is_cut or self.is_over:
            return
        if self._size > MAX_BACKLOG_BYTES:
            self.cut()
            return
        self._chunks.append(chunk)  # the same bytes object for all streams
        self._size += len(chunk)
        self._wake()

    def end(self) -> None:
        """End the stream after what is in the buffer."""
        self.is_over = True
        self._wake()

    def cut(self) -> None:
        self.is_cut = True
        self._chunks.clear()
        if self.abort is not None:
            self.abort()
        self._wake()

    async def next(self) -> bytes | None:
        """Wait for data and return all of it, or None once the stream is over."""
        while not self._chunks:
            if self.is_cut or self.is_over:
                return None
            self._waker = asyncio.get_running_loop().create_future()
            await self._waker
        chunks, self._chunks, self._size = self._chunks, [], 0
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _wake(self) -> None:
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)


class Streams:
    """All streams of this process. While there is one, background tasks read events, ping and check credentials."""

    def __init__(self, database: Database, per_key: int, find_invalid: FindInvalid) -> None:
        """`find_invalid` returns the credentials that are no longer valid."""
        self._database = database
        self._find_invalid = find_invalid
        self.reader = LiveEventReader(database)
        self._tenants = Tenants(database)
        self._per_key = per_key
        self._count_by_key: Counter[Hashable] = Counter()
        self._by_run: dict[UUID, set[Stream]] = {}
        self._by_tenants: dict[frozenset[int] | None, set[Stream]] = {}
        self._ping_slots: list[set[Stream]] = [set() for _ in range(SECONDS_BETWEEN_PINGS)]
        self.count = 0
        self._opened_count = 0
        self._through = 0
        self._start_lock = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    def list_streams(self) -> list[Stream]:
        return [stream for slot in self._ping_slots for stream in slot]

    async def open(
        self,
        key: Hashable,
        *,
        run: UUID | None,
        tenants: Iterable[str] | None,
        after: int | None,
        credential: Credential | None = None,
    ) -> Stream:
        """Open a stream of the events of a run, of these tenants, or of all. Raise a Problem if there are too many.

        The caller must close it, and must fetch the events between `after` and the stream's `starts_after`.
        """
        self._reserve(key)
        try:
            owners = (
                None if tenants is None else frozenset([await self._tenants.get_or_create_id(each) for each in tenants])
            )
            async with self._start_lock:
                await self._start()
            await self._catch_up(after or 0)
            if self._closed:
                self._stop_tasks()
                raise _too_many_streams_problem()
        except BaseException:
            self._release(key)
            raise
        stream = Stream(key, run, owners, self._through, credential)
        groups, name = self._find_groups(stream)
        groups.setdefault(name, set()).add(stream)
        self._ping_slots[self._opened_count % SECONDS_BETWEEN_PINGS].add(stream)
        self._opened_count += 1
        return stream

    def close_stream(self, stream: Stream) -> None:
        groups, name = self._find_groups(stream)
        groups[name].discard(stream)
        if not groups[name]:
            del groups[name]
        for slot in self._ping_slots:
            slot.discard(stream)
        self._release(stream.key)

    def close(self) -> None:
        """End all streams and refuse new ones, because the server is stopping."""
        self._closed = True
        for stream in self.list_streams():
            stream.end()
        self._stop_tasks()

    def _reserve(self, key: Hashable) -> None:
        """Count one more stream, which keeps the reader running."""
        if self._closed or self.count >= MAX_STREAMS:
            raise _too_many_streams_problem()
        if self._count_by_key[key] >= self._per_key:
            raise Problem(
                429,
                "TOO_MANY_STREAMS",
                f"this API key already has {self._per_key} open streams: close one first",
                headers=_RETRY_AFTER,
            )
        self._count_by_key[key] += 1
        self.count += 1

    def _release(self, key: Hashable) -> None:
        self.count -= 1
        self._count_by_key[key] -= 1
        if not self._count_by_key[key]:
            del self._count_by_key[key]

    async def _start(self) -> None:
        if not self._tasks:
            await self.reader.start()
            self._through = self.reader.through
            loops = {
                "live events": self._read_events,
                "pings": self._send_pings,
                "credentials": self._check_credentials,
            }
            self._tasks = [asyncio.create_task(run_with_restarts(name, loop)) for name, loop in loops.items()]

    async def _catch_up(self, after: int) -> None:
        """Wait until this process has read the events that another one already sent, so none is sent twice."""
        for _ in range(MAX_CATCH_UP_POLLS):
            if self._through >= after:
                return
            await asyncio.sleep(CATCH_UP_POLL_SECONDS)

    def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def _read_events(self) -> None:
        """Read events for all streams, until there has been no stream for a while."""
        idle = 0
        while idle < MAX_IDLE_READS:
            try:
                self.distribute(await self.reader.read_after_pause())
            except DatabaseUnavailable as error:
                log.warning(
                    "live_events_delayed",
                    message="could not read live events from the database; retrying",
                    error=error,
                )
                await asyncio.sleep(DATABASE_RETRY_SECONDS)
            idle = 0 if self.count else idle + 1
        self._stop_tasks()  # this task too

    def distribute(self, events: Iterable[LiveEvent]) -> None:
        """Put the events into their streams, in order. On failure cut all streams off, so that clients reconnect."""
        try:
            self._distribute(events)
        except Exception:
            for stream in self.list_streams():
                stream.cut()
            raise
        finally:
            self._through = self.reader.through

    def _distribute(self, events: Iterable[LiveEvent]) -> None:
        frames = [(event, encode_event(event)) for event in events] if self.count else []
        for tenants, streams in self._by_tenants.items() if frames else ():
            if chunk := b"".join(frame for event, frame in frames if tenants is None or event.tenant in tenants):
                for stream in streams:
                    stream.put(chunk)
        for event, frame in frames:
            for stream in self._by_run.get(event.run, ()):
                stream.put(frame)
                if event.kind == "end":
                    stream.end()

    async def _send_pings(self) -> None:
        """Ping a part of the streams each second, to spread the load."""
        while True:
            for slot in self._ping_slots:
                await asyncio.sleep(SECONDS_BETWEEN_SLOTS)
                await self.send_pings(slot)

    async def send_pings(self, streams: Iterable[Stream]) -> None:
        """Ping the streams, and end those that have reached MAX_STREAM_SECONDS."""
        watched = list(streams)
        states = await self._fetch_states({stream.run for stream in watched if stream.run is not None})
        chunks = {
            run: encode_ping(self._through, run, states.get(run) if run else None)
            for run in {each.run for each in watched}
        }
        for stream in watched:
            stream.put(chunks[stream.run])
            stream.pings_left -= 1
            if stream.pings_left <= 0:
                stream.end()

    async def _check_credentials(self) -> None:
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_CHECKS)
            with suppress(DatabaseUnavailable):  # the next check follows soon
                await self.end_invalid_streams()

    async def end_invalid_streams(self) -> None:
        """End the streams of revoked keys and ended sessions, with one query per kind of credential."""
        used = {stream.credential for stream in self.list_streams() if stream.credential is not None}
        invalid = await self._find_invalid(used) if used else set()
        for stream in self.list_streams() if invalid else ():
            if stream.credential in invalid:
                stream.end()

    async def _fetch_states(self, runs: set[UUID]) -> dict[UUID, RunState]:
        """Return the states of the runs, or {} if the database is slow: pings must be on time."""
        try:
            async with asyncio.timeout(STATE_QUERY_TIMEOUT_SECONDS):
                return await event_stream.get_run_states(self._database, runs) if runs else {}
        except (DatabaseUnavailable, TimeoutError):
            return {}

    def _find_groups(self, stream: Stream) -> tuple[dict[Any, set[Stream]], Any]:
        """Return the streams by run or by tenants, and the name of this one's group among them."""
        return (self._by_tenants, stream.tenants) if stream.run is None else (self._by_run, stream.run)


def _too_many_streams_problem() -> Problem:
    return Problem(
        503, "TOO_MANY_STREAMS", "this server has too many open streams or is stopping", headers=_RETRY_AFTER
    )


_RETRY_AFTER = {"Retry-After": "5"}
