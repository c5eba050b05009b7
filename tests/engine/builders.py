"""Shared by the tests of the engine: database queries and shortcuts to drive a worker."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from retoma.engine.claim_protocol import Claim, ClaimRequest, WorkerLink
from retoma.engine.outcomes import Outcome
from retoma.engine.tenant_resources import TenantResources
from retoma.store import workers
from retoma.store.database import Database, DedicatedConnection
from retoma.store.statements import Statement, statements
from retoma.testing import ManualWorker, Sandbox
from retoma.worker.child_runs import ChildRuns
from retoma.worker.served_versions import ServedVersions

HEARTBEAT_TIMEOUT = timedelta(seconds=6)


async def rows(sandbox: Sandbox, sql: str, *values: Any) -> list[asyncpg.Record]:
    async with sandbox.database.connection() as connection, connection.transaction():
        return list(await connection.fetch(sql, *values))


async def value(sandbox: Sandbox, sql: str, *values: Any) -> Any:
    ((found,),) = await rows(sandbox, sql, *values)
    return found


async def states(sandbox: Sandbox, run: UUID) -> dict[str, str]:
    """The state of every job, by `step` or `step:item`."""
    return {name(job): str(job.state) for job in await sandbox.client.runs.list_jobs(run)}


async def codes(sandbox: Sandbox, run: UUID) -> dict[str, str | None]:
    return {name(job): job.code for job in await sandbox.client.runs.list_jobs(run)}


async def state(sandbox: Sandbox, run: UUID) -> str:
    return str((await sandbox.client.runs.get(run)).state)


async def kinds(sandbox: Sandbox, run: UUID) -> list[str]:
    """The run's events, as `kind` or `kind step` or `kind step:item`."""
    return [f"{event.kind} {name(event)}".strip() for event in await sandbox.client.runs.list_events(run)]


def name(thing: Any) -> str:
    """Of a claim, a job or an event."""
    return f"{thing.step}:{thing.item}" if thing.item else thing.step or ""


def names(claims: Iterable[Claim]) -> list[str]:
    return sorted(map(name, claims))


def find_claim(claims: Iterable[Claim], wanted: str) -> Claim:
    (found,) = (claim for claim in claims if name(claim) == wanted)
    return found


async def run_claims(worker: ManualWorker, claims: Iterable[Claim], *wanted: str) -> list[str]:
    """Run these claims, or the named ones, and return their outcomes in one call."""
    chosen = [claim for claim in claims if not wanted or name(claim) in wanted]
    assert len(chosen) == len(wanted) or not wanted, f"{wanted} are not all among {names(chosen)}"
    await worker.record_outcomes(await worker.attempt(chosen))
    return names(chosen)


async def run_next(worker: ManualWorker, *wanted: str) -> list[str]:
    """Claim and run everything that is ready; with names, the claim must have returned exactly these."""
    claims = await worker.claim(100)
    if wanted:
        assert names(claims) == sorted(wanted)
    return await run_claims(worker, claims)


class RawChannel:
    """A lane held by the test, with nothing between it and the database."""

    def __init__(self, sandbox: Sandbox, worker: int, link: WorkerLink, served: list[int]) -> None:
        self.worker = worker
        self.link = link
        self.served = served
        self.queues = sandbox.app.queues

    async def call(
        self,
        outcomes: Iterable[Outcome] = (),
        *,
        limit: int = 0,
        after: int = 0,
        suspect: bool = True,
        queues: list[str] | None = None,
    ) -> list[Claim]:
        """Make one call and return all jobs of its answer."""
        answer = await self.link.finish_and_claim(
            list(outcomes), ClaimRequest(queues or self.queues, self.served, after, limit, suspect)
        )
        return [*answer.successors, *answer.claimed]

    def next_call(self, outcomes: Iterable[Outcome] = (), *, limit: int = 0) -> list[Any]:
        """Return the arguments of the link's next call, for a test that makes the call itself."""
        self.link._call += 1
        return self.link._build_arguments(
            list(outcomes), ClaimRequest(self.queues, self.served, 0, limit, allow_suspect=True)
        )


open_links: list[WorkerLink] = []


def make_served_versions(sandbox: Sandbox) -> ServedVersions:
    resources = TenantResources(sandbox.database, sandbox.keyring)
    return ServedVersions(sandbox.app, ChildRuns(sandbox.app, sandbox.database), resources)


async def load_versions(sandbox: Sandbox) -> ServedVersions:
    """The versions that a worker of the sandbox's application serves."""
    catalog = make_served_versions(sandbox)
    await catalog.register_and_load(sandbox.database)
    return catalog


async def open_channel(sandbox: Sandbox) -> RawChannel:
    """A new worker's lane, which is closed when the test has ended."""
    catalog = await load_versions(sandbox)
    worker = await workers.register_worker(sandbox.database, "reins", sandbox.app.queues, 1, 1)
    open_links.append(WorkerLink(sandbox.database, worker, 1))
    return RawChannel(sandbox, worker, open_links[-1], catalog.version_numbers)


async def send_heartbeat(database: Database, worker: int) -> bool:
    """Record a heartbeat as a worker does. Return False if the worker was declared dead."""
    return bool(await database.fetch(statements("workers")["send_heartbeat"], worker=worker))


async def pass_heartbeat_timeout(sandbox: Sandbox) -> list[tuple[int, int]]:
    """Let time pass without a heartbeat of any worker, and reap the dead ones."""
    await sandbox.clock.advance(HEARTBEAT_TIMEOUT + timedelta(seconds=1))
    return await workers.reap_dead_workers(sandbox.database, HEARTBEAT_TIMEOUT)


def lose_answer(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Cut the connection after the first commit of this statement. Return what was lost."""
    lost: list[str] = []
    fetch = DedicatedConnection.fetch

    async def fetch_and_lose(link: DedicatedConnection, statement: Statement, *arguments: Any, **named: Any) -> Any:
        answer = await fetch(link, statement, *arguments, **named)
        if statement.name == name and not lost:
            lost.append(name)
            link.drop()
            raise ConnectionResetError("cut after the commit")
        return answer

    monkeypatch.setattr(DedicatedConnection, "fetch", fetch_and_lose)
    return lost
