"""Connections to PostgreSQL: a pool for ordinary statements, and dedicated connections for the busy loops."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from copy import copy
from functools import partial
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import urlsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from retoma.define.isolation import check_not_importing
from retoma.errors import DatabaseUnavailable, InvalidInput, RunRemoved, Unrecordable, WorkerGone
from retoma.logs import get_logger
from retoma.settings import Settings
from retoma.store import embedded, migrate
from retoma.store.statements import Statement, statements

log = get_logger(__name__)
Connection = asyncpg.Connection | PoolConnectionProxy
Row = asyncpg.Record
Returned = TypeVar("Returned")

OLDEST_POSTGRESQL = 15
UNREADABLE_ADDRESS = (
    "not a valid address (expected postgresql://user:password@host:port/name, with special characters %-encoded)"
)
DATABASE_ERRORS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_WORKER_GONE = "RT001"  # raised by retoma.finish_and_claim
_RUN_REMOVED = "RT006"  # raised by whatever takes a key that started a run
_CONNECTION_LOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server closed the connection between calls, which confuses the driver
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InvalidCatalogNameError,  # a database that is being renamed or restored
    asyncpg.InvalidAuthorizationSpecificationError,  # a password that is being changed
    asyncpg.InvalidTransactionStateError,  # such as a server that has become a replica
)
_TRANSIENT = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
)
# Seconds after which a call is repeated on another connection, doubled each time. Otherwise a call on a connection that
# died without a signal would wait forever.
CALL_TIMEOUT = 10.0
UPGRADE_ATTEMPTS = 40  # in about four minutes
_CLOSE_TIMEOUT = 2.0  # seconds for an orderly close of a connection
# The settings that our statements rely on, whatever an administrator has set for the database or the role. Each
# statement of a function must see what others have just committed. Timeouts are handled here: a slow call is repeated
# on another connection. JIT compilation takes a hundred times longer than running our statements.
_SESSION_SETTINGS = {
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
# The server closes a connection whose client vanished without closing it after a minute, instead of two hours.
_KEEPALIVES = {"tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3"}
# Behind a pooler, settings apply to a transaction, not to a connection. A process that freezes in the middle of a
# transaction must not keep its locks.
_TRANSACTION_SETTINGS = "; ".join(
    [
        "set transaction isolation level read committed, read write",
        *(
            f"set local {name} = '{value}'"
            for name, value in _SESSION_SETTINGS.items()
            if not name.startswith("default_")
        ),
        "set local idle_in_transaction_session_timeout = '10s'",
    ]
)


def is_connection_lost(error: BaseException) -> bool:
    """Return whether the connection was lost and with it the response: the call may have been committed."""
    return isinstance(error, _CONNECTION_LOST)


def is_transient(error: BaseException) -> bool:
    """Return whether nothing was committed and the same call may succeed later."""
    return isinstance(error, _TRANSIENT)


def is_duplicate(error: BaseException) -> bool:
    """Return whether nothing was committed because another transaction has just written the same row."""
    return isinstance(error, asyncpg.UniqueViolationError)


class Record(Protocol):
    """What is written in the transaction of a statement, such as an entry of the audit log."""

    def belongs_to(self, statement: Statement) -> bool:
        """Return whether this statement is the one to write it with."""
        ...

    async def write(self, connection: Connection, rows: list[Row]) -> None:
        """Write it, if the rows that the statement returned say that something has changed."""
        ...


class Database:
    """A PostgreSQL database. Use it as an async context manager, or `await Database.open(...)` and `close()`."""

    def __init__(self, url: str, server: embedded.Embedded | None, pool_size: int = 4) -> None:
        self.url = url
        self.pooled = False
        self._server = server
        self._pool_size = pool_size
        self._pools: list[asyncpg.Pool] = []  # at most one; shared with the copies that `recording` returns
        self._record: Record | None = None

    def recording(self, record: Record) -> Database:
        """Return this database for one change: the statement that makes it also writes the record, or neither."""
        changed = copy(self)
        changed._record = record
        return changed

    @classmethod
    async def open(cls, settings: Settings, *, pool_size: int = 4) -> Self:
        """Connect to `database_url`, or to the embedded server, which is started if it is not running."""
        check_not_importing()
        if settings.database_url is not None:
            database = cls(settings.database_url.get_secret_value(), None, pool_size)
        else:
            server = await asyncio.to_thread(embedded.attach, settings.home, settings.embedded_port)
            database = cls(server.url, server, pool_size)
        try:
            await database._check_server()
        except BaseException:
            await database.close()
            raise
        return database

    async def close(self) -> None:
        while self._pools:
            pool = self._pools.pop()
            try:
                await asyncio.wait_for(pool.close(), _CLOSE_TIMEOUT)
            except DATABASE_ERRORS:
                pool.terminate()
        if self._server is not None:
            self._server.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @contextmanager
    def used_exclusively(self) -> Iterator[None]:
        """Keep other processes from using this embedded database. Raise Conflict if one does."""
        assert self._server is not None
        with self._server.attached_exclusively():
            yield

    def mark_as_moved(self, to: str) -> None:
        """Let no process use this embedded database any longer: it was copied to the address `to`."""
        assert self._server is not None
        self._server.mark_as_moved(to)

    @property
    def address(self) -> str:
        """Return the address without user and password, or a placeholder if it cannot be parsed."""
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError:
            return UNREADABLE_ADDRESS
        if parts.scheme not in ("postgresql", "postgres") or "@" in parts.path + parts.query + parts.fragment:
            return UNREADABLE_ADDRESS
        return f"{parts.hostname or 'local socket'}{f':{port}' if port else ''}{parts.path}"

    async def fetch(self, statement: Statement, **values: Any) -> list[asyncpg.Record]:
        arguments, record = statement.bind(values), self._record
        if record is not None and record.belongs_to(statement):
            return await self._run_with_retries(partial(_fetch_and_record, statement, arguments, record))
        return await self._run_with_retries(lambda connection: connection.fetch(statement.sql, *arguments))

    async def fetchrow(self, statement: Statement, **values: Any) -> asyncpg.Record | None:
        rows = await self.fetch(statement, **values)
        return rows[0] if rows else None

    async def fetch_one(self, statement: Statement, **values: Any) -> asyncpg.Record:
        """Return the row of a statement that always returns one."""
        (row,) = await self.fetch(statement, **values)
        return row

    async def fetch_value(self, statement: Statement, **values: Any) -> Any:
        """Return the first value of the row of a statement that always returns one."""
        return (await self.fetch_one(statement, **values))[0]

    async def find_value(self, statement: Statement, **values: Any) -> Any:
        """Return the first value of the first row, or None without a row."""
        row = await self.fetchrow(statement, **values)
        return None if row is None else row[0]

    async def fetch_column(self, statement: Statement, **values: Any) -> list[Any]:
        return [row[0] for row in await self.fetch(statement, **values)]

    async def fetch_records(self, kind: type[Returned], statement: Statement, **values: Any) -> list[Returned]:
        """Return each row as a record with the fields that its columns name."""
        return [kind(**row) for row in await self.fetch(statement, **values)]

    async def upgrade(self) -> list[str]:
        """Upgrade the schema. Retries for minutes if other transactions lock a table, pausing to let them proceed."""
        for wait in backoff(tries=UPGRADE_ATTEMPTS, first=1.0, cap=6.0):
            try:
                with self._translate_errors():
                    async with self.connection() as connection:
                        return await migrate.upgrade(connection)
            except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
                if wait is None:
                    raise DatabaseUnavailable(
                        f"the schema at {self.address} could not be upgraded to this release, as other transactions "
                        "lock its tables: end those that `retoma doctor` shows, and run `retoma db upgrade` again"
                    ) from error
                log.warning(
                    "upgrade_blocked",
                    message="the schema upgrade waits for other transactions; retrying",
                    error=error,
                )
                await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def require_current(self) -> None:
        with self._translate_errors():
            async with self.connection() as connection:
                await migrate.require_current(connection)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        pool = await self._open_pool()
        async with pool.acquire() as connection:
            yield connection

    async def connect(self) -> asyncpg.Connection:
        """Open a connection for the caller. Starts the embedded server again if it has stopped."""
        try:
            return await self._connect_once()
        except _CONNECTION_LOST:
            await self._restart_embedded()
            return await self._connect_once()

    async def release_connection(self, connection: asyncpg.Connection) -> None:
        """Close an idle connection that `connect` opened."""
        with suppress(*DATABASE_ERRORS):
            await connection.close(timeout=_CLOSE_TIMEOUT)

    async def _connect_once(self) -> asyncpg.Connection:
        return await asyncpg.connect(self.url, timeout=10, **self._connection_options)

    @property
    def _connection_options(self) -> dict[str, Any]:
        # Behind a transaction pooler the next statement may reach another backend, without our prepared statements.
        return {"statement_cache_size": 0} if self.pooled else {"server_settings": _SESSION_SETTINGS | _KEEPALIVES}

    async def _open_pool(self) -> asyncpg.Pool:
        if not self._pools:
            pool = await asyncpg.create_pool(
                self.url,
                min_size=0,
                max_size=self._pool_size,
                reset=_keep_session,
                **self._connection_options,
            )
            self._pools.append(pool)
        return self._pools[0]

    async def _run_with_retries(self, call: Callable[[Connection], Awaitable[Returned]]) -> Returned:
        """Run a call, and repeat it after transient errors. Its statements must be safe to run twice."""
        patience = CALL_TIMEOUT
        for wait in backoff(tries=6):
            try:
                async with asyncio.timeout(patience), self.connection() as connection:
                    return await self._run_or_drop(connection, call)
            except asyncpg.CharacterNotInRepertoireError as error:
                raise InvalidInput("a text contains a NUL character, which the database cannot store") from error
            except (*_CONNECTION_LOST, *_TRANSIENT) as error:
                patience *= 1 + isinstance(error, TimeoutError)
                if wait is None:
                    raise DatabaseUnavailable(f"the database at {self.address} is unreachable: {error}") from error
                await self._restart_embedded()
                await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def _run_or_drop(self, connection: Connection, call: Callable[[Connection], Awaitable[Returned]]) -> Returned:
        try:
            return await run_call(connection, self.pooled, call)
        except (*_CONNECTION_LOST, asyncio.CancelledError):
            connection.terminate()  # the pool must not reuse it
            raise

    async def _restart_embedded(self) -> None:
        if self._server is not None:
            await asyncio.to_thread(self._server.ensure)

    async def _check_server(self) -> None:
        try:
            connection = await asyncpg.connect(self.url, timeout=10, statement_cache_size=0)
        except (*DATABASE_ERRORS, ValueError) as error:
            # An error about the URL itself quotes it, perhaps with a part of its password.
            reason = "" if self.address == UNREADABLE_ADDRESS else f": {error}"
            raise DatabaseUnavailable(
                f"cannot connect to the database at {self.address}{reason}; check RETOMA_DATABASE_URL"
            ) from (error if reason else None)
        with self._translate_errors():
            try:
                await self._read_server_version(connection)
            finally:
                await self.release_connection(connection)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate the driver's errors about lost connections into DatabaseUnavailable."""
        try:
            yield
        except _CONNECTION_LOST as error:
            raise DatabaseUnavailable(f"the database at {self.address} is unreachable: {error}") from error

    async def _read_server_version(self, connection: asyncpg.Connection) -> None:
        async with connection.transaction():
            await connection.execute(_TRANSACTION_SETTINGS)
            (row,) = await connection.fetch(
                "select pg_backend_pid() as pid, current_setting('server_version_num')::int as version"
            )
        # A pooler reports its own process id, not that of the server behind it.
        self.pooled = row["pid"] != connection.get_server_pid()
        if row["version"] < OLDEST_POSTGRESQL * 10_000:
            raise DatabaseUnavailable(
                f"the database at {self.address} is PostgreSQL {row['version'] // 10_000}; "
                f"Retoma needs {OLDEST_POSTGRESQL} or newer"
            )


