"""The operation of years, in minutes: schedules start runs, a tenant uses up its budget, ended runs and files go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import asyncpg

from bench.chaos.application import HOURS, KEPT_SECONDS, RECEIPT_STEPS, STAKE, Inputs
from bench.chaos.checker import Findings
from bench.chaos.client import BANK, UserLog
from bench.chaos.execution_log import Line
from retoma.client import Client
from retoma.engine.file_collection import collect_files
from retoma.errors import DatabaseUnavailable, RunRemoved
from retoma.files import FileStore
from retoma.store.database import DATABASE_ERRORS, Connection, Database

_EXCESS = Path(__file__).with_name("excess.sql").read_text()
# Charges may be reported after a run has ended; the others outlive their runs.
_TABLES = (
    "select table_name from information_schema.columns c"
    " join information_schema.tables t using (table_schema, table_name)"
    " where table_schema = 'retoma' and c.column_name = 'run' and c.data_type = 'uuid' and t.table_type = 'BASE TABLE'"
    " and table_name not in ('charges', 'notifications', 'schedule_occurrences', 'start_keys')"
)
_LEFTOVERS = (
    "select count(*) from retoma.{} x"
    " where x.run is not null and not exists (select from retoma.runs r where r.id = x.run)"
)
_ENDED_RECEIPTS = (
    "select r.id from retoma.runs r join retoma.versions v on v.id = r.version"
    " where v.pipeline = 'receipt' and r.ended_at is not null"
)
_RECEIPT_CHARGES = (
    "select (select count(*) from retoma.charges where resource = 'receipt')"
    " + (select coalesce(sum(charges), 0)::bigint from retoma.charge_rollups where resource = 'receipt')"
)
_SCHEDULED = (
    "select r.input->>'nonce' as nonce, r.created_at, r.ended_at"
    " from retoma.runs r join retoma.versions v on v.id = r.version where v.pipeline = 'bell' order by r.created_at"
)
# From the results themselves, not from the list that triggers keep.
_NAMED_FILES = (
    "select r.id as run, j.step, f.found[1] as digest"
    " from retoma.runs r join retoma.jobs j on j.run = r.id,"
    """ regexp_matches(j.output::text, '"file": ?"([0-9a-f]{64})"', 'g') as f (found)"""
    """ where position('"file"' in j.output::text) > 0"""
    " and ($1::interval is null or r.created_at > retoma.now() - $1)"
)
# A file may be deleted after twice this time. No fault makes the time between its storage and the result longer.
FILE_GRACE = timedelta(seconds=15)
SECONDS_BETWEEN_ROUNDS = 1.0
SECONDS_BETWEEN_TRIES = 0.2
UNLIMITED = 10**12
KEPT_MARGIN = 2.0
T = TypeVar("T")


class Operations:
    """Remove runs and files, raise the budget of the bank from time to time, and start runs again that may be removed.

    `contradictions` are starts with the key of an earlier run that did not return that run, and were not refused
    because it was removed.
    """

    def __init__(self, client: Client, database: Database, files: FileStore, user_log: UserLog, seed: int) -> None:
        self.contradictions: list[str] = []
        self.removed = self.raised = self.refused = self.deleted = 0
        self._client = client
        self._database = database
        self._files = files
        self._told = user_log
        self._dice = random.Random(seed)

    async def run(self) -> None:
        """Until cancelled."""
        await _insist(lambda: self._set_budget(0))
        await asyncio.gather(self._operate(), self._collect_repeatedly())

    async def _collect_repeatedly(self) -> None:
        while True:
            with suppress(DatabaseUnavailable, *DATABASE_ERRORS):
                await self._collect_files()
            await asyncio.sleep(SECONDS_BETWEEN_ROUNDS)

    async def _collect_files(self) -> None:
        self.deleted += await collect_files(self._database, [self._files], grace=FILE_GRACE, pause=timedelta(0))

    async def _operate(self) -> None:
        while True:
            with suppress(DatabaseUnavailable):
                await asyncio.gather(
                    self._remove_runs(), self._remove_runs(), self._raise_budget(), self._start_again()
                )
            await asyncio.sleep(SECONDS_BETWEEN_ROUNDS)

    async def finish(self) -> None:
        """Let no schedule start another run, and let all runs pass the budget."""
        await _insist(self._pause_schedules)
        await _insist(lambda: self._set_budget(UNLIMITED))

    async def check(self, findings: Findings, direct: Database, lines: Sequence[Line]) -> None:
        """Add what is wrong once all runs have ended."""
        await asyncio.sleep(KEPT_SECONDS + KEPT_MARGIN)
        await self._remove_runs()
        await self._collect_files()  # sets files aside, which the next pass deletes
        await asyncio.sleep(FILE_GRACE.total_seconds() + KEPT_MARGIN)
        await self._collect_files()
        async with direct.connection() as connection:
            receipts = await connection.fetch(_ENDED_RECEIPTS)
            leftovers = [
                f"{rows} in {table}"
                for (table,) in await connection.fetch(_TABLES)
                if (rows := await connection.fetchval(_LEFTOVERS.format(table)))
            ]
            charges = await connection.fetchval(_RECEIPT_CHARGES)
            scheduled = await connection.fetch(_SCHEDULED)
            missing = await find_missing_files(connection, self._files)
        findings.expect("runs that name a missing file", missing)
        findings.expect("expired runs that were not removed", [str(row["id"]) for row in receipts])
        findings.expect("rows of removed runs", leftovers)
        findings.expect("costs that retention lost or doubled", find_lost_charges(charges, lines))
        findings.expect("keys of earlier runs that started another", self.contradictions)
        findings.expect("due times that started no run, or more than one", find_wrong_due_times(scheduled))
        findings.expect("overlapping runs of a schedule that skips", find_overlaps(scheduled))
        findings.figures |= {
            "runs removed by retention": self.removed,
            "files deleted": self.deleted,
            "starts refused because their run was removed": self.refused,
            "scheduled runs": len(scheduled),
            "times that the budget was raised": self.raised,
        }

    async def _pause_schedules(self) -> None:
        for schedule in await self._client.schedules.list():
            await self._client.schedules.pause(schedule.id)

    async def _remove_runs(self) -> None:
        self.removed += await self._client.retention.run()

    async def _raise_budget(self) -> None:
        """Let some of the waiting wagers continue."""
        status = await self._client.budgets.get_status(BANK, "month")
        if status.waiting and status.spent is not None and self._dice.random() < 0.5:
            await self._set_budget(max(status.budget.micros, status.spent) + STAKE * self._dice.randint(1, 5))
            self.raised += 1

    async def _set_budget(self, micros: int) -> None:
        await self._client.budgets.set(BANK, "month", micros, by="bank")

    async def _start_again(self) -> None:
        receipts = [one for one in self._told.acknowledged.values() if one.pipeline == "receipt" and one.key]
        if not receipts:
            return
        one = self._dice.choice(receipts)
        try:
            again = await self._client.start(
                "receipt", Inputs(nonce=one.nonce, size=one.size), tenant=one.tenant, key=one.key
            )
        except RunRemoved:
            self.refused += 1
        else:
            if again.id != one.run:
                self.contradictions.append(f"{one.key} started {one.run}, and later {again.id}")


async def find_excess(connection: Connection) -> list[str]:
    """Return by how much the bank has passed its budget."""
    excess = await connection.fetchval(_EXCESS, BANK)
    return [f"by {excess} micros"] if excess else []


async def find_missing_files(connection: Connection, files: FileStore, newest: timedelta | None = None) -> list[str]:
    """Return the results that name a file that is not in the store, neither in use nor set aside.

    With `newest`, check only runs that are no older.
    """
    return [
        f"{row['step']} of {row['run']} names {row['digest']}"
        for row in await connection.fetch(_NAMED_FILES, newest)
        if await files.open_in_place(f"content/{row['digest'][:2]}/{row['digest']}") is None
    ]


def find_wrong_due_times(scheduled: Iterable[asyncpg.Record]) -> Iterable[str]:
    """The schedule that catches up with everything starts one run for each of its due times."""
    assert HOURS.every is not None
    due = sorted(at for name, at in map(_read_nonce, scheduled) if name == HOURS.name)
    yield from (f"{former} is followed by {at}" for former, at in pairwise(due) if at - former != HOURS.every)


def find_overlaps(scheduled: Iterable[asyncpg.Record]) -> Iterable[str]:
    """The other schedule starts no run while its last one has not ended. `scheduled` are sorted by their start."""
    runs = [row for row in scheduled if _read_nonce(row)[0] != HOURS.name]
    for former, run in pairwise(runs):
        if former["ended_at"] is None or run["created_at"] < former["ended_at"]:
            yield f"{run['nonce']} began before the end of {former['nonce']}"


def _read_nonce(run: asyncpg.Record) -> tuple[str, datetime]:
    name, _, due_at = run["nonce"].partition(" ")
    return name, datetime.fromisoformat(due_at)


def find_lost_charges(charges: int, lines: Sequence[Line]) -> Iterable[str]:
    """The charge of an attempt that is given up may be lost with its worker; that of an accepted one may not."""
    charging, following = RECEIPT_STEPS
    began = sum(line.key[1] == charging and line.what == "began" for line in lines)
    accepted = len({line.key[0] for line in lines if line.key[1] == following})
    if not accepted <= charges <= began:
        yield f"{charges} charges of {began} attempts, of which {accepted} were accepted"


async def _insist(call: Callable[[], Awaitable[T]]) -> T:
    while True:
        with suppress(DatabaseUnavailable):
            return await call()
        await asyncio.sleep(SECONDS_BETWEEN_TRIES)
