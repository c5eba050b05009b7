"""One WordPress of the tests: a database, the copy of WordPress that serves it, and its address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2

from tests.wordpress.programs import php_command, run_command, run_web_server

PHP = Path(__file__).parent / "php"
SECONDS = 120
PLUGIN = "autowriter/autowriter.php"


class PhpFailed(Exception):
    """The PHP code did not run to its end. The message is what PHP printed."""


@dataclass(frozen=True)
class WordPress:
    """`network` is empty for a single site, `new` until the network exists, then `installed`.

    `credentials` are the secrets of its sites, by their paths: `/` is the main or only one. `port` is 0 until a web
    server serves it, and `proxy_port` is the one of its addresses if a proxy is in front of that server. With `cron`,
    requests start WP-Cron, as in production; without, only tests do.
    """

    root: Path
    socket: Path
    database: str
    port: int = 0
    proxy_port: int = 0
    network: str = ""
    cron: bool = False
    credentials: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What PHP and WordPress complain about."""
        return self.root.parent / f"{self.database}.log"

    def list_complaints(self, about: str) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if about in line]

    def run_php(self, code: str, *, path: str = "/", **values: object) -> Any:
        """Run code within WordPress and return its result. `values` are its variables, `path` chooses the site."""
        request = json.dumps({"code": code, "values": values, "path": path})
        printed = self._post(path, request) if self.port else self.run_script("run.php", request)
        try:
            return json.loads(printed.rpartition("\n")[2])["returned"]
        except (ValueError, TypeError):
            raise PhpFailed(printed[-2_000:]) from None

    def _post(self, path: str, request: str) -> str:
        """Send the code to the web server, which has WordPress in memory: this takes a third of the time."""
        headers = {"X-Test-Run": "yes", "Content-Type": "text/plain"}
        return httpx2.post(f"{self.address}{path}", content=request, headers=headers, timeout=SECONDS).text

    def run_script(self, name: str, text: str = "") -> str:
        return run_command([*php_command(self.root), str(PHP / name)], text, self.environment())

    def run_sql(self, statements: str) -> None:
        run_command(["mariadb", "--no-defaults", f"--socket={self.socket}"], statements)

    def create_database(self) -> None:
        self.run_sql(f"create database {self.database} character set utf8mb4")

    def copy(self, database: str) -> WordPress:
        """Return a copy with its own database. Nothing serves it yet."""
        made = replace(self, database=database, port=0)
        made.create_database()
        copied = run_command(["mariadb-dump", "--no-defaults", f"--socket={self.socket}", self.database])
        made.run_sql(f"use {made.database};\n{copied}")
        return made

    @contextmanager
    def clone(self, *, cron: bool = False) -> Iterator[WordPress]:
        """Yield a copy with its own database and web server, for a test that changes what others rely on."""
        with self.borrow_copy() as made, replace(made, cron=cron).serve(workers=2) as served:
            yield served

    @contextmanager
    def borrow_copy(self) -> Iterator[WordPress]:
        """Yield a copy with its own database, which is dropped afterwards. Nothing serves it yet."""
        made = self.copy(f"{self.database}_{uuid4().hex[:12]}")
        try:
            yield made
        finally:
            made.run_sql(f"drop database {made.database}")

    @contextmanager
    def serve(self, workers: int = 4) -> Iterator[WordPress]:
        """Run a web server for it, on its port if it has one, and yield it with the port."""
        log = self.root.parent / f"{self.database}.web.log"
        with run_web_server(self.root, self.environment(), log, workers, self.port) as port:
            yield replace(self, port=port)

    def environment(self) -> dict[str, str]:
        return {
            "WORDPRESS_FOLDER": str(self.root),
            "WORDPRESS_SOCKET": str(self.socket),
            "WORDPRESS_DATABASE": self.database,
            "WORDPRESS_PORT": str(self.proxy_port or self.port),
            "WORDPRESS_NETWORK": self.network,
            "WORDPRESS_CRON": "yes" if self.cron else "",
            "WORDPRESS_LOG": str(self.log),
        }


@dataclass(frozen=True)
class Sites:
    """A single site and a network of three, which all tests share, and what to clone: the same in which nothing has
    happened yet, and the same without the plugin."""

    site: WordPress
    network: WordPress
    fresh_site: WordPress
    fresh_network: WordPress
    bare_site: WordPress
    bare_network: WordPress

    def __iter__(self) -> Iterator[WordPress]:
        return iter((self.site, self.network))

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Sites:
        return cls(**{name: _read_wordpress(values) for name, values in json.loads(text).items()})


def _read_wordpress(values: dict[str, Any]) -> WordPress:
    return WordPress(**{**values, "root": Path(values["root"]), "socket": Path(values["socket"])})
