"""The environment of one measurement: a new database, a client, and the database's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from bench.server import Server
from bench.workloads import app
from retoma import Client, Pipeline, Settings, connect

_OVER = (
    "select not exists (select from retoma.runs where id >= $1 and ended_at is null) as over, clock_timestamp() as at"
)
_DONE = """
select count(*) as jobs, count(*) filter (where state <> 'succeeded' or attempt <> 1) as others,
       min(started_at) as first_start, max(ended_at) as last_end
  from retoma.jobs where run >= $1
"""


@dataclass(frozen=True)
class Rig:
    """`scale` reduces every count, for a quick run; `patience` limits the seconds of one measurement."""

    server: Server
    scale: float = 1.0
    timeout: float = 180.0

    def count(self, full: int, least: int = 1) -> int:
        return max(least, int(full * self.scale))

    @asynccontextmanager
    async def testbed(self) -> AsyncIterator[Testbed]:
        async with (
            self.server.fresh() as url,
            asyncio.timeout(self.timeout),
            connect(app, Settings(database_url=url)) as client,
            self.server.connection(url) as connection,
        ):
            yield Testbed(url, client, connection)


@dataclass(frozen=True)
class Work:
    """Completed jobs. Seconds are by the database's clock, from the first claim."""

    jobs: int
    seconds: float  # until a client can see the last commit
    seconds_to_last_call: float  # until the call with the last result arrived

    @property
    def per_second(self) -> float:
        return self.jobs / self.seconds


class Testbed:
    def __init__(self, url: str, client: Client, connection: asyncpg.Connection) -> None:
        self.url = url
        self.client = client
        self.connection = connection

    async def load(self, pipeline: Pipeline, runs: int, inputs: dict[str, Any] | None = None) -> UUID:
        """Start runs, and wait until the disk is idle. Return the first id; ids grow with time."""
        first = await self.start(pipeline, runs, inputs)
        await self.connection.execute("checkpoint")
        return first

    async def start(self, pipeline: Pipeline, runs: int, inputs: dict[str, Any] | None = None) -> UUID:
        started = await self.client.start_many(pipeline, [inputs or {}] * runs)
        return min(run.id for run in started)

    async def work(self, first: UUID, jobs: int, every: float = 0.01) -> Work:
        """Wait for their end. Raise if any of them did not succeed."""
        seen_at = await self.wait_for_end(first, every)
        (done,) = await self.connection.fetch(_DONE, first)
        if done["jobs"] != jobs or done["others"]:
            raise RuntimeError(
                f"{jobs} jobs should have succeeded at once; there are {done['jobs']}, and {done['others']} did not: "
                "if a worker was declared dead, the machine was frozen for seconds"
            )
        return Work(
            jobs,
            (seen_at - done["first_start"]).total_seconds(),
            (done["last_end"] - done["first_start"]).total_seconds(),
        )

    async def wait_for_end(self, first: UUID, every: float) -> datetime:
        """Wait for the end of every run from `first` on. Return when it was seen, by the database's clock."""
        while True:
            (row,) = await self.connection.fetch(_OVER, first)
            if row["over"]:
                seen_at: datetime = row["at"]
                return seen_at
            await asyncio.sleep(every)
