"""`retoma restore`: restore a backup into an empty database."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from retoma.backups import RestoredBackup, open_archive, restore_backup
from retoma.cli import printing
from retoma.cli.backup import BackupPath, get_actor, make_report
from retoma.cli.command_setup import async_command, read_settings
from retoma.cli.options import DetailFormat, DetailOutput
from retoma.errors import Conflict
from retoma.files import FileSettings, create_file_store
from retoma.store import restores
from retoma.store.database import Database


class Deliveries(StrEnum):
    HOLD = "hold"
    SEND = "send"
    DROP = "drop"

    @property
    def outbox(self) -> Literal["hold", "send", "drop"]:
        return self.value


@async_command
async def restore(
    path: BackupPath,
    deliveries: Annotated[
        Deliveries | None,
        typer.Option(
            "--deliveries",
            help="What becomes of webhooks and notifications that are due: `hold` them until you release or drop them "
            "(default), `send` them (the old machine has sent nothing since the backup), or `drop` them.",
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Delete everything that is in the database now.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Restore a backup into an empty database. Its runs continue where they were.

    Stop the old machine first. Restore only backups that you trust: the dump is run as SQL.

    \b
    Examples:
      retoma --home /srv/retoma restore retoma-2030-01-31T0200.tar
      RETOMA_DATABASE_URL=postgresql://retoma@db/retoma retoma restore retoma-2030-01-31T0200.tar
    """
    settings = read_settings()
    with open_archive(path) as archive:
        archive.read_manifest()  # fail before a server is started for it
    async with await Database.open(settings) as database:
        if replace and not yes:
            await _confirm_replacement(database)
        restored = await restore_backup(
            database,
            create_file_store(FileSettings()),
            path,
            actor=get_actor(),
            outbox=(deliveries or _ask_about_deliveries()).outbox,
            replace=replace,
            heartbeat_timeout=settings.heartbeat_timeout,
            report=make_report(),
        )
        address = database.address
    _print(restored, address, path, output)


async def _confirm_replacement(database: Database) -> None:
    content = await restores.describe_content(database)
    if content is None:
        return
    if not sys.stdin.isatty():
        raise Conflict(f"this deletes {content} in {database.address}: pass --yes to confirm that")
    typer.confirm(f"This deletes {content} in {database.address}. Continue?", abort=True, err=True)


def _ask_about_deliveries() -> Deliveries:
    if not sys.stdin.isatty():
        return Deliveries.HOLD
    printing.stderr().print(
        "The old machine may have sent webhooks and notifications after the backup. Those that are due can be held "
        "until you release or drop them, sent, or dropped."
    )
    chosen: Deliveries = typer.prompt("hold, send or drop", default=Deliveries.HOLD, err=True, type=Deliveries)
    return chosen


def _print(restored: RestoredBackup, address: str, path: Path, output: DetailFormat) -> None:
    manifest, found = restored.manifest, restored.database
    lines = [
        f"{address}: restored from {path}, as of {printing.format_zoned_time(manifest.taken_at)}",
        f"jobs released: {found.jobs}, files copied: {restored.files}",
    ]
    if found.dropped:
        lines.append(f"webhooks and notifications dropped: {found.dropped}")
    if found.held:
        lines.append(
            f"webhooks and notifications held: {found.held}; send them with `retoma backup release-held`, or do not: "
            "`retoma backup drop-held`"
        )
    if not manifest.files.copied:
        lines.append(f"the backup has no files: they are in {manifest.files.location}")
    value = {"backup": manifest.id, "taken_at": manifest.taken_at, "files": restored.files, **vars(found)}
    printing.print_result(value, "\n".join(lines), output)
