"""The programs that a WordPress needs: MariaDB and PHP, from Debian's packages."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.ports import free_port

SOURCE = Path("/usr/share/wordpress")
SECONDS_TO_START = 180  # the machine may be busy with other tests
ATTEMPTS_TO_LISTEN = 5
MODULES = ("mysqli", "curl", "gd", "xml", "mbstring")
PACKAGES = "wordpress mariadb-server php-cli php-mysql php-curl php-gd php-xml php-mbstring"
PHP_OPTIONS = {
    "post_max_size": "32M",
    "memory_limit": "512M",
    "opcache.enable": "1",
    "opcache.enable_cli": "1",
    "opcache.revalidate_freq": "0",
    "display_errors": "stderr",
    "error_reporting": "E_ALL & ~E_DEPRECATED",  # WordPress 6.1 is older than PHP 8.2
}
DATABASE_OPTIONS = (
    "--skip-networking",
    "--skip-grant-tables",
    "--innodb-use-native-aio=0",  # the system has few of its slots, for all databases together
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-log-file-size=8M",
    "--innodb-buffer-pool-size=64M",
)


class ProgramFailed(Exception):
    """The message is what the program printed."""


def are_installed() -> bool:
    programs = ("php", "mariadbd", "mariadb", "mariadb-dump", "mariadb-install-db", "mariadb-admin")
    if not all(map(_find_program, programs)) or not (SOURCE / "wp-settings.php").is_file():
        return False
    listed = subprocess.run(["php", "-m"], capture_output=True, text=True, check=True).stdout.split()
    return set(MODULES) <= set(listed)


def run_command(command: list[str], text: str = "", variables: Mapping[str, str] | None = None) -> str:
    """Return what a program prints. Raise ProgramFailed with all of it if it fails."""
    ended = subprocess.run(
        command,
        env={**os.environ, **(variables or {})},
        input=text,
        capture_output=True,
        text=True,
        timeout=SECONDS_TO_START,
        check=False,
    )
    if ended.returncode != 0:
        raise ProgramFailed(f"{command[0]} ended with {ended.returncode}: {(ended.stdout + ended.stderr)[-2_000:]}")
    return ended.stdout


def php_command(root: Path) -> list[str]:
    """Return the start of a command. It keeps compiled files beside `root`, which makes loading WordPress faster."""
    cache = root.parent / "opcache"
    cache.mkdir(exist_ok=True)
    options = {**PHP_OPTIONS, "opcache.file_cache": str(cache)}
    return ["php", *(part for name, value in options.items() for part in ("-d", f"{name}={value}"))]


@contextmanager
def run_database(folder: Path) -> Iterator[Path]:
    """Run a MariaDB with its data in `folder`, and yield its socket: who can open the folder can use it."""
    account = f"--user={pwd.getpwuid(os.getuid()).pw_name}"
    data, at = folder / "data", folder / "mariadb.sock"
    # `--force` spares it the look-up of this machine's name, without which it fails if there is no name server.
    install = [_find_program("mariadb-install-db"), "--no-defaults", f"--datadir={data}", account]
    run_command([*install, "--skip-test-db", "--force"])
    command = [_find_program("mariadbd"), "--no-defaults", f"--datadir={data}", f"--socket={at}", account]
    with run_process([*command, *DATABASE_OPTIONS], folder / "mariadb.log") as process:
        _wait_until(lambda: _answers_ping(at), process, folder / "mariadb.log")
        yield at


@contextmanager
def run_web_server(
    root: Path, environment: Mapping[str, str], log: Path, workers: int, fixed_port: int = 0
) -> Iterator[int]:
    """Serve a copy of WordPress, and yield its port: a free one, which no other process of tests took meanwhile."""
    for _ in range(ATTEMPTS_TO_LISTEN):
        port = fixed_port or free_port()
        variables = {**environment, "PHP_CLI_SERVER_WORKERS": str(workers)}
        if variables["WORDPRESS_PORT"] == "0":
            variables["WORDPRESS_PORT"] = str(port)
        command = [*php_command(root), "-S", f"127.0.0.1:{port}", "-t", str(root), str(root / "router.php")]
        log.unlink(missing_ok=True)
        with run_process(command, log, variables) as process:
            # By its own log: if the port is taken, it is another server that answers there.
            _wait_until(lambda: "started" in log.read_text() or "in use" in log.read_text(), process, log)
            if "started" in log.read_text():
                yield port
                return
    raise AssertionError(f"no free port was found: {log.read_text()[-2_000:]}")


@contextmanager
def run_process(
    command: list[str], log: Path, variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a process group of its own, and end the group: PHP's web server does not end its workers."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _find_program(name: str) -> str:
    """Return "" if it is missing. mariadbd is in a folder that is not on every account's PATH."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin") or ""


def _answers_ping(at: Path) -> bool:
    ping = ["mariadb-admin", "--no-defaults", f"--socket={at}", "ping"]
    return at.exists() and subprocess.run(ping, capture_output=True, check=False).returncode == 0


def _wait_until(is_ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while not is_ready():
        assert process.poll() is None or is_ready(), log.read_text()[-2_000:]
        assert time.monotonic() < deadline, f"it did not start: {log.read_text()[-2_000:]}"
        time.sleep(0.05)
