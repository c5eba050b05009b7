"""`retoma charges` and `retoma prices ...`."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest

from retoma.define.charge import Charge
from retoma.store import charges
from retoma.store.database import Database
from tests.cli.terminal import Terminal


async def insert_charge(database: Database, run: str, **values: int) -> None:
    async with database.connection() as connection:
        tenant = await connection.fetchval("select tenant from retoma.runs where id = $1", UUID(run))
    charge = Charge("openrouter", "small", **values)
    await charges.write(database, [charges.ChargeEntry(uuid4(), UUID(run), "label", "7", 1, 1, tenant, charge)])


def test_prices_are_entered_in_dollars_and_keep_their_versions(terminal: Terminal) -> None:
    assert terminal.run("prices", "list").stderr.startswith("no prices; add one with `retoma prices set`")
    terminal.out("prices", "set", "openrouter", "small", "--tokens-in", "0.15", "--tokens-out", "0.6")
    terminal.out("prices", "set", "openrouter", "small", "--tokens-in", "0.1", "--tokens-out", "0.6")
    listed = terminal.json("prices", "list")
    assert [(price["version"], price["tokens_in"], price["tokens_out"]) for price in listed] == [
        (2, 100_000, 600_000),
        (1, 150_000, 600_000),
    ]
    assert "$0.100000" in terminal.out("prices", "list")


async def test_charges_are_summed_by_the_requested_dimension(terminal: Terminal, real_time_database: Database) -> None:
    apart = asyncio.to_thread  # a command has a loop of its own
    run = await apart(terminal.start, "--tenant", "blog")
    await insert_charge(real_time_database, run, micros=1_500_000)
    await insert_charge(real_time_database, run, tokens_in=5)
    by_tenant = await apart(terminal.json, "charges")
    by_item = await apart(terminal.json, "charges", run[:18], "--by", "step", "--by", "item")
    assert [(total["tenant"], total["micros"], total["unpriced"]) for total in by_tenant] == [("blog", 1_500_000, 1)]
    assert [(total["step"], total["item"], total["charges"]) for total in by_item] == [("label", "7", 2)]
    assert "$1.500000" in await apart(terminal.out, "charges")
    assert await apart(terminal.json, "charges", "--tenant", "shop") == []
    assert await apart(terminal.json, "charges", "--since", "2999-01-01") == []
    assert len(await apart(terminal.json, "charges", "--since", "1h")) == 1
    assert await apart(terminal.json, "charges", "--until", "1h") == []


async def test_times_of_options_are_local(
    terminal: Terminal, real_time_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await asyncio.to_thread(terminal.start)
    await insert_charge(real_time_database, run, micros=1)
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    try:
        soon = (datetime.now() + timedelta(minutes=5)).isoformat(timespec="minutes")
        assert len(await asyncio.to_thread(terminal.json, "charges", "--until", soon)) == 1
        assert await asyncio.to_thread(terminal.json, "charges", "--since", soon) == []
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_unknown_dimension_is_explained(terminal: Terminal) -> None:
    wrong = terminal.run("charges", "--by", "colour")
    assert wrong.returncode == 2
    assert "--by takes tenant, run, step, item, provider, resource, day, not colour" in wrong.stderr
