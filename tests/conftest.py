from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from retoma import App, Pipeline, logs, masking
from retoma.store.database import Database
from retoma.store.statements import Statement
from retoma.testing import Sandbox, fresh_database, sandbox
from tests import environment

OpenSandbox = Callable[..., AbstractAsyncContextManager[Sandbox]]
RowsRead = dict[str, list[str]]


def pytest_configure() -> None:
    """Before any test is imported, as an application may be read from its surroundings then."""
    environment.clear_project_variables()


@pytest.fixture(autouse=True)
def _forget_secrets() -> Iterator[None]:
    """A process remembers every secret that it has met; those of one test are none of the next one's."""
    yield
    masking._SECRETS = masking._Secrets()


@pytest.fixture(autouse=True)
def _plain_logs() -> None:
    """Reset secrets that another test of this process has registered, so they do not affect log lines."""
    logs._IS_CONFIGURED = False


@pytest.fixture(scope="session")
async def database() -> AsyncIterator[Database]:
    """One database for all tests of this process; each finds it empty."""
    async with fresh_database() as made:
        yield made


@pytest.fixture
async def open_sandbox(database: Database) -> OpenSandbox:
    """`open_sandbox(pipeline, ..., resources={...})`: an application of these pipelines, on an empty database.

    Whatever a test does in it, the state of every run then follows from its facts.
    """
    await empty_database(database)

    @asynccontextmanager
    async def opened(*pipelines: Pipeline, **options: object) -> AsyncIterator[Sandbox]:
        async with sandbox(App("test", pipelines=pipelines, **options), database) as made:  # type: ignore[arg-type]
            yield made
        assert await list_underived_states(database) == []

    return opened


async def list_underived_states(database: Database) -> list[tuple[UUID, str, str]]:
    """The runs whose state is not the one that their facts give, with both."""
    async with database.connection() as connection:
        found = await connection.fetch(
            "select r.id, r.state::text, d.state::text from retoma.runs r, "
            "lateral (select retoma.derive_run_state(r) as state) d where r.state <> d.state"
        )
    return [tuple(row) for row in found]


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> RowsRead:
    """The rows that are read from now on, as text, by the name of their statement."""
    rows: RowsRead = defaultdict(list)
    fetch = Database.fetch

    async def noted(self: Database, statement: Statement, **values: Any) -> Any:
        found = await fetch(self, statement, **values)
        rows[statement.name] += map(str, found)
        return found

    monkeypatch.setattr(Database, "fetch", noted)
    return rows


EMPTIED_TABLES = (
    "schedule_counters",
    "schedule_occurrences",
    "schedules",
    "backups",
    "restores",
    "delivery_attempts",
    "deliveries",
    "pending_webhook_events",
    "run_webhooks",
    "endpoints",
    "webhook_secrets",
    "metric_counters",
    "delivery_ends",
    "comment_resolutions",
    "reviews",
    "pending_reruns",
    "stuck_runs",
    "callbacks",
    "external_work",
    "effects",
    "charges",
    "charge_sums",
    "budget_reservations",
    "budget_warnings",
    "budgets",
    "connections",
    "inbound_events",
    "inbound_streams",
    "tenant_facts",
    "tenant_files",
    "prices",
    "holdings",
    "pools",
    "bulk_targets",
    "bulk_actions",
    "worker_stacks",
    "queue_samples",
    "attempt_providers",
    "queue_slots",
    "queues",
    "events",
    "jobs",
    "runs",
    "start_keys",
    "run_holds",
    "retention_rules",
    "run_removals",
    "charge_rollups",
    "removed_decisions",
    "file_names",
    "worker_links",
    "workers",
    "servers",
    "reads",
    "edges",
    "steps",
    "versions",
    "api_keys",
    "sessions",
    "notifications",
    "notification_messages",
    "notification_preferences",
    "notification_channels",
    "review_batches",
    "review_drafts",
    "viewer_settings",
    "person_sessions",
    "account_links",
    "person_roles",
    "recovery_codes",
    "people",
    "profiles",
    "action_keys",
    "tenants",
)
"""In an order that the foreign keys allow."""

EMPTY_AUDIT_LOG = """
    do $$ begin
      if exists (select from retoma.audit_log) then truncate retoma.audit_log; end if;  -- a truncation takes 20 ms
    end $$;
"""


async def empty_database(database: Database) -> None:
    async with database.connection() as connection:
        delete = "".join(f"delete from retoma.{table};" for table in EMPTIED_TABLES) + EMPTY_AUDIT_LOG
        try:
            await connection.execute(delete)
        except asyncpg.DeadlockDetectedError:  # with the last call of a process that the test before has killed
            await connection.execute(delete)
        await connection.execute("update retoma.metric_cursor set through = 0, next = 0, writers = '{}'")
        await connection.execute("update retoma.trace_cursor set through = 0, next = 0, writers = '{}', read_at = null")
        await connection.execute(
            "delete from retoma.retention_progress; insert into retoma.retention_progress default values"
        )
