"""`retoma workers`, `retoma queues`, `retoma metrics` and `retoma pools`: list them, and change queues and pools."""

from __future__ import annotations

import socket
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from retoma.cli import inputs, printing
from retoma.cli.command_setup import async_command, client_command, open_client, read_settings, run_with_client
from retoma.cli.options import BY, By, DetailFormat, DetailOutput, ListFormat, ListOutput
from retoma.cli.printing import Column
from retoma.client import Client
from retoma.errors import Conflict, NotFound
from retoma.metrics import QueueMetrics
from retoma.terminal import escape_text

workers = typer.Typer(name="workers")
queues = typer.Typer(name="queues")
pools = typer.Typer(name="pools", no_args_is_help=True, help="Manage pools: shared capacity and rate limits.")

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]

STACK_WAIT = timedelta(seconds=10)
ISOLATED = "  a step with isolation runs in a process of its own, whose stack is not available"

_WORKER_COLUMNS = [
    Column("id", "worker"),
    Column("name"),
    Column("queues", formatter=lambda queues: ", ".join(queues)),
    Column("concurrency"),
    Column("started_at", "started", printing.format_time),
    Column("heartbeat_age", "last heartbeat", lambda age: f"{printing.format_duration(age)} ago"),
    Column("drain_requested_at", "draining since", printing.format_time),
]
_QUEUE_COLUMNS = [
    Column("queue"),
    Column(
        "jobs", formatter=lambda jobs: ", ".join(f"{count} {state}" for state, count in sorted(jobs.items()) if count)
    ),
    Column("oldest_for", "oldest ready", lambda age: "" if age is None else printing.format_duration(age)),
    Column("workers"),
    Column("concurrency", "capacity"),
    Column("concurrency_limit", "limit"),
    Column("paused_at", "paused since", printing.format_time),
    Column("paused_by", "paused by"),
    Column("pause_reason", "reason"),
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


@workers.callback(invoke_without_command=True)
def list_workers(context: typer.Context, output: ListOutput = ListFormat.TABLE) -> None:
    """List running workers, drain one of them, or show where its jobs are.

    \b
    Examples:
      retoma workers
      retoma workers -o json
      retoma workers drain 7
      retoma workers stacks 7
      retoma workers check
    """
    if context.invoked_subcommand is None:
        found = run_with_client(lambda client: client.workers.list())
        empty = "no workers are running; start one with `retoma worker APP`"
        printing.print_rows(found, _WORKER_COLUMNS, output, empty)


@workers.command("check")
@async_command
async def check_worker(
    name: Annotated[
        str | None,
        typer.Option("--name", help="The name of the worker, or how it begins.", show_default="this machine"),
    ] = None,
) -> None:
    """Exit with 0 if a worker of this machine or container sends heartbeats, else with 3. For health checks."""
    settings = read_settings()
    wanted = name or f"{socket.gethostname()}:"
    async with open_client(settings) as client:
        found = [worker for worker in await client.workers.list() if worker.name.startswith(wanted)]
    if not any(worker.is_alive(settings.heartbeat_timeout) for worker in found):
        raise NotFound(f"no worker whose name begins with {wanted!r} sends heartbeats")


@workers.command("drain")
@client_command
async def drain_worker(
    client: Client,
    worker: Annotated[int, typer.Argument(metavar="WORKER", min=1, help="The worker's number.")],
    by: By = BY,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Let a worker finish its jobs, claim nothing more, and exit with 0."""
    printing.print_rows([await client.workers.drain(worker, by=by)], _WORKER_COLUMNS, output)


@workers.command("stacks")
@client_command
async def show_stacks(
    client: Client,
    worker: Annotated[int, typer.Argument(metavar="WORKER", min=1, help="The worker's number.")],
    by: By = BY,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Show where the running jobs of a worker are now. It answers with its next heartbeat."""
    await client.workers.request_stacks(worker, by=by)
    found = await client.workers.wait_for_stacks(worker, STACK_WAIT)
    if output is DetailFormat.JSON:
        print(printing.to_json(asdict(found), indent=2))
        return
    if found.answered_at is None:
        raise Conflict(f"worker {worker} has not answered yet: a worker of an earlier release does not")
    console = printing.stdout()
    for job in found.jobs:
        name = f"{job.step} {job.item}".strip()
        console.print(f"run {job.run}, {escape_text(name)}, attempt {job.attempt}:", soft_wrap=True, markup=False)
        console.print(escape_text(job.stack or ISOLATED), soft_wrap=True, markup=False)
    if not found.jobs:
        console.print("the worker runs no jobs")


@queues.callback(invoke_without_command=True)
def list_queues(context: typer.Context, output: ListOutput = ListFormat.TABLE) -> None:
    """List queues with their jobs and workers; pause, resume and limit them.

    \b
    Examples:
      retoma queues
      retoma queues -o json
      retoma queues pause render --reason "the GPU is being replaced"
    """
    if context.invoked_subcommand is None:
        found = run_with_client(lambda client: client.queues.list())
        printing.print_rows(found, _QUEUE_COLUMNS, output, "no queues yet")


@queues.command("update")
@client_command
async def update_queue(
    client: Client,
    queue: QueueName,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=0, help="Jobs that all workers run at once; 0 removes the limit.")
    ],
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Limit how many jobs of a queue run at once, over all workers.

    \b
    Example:
      retoma queues update render --concurrency 4
    """
    _print_queue(await client.queues.update(queue, concurrency=concurrency), output)


@queues.command("pause")
@client_command
async def pause_queue(
    client: Client,
    queue: QueueName,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for everyone who finds it paused.")] = None,
    by: By = BY,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """Start no more jobs of a queue, on any worker. Running jobs finish."""
    _print_queue(await client.queues.pause(queue, by=by, reason=reason), output)


@queues.command("resume")
@client_command
async def resume_queue(client: Client, queue: QueueName, by: By = BY, output: ListOutput = ListFormat.TABLE) -> None:
    """Start jobs of a paused queue again."""
    _print_queue(await client.queues.resume(queue, by=by), output)


def _print_queue(queue: QueueMetrics, output: ListFormat) -> None:
    printing.print_rows([queue], _QUEUE_COLUMNS, output)


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
