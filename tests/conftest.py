from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

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
    masking._SECRETS.forget()


@pytest.fixture(autouse=True)
def _plain_logs() -> None:
    """What another test of this process has set up says nothing about this one's log lines."""
    logs._IS_CONFIGURED = False


@pytest.fixture(scope="session")
async def database() -> AsyncIterator[Database]:
    """One database for all tests of this process; each finds it empty."""
    async with fresh_database() as made:
        yield made


@pytest.fixture
async def open_sandbox(database: Database) -> OpenSandbox:
    """`open_sandbox(pipeline, ..., resources={...})`: an application of these pipelines, on an empty database."""
    await empty_database(database)

    def opened(*pipelines: Pipeline, **options: object) -> AbstractAsyncContextManager[Sandbox]:
        return sandbox(App("test", pipelines=pipelines, **options), database)  # type: ignore[arg-type]

    return opened


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


async def empty_database(database: Database) -> None:
    tables = (
        "delivery_attempts",
        "deliveries",
        "pending_webhook_events",
        "run_webhooks",
        "endpoints",
        "webhook_secrets",
        "metric_counters",
        "delivery_ends",
        "reviews",
        "pending_reruns",
        "stuck_runs",
        "callbacks",
        "external_work",
        "effects",
        "charges",
        "tenant_facts",
        "prices",
        "holdings",
        "pools",
        "events",
        "jobs",
        "runs",
        "start_keys",
        "worker_links",
        "workers",
        "servers",
        "reads",
        "edges",
        "steps",
        "versions",
        "api_keys",
        "sessions",
        "profiles",
        "action_keys",
        "tenants",
    )
    async with database.connection() as connection:
        await connection.execute("".join(f"delete from retoma.{table};" for table in tables))
        await connection.execute("update retoma.metric_cursor set through = 0, next = 0, writers = '{}'")
