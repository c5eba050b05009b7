"""Actions of people on runs: reruns, edits, skips, forks, cancels and resumes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from retoma.errors import KeyReused, RunBusy
from retoma.records import Revision, StepRevision
from retoma.states import JobState, RunState
from retoma.store.database import Database
from retoma.store.statements import statements
from retoma.store.watchdog import GRACE

_SQL = statements("revisions")
_NOT_OVER, _LIST_HAS_ITEMS, _BUSY, _KEY_REUSED = "RT002", "RT003", "RT004", "RT005"


@dataclass(frozen=True)
class ActionKey:
    """Identifies an action: if it is repeated, the first answer is returned and nothing is done twice.

    `digest` is the digest of the whole request, in hexadecimal.
    """

    key: str
    digest: str


async def find_answer(database: Database, run: UUID, tenant: int | None, action_key: ActionKey) -> Revision | None:
    """Return the recorded answer of this action, or None if it was not performed yet."""
    try:
        row = await database.fetchrow(
            _SQL["find_answer"], run=run, tenant=tenant, action_key=json.dumps(asdict(action_key))
        )
    except asyncpg.PostgresError as error:
        raise _translate_error(run, error) from error
    return None if row is None else _make_revision(row)


async def get_answer(database: Database, run: UUID, key: str) -> Any:
    """Return the answer that was recorded under this key of the run, or None."""
    row = await database.fetchrow(_SQL["get_answer"], run=run, key=key)
    return None if row is None else json.loads(row["answer"])


async def record_answer(database: Database, run: UUID, action_key: ActionKey, answer: str) -> Any:
    """Record an answer as JSON, unless the key already has one. Return the recorded one."""
    await database.fetch(_SQL["record_answer"], run=run, action_key=json.dumps(asdict(action_key)), answer=answer)
    return await get_answer(database, run, action_key.key)


async def cancel_run(
    database: Database, run: UUID, tenant: int | None, by: str, action_key: ActionKey
) -> RunState | None:
    """Cancel a run. Return its state as this action was first answered, or None if there is no such run."""
    state = (await _run_action(database, "cancel", run, action_key, tenant=tenant, by=by))["state"]
    return None if state is None else RunState(state)


async def resume_run(
    database: Database, run: UUID, tenant: int | None, by: str, action_key: ActionKey, pause: timedelta
) -> tuple[RunState | None, bool]:
    """Return the run's state as this action was first answered, and whether it is in progress."""
    row = await _run_action(database, "resume", run, action_key, tenant=tenant, by=by, pause=pause, grace=GRACE)
    return None if row["state"] is None else RunState(row["state"]), bool(row["done"])


async def rerun_failed(
    database: Database,
    run: UUID,
    tenant: int | None,
    by: str,
    step: str | None,
    items: Sequence[str] | None,
    action_key: ActionKey,
) -> Revision | None:
    """Return None if there is no such run."""
    chosen = None if items is None else list(items)
    return _make_revision(
        await _run_action(database, "rerun_failed", run, action_key, tenant=tenant, by=by, step=step, items=chosen)
    )


async def edit_result(
    database: Database,
    run: UUID,
    tenant: int | None,
    by: str,
    step: str,
    item: str,
    value: str,
    action_key: ActionKey,
    *,
    keep_dependents: bool,
) -> Revision | None:
    """Return None if there is no such job. `value` is JSON; with `keep_dependents` its dependents do not rerun."""
    values = {
        "tenant": tenant,
        "by": by,
        "step": step,
        "item": item,
        "value": value,
        "keep_dependents": keep_dependents,
    }
    return _make_revision(await _run_action(database, "edit_result", run, action_key, **values))


