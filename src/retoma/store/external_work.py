"""Effects, which are the recorded parts of jobs, and external work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from retoma.records import ExternalWork
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("external_work")
EffectState = Literal["new", "begun", "done", "lost"]
CallbackResult = Literal["taken", "repeated", "expired", "unknown"]


@dataclass(frozen=True)
class LeasedEffect:
    """A named effect of a job, under a lease."""

    run: UUID
    step: str
    item: str
    revision: int
    fence: int
    name: str


async def begin_effect(
    database: Database,
    worker: int,
    effect: LeasedEffect,
    token_hash: bytes | None,
    token_lives: timedelta,
    *,
    findable: bool = False,
) -> tuple[EffectState, str | None]:
    """Return whether the effect began before, and its recorded result as JSON. A `findable` one can be reconciled."""
    options = {"token_hash": token_hash, "token_lives": token_lives, "findable": findable}
    row = await database.fetch_one(_SQL["begin_effect"], worker=worker, **vars(effect), **options)
    return row["state"], row["value"]


async def end_effect(database: Database, effect: LeasedEffect, value: str) -> bool:
    """Record the result of an effect. Return False if a later lease has taken the job over."""
    return bool(await database.fetch(_SQL["end_effect"], **vars(effect), value=value))


async def undo_effect(database: Database, effect: LeasedEffect) -> None:
    """Record that the effect did not happen."""
    await database.fetch(_SQL["undo_effect"], **vars(effect))


@dataclass(frozen=True)
class EndedWork:
    """The outcome of external work."""

    external_id: Any
    state: str
    result: Any
    error: dict[str, Any]


async def get_ended_work(database: Database, run: UUID, step: str, item: str, revision: int) -> EndedWork | None:
    """Return None while it is in progress, or if there is none."""
    row = await database.fetchrow(_SQL["get_ended_work"], run=run, step=step, item=item, revision=revision)
    if row is None:
        return None
    return EndedWork(
        _parse_json(row["external_id"]), row["state"], _parse_json(row["result"]), _parse_json(row["error"]) or {}
    )


async def list_for_run(database: Database, run: UUID) -> list[ExternalWork]:
    rows = await database.fetch(_SQL["list_external_work"], run=run)
    return [
        ExternalWork(**{**row, "external_id": _parse_json(row["external_id"]), "error": _parse_json(row["error"])})
        for row in rows
    ]


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


async def poll_due(
    database: Database,
    versions: Sequence[int],
    limit: int,
    lease: timedelta,
    worker: int | None = None,
    *,
    suspect: bool = True,
) -> list[DuePoll]:
    """Claim polls for a worker; with `suspect`, at most one of those during which a worker has died."""
    rows = await database.fetch(
        _SQL["poll_due"], versions=list(versions), limit=limit, lease=lease, worker=worker, suspect=suspect
    )
    return [DuePoll(**row) for row in rows]


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
    row = await database.fetch_one(
        _SQL["record_poll"],
        run=poll.run,
        step=poll.step,
        item=poll.item,
        revision=poll.revision,
        polls=poll.polls,
        state=state,
        progress=progress,
        result=result,
        error=error,
        failed=failed,
        stopping=stopping,
    )
    return bool(row["taken"])


async def has_callback(database: Database, token_hash: bytes) -> bool:
    return bool((await database.fetch_one(_SQL["has_callback"], token_hash=token_hash))["found"])


async def record_callback(database: Database, token_hash: bytes, body: str) -> CallbackResult:
    answer: CallbackResult = (await database.fetch_one(_SQL["record_callback"], token_hash=token_hash, body=body))[
        "answer"
    ]
    return answer


def _parse_json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
