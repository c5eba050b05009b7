"""`retoma backup`, `retoma restore` and `retoma db move`, as a person runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retoma.backups import open_archive
from retoma.errors import BackupFailed
from retoma.store.database import Database
from tests.backups.builders import empty_database, list_names
from tests.cli.terminal import Terminal, wait_until


@pytest.fixture
async def new_machine(tmp_path: Path) -> AsyncIterator[Terminal]:
    """A shell with an empty database and another folder."""
    (tmp_path / "new").mkdir()
    async with empty_database() as database:
        yield Terminal(tmp_path / "new", {"RETOMA_DATABASE_URL": database.url})


def list_runs(terminal: Terminal) -> list[str]:
    return [run["id"] for run in terminal.json("runs", "list")]


def find_doctor_line(terminal: Terminal, subject: str) -> list[tuple[str, str]]:
    found = json.loads(terminal.run("doctor", "-o", "json").stdout)
    return [(line["level"], line["message"]) for line in found if line["subject"] == subject]


def test_a_backup_is_taken_checked_and_restored(terminal: Terminal, new_machine: Terminal) -> None:
    terminal.out("start", "film", "film.py")
    assert find_doctor_line(terminal, "backup") == [("ok", "none was taken with `retoma backup`")]
    taken = terminal.json("backup", "--to", "backup.tar")
    assert taken["tables"]["runs"] == 1
    ((level, message),) = find_doctor_line(terminal, "backup")
    assert (level, message.partition(" ago")[0][:22]) == ("ok", "the last one was taken")
    assert terminal.json("audit", "list", "--action", "backup")[0]["object_id"] == taken["id"]
    assert terminal.json("backup", "verify", "backup.tar")["id"] == taken["id"]

    path = str(terminal.folder / "backup.tar")
    restored = new_machine.json("restore", path)
    assert {name: restored[name] for name in ("backup", "jobs", "held", "dropped")} == {
        "backup": taken["id"],
        "jobs": 0,
        "held": 0,
        "dropped": 0,
    }
    assert list_runs(new_machine) == list_runs(terminal)
    assert new_machine.json("backup", "held") == {"webhooks": 0, "notifications": 0}
    assert new_machine.json("backup", "release-held") == {"released": 0}
    assert new_machine.json("backup", "drop-held") == {"dropped": 0}

    again = new_machine.run("restore", path)
    assert (again.returncode, "is not empty (1 runs" in again.stderr) == (4, True)
    unconfirmed = new_machine.run("restore", path, "--replace")
    assert (unconfirmed.returncode, "pass --yes" in unconfirmed.stderr) == (4, True)
    assert "restored from" in new_machine.out("restore", path, "--replace", "--yes")


def test_an_existing_file_is_not_replaced(terminal: Terminal) -> None:
    (terminal.folder / "backup.tar").write_text("precious")
    ended = terminal.run("backup", "--to", "backup.tar")
    assert (ended.returncode, "never replaces anything" in ended.stderr) == (4, True)
    assert (terminal.folder / "backup.tar").read_text() == "precious"


def test_a_damaged_backup_exits_with_1(terminal: Terminal) -> None:
    terminal.out("backup", "--to", "backup.tar")
    path = terminal.folder / "backup.tar"
    content = bytearray(path.read_bytes())
    content[5_000] ^= 1
    path.write_bytes(content)
    for command in (["backup", "verify", "backup.tar"], ["restore", "backup.tar", "--replace", "--yes"]):
        ended = terminal.run(*command)
        assert (ended.returncode, "database.dump is damaged" in ended.stderr) == (1, True)


def start_and_kill_backup(terminal: Terminal) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "retoma", "backup", "--to", "backup.tar"],
        cwd=terminal.folder,
        env=terminal._environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: any("unfinished" in name for name in list_names(terminal.folder)), 30)
    finally:
        process.kill()
        process.wait()


async def test_a_killed_backup_leaves_nothing_that_looks_complete(
    terminal: Terminal, real_time_database: Database
) -> None:
    async with real_time_database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("alter sequence retoma.workers_id_seq rename to locked")  # so pg_dump waits
        start_and_kill_backup(terminal)
        await transaction.rollback()
    (left,) = (name for name in list_names(terminal.folder) if "backup" in name)
    assert left.startswith(".backup.tar.unfinished-")
    with pytest.raises(BackupFailed), open_archive(terminal.folder / left) as archive:
        archive.read_manifest()


def test_only_an_embedded_database_is_moved(terminal: Terminal) -> None:
    ended = terminal.run("db", "move", "--to", "postgresql://nobody@127.0.0.1:1/x")
    assert (ended.returncode, "use `retoma backup` and `retoma restore`" in ended.stderr) == (2, True)
