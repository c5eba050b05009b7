"""The call of a worker: it reports outcomes and claims new jobs, in one round trip and one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct

from retoma.engine import outcomes
from retoma.engine.outcomes import NO_DELAY, Outcome, Success
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

log = get_logger(__name__)


class EarlierWork(NamedTuple):
    """Failures and time of the steps that a step continues, for one item."""

    failures: int = 0
    milliseconds: int = 0


class Claim(Struct, frozen=True, eq=False):
    """A job that a worker holds. JSON stays text until the step's function needs it.

    `run_retries` is the run's own limit, if it has one. `earlier` is the work of the steps that its step continues.
    """

    key: ClaimKey  # the five fields that follow, built once: every job is looked up by it several times
    run: UUID
    step: str
    item: str
    revision: int
    fence: int
    attempt: int
    failures: int
    child_crashes: int
    worker_deaths: int
    spent_ms: int
    version: int
    tenant: int
    run_retries: int | None
    run_input: str | None
    item_value: str | None
    results: Sequence[str | None]
    earlier: EarlierWork = EarlierWork()

    @property
    def is_first_attempt(self) -> bool:
        """Return whether nobody has claimed this revision of the job before."""
        return self.fence == 1

    @property
    def sort_key(self) -> tuple[bytes, str, str]:
        return self.run.bytes, self.step, self.item


class ClaimRequest(Struct, frozen=True):
    """The jobs that a worker wants: up to `limit`, starting after the tenant that it served last."""

    queues: list[str]
    versions: list[int]
    after_tenant: int
    limit: int
    allow_suspect: bool


class ClaimResponse(Struct, frozen=True):
    """The claimed jobs. `successors` follow from results of the same call: the worker already has their inputs."""

    claimed: list[Claim]
    successors: list[Claim]
    rejected: int
    next_claim_in: float | None  # seconds until a pool's rate allows the next job
    replayed: bool


class WorkerLink:
    """One of a worker's connections. Its calls are numbered, so a lost response can be requested again."""

    def __init__(self, database: Database, worker: int, number: int) -> None:
        self.worker = worker
        self.busy = asyncio.Lock()  # held while a call is under way
        self._number = number
        self._call = 0
        self._link = DedicatedConnection(database)

    async def finish_and_claim(self, reported: Sequence[Outcome], request: ClaimRequest) -> ClaimResponse:
        """Make the next call, and retry it until it succeeds. Raise WorkerGone if this worker was declared dead."""
        self._call += 1
        try:
            return _parse_response(await self._fetch("finish_and_claim", self._build_arguments(reported, request)))
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
                return await self._link.call("engine_calls", name, arguments, patience)
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

    def _build_arguments(self, reported: Sequence[Outcome], request: ClaimRequest) -> list[Any]:
        in_order = sorted(reported, key=lambda outcome: outcome.claim.sort_key)
        results = [outcome for outcome in in_order if isinstance(outcome, Success)]
        others = [outcome for outcome in in_order if not isinstance(outcome, Success)]
        return [
            self.worker,
            self._number,
            self._call,
            *_result_columns(results),
            *_item_columns(results),
            *_outcome_columns(others),
            request.queues,
            request.versions,
            request.after_tenant,
            request.limit,
            request.allow_suspect,
        ]


def _result_columns(results: Sequence[Success]) -> list[list[Any]]:
    return [
        *_key_columns([result.claim for result in results]),
        [result.output for result in results],
        [None if result.items is None else len(result.items) for result in results],
    ]


def _item_columns(results: Sequence[Success]) -> list[list[Any]]:
    rows = [
        (number, key, value)
        for number, result in enumerate(results, start=1)
        if result.items
        for key, value in result.items.items()
    ]
    return _transpose(rows, 3)


def _outcome_columns(others: Sequence[Outcome]) -> list[list[Any]]:
    return [
        *_key_columns([outcome.claim for outcome in others]),
        *_transpose([_describe_outcome(outcome) for outcome in others], len(_OutcomeRow._fields)),
    ]


class _OutcomeRow(NamedTuple):
    """An outcome as `retoma.record_outcomes` reads it."""

    kind: str
    delay: timedelta = NO_DELAY
    spent_ms: int = 0
    code: str | None = None
    error: str | None = None
    review: str | None = None
    effect: str | None = None


def _describe_outcome(outcome: Outcome) -> _OutcomeRow:
    match outcome:
        case outcomes.Retried(error=error, delay=delay, spent_ms=spent_ms, is_crash=is_crash):
            return _OutcomeRow("crashed" if is_crash else "retry", delay, spent_ms, error.code, error.to_json())
        case outcomes.Failure(error=error, is_quarantined=is_quarantined):
            kind = "quarantined" if is_quarantined else "failed"
            return _OutcomeRow(kind, code=error.code, error=error.to_json())
        case outcomes.Skip(code=code):
            return _OutcomeRow("skipped", code=code)
        case outcomes.Postponed(error=error, delay=delay):
            return _OutcomeRow("wait", delay, code=error.code, error=error.to_json())
        case outcomes.Parked(effect=effect):
            return _OutcomeRow("parked", effect=effect)
        case outcomes.ReviewRequest(reason=reason):
            return _OutcomeRow("review", review=None if reason is None else reason.to_json())
        case outcomes.OverBudget(reason=reason):
            return _OutcomeRow("over_budget", review=reason.to_json())
        case outcomes.Returned(delay=delay, code=code):
            return _OutcomeRow("back", delay, code=code)
        case outcomes.Interrupted():
            return _OutcomeRow("interrupted", code="INTERRUPTED")
    raise TypeError(f"{outcome!r} is not an outcome without a result")


def _key_columns(claims: Sequence[Claim]) -> list[list[Any]]:
    return _transpose([claim.key for claim in claims], 5)


def _transpose(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def _parse_response(rows: Sequence[Row]) -> ClaimResponse:
    by_kind: dict[str, list[Row]] = {}
    for row in rows:
        by_kind.setdefault(row[0], []).append(row)
    return ClaimResponse(
        claimed=[_parse_claim(row) for row in by_kind.get("claimed", ())],
        successors=[_parse_claim(row) for row in by_kind.get("kept", ())],
        rejected=sum(row["rejected"] for row in by_kind.get("refused", ())),
        next_claim_in=min((row["next_claim_ms"] / 1000 for row in by_kind.get("later", ())), default=None),
        replayed="replayed" in by_kind,
    )


def _parse_claim(row: Row) -> Claim:
    return Claim(row[3:8], *row[3:])
