"""Run pg_dump, pg_restore and psql. Passwords are in the environment of these programs, never in their arguments."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from retoma.errors import BackupFailed, DatabaseUnavailable
from retoma.masking import mask_secrets
from retoma.store import embedded

_DEBIAN = Path("/usr/lib/postgresql")
_CHUNK = 1 << 20
# pg_restore 17 and newer set this in every script; an older server does not know it.
_UNKNOWN_TO_OLDER_SERVERS = b"SET transaction_timeout"
_PREAMBLE_LINES = 200
_PASSED_ON = ("HOME", "PATH", "TMPDIR", "PGPASSFILE", "PGPASSWORD")


@dataclass(frozen=True)
class Programs:
    """A folder with PostgreSQL's programs, and their major version."""

    folder: Path
    version: int

    def start(self, name: str, *arguments: str, url: str | None = None, **streams: Any) -> subprocess.Popen[bytes]:
        """Start a program. With a `url`, it connects there."""
        command = [str(self.folder / name), *arguments]
        environment = _build_environment()
        if url is not None:
            address, password = split_password(url)
            command.append(f"--dbname={address}")
            environment |= {} if password is None else {"PGPASSWORD": password}
        return subprocess.Popen(command, env=environment, **streams)  # noqa: S603


def choose_programs(server_version: int) -> Programs:
    """Return the programs for a server of this major version: those included with Retoma, or those of the system."""
    found = list(_list_programs())
    for programs in found:
        if programs.version >= server_version:
            return programs
    versions = ", ".join(str(each.version) for each in found) or "none"
    raise BackupFailed(
        f"the server is PostgreSQL {server_version}, and pg_dump must not be older than it (found: {versions}): "
        f"install the client programs of PostgreSQL {server_version} (on Debian, postgresql-client-{server_version})"
    )


def split_password(url: str) -> tuple[str, str | None]:
    """Return the URL without its password, and the password."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name, colon, password = user.partition(":")
    query = parse_qsl(parts.query, keep_blank_values=True)
    in_query = [value for key, value in query if key == "password"]
    if in_query:
        kept = [(key, value) for key, value in query if key != "password"]
        parts = parts._replace(query=urlencode(kept, safe="/,"))
    secret = unquote(password) if colon else next(iter(in_query), None)
    return urlunsplit(parts._replace(netloc=f"{name}{at}{host}")), secret


def start_dump(programs: Programs, url: str, snapshot: str, to: Path) -> Dump:
    """Start to dump the schema `retoma` as an exported snapshot sees it. Its exporter keeps it until the end."""
    errors = tempfile.TemporaryFile()  # noqa: SIM115  (until the dump ends)
    process = programs.start(
        "pg_dump",
        "--format=custom",
        "--schema=retoma",
        "--no-owner",
        "--no-privileges",
        "--no-password",
        f"--snapshot={snapshot}",
        f"--file={to}",
        url=url,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
    )
    return Dump(process, errors, to)


@dataclass(frozen=True)
class Dump:
    """A dump in progress."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    path: Path

    @property
    def size(self) -> int:
        """Return how many bytes it has written."""
        return self.path.stat().st_size if self.path.exists() else 0

    def is_finished(self) -> bool:
        """Return whether it has ended. Raise BackupFailed if it has failed."""
        if self.process.poll() is None:
            return False
        _check(self.process, "pg_dump", self.errors)
        return True

    def stop(self) -> None:
        _stop(self.process)
        self.errors.close()


def load_dump(programs: Programs, url: str, dump: IO[bytes], before: str, after: str) -> None:
    """Load a dump in one transaction, which begins with `before` and ends with `after`. Blocks.

    Nothing is left of it if any statement fails, or if a program or this process dies.
    """
    with tempfile.TemporaryFile() as restore_errors, tempfile.TemporaryFile() as psql_errors:
        # It writes the script to stdout: its own connection could not leave out what an older server does not know.
        restore = programs.start(
            "pg_restore",
            "--no-owner",
            "--no-privileges",
            "--file=-",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=restore_errors,
        )
        psql = programs.start(
            "psql",
            "--no-psqlrc",
            "--quiet",
            "--no-password",
            "--set=ON_ERROR_STOP=1",
            "--output=/dev/null",
            url=url,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=psql_errors,
        )
        try:
            _pipe(restore, psql, dump, before, after, restore_errors)
            psql.wait()
            _check(psql, "psql", psql_errors)
        except BrokenPipeError:
            psql.wait()
            _check(psql, "psql", psql_errors)
            raise
        finally:
            _stop(restore)
            _stop(psql)


def _pipe(
    restore: subprocess.Popen[bytes],
    psql: subprocess.Popen[bytes],
    dump: IO[bytes],
    before: str,
    after: str,
    errors: IO[bytes],
) -> None:
    assert restore.stdin is not None
    assert restore.stdout is not None
    assert psql.stdin is not None
    feeder = threading.Thread(target=_feed, args=(dump, restore.stdin), daemon=True)
    feeder.start()
    psql.stdin.write(f"begin;\n{before}\n".encode())
    for number, line in enumerate(restore.stdout):
        if not line.startswith(_UNKNOWN_TO_OLDER_SERVERS):
            psql.stdin.write(line)
        if number == _PREAMBLE_LINES:
            break
    shutil.copyfileobj(restore.stdout, psql.stdin, _CHUNK)
    restore.wait()
    feeder.join()
    _check(restore, "pg_restore", errors)
    # Only now: without this line, psql ends without a commit.
    psql.stdin.write(f"\n{after}\ncommit;\n".encode())
    psql.stdin.close()


def _feed(dump: IO[bytes], to: IO[bytes]) -> None:
    with suppress(BrokenPipeError, OSError):  # pg_restore has ended, and says why
        shutil.copyfileobj(dump, to, _CHUNK)
    with suppress(BrokenPipeError, OSError):
        to.close()


def _check(process: subprocess.Popen[bytes], name: str, errors: IO[bytes]) -> None:
    if process.returncode != 0:
        errors.seek(0)
        seen = errors.read(64 << 10).decode(errors="replace").strip().splitlines()
        raise BackupFailed(mask_secrets(f"{name} failed: {' / '.join(seen[-5:]) or process.returncode}"))


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        with suppress(OSError):
            if stream is not None:
                stream.close()


def _build_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("PGSSL")}
    return {"PATH": os.defpath, "LC_ALL": "C", "PGCONNECT_TIMEOUT": "10", "PGAPPNAME": "retoma backup"} | kept


def _list_programs() -> Iterator[Programs]:
    with suppress(DatabaseUnavailable):
        yield from _read_version(embedded.find_programs())
    if on_path := shutil.which("pg_dump"):
        yield from _read_version(Path(on_path).parent)
    for folder in sorted(_DEBIAN.glob("*/bin"), reverse=True):
        yield from _read_version(folder)


def _read_version(folder: Path) -> Iterator[Programs]:
    """Yield the programs of a folder if all three of them are there."""
    if all((folder / name).exists() for name in ("pg_dump", "pg_restore", "psql")):
        command = [str(folder / "pg_dump"), "--version"]
        shown = subprocess.run(command, capture_output=True, text=True, env=_build_environment())  # noqa: S603
        if found := re.search(r"\) (\d+)", shown.stdout):
            yield Programs(folder, int(found[1]))
