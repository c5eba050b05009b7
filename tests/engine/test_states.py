"""The permitted transitions: in the code, as data in the database, and as enforced by its triggers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
import pytest

from retoma import Pipeline, Webhook
from retoma.states import (
    DELIVERY_TRANSITIONS,
    JOB_FINAL_STATES,
    JOB_TRANSITIONS,
    REVIEW_TRANSITIONS,
    RUN_FINAL_STATES,
    RUN_TRANSITIONS,
    DeliveryState,
    JobState,
    ReviewState,
    RunState,
)
from retoma.store.database import Connection
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import rows, value

DELIVERY_ENDS = (DeliveryState.DELIVERED, DeliveryState.DEAD)


async def test_the_database_knows_the_same_transitions_as_the_code(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        stored = {
            tuple(row) for row in await rows(sandbox, "select entity, from_state, to_state from retoma.transitions")
        }
    assert stored == list_transitions("job", JOB_TRANSITIONS) | list_transitions(
        "run", RUN_TRANSITIONS
    ) | list_transitions("review", REVIEW_TRANSITIONS) | list_transitions("delivery", DELIVERY_TRANSITIONS)


async def test_the_database_knows_the_same_states_as_the_code(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        job_states = await value(sandbox, "select enum_range(null::retoma.job_state)::text[]")
        run_states = await value(sandbox, "select enum_range(null::retoma.run_state)::text[]")
        review_states = await value(sandbox, "select enum_range(null::retoma.review_state)::text[]")
        delivery_states = await value(sandbox, "select enum_range(null::retoma.delivery_state)::text[]")
    assert job_states == list(JobState)
    assert run_states == list(RunState)
    assert review_states == list(ReviewState)
    assert delivery_states == list(DeliveryState)


async def test_the_database_knows_the_same_final_states_of_runs_as_the_code(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        states = await rows(
            sandbox, "select s::text from unnest(enum_range(null::retoma.run_state)) s where retoma.is_final(s)"
        )
    assert {row["s"] for row in states} == RUN_FINAL_STATES


@pytest.mark.parametrize("before", JobState)
async def test_the_database_lets_a_job_make_only_the_permitted_transitions(
    open_sandbox: OpenSandbox, before: JobState
) -> None:
    async with open_sandbox(one_step()) as sandbox, in_state(sandbox, "jobs", before) as (connection, run):
        made = {after for after in JobState if await can_transition(connection, "jobs", "run", run, after)}
    assert made == JOB_TRANSITIONS[before] | {before}


@pytest.mark.parametrize("before", RunState)
async def test_the_database_lets_a_run_make_only_the_permitted_transitions(
    open_sandbox: OpenSandbox, before: RunState
) -> None:
    async with open_sandbox(one_step()) as sandbox, in_state(sandbox, "runs", before) as (connection, run):
        made = {after for after in RunState if await can_transition(connection, "runs", "id", run, after)}
    assert made == RUN_TRANSITIONS[before] | {before}


@pytest.mark.parametrize("before", DeliveryState)
async def test_the_database_lets_a_delivery_make_only_the_permitted_transitions(
    open_sandbox: OpenSandbox, before: DeliveryState
) -> None:
    async with open_sandbox(one_step()) as sandbox, in_state(sandbox, "deliveries", before) as (connection, run):
        made = {after for after in DeliveryState if await can_transition(connection, "deliveries", "run", run, after)}
    assert made == DELIVERY_TRANSITIONS[before] | {before}


def test_final_states_have_no_outgoing_transitions() -> None:
    assert {state for state, after in JOB_TRANSITIONS.items() if not after} == JOB_FINAL_STATES
    reopened = {RunState.RUNNING, RunState.PAUSED, RunState.NEEDS_REVIEW}  # by an act
    completed = {RunState.COMPLETED, RunState.COMPLETED_WITH_ERRORS}  # by an edit
    assert {state for state, after in RUN_TRANSITIONS.items() if after <= reopened | completed} == RUN_FINAL_STATES


async def test_a_run_has_ended_if_and_only_if_it_has_an_end_time(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        run = (await sandbox.client.start("one")).id
        for wrong in ("state = 'completed'", "ended_at = now()"):
            with pytest.raises(asyncpg.CheckViolationError, match="ended_at_is_set_when_final"):
                await value(sandbox, f"update retoma.runs set {wrong} where id = $1 returning 1", run)


async def test_the_error_for_a_forbidden_transition_names_it(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        run = await sandbox.run("one")
        with pytest.raises(asyncpg.CheckViolationError, match="a job cannot change from succeeded to ready"):
            await value(sandbox, "update retoma.jobs set state = 'ready' where run = $1 returning 1", run.id)


async def test_an_ended_run_has_an_end_time(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(one_step()) as sandbox:
        run = await sandbox.run("one")
        shown = await sandbox.client.runs.get(run.id)
        assert (shown.state, shown.is_over) == ("completed", True)
        assert shown.ended_at == await sandbox.clock.now()


def list_transitions(
    of: str,
    moves: Mapping[JobState, frozenset[JobState]]
    | Mapping[RunState, frozenset[RunState]]
    | Mapping[ReviewState, frozenset[ReviewState]]
    | Mapping[DeliveryState, frozenset[DeliveryState]],
) -> set[object]:
    return {(of, str(before), str(after)) for before, afters in moves.items() for after in afters}


@asynccontextmanager
async def in_state(sandbox: Sandbox, table: str, state: str) -> AsyncIterator[tuple[Connection, UUID]]:
    """Yield a run, its job or its delivery, inserted in this state, and a connection that is rolled back."""
    hook = Webhook("https://example.com/", events=["run.started"]) if table == "deliveries" else None
    run = (await sandbox.client.start("one", webhook=hook)).id
    async with sandbox.database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        # An update would be a transition itself, so the row is inserted again.
        columns = f"state = '{state}'{_required_columns(table, state)}"
        key = {"jobs": "run", "runs": "id", "deliveries": "run"}[table]
        await connection.execute(f"create temporary table inserted (like retoma.{table}) on commit drop")
        await connection.execute(f"insert into inserted select * from retoma.{table} where {key} = '{run}'")
        await connection.execute(f"update inserted set {columns}")
        await connection.execute(f"delete from retoma.{table} where {key} = '{run}'")
        await connection.execute(f"insert into retoma.{table} overriding system value select * from inserted")
        try:
            yield connection, run
        finally:
            await transaction.rollback()


async def can_transition(connection: Connection, table: str, key: str, run: UUID, after: str) -> bool:
    """Whether the database lets the row go to this state; it is left where it was."""
    savepoint = connection.transaction()
    await savepoint.start()
    try:
        await connection.execute(
            f"update retoma.{table} set state = '{after}'{_required_columns(table, after)} where {key} = '{run}'"
        )
    except asyncpg.CheckViolationError as error:
        return bool(error.constraint_name != "only_permitted_transitions")
    finally:
        await savepoint.rollback()
    return True


def _required_columns(table: str, state: str) -> str:
    """Return the columns that must be set with the state, so only the transition can be rejected."""
    if table == "jobs":
        return ""
    return f", ended_at = {'now()' if state in {*RUN_FINAL_STATES, *DELIVERY_ENDS} else 'null'}"


def one_step() -> Pipeline:
    pipeline = Pipeline("one")

    @pipeline.step
    async def answer() -> int:
        return 42

    return pipeline
