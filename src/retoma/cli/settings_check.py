"""Compare the settings that workers and servers must share: RETOMA_ALLOW_HOSTS and RETOMA_PUBLIC_URL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from datetime import timedelta

from retoma.errors import DatabaseUnavailable, InvalidInput
from retoma.logs import get_logger
from retoma.outgoing import Guard
from retoma.records import Server, Worker
from retoma.settings import Settings
from retoma.store import servers, workers
from retoma.store.database import Database
from retoma.terminal import escape_text

log = get_logger(__name__)
SECONDS_BETWEEN_CHECKS = 2.0
SAME_HOSTS = "set RETOMA_ALLOW_HOSTS to the same value for the server and every worker, and restart the worker"


class SettingsCheck:
    """Compare the settings of this worker with those of the running servers, which may start later."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._guard = Guard.from_settings(settings)
        self._public_url = settings.public_url
        self._logged: set[str] = set()

    async def check_at_start(self) -> None:
        """Raise InvalidInput if a running server accepts URLs that this worker would not call."""
        if difference := self._describe_missing_hosts(await servers.list_running(self._database)):
            raise InvalidInput(difference)
        await self._check()

    async def keep_checking(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_CHECKS)
            try:
                await self._check()
            except DatabaseUnavailable as error:
                log.warning(
                    "settings_check_failed",
                    message="could not compare the settings with those of the server; retrying",
                    error=error,
                )

    async def _check(self) -> None:
        """Log each difference once while it lasts."""
        running = await servers.list_running(self._database)
        found = {each for each in (self._describe_missing_hosts(running), self._describe_public_url(running)) if each}
        for difference in sorted(found - self._logged):
            log.error("settings_differ", message=difference)
        self._logged = found

    def _describe_missing_hosts(self, running: Iterable[Server]) -> str | None:
        missing = self._guard.list_not_allowed(sorted({host for server in running for host in server.allow_hosts}))
        if not missing:
            return None
        names = ", ".join(missing)
        return (
            f"the server accepts URLs of {names}, but RETOMA_ALLOW_HOSTS of this worker does not include {names}: set "
            "RETOMA_ALLOW_HOSTS to the same value for the server and every worker, or restart `retoma serve` without "
            "these hosts"
        )

    def _describe_public_url(self, running: Iterable[Server]) -> str | None:
        theirs = {server.public_url for server in running if server.public_url}
        if not theirs or self._public_url in theirs:
            return None
        return (
            f"RETOMA_PUBLIC_URL of this worker is {self._public_url or 'not set'}, but that of the server is "
            f"{', '.join(sorted(theirs))}: links and callbacks of this worker point elsewhere. Set the same value"
        )


class WorkerCheck:
    """Log the workers that would not call a host that this server accepts in URLs."""

    def __init__(self, database: Database, hosts: Iterable[str], heartbeat_timeout: timedelta) -> None:
        self._database = database
        self._hosts = sorted(set(hosts))
        self._heartbeat_timeout = heartbeat_timeout
        self._logged: set[str] = set()

    async def check(self) -> None:
        """Log each worker once while it does not allow a host."""
        if not self._hosts:
            return
        alive = await workers.list_alive(self._database)
        running = [worker for worker in alive if worker.is_alive(self._heartbeat_timeout)]
        found = set(describe_lacking_workers(self._hosts, running))
        for difference in sorted(found - self._logged):
            log.error("worker_settings_differ", message=f"{difference}; {SAME_HOSTS}")
        self._logged = found


def describe_lacking_workers(hosts: Iterable[str], running: Iterable[Worker]) -> Iterator[str]:
    """Yield a message for each worker that would not call one of these hosts."""
    required = sorted(set(hosts))
    for worker in running:
        if worker.allow_hosts is not None and (
            missing := Guard.from_hosts(worker.allow_hosts).list_not_allowed(required)
        ):
            yield (
                f"RETOMA_ALLOW_HOSTS of worker {escape_text(worker.name)!r} does not include {', '.join(missing)}, so "
                "the worker will not call URLs that the server accepts"
            )
