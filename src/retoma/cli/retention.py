"""`retoma retention ...` and `retoma tenants ...`: how long ended runs are kept, and erasing a tenant."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

import typer

from retoma.cli import printing
from retoma.cli.command_setup import client_command, run_with_client
from retoma.cli.erasure import Yes, describe_erasure
from retoma.cli.inputs import read_duration
from retoma.cli.options import BY, By, DetailFormat, DetailOutput, ListFormat, ListOutput, OnlyTenant
from retoma.cli.printing import Column
from retoma.client import Client
from retoma.records import FinalClass, RetentionPreview

retention = typer.Typer(name="retention", no_args_is_help=True, help="Choose how long ended runs are kept.")
tenants = typer.Typer(name="tenants", no_args_is_help=True, help="Erase tenants.")

OnlyPipeline = Annotated[str | None, typer.Option("--pipeline", help="Only runs of this pipeline.")]
EndedAs = Annotated[
    FinalClass,
    typer.Option("--state", help="`failed`: runs that failed or completed with errors. `ended`: all others."),
]
_RULE_COLUMNS = [
    Column("pipeline"),
    Column("tenant"),
    Column("final_class", "state"),
    Column("keep"),
    Column("set_by", "by"),
    Column("set_at", "at", printing.format_time),
]
_GROUP_COLUMNS = [
    Column("pipeline"),
    Column("final_class", "state"),
    Column("runs"),
    Column("bytes", "size", lambda size: format_bytes(size)),
    Column("oldest_end", "oldest end", printing.format_time),
]


@retention.command()
@client_command
async def show(client: Client, output: ListOutput = ListFormat.TABLE) -> None:
    """Show the rules, what pipelines declare, and the settings. The most specific one applies."""
    rules = [asdict(rule) for rule in await client.retention.list_rules()]
    if output is ListFormat.TABLE:
        rules = [rule | {"keep": _format_keep(rule["keep"])} for rule in rules]
    printing.print_rows(rules, _RULE_COLUMNS, output)


@retention.command("set")
@client_command
async def set_rule(
    client: Client,
    keep: Annotated[str, typer.Argument(help="A duration such as 30d or 12h, or `forever`.")],
    pipeline: OnlyPipeline = None,
    tenant: OnlyTenant = None,
    state: EndedAs = FinalClass.ENDED,
    by: By = BY,
) -> None:
    """Set how long ended runs are kept, counted from their end and that of their last delivery.

    \b
    Examples:
      retoma retention set 30d --pipeline article
      retoma retention set forever --tenant acme --state failed
    """
    duration = None if keep == "forever" else read_duration("KEEP", keep)
    await client.retention.set_rule(duration, pipeline=pipeline, tenant=tenant, final_class=state, by=by)


@retention.command("unset")
@client_command
async def remove_rule(
    client: Client, pipeline: OnlyPipeline = None, tenant: OnlyTenant = None, state: EndedAs = FinalClass.ENDED
) -> None:
    """Remove a rule, so the next less specific one applies."""
    await client.retention.remove_rule(pipeline=pipeline, tenant=tenant, final_class=state)


@retention.command()
@client_command
async def preview(client: Client, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Show what would be removed now, and change nothing."""
    found = await client.retention.preview()
    if output is DetailFormat.JSON:
        printing.print_result(asdict(found), "", output)
        return
    if found.groups:
        printing.stdout().print(printing.make_table([asdict(group) for group in found.groups], _GROUP_COLUMNS))
    printing.stdout().print(_describe_preview(found))


@retention.command("run")
@client_command
async def run_now(client: Client, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Remove what is due now, without waiting for a worker or a server."""
    removed = await client.retention.run()
    printing.print_result({"runs": removed}, f"removed runs: {removed}", output)


@tenants.command()
def erase(
    tenant: Annotated[str, typer.Argument(help="The tenant.")],
    yes: Yes = False,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Remove all runs of a tenant at once, and what applications and people have stored about it, such as connections.

    Files that only its runs name are deleted within three days. Its costs, its name and its entries of the audit log
    stay. Cancel its open runs first. If you interrupt the command, run it again.

    \b
    Example:
      retoma tenants erase acme --yes
    """

    async def confirm_and_erase(client: Client) -> None:
        if not yes:
            typer.confirm(f"Erase the tenant {tenant!r} and all its runs for good?", abort=True, err=True)
        erased = await client.retention.erase_tenant(tenant)
        printing.print_result({"tenant": tenant} | asdict(erased), describe_erasure(erased), output)

    run_with_client(confirm_and_erase)


def _describe_preview(found: RetentionPreview) -> str:
    least = "" if found.is_complete else "at least "
    runs = f"{least}{found.runs:,} runs, {format_bytes(found.bytes)}"
    return f"would remove {runs}, and then {found.files:,} files, {format_bytes(found.file_bytes)}"


def format_bytes(size: Any) -> str:
    """Return `8.1 GB`."""
    number = float(size)
    for unit in ("B", "kB", "MB"):
        if number < 1_000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1_000
    return f"{number:,.1f} GB"


def _format_keep(keep: timedelta | None) -> str:
    return "forever" if keep is None else f"{keep.total_seconds() / 86_400:g} d"
