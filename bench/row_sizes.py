"""`python -m bench.row_sizes`: the bytes on disk of one row of each kind that a run may leave behind, with its indexes.

Rows like those of the applications, with short names and small results, are inserted into an empty database. What the
table and its indexes have grown by is divided by their number.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

import uvloop

from bench.growth import _ID, _SERIES, HISTORY_START, version_and_tenant
from bench.server import open_server
from bench.testbed import Rig, Testbed

ROWS = 10_000
_SIZE = "select pg_table_size($1::regclass) as data, pg_indexes_size($1::regclass) as indexes"

# One row for each run, `$1` to `$6` as in `bench.growth`. The names of columns are followed by their values.
_COLUMNS = {
    "charges": {
        "id": "gen_random_uuid()",
        "run": _ID,
        "step": "'outline'",
        "item": "''",
        "revision": "1",
        "attempt": "1",
        "tenant": "$1",
        "at": "at",
        "provider": "'openrouter'",
        "resource": "'anthropic/claude-sonnet'",
        "tokens_in": "2500",
        "tokens_out": "800",
        "micros": "19500",
        "price": "7",
    },
    "attempt_providers": {
        "run": _ID,
        "step": "'outline'",
        "item": "''",
        "revision": "1",
        "attempt": "1",
        "fence": "1",
        "provider": "'openrouter'",
    },
    "deliveries": {
        "run": _ID,
        "endpoint": "1",
        "seq": "1",
        "tenant": "$1",
        "pipeline": "'article'",
        "host": "'https://hooks.example.com'",
        "event": "'run.completed'",
        "schedule": "'standard'",
        "state": "'delivered'",
        "attempt": "1",
        "schedule_attempt": "1",
        "next_at": "at",
        "body": 'rpad(\'{"event": "run.completed"}\', 600, md5(n::text))',
        "created_at": "at",
        "ended_at": "at",
    },
    "delivery_attempts": {
        "delivery": "gen_random_uuid()",
        "attempt": "1",
        "at": "at",
        "ms": "180",
        "status": "200",
        "answer": "'{\"ok\": true}'",
    },
    "reviews": {
        "run": _ID,
        "step": "'approved_outline'",
        "item": "''",
        "revision": "1",
        "version": "$2",
        "tenant": "$1",
        "planned": "true",
        "state": "'approved'",
        "opened_at": "at",
        "due_at": "at",
        "decided_by": "'Ana Souza'",
        "decided_person": "1",
        "via": "'page'",
        "decided_at": "at",
        "effective_at": "at",
        "applied_at": "at",
        "notes": "'The second part needs an example.'",
        "ended_at": "at",
    },
    "external_work": {
        "run": _ID,
        "step": "'clip'",
        "item": "''",
        "revision": "1",
        "version": "$2",
        "external_id": "to_json(md5(n::text))",
        "poll": "'poll_clip'",
        "cancel": "'cancel_clip'",
        "poll_interval": "'10 seconds'",
        "total_timeout": "'1 hour'",
        "state": "'succeeded'",
        "polls": "12",
        "next_at": "at",
        "parked_at": "at",
        "started_at": "at",
        "running_at": "at",
        "ended_at": "at",
        "result": """'{"url": "https://provider.example.com/outputs/video_1.mp4", "seconds": 5.0}'""",
    },
    "callbacks": {
        "token_hash": "sha256(n::text::bytea)",
        "run": _ID,
        "step": "'clip'",
        "item": "''",
        "revision": "1",
        "expires_at": "at",
        "called_at": "at",
        "body": """'{"status": "succeeded"}'""",
    },
    "effects": {
        "run": _ID,
        "step": "'published'",
        "item": "''",
        "revision": "1",
        "name": "'create_post'",
        "version": "$2",
        "fence": "1",
        "begun_at": "at",
        "done_at": "at",
        "value": """'{"id": 4711, "url": "https://blog.example.com/?p=4711"}'""",
    },
    "file_names": {"run": _ID, "digest": "sha256(n::text::bytea)"},
    "start_keys": {
        "tenant": "$1",
        "pipeline": "'article'",
        "key": "'order ' || md5(n::text)",
        "run": _ID,
        "digest": "sha256(n::text::bytea)",
        "created_at": "at",
    },
    "audit_log": {
        "at": "at",
        "actor_kind": "'person'",
        "actor_id": "'1'",
        "actor_name": "'Ana Souza'",
        "address": "'203.0.113.7'",
        "action": "'review.decide'",
        "object_kind": "'review'",
        "object_id": "gen_random_uuid()::text",
        "tenant": "$1",
        "after": """'{"decision": "approve", "notes": "The second part needs an example."}'""",
        "entry": "gen_random_uuid()",
        "person_tenants": "array[$1::int]",
    },
    "removed_decisions": {
        "decided_at": "at",
        "opened_at": "at",
        "tenant": "$1",
        "pipeline": "'article'",
        "step": "'approved_outline'",
        "decided_by": "'Ana Souza'",
        "decided_person": "1",
        "state": "'approved'",
        "planned": "true",
        "is_first": "true",
    },
}


async def measure_rows(testbed: Testbed, count: int) -> dict[str, tuple[float, float]]:
    """Return the bytes of a row of each table, and those of its entries of the indexes."""
    version, tenant = await version_and_tenant(testbed, "drain")
    values = (tenant, version, 1, count, datetime.now(UTC) - HISTORY_START, 1.0)
    measured = {}
    for table, columns in _COLUMNS.items():
        before = await get_size(testbed, table)
        await testbed.connection.execute(
            f"insert into retoma.{table} ({', '.join(columns)}) select {', '.join(columns.values())} from {_SERIES} "
            "where num_nonnulls($1::int, $2::int) = 2",
            *values,
        )
        after = await get_size(testbed, table)
        measured[table] = ((after[0] - before[0]) / count, (after[1] - before[1]) / count)
    return measured


async def get_size(testbed: Testbed, table: str) -> tuple[int, int]:
    """Return the bytes of a table and of its indexes."""
    (row,) = await testbed.connection.fetch(_SIZE, f"retoma.{table}")
    return row["data"], row["indexes"]


async def _main(count: int) -> None:
    async with open_server() as server:
        async with Rig(server).testbed() as stage:
            print("| table | data, bytes | indexes, bytes |\n| --- | --- | --- |")
            for table, (data, indexes) in (await measure_rows(stage, count)).items():
                print(f"| `{table}` | {data:.0f} | {indexes:.0f} |")
        await server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.row_sizes", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="for each table")
    uvloop.run(_main(parser.parse_args().rows))
