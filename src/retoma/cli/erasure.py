"""`retoma runs hold`, `retoma runs release` and `retoma runs erase`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from retoma.cli import printing, revisions
from retoma.cli.command_setup import client_command, run_with_client
from retoma.cli.lookups import find_run
from retoma.cli.options import BY, By, DetailFormat, DetailOutput, RunId
from retoma.cli.runs import runs
from retoma.client import Client
from retoma.records import Erasure

__all__ = ["revisions", "runs"]  # `revisions` adds its commands to those of `runs`

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@runs.command()
@client_command
async def hold(
    client: Client,
    run: RunId,
    reason: Annotated[str, typer.Option("--reason", help="Why it is kept, such as a legal dispute.")],
    by: By = BY,
) -> None:
    """Keep a run whatever the rules of retention say, until you release it.

    \b
    Example:
      retoma runs hold 019b --reason "dispute 4711"
    """
    await client.retention.hold(await find_run(client, run), reason, by=by)


@runs.command()
@client_command
async def release(client: Client, run: RunId) -> None:
    """Let the rules of retention apply to a held run again."""
    await client.retention.release(await find_run(client, run))


@runs.command()
def erase(run: RunId, yes: Yes = False, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Remove an ended run and its child runs at once, with everything that belongs to them.

    Files that only these runs name are deleted within three days. What the runs have cost stays in the totals. Webhooks
    that are not sent yet are dropped.

    \b
    Example:
      retoma runs erase 019b --yes
    """

    async def confirm_and_erase(client: Client) -> None:
        found = await find_run(client, run)
        if not yes:
            typer.confirm(f"Erase run {found} for good?", abort=True, err=True)
        erased = await client.retention.erase_run(found)
        printing.print_result({"run": found} | asdict(erased), describe_erasure(erased), output)

    run_with_client(confirm_and_erase)


def describe_erasure(erased: Erasure) -> str:
    """Return `erased runs: 2`, and how many files follow."""
    follow = f"; files that no run names any more, which are deleted within three days: {erased.files}"
    return f"erased runs: {erased.runs}" + (follow if erased.files else "")
