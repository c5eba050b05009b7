"""Runs, their jobs and their events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from retoma.errors import RunRemoved
from retoma.records import ErrorCounts, Event, FailedAttempt, Job, Run, StepProgress
from retoma.states import JOB_FINAL_STATES, RUN_FINAL_STATES, JobState, RunState
from retoma.store.database import Database
from retoma.store.rows import make_record, parse_json
from retoma.store.statements import statements
from retoma.store.tenants import as_filter

_SQL = statements("runs")
_KEY_FIELDS = {"key", "digest"}
_NOT_COMPLETED = RUN_FINAL_STATES - {RunState.COMPLETED}


async def get_run(
    database: Database, run: UUID, tenants: Sequence[int] | None = None, *, with_input: bool = True
) -> Run | None:
    row = await database.fetchrow(_SQL["get_run"], run=run, tenants=tenants, with_input=with_input)
    return _make_run(row) if row else None


async def get_tenant(database: Database, run: UUID) -> int:
    tenant: int = await database.fetch_value(_SQL["get_tenant"], run=run)
    return tenant


async def get_input(database: Database, run: UUID) -> str:
    """Return the input of an existing run as JSON."""
    return str(await database.fetch_value(_SQL["get_input"], run=run))


async def get_earlier_work(
    database: Database, run: UUID, steps: Sequence[str], item: str, revision: int
) -> tuple[int, int]:
    """Return the failures and the milliseconds of work of these steps on the item."""
    row = await database.fetch_one(_SQL["get_earlier_work"], run=run, steps=list(steps), item=item, revision=revision)
    return row["failures"], row["milliseconds"]


@dataclass(frozen=True)
class RunFilter:
    """Runs of one or several pipelines, or of all, down to `first`. `before` is the last id of the previous page.

    With a `parent`, only its child runs. With a `title`, only runs whose titles contain it, whatever the case: any part
    of a title for the newest `depth` of the tenants, or of all, before `before`, and a part that begins where a word
    begins for all runs.
    """

    tenants: Sequence[int] | None = None
    pipelines: Sequence[str] | None = None
    states: Sequence[RunState] | None = None
    before: UUID | None = None
    first: UUID | None = None
    parent: UUID | None = None
    title: str | None = None
    depth: int = 10_000
    limit: int = 50
    with_input: bool = True


async def list_runs(database: Database, wanted: RunFilter) -> list[Run]:
    """Return runs, newest first."""
    found = await _list_runs_by(_choose_index(wanted), database, wanted)
    if wanted.title is not None and len(found) < wanted.limit:
        # Only now: a title that many runs have is found among the newest, and the index would return all of them.
        runs = {run.id: run for run in [*await _list_runs_by("title words", database, wanted), *found]}
        found = [runs[run] for run in sorted(runs, reverse=True)[: wanted.limit]]
    return found


async def _list_runs_by(index: str, database: Database, wanted: RunFilter) -> list[Run]:
    rows = await database.fetch(_SQL["list_runs"], by=index, **vars(wanted) | as_filter(wanted.tenants))
    return [_make_run(row) for row in rows]


def _choose_index(wanted: RunFilter) -> str:
    """Return the index that finds these runs without reading many others."""
    if wanted.title is not None:
        return "title"
    if wanted.parent is not None:
        return "parent"
    states = set(wanted.states or RunState)
    if states <= _NOT_COMPLETED:
        return "not completed"
    if not states & RUN_FINAL_STATES:
        return "open"
    return "run" if wanted.pipelines is None else "pipeline"


async def count_children(database: Database, run: UUID, tenants: Sequence[int] | None) -> dict[RunState, int]:
    """Return the number of child runs by state, in the order of the states."""
    rows = await database.fetch(_SQL["count_children"], run=run, tenants=tenants)
    found = {row["state"]: row["runs"] for row in rows}
    return {state: found[state] for state in RunState if state in found}


async def list_ancestors(database: Database, run: UUID, limit: int) -> list[UUID]:
    """Return the parent of the run, the parent of that and so on."""
    return await database.fetch_column(_SQL["list_ancestors"], run=run, limit=limit)


async def find_by_key(database: Database, tenant: int, pipeline: str, key: str) -> UUID | None:
    """Return the run that a key has started, or None for an unknown key. Raise RunRemoved if it was removed since."""
    found = await database.fetchrow(_SQL["find_run_by_key"], tenant=tenant, pipeline=pipeline, key=key)
    if found is not None and found["is_removed"]:
        raise RunRemoved(key)
    return None if found is None else found["run"]


async def get_start_times(
    database: Database, runs: Iterable[UUID], tenants: Sequence[int] | None = None
) -> dict[UUID, datetime]:
    """Return when work started in those runs of these tenants that have started."""
    rows = await database.fetch(_SQL["get_start_times"], runs=list(runs), tenants=tenants)
    return {row["id"]: row["started_at"] for row in rows}


async def list_jobs(database: Database, run: UUID, through: int | None = None) -> list[Job]:
    """Return the current job of every step and item, or those of a revision, in item order."""
    rows = await database.fetch(_SQL["list_jobs"], run=run, through=through)
    return sorted((_make_job(row) for row in rows), key=lambda job: (job.created_at, job.step, job.position))


async def get_progress(database: Database, run: UUID) -> list[StepProgress]:
    rows = await database.fetch(_SQL["count_jobs_by_step"], run=run)
    by_step: dict[str, list[asyncpg.Record]] = {}
    for row in rows:
        by_step.setdefault(row["step"], []).append(row)
    return [_make_progress(step, rows) for step, rows in by_step.items()]


async def get_results(database: Database, run: UUID, through: int | None = None) -> dict[str, Any]:
    """Return the current results by step, or those of a revision; for an `each` step, a dictionary by item."""
    rows = await database.fetch(_SQL["list_results"], run=run, through=through)
    return _group_by_step({**row, "output": parse_json(row["output"])} for row in rows)


async def get_outcome(database: Database, run: UUID) -> tuple[RunState, dict[str, Any]] | None:
    """Return the state of a run and, once it has completed, the results of the steps that no other depends on."""
    row = await database.fetchrow(_SQL["get_outcome"], run=run)
    return None if row is None else (RunState(row["state"]), _group_by_step(parse_json(row["results"]) or []))


async def measure_results(database: Database, run: UUID, through: int) -> int:
    """Return the size of all results through this revision, in bytes of JSON."""
    return int(await database.fetch_value(_SQL["measure_results"], run=run, through=through))


async def list_events(
    database: Database, run: UUID, kinds: Sequence[str] | None, after: int, limit: int
) -> list[Event]:
    rows = await database.fetch(_SQL["list_events"], run=run, kinds=kinds, after=after, limit=limit)
    return [make_record(Event, row, data=parse_event_data(row)) for row in rows]


async def list_jobs_of_step(database: Database, run: UUID, step: str, **wanted: Any) -> list[Job]:
    """Return jobs in item order, by `states` and `item`. `after` is the last position of the previous page."""
    return [_make_job(row) for row in await database.fetch(_SQL["list_jobs_of_step"], run=run, step=step, **wanted)]


async def list_events_of_job(database: Database, run: UUID, step: str, item: str, limit: int) -> list[Event]:
    """Return events, newest first."""
    rows = await database.fetch(_SQL["list_events_of_job"], run=run, step=step, item=item, limit=limit)
    return [make_record(Event, row, data=parse_event_data(row)) for row in rows]


async def list_failed_attempts(database: Database, run: UUID, step: str, item: str, limit: int) -> list[FailedAttempt]:
    """Return attempts without a result, of steps that have one job and of this item."""
    return await database.fetch_records(
        FailedAttempt, _SQL["list_failed_attempts"], run=run, step=step, item=item, limit=limit
    )


async def find_data_with_text(
    database: Database, run: UUID, text: str, limit: int, *, of_items: bool = True
) -> list[Any]:
    """Return inputs and results whose JSON contains this text; without `of_items`, only those of single jobs."""
    statement = _SQL["find_data_with_text" if of_items else "find_results_with_text"]
    return [parse_json(value) for value in await database.fetch_column(statement, run=run, text=text, limit=limit)]


async def get_last_errors(
    database: Database, run: UUID, *, through: int | None, limit: int | None, with_stack: bool
) -> dict[tuple[str, str], Any]:
    """Return the newest error of each job by step and item, with its attempt and whether it was retried since; failed
    jobs come first."""
    rows = await database.fetch(_SQL["list_last_errors"], run=run, through=through, limit=limit, with_stack=with_stack)
    return {
        (row["step"], row["item"]): {**parse_json(row["data"]), "attempt": row["attempt"], "retried": row["retried"]}
        for row in rows
    }


async def count_errors(database: Database, run: UUID) -> ErrorCounts:
    return ErrorCounts(**await database.fetch_one(_SQL["count_errors"], run=run))


async def get_last_failure(database: Database, run: UUID, through: int) -> dict[str, str]:
    """Return the last failure through this revision: step, item, code and message, if there is one."""
    row = await database.fetchrow(_SQL["get_last_failure"], run=run, through=through)
    return {name: value for name, value in (row or {}).items() if value}


def _group_by_step(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for row in rows:
        if row["each"]:
            results.setdefault(row["step"], {})[row["item"]] = row["output"]
        else:
            results[row["step"]] = row["output"]
    return results


def _make_run(row: asyncpg.Record) -> Run:
    return make_record(Run, row, "input", state=RunState(row["state"]))


def _make_job(row: asyncpg.Record) -> Job:
    return make_record(Job, row, "output", state=JobState(row["state"]))


def _make_progress(step: str, rows: list[asyncpg.Record]) -> StepProgress:
    jobs: Counter[JobState] = Counter()
    for row in rows:
        if row["jobs"]:
            jobs[JobState(row["state"])] += row["jobs"]
    revisions = sorted({row["revision"] for row in rows if row["started_at"]})
    return StepProgress(
        step=step,
        each=rows[0]["each"],
        queue=rows[0]["queue"],
        jobs=dict(jobs),
        created_at=_find(min, "created_at", rows),
        started_at=_find(min, "started_at", rows),
        ended_at=_find(max, "ended_at", rows),
        spans=tuple(_make_span([row for row in rows if row["revision"] == each]) for each in revisions),
    )


def _make_span(rows: Sequence[asyncpg.Record]) -> tuple[datetime, datetime | None]:
    """Return the first start and the last end of jobs that have started. The end is None while one has not ended."""
    began = [row for row in rows if row["started_at"]]
    is_over = all(JobState(row["state"]) in JOB_FINAL_STATES for row in rows)
    return min(row["started_at"] for row in began), _find(max, "ended_at", rows) if is_over else None


def _find(choose: Callable[..., datetime | None], column: str, rows: Sequence[asyncpg.Record]) -> datetime | None:
    """Return the first or the last time in a column, or None if it has none."""
    return choose((row[column] for row in rows if row[column]), default=None)


def parse_event_data(event: asyncpg.Record) -> Any:
    """Return the data of an event for people, without the idempotency key of an action."""
    data = parse_json(event["data"])
    if event["kind"] != "action" or data is None:
        return data
    return {name: each for name, each in data.items() if name not in _KEY_FIELDS}
