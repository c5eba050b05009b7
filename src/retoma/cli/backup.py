"""`retoma backup ...`: take a backup, check one, and release what a restore holds back."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from retoma.backups import CopyFiles, Manifest, create_backup, estimate_size, open_archive, verify_backup
from retoma.backups.create import Report
from retoma.cli import printing
from retoma.cli.command_setup import async_command, open_database, read_settings
from retoma.cli.options import DetailFormat, DetailOutput
from retoma.files import FileSettings, create_file_store
from retoma.privileges import get_user_name
from retoma.records import Actor, ActorKind, AuditAction
from retoma.store import restores
from retoma.store.audit_log import PendingEntry
from retoma.store.database import Database
from retoma.terminal import escape_text

SECONDS_BETWEEN_LINES = 5.0

backup = typer.Typer(name="backup", help="Take a backup, check one, and release what a restore holds back.")

BackupPath = Annotated[Path, typer.Argument(metavar="BACKUP", help="The .tar file or the folder of a backup.")]


@backup.callback(invoke_without_command=True)
def take(
    context: typer.Context,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", help="A new .tar file or, with any other name, a new folder. Default: retoma-TIME.tar here."
        ),
    ] = None,
    files: Annotated[
        CopyFiles | None,
        typer.Option(
            "--files",
            help="`copy` the stored files, or `none`. Default: copy those of a folder, but not those of a bucket, "
            "which does not end with this machine.",
        ),
    ] = None,
    allow_missing: Annotated[
        bool,
        typer.Option("--allow-missing-files", help="Do not fail if runs name files that are no longer stored."),
    ] = False,
    output: DetailOutput = DetailFormat.TABLE,
) -> None:
    """Take a backup of the database and the stored files without stopping anything.

    \b
    Examples:
      retoma backup
      retoma backup --to /mnt/backups/retoma-$(date +%F).tar
      retoma backup verify retoma-2030-01-31T0200.tar
    """
    if context.invoked_subcommand is None:
        _take(to, files, allow_missing, output)


@async_command
async def _take(to: Path | None, files: CopyFiles | None, allow_missing: bool, output: DetailFormat) -> None:
    store = create_file_store(FileSettings())
    copy = files or (CopyFiles.COPY if store.is_local else CopyFiles.NONE)
    path = (to or Path(time.strftime("retoma-%Y-%m-%dT%H%M%S.tar", time.gmtime()))).absolute()
    async with await Database.open(read_settings()) as database:  # also one that is to be upgraded next
        estimate = await estimate_size(database, store, copy)
        printing.stderr().print(
            f"backing up {database.address} and {store.location} to {path}: at most "
            f"{format_bytes(estimate.database_bytes + estimate.file_bytes)} ({estimate.files} files)",
            soft_wrap=True,
        )
        manifest = await create_backup(
            database,
            store,
            path,
            actor=get_actor(),
            copy=copy,
            allow_missing=allow_missing,
            report=make_report(),
        )
    printing.print_result(_to_json(manifest) | {"path": str(path)}, f"{path}: {_describe(manifest)}", output)


@backup.command()
@async_command
async def verify(path: BackupPath, output: DetailOutput = DetailFormat.TABLE) -> None:
    """Read a whole backup and compare it with its checksums. Exits with 1 if it is damaged. Needs no database.

    \b
    Example:
      retoma backup verify retoma-2030-01-31T0200.tar
    """
    with open_archive(path) as archive:
        manifest = await verify_backup(archive, make_report())
    printing.print_result(_to_json(manifest) | {"path": str(path)}, f"{path}: {_describe(manifest)}, unchanged", output)


@backup.command("held")
@async_command
async def show_held(output: DetailOutput = DetailFormat.TABLE) -> None:
    """Show how many webhooks and notifications the last restore holds back."""
    async with open_database(read_settings()) as database:
        found = await restores.count_held(database)
    text = f"held: {found.webhooks} webhooks, {found.notifications} notifications"
    printing.print_result(asdict(found), text, output)


@backup.command("release-held")
@async_command
async def release_held(output: DetailOutput = DetailFormat.TABLE) -> None:
    """Send the webhooks and notifications that the last restore holds back."""
    async with open_database(read_settings()) as database:
        entry = _build_entry(AuditAction.BACKUP_RELEASE_HELD, "release_held", "released")
        released = await restores.release_held(database.recording(entry))
    printing.print_result({"released": released}, f"released: {released}", output)


@backup.command("drop-held")
@async_command
async def drop_held(output: DetailOutput = DetailFormat.TABLE) -> None:
    """Do not send what the last restore holds back. The webhooks become dead letters, which you can still resend."""
    async with open_database(read_settings()) as database:
        entry = _build_entry(AuditAction.BACKUP_DROP_HELD, "drop_held", "dropped")
        dropped = await restores.drop_held(database.recording(entry))
    printing.print_result({"dropped": dropped}, f"dropped: {dropped}", output)


def _build_entry(action: AuditAction, statement: str, what: str) -> PendingEntry:
    return PendingEntry((statement,), get_actor(), action, None, after=lambda rows: {what: rows[0][0]})


def get_actor() -> Actor:
    name = get_user_name()
    return Actor(ActorKind.COMMAND_LINE, name, name)


def make_report() -> Report:
    """Return a function that prints the progress to stderr: a line for each stage, and one every few seconds."""
    console, stage_shown, shown_at = printing.stderr(), "", 0.0

    def report(stage: str, done: int, total: int | None) -> None:
        nonlocal stage_shown, shown_at
        if stage == stage_shown and time.monotonic() - shown_at < SECONDS_BETWEEN_LINES:
            return
        amount = "" if total is None else f": {format_bytes(done)} of {format_bytes(total)}"
        console.print(f"{stage}{amount}")
        stage_shown, shown_at = stage, time.monotonic()

    return report


def format_bytes(count: int) -> str:
    """Return `812 bytes`, `1.5 MB` or `20.3 GB`."""
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _describe(manifest: Manifest) -> str:
    rows = sum(manifest.tables.values())
    files = manifest.files
    stored = (
        f"{files.count} files" if files.copied else f"without the files, which are in {escape_text(files.location)}"
    )
    if files.missing:
        stored += f", {len(files.missing)} missing"
    return (
        f"Retoma {escape_text(manifest.retoma)} as of {printing.format_zoned_time(manifest.taken_at)}, {rows} rows, "
        f"{stored}, {format_bytes(manifest.database.size + files.bytes)}"
    )


def _to_json(manifest: Manifest) -> dict[str, Any]:
    return manifest.model_dump(mode="json")