async def rerun(
    database: Database,
    run: UUID,
    tenant: int | None,
    *,
    by: str,
    reason: str | None,
    steps: Sequence[str] | None,
    items: Sequence[str] | None,
    stale: bool,
    isolated: bool,
    no_reuse: bool,
    action_key: ActionKey,
) -> Revision | None:
    """Return None if there is no such run, and a revision without jobs if there is nothing to rerun."""
    row = await _run_action(
        database,
        "rerun",
        run,
        action_key,
        tenant=tenant,
        by=by,
        reason=reason,
        steps=None if steps is None else list(steps),
        items=None if items is None else list(items),
        stale=stale,
        isolated=isolated,
        no_reuse=no_reuse,
    )
    return _make_revision(row)


async def fork_run(
    database: Database,
    run: UUID,
    tenant: int | None,
    *,
    by: str,
    new: UUID,
    value: str,
    title: str | None,
    steps: Sequence[str],
    action_key: ActionKey,
) -> tuple[UUID, Revision | None]:
    """Return the new run; it differs from `new` if its key was used before."""
    row = await _run_action(
        database,
        "fork",
        run,
        action_key,
        tenant=tenant,
        by=by,
        new=new,
        input=value,
        title=title,
        steps=list(steps),
    )
    return row["run"], _make_revision(row)


async def list_stale(database: Database, run: UUID) -> list[tuple[str, str]]:
    return [(row["step"], row["item"]) for row in await database.fetch(_SQL["list_stale_jobs"], run=run)]


async def get_step_history(database: Database, run: UUID, step: str, item: str, limit: int) -> list[StepRevision]:
    rows = await database.fetch(_SQL["get_step_history"], run=run, step=step, item=item, limit=limit)
    return [_make_step_revision(row) for row in rows]


@dataclass(frozen=True)
class PreviousWork:
    """The history of a job that was started before, is rerun, or was decided by a person. All values are JSON.

    `reused` is the result to keep, `previous_result` the last result, and `decision` a person's decision on this job.
    """

    reused: str | None
    previous_result: str | None
    feedback: str | None
    decision: str | None
    value: str | None


async def get_previous_work(database: Database, run: UUID, step: str, item: str, revision: int) -> PreviousWork:
    row = await database.fetch_one(_SQL["get_previous_work"], run=run, step=step, item=item, revision=revision)
    return PreviousWork(**row)


def _make_step_revision(row: asyncpg.Record) -> StepRevision:
    return StepRevision(
        **dict(row)
        | {
            "state": JobState(row["state"]),
            "output": json.loads(row["output"] or "null"),
            "feedback": json.loads(row["feedback"] or "null"),
        }
    )


async def skip_items(
    database: Database, run: UUID, tenant: int | None, by: str, step: str, items: Sequence[str], action_key: ActionKey
) -> Revision | None:
    """Return None if there are no such jobs."""
    return _make_revision(
        await _run_action(database, "skip_items", run, action_key, tenant=tenant, by=by, step=step, items=list(items))
    )


async def _run_action(
    database: Database, action: str, run: UUID, action_key: ActionKey, **values: Any
) -> asyncpg.Record:
    try:
        return await database.fetch_one(_SQL[action], run=run, action_key=json.dumps(asdict(action_key)), **values)
    except asyncpg.PostgresError as error:
        raise _translate_error(run, error) from error


def _make_revision(row: asyncpg.Record) -> Revision | None:
    return None if row["revision"] is None else Revision(row["revision"], row["jobs"])


def _translate_error(run: UUID, error: asyncpg.PostgresError) -> Exception:
    if error.sqlstate == _NOT_OVER:
        return RunBusy(f"run {run} is {error}: only a run that has completed or failed can be changed this way")
    if error.sqlstate == _LIST_HAS_ITEMS:
        return RunBusy(f"run {run} already has items of this list: rerun the step that returns the list instead")
    if error.sqlstate == _BUSY:
        return RunBusy(f"run {run} is working on {error}: wait until it has ended, or cancel the run")
    if error.sqlstate == _KEY_REUSED:
        return KeyReused(f"the key {str(error)!r} was already used for another action on run {run}: use another key")
    return error
