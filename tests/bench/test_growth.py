"""The inserted history looks like that of the engine, whatever its length, and its size is checked first."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bench import growth, row_sizes
from bench.server import Server
from bench.testbed import Rig
from retoma.store.database import Database

_ORDER = """
select count(*) as runs, bool_and(ended_at < now() - interval '23 hours') as are_past,
       array_agg(id order by ended_at) = array_agg(id order by id) as are_in_order,
       bool_and(id >= retoma.first_run_id(created_at)) as begin_with_their_time
  from retoma.runs where state = 'completed'
"""
_ORPHANS = "select count(*) from retoma.{} where run not in (select id from retoma.runs)"


@pytest.fixture
async def rig(database: Database) -> AsyncIterator[Rig]:
    server = Server(database.url)
    yield Rig(server, scale=0.0005, timeout=60)
    await server.close()


async def test_runs_of_a_history_ended_in_the_order_of_their_ids(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "RUNS_PER_STATEMENT", 4)
    async with rig.testbed() as stage:
        await growth.fill(stage, "drain", 10)
        (row,) = await stage.connection.fetch(_ORDER)
        assert dict(row) == {"runs": 10, "are_past": True, "are_in_order": True, "begin_with_their_time": True}
        for table in ("jobs", "events"):
            assert await stage.connection.fetchval(_ORPHANS.format(table)) == 0


async def test_the_removal_stops_at_the_first_run_that_is_kept(rig: Rig) -> None:
    async with rig.testbed() as stage:
        await growth.fill(stage, "drain", 20)
        assert (await growth.measure_removal(stage, 4))[0] in (4, 5)
        assert await stage.connection.fetchval("select count(*) from retoma.runs where state = 'completed'") in (15, 16)


def test_five_million_runs_of_one_step_are_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    growth.check_disk(5_000_000, "drain", growth.MAX_GB, free_gb=100)
    assert "13.0 GB on disk" in capsys.readouterr().out


@pytest.mark.parametrize(("free_gb", "expected"), [(100.0, "pass --max-gb 63.0"), (64.0, "78.8 GB must be free")])
def test_too_many_runs_are_refused_with_what_they_need(free_gb: float, expected: str) -> None:
    with pytest.raises(SystemExit, match=expected):
        growth.check_disk(5_000_000, "chain", growth.MAX_GB, free_gb)


async def test_rows_of_every_kind_are_measured(rig: Rig) -> None:
    async with rig.testbed() as stage:
        measured = await row_sizes.measure_rows(stage, 200)
    assert {"charges", "deliveries", "reviews", "external_work", "effects", "file_names", "start_keys"} <= set(measured)
    assert all(data > 0 and indexes >= 0 for data, indexes in measured.values())
