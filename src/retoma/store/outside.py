"""Recorded parts of jobs, and work that goes on outside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from retoma.records import Outside
from retoma.store.database import Database
from retoma.store.statements import statements

_SQL = statements("outside")
Effect = Literal["new", "begun", "done", "lost"]
Called = Literal["taken", "repeated", "expired", "unknown"]


@dataclass(frozen=True)
class Part:
    """A named part of a job, under a lease."""

    run: UUID
    step: str
    item: str
    revision: int
    fence: int
    name: str


async def begin(
    database: Database,
    worker: int,
    part: Part,
    token_hash: bytes | None,
    token_lives: timedelta,
    *,
    findable: bool = False,
) -> tuple[Effect, str | None]:
    """Whether it began before, and what came of it, as JSON. What is `findable` can be looked for outside."""
    told = {"token_hash": token_hash, "token_lives": token_lives, "findable": findable}
    row = await database.fetch_one(_SQL["begin_effect"], worker=worker, **vars(part), **told)
    return row["state"], row["value"]


async def end(database: Database, part: Part, value: str) -> bool:
    """Record what came of it. False if a later lease has taken the job over."""
    return bool(await database.fetch(_SQL["end_effect"], **vars(part), value=value))


async def undo(database: Database, part: Part) -> None:
    """It is known not to have happened."""
    await database.fetch(_SQL["undo_effect"], **vars(part))


@dataclass(frozen=True)
class Ended:
    """How outside work ended."""

    handle: Any
    state: str
    result: Any
    error: dict[str, Any]


async def ended(database: Database, run: UUID, step: str, item: str, revision: int) -> Ended | None:
    """None while it goes on, or if there is none."""
    row = await database.fetchrow(_SQL["outside_of_job"], run=run, step=step, item=item, revision=revision)
    if row is None:
        return None
    return Ended(_loaded(row["handle"]), row["state"], _loaded(row["result"]), _loaded(row["error"]) or {})


async def of_run(database: Database, run: UUID) -> list[Outside]:
    rows = await database.fetch(_SQL["outside_of_run"], run=run)
    return [Outside(**{**row, "handle": _loaded(row["handle"]), "error": _loaded(row["error"])}) for row in rows]


@dataclass(frozen=True)
class Look:
    """Outside work that this process should look at; `looks` is the number of the look, `stop` why it should end.

    `deaths` is how many workers in a row died while they looked at it.
    """

    run: UUID
    step: str
    item: str
    revision: int
    version: int
    handle: str
    poll: str | None
    cancel: str | None
    looks: int
    state: Any
    stop: str | None
    given_up: bool
    called: bool
    called_with: str | None
    deaths: int

    @property
    def is_called(self) -> bool:
        """Whether the application's code is asked: not if nobody waits any longer for what it may kill a worker."""
        return not (self.deaths and self.given_up)


async def due(
    database: Database,
    versions: Sequence[int],
    limit: int,
    lease: timedelta,
    worker: int | None = None,
    *,
    suspect: bool = True,
) -> list[Look]:
    """Claim looks for a worker; with `suspect`, at most one of those during which a worker has died."""
    rows = await database.fetch(
        _SQL["looks_due"], versions=list(versions), limit=limit, lease=lease, worker=worker, suspect=suspect
    )
    return [Look(**row) for row in rows]


async def record(
    database: Database,
    look: Look,
    *,
    state: str,
    progress: float | None = None,
    result: str | None = None,
    error: str | None = None,
    failed: bool = False,
    stopping: bool = False,
) -> bool:
    """False if a later look was made, or the work had ended."""
    row = await database.fetch_one(
        _SQL["record_look"],
        run=look.run,
        step=look.step,
        item=look.item,
        revision=look.revision,
        looks=look.looks,
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


async def call_back(database: Database, token_hash: bytes, body: str) -> Called:
    answer: Called = (await database.fetch_one(_SQL["call_back"], token_hash=token_hash, body=body))["answer"]
    return answer


def _loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text)
