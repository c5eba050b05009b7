"""What requests ask of the database reads only what it is about, however large the history is."""

from __future__ import annotations

import asyncio

import pytest

from retoma.engine.keys import digest
from retoma.errors import Conflict
from retoma.store.statements import statements
from tests.conftest import OpenSandbox
from tests.engine.test_hot_statements import TABLES, Table, prepared, reading
from tests.server.api import Api


@pytest.mark.parametrize("table", TABLES)
async def test_a_key_is_found_without_looking_at_others(open_sandbox: OpenSandbox, table: Table) -> None:
    async with prepared(open_sandbox, table) as (sandbox, _, connection):
        made = await sandbox.client.make_key("one", ["runs:read"])
        await sandbox.client.key_of(made.secret)
        async with reading(connection) as read:
            await connection.fetch(statements("keys")["use_key"].sql, digest(made.secret))
    assert "jobs" not in read.whole_tables
    assert "runs" not in read.whole_tables


async def test_of_many_that_make_a_key_of_one_name_two_succeed(api: Api) -> None:
    made = await asyncio.gather(
        *(api.client.make_key("n8n", ["runs:read"], tenant="blog") for _ in range(8)), return_exceptions=True
    )
    assert sum(not isinstance(one, BaseException) for one in made) in (1, 2)
    assert all(isinstance(one, Conflict) for one in made if isinstance(one, BaseException))
    assert len(await api.client.keys(tenant="blog")) == sum(not isinstance(one, BaseException) for one in made)
