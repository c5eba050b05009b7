"""The call of a worker: it reports outcomes and claims new jobs, in one round trip and one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from typing import Any, Literal, NamedTuple
from uuid import UUID

from retoma.identifiers import ClaimKey
from retoma.logs import get_logger
from retoma.store.database import (
    CALL_TIMEOUT,
    Database,
    DedicatedConnection,
    Row,
    backoff,
    is_connection_lost,
    is_transient,
)
from retoma.store.statements import statements

log = get_logger(__name__)
_SQL = statements("engine")
_NO_DELAY = timedelta(0)

OutcomeKind = Literal[
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
    """Failures and time of the steps that a step continues, for one item. `most_retries` is the run's own limit."""

    failures: int
    milliseconds: int
    most_retries: int | None


@dataclass(slots=True, eq=False)
class Claim:
    """A job that this worker holds. JSON stays text until the step's function needs it.

    If it is `last`, its run is stopping: the attempt may only find external work, and starts nothing. `looking` counts
    calls in progress that may yet find some. If it is `over`, there is nothing left to do. If its step continues
    others, `earlier` is their work on the same item.
    """

    run: UUID
    step: str
    item: str
    revision: int
    fence: int
    attempt: int
    failures: int
    worker_deaths: int
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
    key: ClaimKey = field(init=False)

    def __post_init__(self) -> None:
        self.key = (self.run, self.step, self.item, self.revision, self.fence)

    @property
    def sort_key(self) -> tuple[bytes, str, str]:
        return self.run.bytes, self.step, self.item


@dataclass(slots=True, eq=False)
class Result:
    """The result of an attempt. `items` are the items of a fan-out by key, if the step is the source of one."""

    claim: Claim
    output: str
    items: dict[str, str] | None = None


@dataclass(slots=True, eq=False)
class AttemptOutcome:
    """The outcome of an attempt without a result."""

    claim: Claim
    kind: OutcomeKind
    delay: timedelta = _NO_DELAY
    spent_ms: int = 0
    code: str | None = None
    error: str | None = None


@dataclass(slots=True)
class ClaimRequest:
    """The jobs that a worker wants: up to `room`, starting after the tenant that it served last."""

    queues: list[str]
    versions: list[int]
    after_tenant: int
    room: int
    allow_suspect: bool


@dataclass(slots=True)
class ClaimResponse:
    """The claimed jobs. `successors` follow from results of the same call: the worker already has their inputs."""

    claimed: list[Claim] = field(default_factory=list)
    successors: list[Claim] = field(default_factory=list)
    rejected: int = 0
    next_claim_in: float | None = None  # seconds until a pool's rate allows the next job
    replayed: bool = False


class WorkerLink:
    """One of a worker's connections. Its calls are numbered, so a lost response can be requested again."""

    def __init__(self, database: Database, worker: int, number: int) -> None:
        self.worker = worker
        self.busy = asyncio.Lock()  # held while a call is under way
        self._number = number
        self._call = 0
        self._link = DedicatedConnection(database)

    async def finish_and_claim(
        self, results: Sequence[Result], outcomes: Sequence[AttemptOutcome], request: ClaimRequest
    ) -> ClaimResponse:
        """Make the next call, and retry it until it succeeds. Raise WorkerGone if this worker was declared dead."""
        self._call += 1
        try:
            return _parse_response(
                await self._fetch("finish_and_claim", self._build_arguments(results, outcomes, request))
            )
        except Exception:
            self._call -= 1  # nothing was committed
            raise

    async def list_held(self) -> list[Claim]:
        """Return all jobs that this worker holds, according to the database."""
        return [_parse_claim(row) for row in await self._fetch("list_held_jobs", [self.worker])]

    async def _fetch(self, name: str, arguments: list[Any]) -> list[Row]:
        patience = CALL_TIMEOUT
        for wait in backoff():
            try:
                return await self._link.fetch(_SQL[name], arguments, patience)
            except Exception as error:
                if not is_connection_lost(error) and not is_transient(error):
                    raise
                patience *= 1 + isinstance(error, TimeoutError)
                log.warning(
                    "database_call_retried",
                    message="a call to the database failed; retrying",
                    worker=self.worker,
                    error=error,
                )
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def close(self) -> None:
        await self._link.close()

    def _build_arguments(
        self, results: Sequence[Result], outcomes: Sequence[AttemptOutcome], request: ClaimRequest
    ) -> list[Any]:
        results = sorted(results, key=lambda result: result.claim.sort_key)
        outcomes = sorted(outcomes, key=lambda outcome: outcome.claim.sort_key)
        return [
            self.worker,
            self._number,
            self._call,
            *_result_columns(results),
            *_item_columns(results),
            *_outcome_columns(outcomes),
            request.queues,
            request.versions,
            request.after_tenant,
            request.room,
            request.allow_suspect,
        ]


def _result_columns(results: Sequence[Result]) -> list[list[Any]]:
    return [
        *_key_columns([result.claim for result in results]),
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
    return _transpose(rows, 3)


def _outcome_columns(outcomes: Sequence[AttemptOutcome]) -> list[list[Any]]:
    return [
        *_key_columns([outcome.claim for outcome in outcomes]),
        *_transpose([(each.kind, each.delay, each.spent_ms, each.code, each.error) for each in outcomes], 5),
    ]


def _key_columns(claims: Sequence[Claim]) -> list[list[Any]]:
    return _transpose([claim.key for claim in claims], 5)


def _transpose(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def _parse_response(rows: Sequence[Row]) -> ClaimResponse:
    response = ClaimResponse()
    for row in rows:
        kind = row[0]
        if kind in ("claimed", "last"):
            response.claimed.append(_parse_claim(row))
        elif kind == "kept":
            response.successors.append(_parse_claim(row))
        elif kind == "refused":
            response.rejected = row["fence"]
        elif kind == "later":
            response.next_claim_in = min(row["fence"] / 1000, response.next_claim_in or inf)
        else:
            response.replayed = True
    return response


def _parse_claim(row: Row) -> Claim:
    claim = Claim(*row[1:])
    claim.last, claim.over = row[0] == "last", row[0] == "over"
    claim.results = claim.results or []
    return claim
