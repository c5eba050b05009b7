"""`retoma workers` and `retoma queues`: list workers and queues."""

from __future__ import annotations

from retoma.cli import printing
from retoma.cli.command_setup import open_client, read_settings, run_async
from retoma.cli.options import ListFormat, ListOutput
from retoma.cli.printing import Column

_WORKER_COLUMNS = [
    Column("id", "worker"),
    Column("name"),
    Column("queues", formatter=lambda queues: ", ".join(queues)),
    Column("concurrency"),
    Column("started_at", "started", printing.format_time),
    Column("heartbeat_age", "last heartbeat", lambda age: f"{printing.format_duration(age)} ago"),
]
_QUEUE_COLUMNS = [
    Column("queue"),
    Column(
        "jobs", formatter=lambda jobs: ", ".join(f"{count} {state}" for state, count in sorted(jobs.items()) if count)
    ),
    Column("oldest_for", "oldest ready", lambda age: "" if age is None else printing.format_duration(age)),
    Column("workers"),
    Column("concurrency", "capacity"),
]


def workers(output: ListOutput = ListFormat.TABLE) -> None:
    """List live workers.

    \b
    Examples:
      retoma workers
      retoma workers -o json
    """
    run_async(_list_workers(output))


def queues(output: ListOutput = ListFormat.TABLE) -> None:
    """List queues with their jobs and workers.

    \b
    Examples:
      retoma queues
      retoma queues -o json
    """
    run_async(_list_queues(output))


async def _list_workers(output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        found = await client.workers.list()
    printing.print_rows(
        [vars(worker) for worker in found],
        _WORKER_COLUMNS,
        output,
        "no workers are running; start one with `retoma worker APP`",
    )


async def _list_queues(output: ListFormat) -> None:
    async with open_client(read_settings()) as client:
        found = await client.queues.list()
    printing.print_rows([vars(queue) for queue in found], _QUEUE_COLUMNS, output, "no queues yet")
