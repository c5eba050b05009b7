"""Stored versions of pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg

from retoma.store.database import Connection, Database
from retoma.store.statements import Statement, statements

_SQL = statements("versions")


@dataclass(frozen=True)
class EdgeRow:
    """What the end of a step triggers. The defaults are of the row that ends the run, which has no target."""

    from_step: str
    to_step: str
    edge_kind: str
    via: str = ""
    same_item: bool = False
    optional: bool = True
    self_contained: bool = False
    queue: str = ""
    head_start: int = 0
    dependency_count: int = 0
    pool: str | None = None
    opens_review: bool = False


@dataclass(frozen=True)
class ReadRow:
    step: str
    position: int
    from_step: str
    what: str


async def find_version(database: Database, pipeline: str, digest: str) -> int | None:
    number: int | None = await database.find_value(_SQL["find_version"], pipeline=pipeline, digest=digest)
    return number


async def add_version(
    database: Database,
    *,
    pipeline: str,
    digest: str,
    graph: str,
    sinks: int,
    steps: Sequence[Mapping[str, Any]],
    edges: Sequence[EdgeRow],
    reads: Sequence[ReadRow],
) -> int:
    """Store a version with all its rows, or return the one that another process has just stored."""
    async with database.connection() as connection, connection.transaction():
        number = await _execute(
            connection, _SQL["add_version"], pipeline=pipeline, digest=digest, graph=graph, sinks=sinks
        )
        if number is not None:
            await _add_rows(connection, _SQL["add_steps"], number, steps)
            await _add_rows(connection, _SQL["add_edges"], number, [vars(edge) for edge in edges])
            await _add_rows(connection, _SQL["add_reads"], number, [vars(read) for read in reads])
            return int(number)
    found = await find_version(database, pipeline, digest)
    assert found is not None
    return found


async def set_limits(
    database: Database,
    version: int,
    *,
    stuck_after: timedelta,
    resumes: int,
    retention: timedelta | None,
    timeouts: Mapping[str, timedelta],
    reviews: Mapping[str, str],
) -> None:
    """Store the current settings of the application, which are not part of the graph."""
    limits = {"stuck_after": stuck_after, "resumes": resumes, "retention": retention}
    await database.fetch(_SQL["set_limits"], version=version, **limits)
    await database.fetch(_SQL["set_timeouts"], version=version, step=list(timeouts), timeout=list(timeouts.values()))
    if reviews:
        await database.fetch(_SQL["set_reviews"], version=version, step=list(reviews), review=list(reviews.values()))


async def set_on_rejected(database: Database, pipeline: str, version: int | None) -> None:
    """Store the version that starts if a run of the pipeline is rejected, whatever version that run has."""
    await database.fetch(_SQL["set_on_rejected"], pipeline=pipeline, version=version)


async def list_newer(database: Database, pipelines: Sequence[str], newest: int) -> list[tuple[int, str]]:
    """Return the ids and graphs of versions of these pipelines beyond the newest known one."""
    rows = await database.fetch(_SQL["list_newer_versions"], pipelines=list(pipelines), newest=newest)
    return [(row["id"], row["graph"]) for row in rows]


async def list_pipelines(database: Database) -> list[str]:
    """Return the name of every pipeline that was ever defined."""
    return await database.fetch_column(_SQL["list_pipelines"])


async def get_graph(database: Database, version: int) -> str:
    """Return the graph of an existing version as JSON."""
    return str(await database.fetch_value(_SQL["get_graph"], version=version))


async def list_open_work(database: Database) -> list[asyncpg.Record]:
    """Return the remaining work of open runs: a row per version and set of steps with unfinished jobs."""
    return await database.fetch(_SQL["list_open_work"])


async def list_open_inputs(database: Database, version: int, limit: int) -> list[asyncpg.Record]:
    return await database.fetch(_SQL["list_open_inputs"], version=version, limit=limit)


async def _execute(connection: Connection, statement: Statement, **values: Any) -> Any:
    return await connection.fetchval(statement.sql, *statement.bind(values))


async def _add_rows(
    connection: Connection, statement: Statement, version: int, rows: Sequence[Mapping[str, Any]]
) -> None:
    columns = {name: [row[name] for row in rows] for name in statement.parameters if name != "version"}
    await _execute(connection, statement, version=version, **columns)
