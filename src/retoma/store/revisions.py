"""Actions of people on runs: reruns, edits, skips, forks, cancels and resumes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

import asyncpg

from retoma.errors import KeyReused, RunBusy
from retoma.records import Revision, StepRevision
from retoma.states import JobState, RunState
from retoma.store.database import Database
from retoma.store.rows import make_record, parse_json
from retoma.store.statements import statements
from retoma.store.watchdog import GRACE

_SQL = statements("revisions")
_NOT_OVER, _LIST_HAS_ITEMS, _BUSY, _KEY_REUSED = "RT002", "RT003", "RT004", "RT005"


@dataclass(frozen=True)
class Action:
    """An action of a person on a run. If it is repeated, the first answer is returned and nothing is done twice.

    With a tenant, the run must be one of its runs. `digest` is the digest of the whole request, in hexadecimal.
    """

    run: UUID
    tenant: int | None
    by: str
    key: str
    digest: str


async def find_answer(database: Database, action: Action) -> Revision | None:
    """Return the recorded answer of this action, or None if it was not performed yet."""
    return _make_revision(await _perform(database, action, "find_answer"))


async def get_answer(database: Database, run: UUID, key: str) -> Any:
    """Return the answer that was recorded under this key of the run, or None."""
    return parse_json(await database.find_value(_SQL["get_answer"], run=run, key=key))


async def record_answer(database: Database, run: UUID, key: str, digest: str, answer: str) -> Any:
    """Record an answer as JSON, unless the key already has one. Return the recorded one."""
    await database.fetch(_SQL["record_answer"], run=run, action_key=_encode_key(key, digest), answer=answer)
    return await get_answer(database, run, key)


async def cancel_run(database: Database, action: Action) -> RunState | None:
    """Cancel a run. Return its state as this action was first answered, or None if there is no such run."""
    state = (await _perform(database, action, "cancel", by=action.by))["state"]
    return None if state is None else RunState(state)


async def resume_run(database: Database, action: Action, pause: timedelta) -> tuple[RunState | None, bool]:
    """Return the run's state as this action was first answered, and whether it is in progress."""
    answer = await _perform(database, action, "resume", by=action.by, pause=pause, grace=GRACE)
    return (RunState(answer["state"]), answer["done"]) if answer else (None, False)


async def change_run(
    database: Database,
    action: Action,
    change: Literal["rerun", "rerun_failed", "edit_result", "skip_items"],
    **values: Any,
) -> Revision | None:
    """Make a change with the values that its statement takes.

    Return None if there is no such run, or no such job; and a revision without jobs if there is nothing to rerun.
    """
    return _make_revision(await _perform(database, action, change, by=action.by, **values))


async def fork_run(database: Database, action: Action, new: UUID, **values: Any) -> tuple[UUID, Revision | None]:
    """Return the new run; it differs from `new` if its key was used before."""
    answer = await _perform(database, action, "fork", by=action.by, new=new, **values)
    return UUID(answer["run"]) if answer else new, _make_revision(answer)


async def list_stale(database: Database, run: UUID) -> list[tuple[str, str]]:
    return [(row["step"], row["item"]) for row in await database.fetch(_SQL["list_stale_jobs"], run=run)]


async def get_step_history(database: Database, run: UUID, step: str, item: str, limit: int) -> list[StepRevision]:
    rows = await database.fetch(_SQL["get_step_history"], run=run, step=step, item=item, limit=limit)
    return [make_record(StepRevision, row, "output", "feedback", state=JobState(row["state"])) for row in rows]


@dataclass(frozen=True)
class PreviousWork:
    """The history of a job that was started before, is rerun, or was decided by a person. All values are JSON.

    `reused` is the result to keep, `previous_result` the last result, and `decision` a person's decision on this job:
    `approved` or `rejected`. `decided_by` is None if nobody decided before the review expired. `feedback_revision` is
    the revision that the feedback asked for.
    """

    reused: str | None
    previous_result: str | None
    feedback: str | None
    feedback_revision: int | None
    decision: str | None
    value: str | None
    decided_by: str | None
    notes: str | None


async def get_previous_work(database: Database, run: UUID, step: str, item: str, revision: int) -> PreviousWork:
    row = await database.fetch_one(_SQL["get_previous_work"], run=run, step=step, item=item, revision=revision)
    return PreviousWork(**row)


async def _perform(database: Database, action: Action, statement: str, **values: Any) -> dict[str, Any]:
    """Return the answer; an empty one if there is no such run or job, or if `find_answer` finds none."""
    key = _encode_key(action.key, action.digest)
    try:
        answer = await database.find_value(
            _SQL[statement], run=action.run, tenant=action.tenant, action_key=key, **values
        )
        return parse_json(answer) or {}
    except asyncpg.PostgresError as error:
        raise _translate_error(action.run, error) from error


def _encode_key(key: str, digest: str) -> str:
    return json.dumps({"key": key, "digest": digest})


def _make_revision(answer: dict[str, Any]) -> Revision | None:
    return Revision(answer["revision"], answer["jobs"]) if "revision" in answer else None


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
