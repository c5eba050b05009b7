"""The way to PostgreSQL: a pool for everyday statements, and links of their own for the busy loops."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from retoma.define.isolation import check_not_importing
from retoma.errors import DatabaseUnavailable, InvalidInput, Unrecordable, WorkerGone
from retoma.logs import get_logger
from retoma.settings import Settings
from retoma.store import embedded, migrate
from retoma.store.statements import Statement

log = get_logger("retoma.database")
Connection = asyncpg.Connection | PoolConnectionProxy
Row = asyncpg.Record
Answer = TypeVar("Answer")

OLDEST_POSTGRESQL = 15
UNREADABLE = "an address that cannot be read (is it postgresql://user:password@host:port/name, with %-encoded signs?)"
DATABASE_ERRORS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_WORKER_GONE = "RT001"  # raised by retoma.exchange
_CUT = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server's last words came while nobody asked, and confused the driver
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InvalidCatalogNameError,  # a database that is being renamed or restored
    asyncpg.InvalidAuthorizationSpecificationError,  # a password that is being changed
    asyncpg.InvalidTransactionStateError,  # such as a server that has become a replica
)
_PASSING = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
)
# Seconds after which a call is made again on another connection, and twice as long each time that did not help:
# a connection that died in silence would otherwise be waited for without end.
PATIENCE = 10.0
UPGRADES = 40  # tries, in about four minutes
_FAREWELL = 2.0  # seconds for a connection to end well
# What our statements rely on, whatever an administrator has set for the database or the role. Each statement of a
# function must see what others have just committed. Timeouts are ours: a call that takes too long is made again on
# another connection. To compile our statements takes a hundred times longer than to run them.
_NEEDED = {
    "jit": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "synchronous_commit": "on",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "search_path": "public",
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "transform_null_equals": "off",
}
# Behind a pooler nothing can be set for a connection, only for a transaction. A process that stands still at this very
# moment must not keep what it has locked.
_MANNERS = "; ".join(
    [
        "set transaction isolation level read committed, read write",
        *(f"set local {name} = '{value}'" for name, value in _NEEDED.items() if not name.startswith("default_")),
        "set local idle_in_transaction_session_timeout = '10s'",
    ]
)


def is_cut(error: BaseException) -> bool:
    """The connection is gone, and with it the answer: whether the call was committed is not known."""
    return isinstance(error, _CUT)


def is_passing(error: BaseException) -> bool:
    """Nothing was committed, and the same call may pass later."""
    return isinstance(error, _PASSING)


def is_there(error: BaseException) -> bool:
    """Nothing was committed, because another transaction has just written the same row."""
    return isinstance(error, asyncpg.UniqueViolationError)


class Database:
    """One PostgreSQL. Use as an async context manager, or `await Database.open(...)` and `close()`."""

    def __init__(self, url: str, server: embedded.Embedded | None, pool_size: int = 4) -> None:
        self.url = url
        self.pooled = False
        self._server = server
        self._pool_size = pool_size
        self._pool: asyncpg.Pool | None = None

    @classmethod
    async def open(cls, settings: Settings, *, pool_size: int = 4) -> Self:
        """Connect to `database_url`, or to the embedded server, which is started if it does not run."""
        check_not_importing()
        if settings.database_url is not None:
            database = cls(settings.database_url.get_secret_value(), None, pool_size)
        else:
            server = await asyncio.to_thread(embedded.attach, settings.home, settings.embedded_port)
            database = cls(server.url, server, pool_size)
        try:
            await database._look_at_server()
        except BaseException:
            await database.close()
            raise
        return database

    async def close(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), _FAREWELL)
            except DATABASE_ERRORS:
                pool.terminate()
        if self._server is not None:
            self._server.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """Where it is, without user and password; nothing of an address that cannot be understood."""
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError:
            return UNREADABLE
        if parts.scheme not in ("postgresql", "postgres") or "@" in parts.path + parts.query + parts.fragment:
            return UNREADABLE
        return f"{parts.hostname or 'local socket'}{f':{port}' if port else ''}{parts.path}"

    async def fetch(self, statement: Statement, **values: Any) -> list[asyncpg.Record]:
        arguments = statement.bind(values)
        return await self._tried_again(lambda connection: connection.fetch(statement.sql, *arguments))

    async def fetchrow(self, statement: Statement, **values: Any) -> asyncpg.Record | None:
        rows = await self.fetch(statement, **values)
        return rows[0] if rows else None

    async def fetch_one(self, statement: Statement, **values: Any) -> asyncpg.Record:
        """The row of a statement that always gives one."""
        (row,) = await self.fetch(statement, **values)
        return row

    async def upgrade(self) -> list[str]:
        """Waits for minutes where others keep a table, and lets all others go on in its pauses."""
        for wait in backoff(tries=UPGRADES, first=1.0, cap=6.0):
            try:
                with self._explained():
                    async with self.connection() as connection:
                        return await migrate.upgrade(connection)
            except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
                if wait is None:
                    raise DatabaseUnavailable(
                        f"the schema at {self.address} could not be brought to this release, as other transactions "
                        "keep its tables: end those that `retoma doctor` shows, and run `retoma db upgrade` again"
                    ) from error
                log.warning("the upgrade waits for other transactions", error=error)
                await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def require_current(self) -> None:
        with self._explained():
            async with self.connection() as connection:
                await migrate.require_current(connection)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        pool = await self._opened_pool()
        async with pool.acquire() as connection:
            yield connection

    async def connect(self) -> asyncpg.Connection:
        """A connection of the caller's own. Wakes the embedded server if it has gone."""
        try:
            return await self._connect_once()
        except _CUT:
            if self._server is not None:
                await asyncio.to_thread(self._server.ensure)
            return await self._connect_once()

    async def part_with(self, connection: asyncpg.Connection) -> None:
        """Take back an idle connection of the caller's own."""
        with suppress(*DATABASE_ERRORS):
            await connection.close(timeout=_FAREWELL)

    async def _connect_once(self) -> asyncpg.Connection:
        return await asyncpg.connect(self.url, timeout=10, **self._connection_options)

    @property
    def _connection_options(self) -> dict[str, Any]:
        # Behind a transaction pooler the next statement may meet another server, which knows no prepared ones.
        return {"statement_cache_size": 0} if self.pooled else {"server_settings": _NEEDED}

    async def _opened_pool(self) -> asyncpg.Pool:
        if self._pool is None:
            self._pool = await asyncpg.create_pool(
                self.url,
                min_size=0,
                max_size=self._pool_size,
                reset=_leave_as_it_is,
                **self._connection_options,
            )
        return self._pool

    async def _tried_again(self, call: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """Statements that come here may safely run twice."""
        patience = PATIENCE
        for wait in backoff(tries=6):
            try:
                async with asyncio.timeout(patience), self.connection() as connection:
                    return await self._answered_or_dropped(connection, call)
            except asyncpg.CharacterNotInRepertoireError as error:
                raise InvalidInput("a text holds a NUL, which no text here can") from error
            except (*_CUT, *_PASSING) as error:
                patience *= 1 + isinstance(error, TimeoutError)
                if wait is None:
                    raise DatabaseUnavailable(f"the database at {self.address} does not answer: {error}") from error
                await self._revive()
                await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def _answered_or_dropped(
        self, connection: Connection, call: Callable[[Connection], Awaitable[Answer]]
    ) -> Answer:
        try:
            return await answered(connection, self.pooled, call)
        except (*_CUT, asyncio.CancelledError):
            connection.terminate()  # the pool must not hand it out again
            raise

    async def _revive(self) -> None:
        if self._server is not None:
            await asyncio.to_thread(self._server.ensure)

    async def _look_at_server(self) -> None:
        try:
            connection = await asyncpg.connect(self.url, timeout=10, statement_cache_size=0)
        except (*DATABASE_ERRORS, ValueError) as error:
            raise DatabaseUnavailable(
                f"cannot connect to the database at {self.address}: {error}; check RETOMA_DATABASE_URL"
            ) from error
        with self._explained():
            try:
                await self._note_server(connection)
            finally:
                with suppress(*DATABASE_ERRORS):
                    await connection.close(timeout=_FAREWELL)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Let a connection that is cut be what it is for the caller, who need not know the driver."""
        try:
            yield
        except _CUT as error:
            raise DatabaseUnavailable(f"the database at {self.address} does not answer: {error}") from error

    async def _note_server(self, connection: asyncpg.Connection) -> None:
        async with connection.transaction():
            await connection.execute(_MANNERS)
            (row,) = await connection.fetch(
                "select pg_backend_pid() as pid, current_setting('server_version_num')::int as version"
            )
        # A pooler tells a process id of its own, not that of the server behind it.
        self.pooled = row["pid"] != connection.get_server_pid()
        if row["version"] < OLDEST_POSTGRESQL * 10_000:
            raise DatabaseUnavailable(
                f"the database at {self.address} is PostgreSQL {row['version'] // 10_000}; "
                f"Retoma needs {OLDEST_POSTGRESQL} or newer"
            )


class Link:
    """A connection of one loop's own, opened when first used and again after it was cut.

    A call that raises an error for which `is_cut` holds may have been committed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: asyncpg.Connection | None = None

    async def fetch(
        self, statement: Statement, arguments: list[Any], patience: float = PATIENCE
    ) -> list[asyncpg.Record]:
        try:
            async with asyncio.timeout(patience):
                connection = await self._opened()
                return await answered(connection, self._database.pooled, lambda c: c.fetch(statement.sql, *arguments))
        except BaseException as error:
            if is_cut(error) or isinstance(error, asyncio.CancelledError):
                self.drop()
            if isinstance(error, asyncpg.PostgresError) and error.sqlstate == _WORKER_GONE:
                raise WorkerGone(f"{error}: it was declared dead, and what it held runs elsewhere") from error
            if isinstance(error, asyncpg.DataError | asyncpg.ProgramLimitExceededError):
                raise Unrecordable(f"the database cannot hold this: {error}") from error
            raise

    async def close(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            await self._database.part_with(self._connection)
        self._connection = None

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _opened(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.connect()
        return self._connection


async def answered(connection: Connection, pooled: bool, call: Callable[[Connection], Awaitable[Answer]]) -> Answer:
    """Make the call; behind a pooler in a transaction, so that all its messages meet one server."""
    if not pooled:
        return await call(connection)
    async with connection.transaction():
        await connection.execute(_MANNERS)
        return await call(connection)


def backoff(tries: int | None = None, first: float = 0.05, cap: float = 2.0) -> Any:
    """Seconds to wait before each next try, with jitter; None after the last."""
    wait = first
    number = 1
    while tries is None or number < tries:
        yield wait * random.uniform(0.5, 1.0)  # noqa: S311
        wait = min(cap, wait * 2)
        number += 1
    yield None


async def _leave_as_it_is(_: asyncpg.Connection) -> None:
    """We set nothing on a connection, so there is nothing to reset when it goes back to the pool."""
