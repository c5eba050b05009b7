"""`retoma workers` and `retoma queues`: who works, and what waits where."""

from __future__ import annotations

from retoma.cli import output
from retoma.cli.options import Format, Listing
from retoma.cli.output import Column
from retoma.cli.session import in_loop, opened_client, read_settings

_WORKERS = [
    Column("id", "worker"),
    Column("name"),
    Column("queues", shown=lambda queues: ", ".join(queues)),
    Column("concurrency"),
    Column("started_at", "started", output.moment),
    Column("silent_for", "last heartbeat", lambda age: f"{output.duration(age)} ago"),
]
_QUEUES = [
    Column("queue"),
    Column("jobs", shown=lambda jobs: ", ".join(f"{count} {state}" for state, count in sorted(jobs.items()) if count)),
    Column("oldest_for", "oldest ready", lambda age: "" if age is None else output.duration(age)),
    Column("workers"),
    Column("room", "may run at once"),
]


def workers(how: Listing = Format.TABLE) -> None:
    """List the workers that are running.

    \b
    retoma workers
    retoma workers -o json
    """
    in_loop(_workers(how))


def queues(how: Listing = Format.TABLE) -> None:
    """List the queues: what is ready, what runs, and how many workers serve each.

    \b
    retoma queues
    retoma queues -o json
    """
    in_loop(_queues(how))


async def _workers(how: Format) -> None:
    async with opened_client(read_settings()) as client:
        found = await client.workers()
    output.emit([vars(worker) for worker in found], _WORKERS, how, "no worker is running; start one: retoma worker APP")


async def _queues(how: Format) -> None:
    async with opened_client(read_settings()) as client:
        found = await client.queues()
    output.emit([vars(queue) for queue in found], _QUEUES, how, "there are no queues yet")
