"""`retoma workers`, `retoma queues`, `retoma metrics` and `retoma pools ...`: list them, and change pools."""

from __future__ import annotations

from typing import Annotated

import typer

from retoma.cli import inputs, printing
from retoma.cli.command_setup import async_command, client_command, open_client, read_settings
from retoma.cli.options import DetailFormat, DetailOutput, ListFormat, ListOutput
from retoma.cli.printing import Column
from retoma.client import Client

pools = typer.Typer(name="pools", no_args_is_help=True, help="Manage pools: shared capacity and rate limits.")

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
_JOB_TYPE_COLUMNS = [
    *map(Column, ("pipeline", "step", "queue")),
    Column("jobs_processed_per_minute", "jobs/min", lambda rate: f"{rate:.1f}"),
    *(
        Column(f"{statistic}_{field}_time", f"{statistic} {field}", printing.format_duration)
        for field, statistics in (("queue", ("avg", "p50", "p95", "oldest")), ("processing", ("avg", "p50", "p95")))
        for statistic in statistics
    ),
]
_POOL_COLUMNS = [
    Column("name", "pool"),
    *map(Column, ("capacity", "used", "holders", "waiting")),
    Column("rate", formatter=lambda rate: "" if rate is None else f"{rate:g}/s"),
    Column("burst"),
    Column("per_tenant", "per tenant"),
    Column("paused_until", "paused until", printing.format_time),
    Column("problem"),
    Column("open_until", "retried at", printing.format_time),
]


@client_command
async def workers(client: Client, output: ListOutput = ListFormat.TABLE) -> None:
    """List running workers.

    \b
    Examples:
      retoma workers
      retoma workers -o json
    """
    empty = "no workers are running; start one with `retoma worker APP`"
    printing.print_rows(await client.workers.list(), _WORKER_COLUMNS, output, empty)


@client_command
async def queues(client: Client, output: ListOutput = ListFormat.TABLE) -> None:
    """List queues with their jobs and workers.

    \b
    Examples:
      retoma queues
      retoma queues -o json
    """
    printing.print_rows(await client.queues.list(), _QUEUE_COLUMNS, output, "no queues yet")


@async_command
async def metrics(
    window: Annotated[
        str, typer.Option("--window", metavar="DURATION", help="Jobs that ended within this time.")
    ] = "5m",
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Show throughput, queue time and processing time of every step.

    \b
    Examples:
      retoma metrics
      retoma metrics --window 1h -o json
    """
    within = inputs.read_duration("--window", window)
    async with open_client(read_settings()) as client:
        found = await client.metrics.list_job_types(within)
    printing.print_rows(found, _JOB_TYPE_COLUMNS, output, "no steps yet; start a worker first")


@pools.command("list")
@client_command
async def list_pools(client: Client, output: ListOutput = ListFormat.TABLE) -> None:
    """List pools with their slots and waiting jobs."""
    printing.print_rows(await client.pools.list(), _POOL_COLUMNS, output, "no pools; applications declare them")


@pools.command("update")
@async_command
async def update_pool(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="The pool's name.")],
    capacity: Annotated[int | None, typer.Option("--capacity", min=0, help="Number of slots.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0, help="Jobs that may start per second; 0 removes the limit.")
    ] = None,
    burst: Annotated[int | None, typer.Option("--burst", min=1, help="Jobs that may start at once.")] = None,
    per_tenant: Annotated[
        int | None, typer.Option("--per-tenant", min=0, help="Slots that one tenant may hold; 0 removes the limit.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="End a pause that the provider requested.")] = False,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Change a pool while runs are in progress. Running jobs keep their slots.

    The change lasts until the application declares different values.

    \b
    Example:
      retoma pools update gpu --capacity 5
    """
    if all(limit is None for limit in (capacity, rate, burst, per_tenant)) and not resume:
        raise typer.BadParameter("nothing to change: use --capacity, --rate, --burst, --per-tenant or --resume")
    async with open_client(read_settings()) as client:
        changed = await client.pools.update(
            pool, capacity=capacity, rate=rate, burst=burst, per_tenant=per_tenant, resume=resume
        )
    if output is DetailFormat.JSON:
        print(printing.to_json(vars(changed)))
    else:
        printing.stdout().print(printing.make_table([vars(changed)], _POOL_COLUMNS))
