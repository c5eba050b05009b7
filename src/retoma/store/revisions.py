"""Acts of people on runs: work is done again, or a person's word stands in for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from retoma.errors import AtWork, KeyReused
from retoma.records import Made, Revision
from retoma.states import JobState, RunState
from retoma.store.database import Database
from retoma.store.statements import statements
from retoma.store.watchdog import GRACE

_SQL = statements("revisions")
_NOT_OVER, _LIST_HAS_ITEMS, _AT_WORK, _KEY_REUSED = "RT002", "RT003", "RT004", "RT005"


@dataclass(frozen=True)
class Ask:
    """By what an act is known when it is asked for again: it is then answered as before, and not done twice.

    `digest` is that of all that it asks for, in hexadecimal.
    """

    key: str
    digest: str


async def answered_before(database: Database, run: UUID, tenant: int | None, ask: Ask) -> Revision | None:
    """Return the first answer to this act, or None if it was not done yet."""
    try:
        row = await database.fetchrow(_SQL["answered_before"], run=run, tenant=tenant, ask=json.dumps(asdict(ask)))
    except asyncpg.PostgresError as error:
        raise _explained(run, error) from error
    return None if row is None else _revision(row)


async def kept_answer(database: Database, run: UUID, key: str) -> Any:
    """Return the answer that was kept under this key of the run, or None."""
    row = await database.fetchrow(_SQL["kept_answer"], run=run, key=key)
    return None if row is None else json.loads(row["answer"])


async def keep_answer(database: Database, run: UUID, ask: Ask, answer: str) -> Any:
    """Keep an answer, as JSON, unless the key has one already. Return the one that is kept."""
    await database.fetch(_SQL["keep_answer"], run=run, ask=json.dumps(asdict(ask)), answer=answer)
    return await kept_answer(database, run, ask.key)


async def cancel(database: Database, run: UUID, tenant: int | None, by: str, ask: Ask) -> RunState | None:
    """Cancel a run; return its state, as this act was first answered. None if there is no such run."""
    state = (await _acted(database, "cancel", run, ask, tenant=tenant, by=by))["state"]
    return None if state is None else RunState(state)


async def resume(
    database: Database, run: UUID, tenant: int | None, by: str, ask: Ask, pause: timedelta
) -> tuple[RunState | None, bool]:
    """Return the run's state, as this act was first answered, and whether the run goes on by it."""
    row = await _acted(database, "resume", run, ask, tenant=tenant, by=by, pause=pause, grace=GRACE)
    return None if row["state"] is None else RunState(row["state"]), bool(row["done"])


async def rerun_failed(
    database: Database, run: UUID, tenant: int | None, by: str, step: str | None, items: Sequence[str] | None, ask: Ask
) -> Revision | None:
    """None if there is no such run."""
    chosen = None if items is None else list(items)
    return _revision(await _acted(database, "rerun_failed", run, ask, tenant=tenant, by=by, step=step, items=chosen))


async def edit(
    database: Database,
    run: UUID,
    tenant: int | None,
    by: str,
    step: str,
    item: str,
    value: str,
    ask: Ask,
    *,
    stay: bool,
) -> Revision | None:
    """None if there is no such job. `value` is JSON; with `stay` what depends on it is left as it is."""
    asked = {"tenant": tenant, "by": by, "step": step, "item": item, "value": value, "stay": stay}
    return _revision(await _acted(database, "edit_result", run, ask, **asked))


async def rerun(
    database: Database,
    run: UUID,
    tenant: int | None,
    *,
    by: str,
    why: str | None,
    steps: Sequence[str] | None,
    items: Sequence[str] | None,
    stale: bool,
    alone: bool,
    fresh: bool,
    ask: Ask,
) -> Revision | None:
    """None if there is no such run; no jobs if there is nothing to make."""
    row = await _acted(
        database,
        "rerun",
        run,
        ask,
        tenant=tenant,
        by=by,
        why=why,
        steps=None if steps is None else list(steps),
        items=None if items is None else list(items),
        stale=stale,
        alone=alone,
        fresh=fresh,
    )
    return _revision(row)


async def fork(
    database: Database, run: UUID, tenant: int | None, *, by: str, new: UUID, value: str, steps: Sequence[str], ask: Ask
) -> tuple[UUID, Revision | None]:
    """The new run, which is another than `new` if its key was used before."""
    row = await _acted(database, "fork", run, ask, tenant=tenant, by=by, new=new, input=value, steps=list(steps))
    return row["run"], _revision(row)


async def stale(database: Database, run: UUID) -> list[tuple[str, str]]:
    return [(row["step"], row["item"]) for row in await database.fetch(_SQL["stale"], run=run)]


async def made(database: Database, run: UUID, step: str, item: str, limit: int) -> list[Made]:
    rows = await database.fetch(_SQL["made"], run=run, step=step, item=item, limit=limit)
    return [_made(row) for row in rows]


@dataclass(frozen=True)
class Before:
    """What the worker of a job must know that was begun before, is made anew, or was decided by a person. All is JSON.

    `reused` is the result to keep; `former` the last one there was; `decision` what a person said of this very job.
    """

    reused: str | None
    former: str | None
    feedback: str | None
    decision: str | None
    value: str | None


async def what_came_before(database: Database, run: UUID, step: str, item: str, revision: int) -> Before:
    row = await database.fetch_one(_SQL["what_came_before"], run=run, step=step, item=item, revision=revision)
    return Before(**row)


def _made(row: asyncpg.Record) -> Made:
    return Made(
        **dict(row)
        | {
            "state": JobState(row["state"]),
            "output": json.loads(row["output"] or "null"),
            "feedback": json.loads(row["feedback"] or "null"),
        }
    )


async def skip(
    database: Database, run: UUID, tenant: int | None, by: str, step: str, items: Sequence[str], ask: Ask
) -> Revision | None:
    """None if there are no such jobs."""
    return _revision(await _acted(database, "skip_items", run, ask, tenant=tenant, by=by, step=step, items=list(items)))


async def _acted(database: Database, act: str, run: UUID, ask: Ask, **values: Any) -> asyncpg.Record:
    try:
        return await database.fetch_one(_SQL[act], run=run, ask=json.dumps(asdict(ask)), **values)
    except asyncpg.PostgresError as error:
        raise _explained(run, error) from error


def _revision(row: asyncpg.Record) -> Revision | None:
    return None if row["revision"] is None else Revision(row["revision"], row["jobs"])


def _explained(run: UUID, error: asyncpg.PostgresError) -> Exception:
    if error.sqlstate == _NOT_OVER:
        return AtWork(f"run {run} is {error}: this needs one that has completed or failed")
    if error.sqlstate == _LIST_HAS_ITEMS:
        return AtWork(f"run {run} would get another list for items that exist already: make the list anew by a rerun")
    if error.sqlstate == _AT_WORK:
        return AtWork(f"run {run} is at work on {error}: let that end first, or cancel the run")
    if error.sqlstate == _KEY_REUSED:
        return KeyReused(f"the key {str(error)!r} was used for something else than this act on run {run}: take another")
    return error
