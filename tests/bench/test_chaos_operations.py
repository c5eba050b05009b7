"""What the chaos test says about schedules, retention and budgets: nothing if all went well."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.chaos.application import CHIME, HOURS
from bench.chaos.client import BANK
from bench.chaos.execution_log import Line
from bench.chaos.operations import (
    find_excess,
    find_lost_charges,
    find_missing_files,
    find_overlaps,
    find_wrong_due_times,
)
from retoma import Context, File, Pipeline
from retoma.files import FileSettings, create_file_store
from tests.conftest import OpenSandbox

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)


def make_run(schedule: str, due: float, *, created: float, ended: float) -> Any:
    at = {name: NOON + timedelta(seconds=each) for name, each in (("due", due), ("created", created), ("ended", ended))}
    return {"nonce": f"{schedule} {at['due'].isoformat()}", "created_at": at["created"], "ended_at": at["ended"]}


def make_lines(*steps: str) -> list[Line]:
    run = uuid4()
    return [Line(1.0, 7, (run, step, "", 1), 1, step, "began") for step in steps]


def test_a_run_for_each_due_time_is_right_in_whatever_order_they_start() -> None:
    runs = [make_run(HOURS.name, due, created=9, ended=10) for due in (4, 0, 2)]
    assert not list(find_wrong_due_times([*runs, make_run(CHIME.name, 1, created=1, ended=2)]))


def test_a_due_time_without_a_run_and_one_with_two_are_reported() -> None:
    runs = [make_run(HOURS.name, due, created=due, ended=due) for due in (0, 2, 2, 4, 8)]
    assert len(list(find_wrong_due_times(runs))) == 2


def test_a_run_that_starts_before_the_end_of_the_one_before_is_reported() -> None:
    after = [make_run(CHIME.name, due, created=due, ended=due + 1) for due in (0, 1)]
    assert not list(find_overlaps(after))
    assert len(list(find_overlaps([*after, make_run(CHIME.name, 1.5, created=1.5, ended=3)]))) == 1


def test_the_charge_of_an_attempt_that_was_given_up_may_be_lost_but_not_that_of_an_accepted_one() -> None:
    lines = [*make_lines("entered", "filed"), *make_lines("entered", "entered", "filed")]
    assert not list(find_lost_charges(2, lines))
    assert not list(find_lost_charges(3, lines))
    assert list(find_lost_charges(1, lines))
    assert list(find_lost_charges(4, lines))


async def test_charges_beyond_a_budget_are_reported(open_sandbox: OpenSandbox) -> None:
    wager = Pipeline("wager")

    @wager.step(estimated_cost=0.000_1)
    async def staked(*, ctx: Context) -> str:
        ctx.charge("bank", "stake", micros=150)
        return "staked"

    async with open_sandbox(wager) as sandbox, sandbox.database.connection() as connection:
        await sandbox.client.budgets.set(BANK, "month", 120)
        assert await find_excess(connection) == []
        await sandbox.run(wager, tenant=BANK)
        assert await find_excess(connection) == ["by 30 micros"]


async def test_a_run_that_names_a_missing_file_is_reported(open_sandbox: OpenSandbox, tmp_path: Path) -> None:
    scan = Pipeline("scan")

    @scan.step
    async def scanned(*, ctx: Context) -> File:
        return await ctx.save_file(b"page 1", "page.txt")

    files = create_file_store(FileSettings(_env_file=None, home=tmp_path))
    async with open_sandbox(scan, files=files) as sandbox, sandbox.database.connection() as connection:
        file = File.model_validate((await sandbox.run(scan)).results["scanned"])
        await files.set_aside(file.file)
        assert await find_missing_files(connection, files) == []
        await files.delete_aside(file.file)
        (missing,) = await find_missing_files(connection, files)
        assert missing.endswith(f"names {file.file}")
