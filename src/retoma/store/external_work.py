"""External work of parked jobs, and its callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

from retoma.identifiers import JobKey
from retoma.records import ExternalWork
from retoma.states import RunState
from retoma.store.database import Database
from retoma.store.rows import make_record, parse_json
from retoma.store.statements import statements
from retoma.trace_context import SpanContext, get_attempt_span_id

_SQL = statements("external_work")
CallbackResult = Literal["taken", "repeated", "expired", "unknown"]


class RecordedCallback(NamedTuple):
    """What became of a callback, and the span of the attempt that waits for it, if the token is known."""

    answer: CallbackResult
    attempt: SpanContext | None


@dataclass(frozen=True)
class EndedWork:
    """The outcome of external work."""

    state: str
    result: Any
    error: dict[str, Any]

    @property
    def code(self) -> str:
        return str(self.error.get("code") or self.state.upper())

    @property
    def message(self) -> str:
        return str(self.error.get("message") or f"the external work ended as {self.state}")


async def get_ended_work(database: Database, run: UUID, step: str, item: str, revision: int) -> EndedWork | None:
    """Return None while it is in progress, or if there is none."""
    row = await database.fetchrow(_SQL["get_ended_work"], run=run, step=step, item=item, revision=revision)
    if row is None:
        return None
    return EndedWork(row["state"], parse_json(row["result"]), parse_json(row["error"]) or {})


async def list_for_run(database: Database, run: UUID) -> list[ExternalWork]:
    rows = await database.fetch(_SQL["list_external_work"], run=run)
    return [make_record(ExternalWork, row, "external_id", "error") for row in rows]


async def is_child_run_awaited(database: Database, child: UUID) -> bool:
    """Return whether a job waits for this child run that neither stops nor was replaced."""
    return bool(await database.find_value(_SQL["is_child_run_awaited"], child=child))


@dataclass(frozen=True)
class StartedChild:
    """A run under the key of a child run. `is_own` if this job has started it; `is_abandoned` if an earlier revision of
    the job was replaced and will cancel it."""

    id: UUID
    state: RunState
    is_own: bool
    is_abandoned: bool
    has_same_input: bool


async def find_child_run(
    database: Database, job: JobKey, tenant: int, pipeline: str, key: str, digest: bytes
) -> StartedChild | None:
    """Return the run that was started with this key. `digest` is that of the input that the job passes now."""
    run, step, item, revision = job
    row = await database.fetchrow(
        _SQL["find_child_run"],
        run=run,
        step=step,
        item=item,
        revision=revision,
        tenant=tenant,
        pipeline=pipeline,
        key=key,
        digest=digest,
    )
    return None if row is None else make_record(StartedChild, row, state=RunState(row["state"]))


@dataclass(frozen=True)
class DuePoll:
    """External work that is due for a poll. `polls` is the number of this poll, `stop` the reason to end the work.

    `worker_deaths` counts the workers in a row that died while they polled it. `seconds_left` is the time to its total
    timeout or, once it should end, the time for which its end is awaited.
    """

    run: UUID
    step: str
    item: str
    revision: int
    version: int
    external_id: str
    poll: str | None
    cancel: str | None
    polls: int
    state: Any
    stop: str | None
    given_up: bool
    callback_received: bool
    callback_body: str | None
    worker_deaths: int
    seconds_left: float

    @property
    def calls_application(self) -> bool:
        """Return whether to call application code: not for abandoned work whose polls may have killed workers."""
        return not (self.worker_deaths and self.given_up)

    @property
    def can_confirm_end(self) -> bool:
        """Return whether the provider can confirm that the work has ended, other than by its callback."""
        return self.poll is not None or self.cancel is not None

    @property
    def is_suspect(self) -> bool:
        """Return whether this poll may kill its worker, as it may have killed another."""
        return self.calls_application and self.worker_deaths > 0


@dataclass(frozen=True)
class DueRequest:
    """What a worker claims: polls or looks of these versions. At most one is a suspect, during which a worker has died,
    and only with `suspect`."""

    versions: Sequence[int]
    limit: int
    lease: timedelta
    worker: int | None = None
    suspect: bool = True


async def poll_due(database: Database, request: DueRequest) -> list[DuePoll]:
    return await database.fetch_records(DuePoll, _SQL["poll_due"], **vars(request))


async def record_poll(
    database: Database,
    poll: DuePoll,
    *,
    state: str,
    progress: float | None = None,
    result: str | None = None,
    error: str | None = None,
    failed: bool = False,
    stopping: bool = False,
) -> bool:
    """Return False if a later poll was made, or the work had ended."""
    key = {name: getattr(poll, name) for name in ("run", "step", "item", "revision", "polls")}
    is_taken = await database.fetch_value(
        _SQL["record_poll"],
        **key,
        state=state,
        progress=progress,
        result=result,
        error=error,
        failed=failed,
        stopping=stopping,
    )
    return bool(is_taken)


async def has_callback(database: Database, token_hash: bytes) -> bool:
    return bool(await database.fetch_value(_SQL["has_callback"], token_hash=token_hash))


async def record_callback(database: Database, token_hash: bytes, body: str) -> RecordedCallback:
    answer, run, *attempt = await database.fetch_one(_SQL["record_callback"], token_hash=token_hash, body=body)
    return RecordedCallback(answer, None if run is None else SpanContext(run.int, get_attempt_span_id(*attempt)))