class DedicatedConnection:
    """A connection for one loop, opened on first use and again after it was lost.

    A call that raises an error for which `is_connection_lost` is true may have been committed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: asyncpg.Connection | None = None

    async def fetch(
        self, statement: Statement, arguments: list[Any], timeout: float = CALL_TIMEOUT
    ) -> list[asyncpg.Record]:
        try:
            async with asyncio.timeout(timeout):
                connection = await self._open()
                return await run_call(connection, self._database.pooled, lambda c: c.fetch(statement.sql, *arguments))
        except BaseException as error:
            if is_connection_lost(error) or isinstance(error, asyncio.CancelledError):
                self.drop()
            if isinstance(error, asyncpg.PostgresError) and error.sqlstate == _WORKER_GONE:
                raise WorkerGone(f"{error}: it was declared dead, and its jobs were released") from error
            if isinstance(error, asyncpg.DataError | asyncpg.ProgramLimitExceededError):
                raise Unrecordable(f"the database cannot store this: {error}") from error
            raise

    async def call(
        self, noun: str, statement: str, arguments: list[Any], timeout: float = CALL_TIMEOUT
    ) -> list[asyncpg.Record]:
        """Run a named statement of `sql/<noun>.sql` with its arguments in order."""
        return await self.fetch(statements(noun)[statement], arguments, timeout)

    async def close(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            await self._database.release_connection(self._connection)
        self._connection = None

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _open(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.connect()
        return self._connection


async def run_call(connection: Connection, pooled: bool, call: Callable[[Connection], Awaitable[Returned]]) -> Returned:
    """Make the call; behind a pooler in a transaction, so all its messages reach the same server."""
    try:
        if not pooled:
            return await call(connection)
        async with connection.transaction():
            await connection.execute(_TRANSACTION_SETTINGS)
            return await call(connection)
    except asyncpg.PostgresError as error:
        if error.sqlstate == _RUN_REMOVED:
            raise RunRemoved(str(error)) from error
        raise


async def _fetch_and_record(
    statement: Statement, arguments: list[Any], record: Record, connection: Connection
) -> list[Row]:
    async with connection.transaction():
        rows: list[Row] = await connection.fetch(statement.sql, *arguments)
        await record.write(connection, rows)
        return rows


def backoff(tries: int | None = None, first: float = 0.05, cap: float = 2.0) -> Any:
    """Yield the seconds to wait before each next try, with jitter; None after the last."""
    wait = first
    for _ in itertools.count() if tries is None else range(tries - 1):
        yield wait * random.uniform(0.5, 1.0)  # noqa: S311
        wait = min(cap, wait * 2)
    yield None


async def _keep_session(_: asyncpg.Connection) -> None:
    """Reset nothing when a connection returns to the pool, because we set nothing on it."""
