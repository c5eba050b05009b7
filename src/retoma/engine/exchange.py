"""The one call of a worker: give back what ended, take what comes next, in one round trip and one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from typing import Any, Literal, NamedTuple
from uuid import UUID

from retoma.identifiers import Handle
from retoma.logs import get_logger
from retoma.store.database import PATIENCE, Database, Link, Row, backoff, is_cut, is_passing
from retoma.store.statements import statements

log = get_logger("retoma.exchange")
_SQL = statements("calls")
_NO_DELAY = timedelta(0)

Setback = Literal[
    "failed",
    "skipped",
    "retry",
    "crashed",
    "crashed_for_good",
    "wait",
    "back",
    "parked",
    "review",
    "interrupted",
    "stopped",
]


class EarlierWork(NamedTuple):
    """What the steps that a step continues needed for the same item; `most_retries` is what the run allows for all."""

    failures: int
    milliseconds: int
    most_retries: int | None


@dataclass(slots=True, eq=False)
class Claim:
    """A job that this worker holds. JSON stays text until the step's function needs it.

    If it is the `last`, its run is stopping: the attempt may only find what goes on outside, and begins nothing. While
    it is `looking`, in so many calls, nobody knows whether there is such a thing. If it is `over`, there is nothing to
    be done at all. If its step continues others, `earlier` is their work on the same item.
    """

    run: UUID
    step: str
    item: str
    revision: int
    fence: int
    attempt: int
    failures: int
    deaths: int
    spent_ms: int
    version: int
    tenant: int
    run_input: str | None
    item_value: str | None
    results: list[str | None]
    last: bool = False
    over: bool = False
    looking: int = 0
    earlier: EarlierWork | None = None
    handle: Handle = field(init=False)

    def __post_init__(self) -> None:
        self.handle = (self.run, self.step, self.item, self.revision, self.fence)

    @property
    def order(self) -> tuple[bytes, str, str]:
        return self.run.bytes, self.step, self.item


@dataclass(slots=True, eq=False)
class Result:
    """`items` are a fan-out's items by key, if the step is the source of one."""

    claim: Claim
    output: str
    items: dict[str, str] | None = None


@dataclass(slots=True, eq=False)
class SetBack:
    """Any outcome that is not a result."""

    claim: Claim
    outcome: Setback
    delay: timedelta = _NO_DELAY
    spent_ms: int = 0
    code: str | None = None
    error: str | None = None


@dataclass(slots=True)
class Wish:
    """What a worker would take: `after` is the tenant served last, `room` how many jobs."""

    queues: list[str]
    versions: list[int]
    after: int
    room: int
    suspect: bool


@dataclass(slots=True)
class Answer:
    """`kept` are successors of the results just given back; their parameters are at hand."""

    claimed: list[Claim] = field(default_factory=list)
    kept: list[Claim] = field(default_factory=list)
    refused: int = 0
    look_in: float | None = None  # seconds until a pool's rate lets the next begin
    replayed: bool = False


class Lane:
    """One of a worker's connections. Its calls are numbered, so that a lost answer is asked for again."""

    def __init__(self, database: Database, worker: int, number: int) -> None:
        self.worker = worker
        self.busy = asyncio.Lock()  # held while a call is under way
        self._number = number
        self._call = 0
        self._link = Link(database)

    async def exchange(self, results: Sequence[Result], setbacks: Sequence[SetBack], wish: Wish) -> Answer:
        """Make the next call, as often as it takes. Raises WorkerGone if this worker was declared dead."""
        self._call += 1
        try:
            return _answer(await self._fetch("exchange", self._arguments(results, setbacks, wish)))
        except Exception:
            self._call -= 1  # nothing of it was committed
            raise

    async def held(self) -> list[Claim]:
        """All that this worker holds, as the database sees it."""
        return [_claim(row) for row in await self._fetch("held_by", [self.worker])]

    async def _fetch(self, name: str, arguments: list[Any]) -> list[Row]:
        patience = PATIENCE
        for wait in backoff():
            try:
                return await self._link.fetch(_SQL[name], arguments, patience)
            except Exception as error:
                if not is_cut(error) and not is_passing(error):
                    raise
                patience *= 1 + isinstance(error, TimeoutError)
                log.warning("the call is made again", worker=self.worker, error=error)
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def close(self) -> None:
        await self._link.close()

    def _arguments(self, results: Sequence[Result], setbacks: Sequence[SetBack], wish: Wish) -> list[Any]:
        results = sorted(results, key=lambda result: result.claim.order)
        setbacks = sorted(setbacks, key=lambda setback: setback.claim.order)
        return [
            self.worker,
            self._number,
            self._call,
            *_result_columns(results),
            *_item_columns(results),
            *_setback_columns(setbacks),
            wish.queues,
            wish.versions,
            wish.after,
            wish.room,
            wish.suspect,
        ]


def _result_columns(results: Sequence[Result]) -> list[list[Any]]:
    return [
        *_handle_columns([result.claim for result in results]),
        [result.output for result in results],
        [None if result.items is None else len(result.items) for result in results],
    ]


def _item_columns(results: Sequence[Result]) -> list[list[Any]]:
    rows = [
        (number, key, value)
        for number, result in enumerate(results, start=1)
        if result.items
        for key, value in result.items.items()
    ]
    return _transposed(rows, 3)


def _setback_columns(setbacks: Sequence[SetBack]) -> list[list[Any]]:
    return [
        *_handle_columns([setback.claim for setback in setbacks]),
        *_transposed([(s.outcome, s.delay, s.spent_ms, s.code, s.error) for s in setbacks], 5),
    ]


def _handle_columns(claims: Sequence[Claim]) -> list[list[Any]]:
    return _transposed([claim.handle for claim in claims], 5)


def _transposed(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def _answer(rows: Sequence[Row]) -> Answer:
    answer = Answer()
    for row in rows:
        what = row[0]
        if what in ("claimed", "last"):
            answer.claimed.append(_claim(row))
        elif what == "kept":
            answer.kept.append(_claim(row))
        elif what == "refused":
            answer.refused = row["fence"]
        elif what == "later":
            answer.look_in = min(row["fence"] / 1000, answer.look_in or inf)
        else:
            answer.replayed = True
    return answer


def _claim(row: Row) -> Claim:
    claim = Claim(*row[1:])
    claim.last, claim.over = row[0] == "last", row[0] == "over"
    claim.results = claim.results or []
    return claim
