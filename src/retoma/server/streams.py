"""Live events for many who watch: one reader for all of them, and a small buffer for each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec

from retoma.engine.live import LiveReader
from retoma.engine.loops import kept_going
from retoma.engine.tenants import Tenants
from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.records import LiveEvent
from retoma.server.callers import Credential
from retoma.server.problems import Problem
from retoma.states import RunState
from retoma.store.database import Database

log = get_logger("retoma.live")
FindEnded = Callable[[Iterable[Credential]], Awaitable[set[Credential]]]

SECONDS_BETWEEN_PINGS = 15
SECONDS_BETWEEN_SLOTS = 1.0
SECONDS_BETWEEN_CHECKS = 2.0  # of keys and sessions
LONGEST_LIFE = 900  # seconds; then its watcher comes again
LARGEST_BACKLOG = 256 * 1024  # bytes that one who reads slowly may be behind
MOST_STREAMS = 20_000
MOST_IDLE_READS = 150  # of which nobody hears; then the reader ends
FURTHEST_BACK = 100_000  # events of all runs that one who was away may ask for
PAUSE_WITHOUT_DATABASE = 1.0
LOOKS_AHEAD = 100  # for this process to reach what another has told already
SECONDS_BETWEEN_LOOKS = 0.02
LONGEST_LOOK = 1.0


def frame(event: LiveEvent) -> bytes:
    """One event as it is sent. JSON has no line breaks, so that no text of a user can end a line of ours."""
    told = {name: getattr(event, name) for name in _TOLD}
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.kind.encode(), msgspec.json.encode(told))


_TOLD = ("id", "run", "at", "kind", "revision", "attempt", "step", "item", "data")


def ping(through: int, run: UUID | None = None, state: RunState | None = None) -> bytes:
    """Says that all is well, through which event nothing is missing, and of one run how it stands."""
    told: dict[str, Any] = {"through": through}
    if state is not None:
        told |= {"run": run, "state": state}
    return b"id: %d\nevent: ping\ndata: %s\n\n" % (through, msgspec.json.encode(told))


class Stream:
    """What one who watches has not been sent yet. What came up to `begins_after` is not in its buffer."""

    __slots__ = (
        "_chunks",
        "_size",
        "_waker",
        "abort",
        "begins_after",
        "credential",
        "is_cut",
        "is_over",
        "key",
        "life",
        "run",
        "tenant",
    )

    def __init__(
        self,
        key: Hashable,
        run: UUID | None,
        tenant: int | None,
        begins_after: int,
        credential: Credential | None = None,
    ) -> None:
        self.key = key
        self.credential = credential
        self.run = run
        self.tenant = tenant
        self.begins_after = begins_after
        self.life = LONGEST_LIFE // SECONDS_BETWEEN_PINGS  # pings that are left
        self.is_cut = False
        self.is_over = False
        self.abort: Callable[[], None] | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._waker: asyncio.Future[None] | None = None

    def put(self, chunk: bytes) -> None:
        """Let it be sent next. Who is too far behind is cut off, and may come again for the rest."""
        if self.is_cut or self.is_over:
            return
        if self._size > LARGEST_BACKLOG:
            self.cut()
            return
        self._chunks.append(chunk)  # the same bytes for all who watch the same
        self._size += len(chunk)
        self._wake()

    def end(self) -> None:
        """Nothing follows what is in the buffer."""
        self.is_over = True
        self._wake()

    def cut(self) -> None:
        self.is_cut = True
        self._chunks.clear()
        if self.abort is not None:
            self.abort()
        self._wake()

    async def next(self) -> bytes | None:
        """All that there is to send, as soon as there is some; None when it is over."""
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
    """All who watch this process. While there is one, one task reads for all, and another pings."""

    def __init__(self, database: Database, per_key: int, find_ended: FindEnded) -> None:
        """`find_ended` says which credentials are not valid any more."""
        self._find_ended = find_ended
        self.reader = LiveReader(database)
        self._tenants = Tenants(database)
        self._per_key = per_key
        self._of_keys: Counter[Hashable] = Counter()
        self._of_runs: dict[UUID, set[Stream]] = {}
        self._of_tenants: dict[int | None, set[Stream]] = {}
        self._slots: list[set[Stream]] = [set() for _ in range(SECONDS_BETWEEN_PINGS)]
        self._count = 0
        self._opened = 0
        self._through = 0
        self._beginning = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    @property
    def count(self) -> int:
        return self._count

    def all(self) -> list[Stream]:
        return [stream for slot in self._slots for stream in slot]

    async def open(
        self,
        key: Hashable,
        *,
        run: UUID | None,
        tenant: str | None,
        after: int | None,
        credential: Credential | None = None,
    ) -> Stream:
        """A stream of a run's events, of a tenant's, or of all. Raises a Problem if there are too many.

        It must be closed. What came between `after` and its `begins_after` is the caller's to fetch.
        """
        self._admit(key)
        try:
            owner = None if tenant is None else await self._tenants.id_of(tenant)
            async with self._beginning:
                await self._begin()
            await self._reach(after or 0)
            if self._closed:
                self._stop()
                raise _no_room()
        except BaseException:
            self._let_go(key)
            raise
        stream = Stream(key, run, owner, self._through, credential)
        self._group(stream).add(stream)
        self._slots[self._opened % SECONDS_BETWEEN_PINGS].add(stream)
        self._opened += 1
        return stream

    def close_stream(self, stream: Stream) -> None:
        group = self._group(stream)
        group.discard(stream)
        for slot in self._slots:
            slot.discard(stream)
        if not group:
            self._forget_group(stream)
        self._let_go(stream.key)

    def close(self) -> None:
        """End all streams, and let none begin: this server stops."""
        self._closed = True
        for stream in self.all():
            stream.end()
        self._stop()

    def _admit(self, key: Hashable) -> None:
        """Count one more. From now on the reader does not end."""
        if self._closed or self._count >= MOST_STREAMS:
            raise _no_room()
        if self._of_keys[key] >= self._per_key:
            raise Problem(
                429, "TOO_MANY_STREAMS", f"this key has {self._per_key} streams open: close one first", headers=_SOON
            )
        self._of_keys[key] += 1
        self._count += 1

    def _let_go(self, key: Hashable) -> None:
        self._count -= 1
        self._of_keys[key] -= 1
        if not self._of_keys[key]:
            del self._of_keys[key]

    async def _begin(self) -> None:
        if not self._tasks:
            await self.reader.begin()
            self._through = self.reader.through
            loops = {"live events": self._feed, "pings": self._ping, "credentials": self._check}
            self._tasks = [asyncio.create_task(kept_going(name, loop)) for name, loop in loops.items()]

    async def _reach(self, after: int) -> None:
        """Another process may have told events that this one has yet to read: it must not tell them again."""
        for _ in range(LOOKS_AHEAD):
            if self._through >= after:
                return
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def _feed(self) -> None:
        """Read for all, until nobody has watched for a while."""
        idle = 0
        while idle < MOST_IDLE_READS:
            try:
                self.share(await self.reader.read_after_pause())
            except DatabaseUnavailable as error:
                log.warning("live events wait for the database", error=error)
                await asyncio.sleep(PAUSE_WITHOUT_DATABASE)
            idle = 0 if self._count else idle + 1
        self._stop()  # this task too

    def share(self, found: Iterable[LiveEvent]) -> None:
        """Give each who watches what is theirs, in its order. If that fails they are cut off, and come again for it."""
        try:
            self._share(found)
        except Exception:
            for stream in self.all():
                stream.cut()
            raise
        finally:
            self._through = self.reader.through

    def _share(self, found: Iterable[LiveEvent]) -> None:
        frames = [(event, frame(event)) for event in found] if self._count else []
        for tenant, streams in self._of_tenants.items() if frames else ():
            if chunk := b"".join(told for event, told in frames if tenant in (None, event.tenant)):
                _put(streams, chunk)
        for event, told in frames:
            watching = self._of_runs.get(event.run, ())
            _put(watching, told)
            if event.kind == "end":
                _end(watching)

    async def _ping(self) -> None:
        """A part of all in each second, so that they do not all come at once."""
        while True:
            for slot in self._slots:
                await asyncio.sleep(SECONDS_BETWEEN_SLOTS)
                await self.ping(slot)

    async def ping(self, streams: Iterable[Stream]) -> None:
        """Those whose time is over end with it."""
        watched = list(streams)
        states = await self._states({stream.run for stream in watched if stream.run is not None})
        chunks = {
            run: ping(self._through, run, states.get(run) if run else None) for run in {each.run for each in watched}
        }
        for stream in watched:
            stream.put(chunks[stream.run])
            stream.life -= 1
            if stream.life <= 0:
                stream.end()

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_CHECKS)
            with suppress(DatabaseUnavailable):  # the next check comes soon
                await self.end_invalid()

    async def end_invalid(self) -> None:
        """End the streams whose key was revoked or whose session is over, by one look at each kind of credential."""
        shown = {stream.credential for stream in self.all() if stream.credential is not None}
        ended = await self._find_ended(shown) if shown else set()
        for stream in self.all() if ended else ():
            if stream.credential in ended:
                stream.end()

    async def _states(self, runs: set[UUID]) -> dict[UUID, RunState]:
        """Nothing if the database does not answer at once: a ping must not be late."""
        try:
            async with asyncio.timeout(LONGEST_LOOK):
                return await self.reader.states(runs) if runs else {}
        except (DatabaseUnavailable, TimeoutError):
            return {}

    def _group(self, stream: Stream) -> set[Stream]:
        if stream.run is not None:
            return self._of_runs.setdefault(stream.run, set())
        return self._of_tenants.setdefault(stream.tenant, set())

    def _forget_group(self, stream: Stream) -> None:
        groups: dict[Any, set[Stream]] = self._of_tenants if stream.run is None else self._of_runs
        groups.pop(stream.tenant if stream.run is None else stream.run, None)


def _put(streams: Iterable[Stream], chunk: bytes) -> None:
    for stream in streams:
        stream.put(chunk)


def _no_room() -> Problem:
    return Problem(503, "TOO_MANY_STREAMS", "this server has no room for another stream", headers=_SOON)


def _end(streams: Iterable[Stream]) -> None:
    for stream in streams:
        stream.end()


_SOON = {"Retry-After": "5"}
