"""Database: transactions with deadlines and retries on one SQL database; what its two kinds have in common.

Every unit of work is a function of a connection that may run more than once; it must have no other effect. It runs in
a task of its own, so that a caller that is cancelled cannot leave a transaction open behind it.
"""

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import exc, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from tenacity import AsyncRetrying, RetryCallState, stop_after_delay, wait_random_exponential

from hub.storage.errors import BadValue, StorageError, StorageFailed, StorageUnavailable

T = TypeVar("T")
W = TypeVar("W")
Work = Callable[[AsyncConnection], Awaitable[T]]

RETRY_SECS: Final = 60.0  # a lock that is contended by 8 processes is had within a second; a minute is a broken one
RECONNECTS: Final = 3  # the first finds the pool's connections dead, the second may meet a server that is starting
CLOSE_SECS: Final = 10.0

ROW_STATES: Final = ("22", "23", "54")  # SQLSTATE classes: bad data, a constraint, a program limit: the row's fault
LOST_STATES: Final = ("08", "57P", "53")  # connection, shutdown or start, out of resources
DOWN_STATES: Final = ("57014", "3D", "28")  # a statement's deadline; no such database; not let in
SQLITE_AGAIN: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
AGAIN_STATES: Final = ("40001", "40P01", "55P03")  # serialization, deadlock, lock not available: surely rolled back


class _Again(StorageUnavailable):
    """Another had the lock, or won a race: nothing was written, the work may run again."""


class _Disconnected(StorageUnavailable):
    """The connection was lost before the commit: nothing was written."""


class Database(ABC):
    """One database with its connections.

    Attributes:
        dialect: `sqlite` or `postgresql`.
        url: its address without a password.
    """

    dialect: str
    url: str

    def __init__(self, reader: AsyncEngine, writer: AsyncEngine) -> None:
        self.reader = reader
        self.writer = writer
        self._running: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    # what a kind of database says -------------------------------------------------------------------------------------

    @abstractmethod
    def open_lock(self) -> AbstractAsyncContextManager[None]:
        """Held by one process at a time while it makes or migrates the database (or `lock_schema` is)."""

    async def lock_schema(self, connection: AsyncConnection) -> None:  # noqa: B027 - nothing to do is a fine answer
        """The same for a lock that lives in the transaction."""

    @abstractmethod
    async def prepare(self) -> None:
        """What must be done before the first transaction, under the lock; `StorageMismatch` when it is another's."""

    @asynccontextmanager
    async def bounded_read(self, connection: AsyncConnection) -> AsyncIterator[None]:
        """Around the work of a reader: end it when it takes too long (PostgreSQL does so by itself)."""
        yield

    async def after_write(self, connection: AsyncConnection) -> None:  # noqa: B027 - nothing to do is a fine answer
        """Called outside any transaction after a commit."""

    async def backup(self, target: Path) -> None:
        """See `Storage.backup`."""
        raise BadValue("backup", str(target), f"the server's own tool: pg_dump --format=custom --file={target} …")

    async def restore(self, source: Path) -> None:
        """See `Storage.restore`."""
        raise BadValue("restore", str(source), f"the server's own tool: pg_restore --clean --if-exists … {source}")

    @abstractmethod
    async def vacuum(self) -> None:
        """See `Storage.vacuum`."""

    async def optimize(self) -> None:  # noqa: B027 - PostgreSQL does so by itself
        """Refresh the planner's statistics if much has changed; cheap otherwise."""

    # transactions -----------------------------------------------------------------------------------------------------

    async def read(self, work: Work[T]) -> T:
        """Run `work` on one snapshot of the database.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        return await self._shielded(self._retrying(self._read_once, work))

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction that may write, and commit it.

        Raises:
            StorageUnavailable: the database does not answer, or its lock could not be had within the deadline.
            what `work` raises: the transaction is rolled back.
        """
        return await self._shielded(self._retrying(self._write_once, work))

    async def outside(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run work that manages its own connection, outside of transactions.

        Raises:
            StorageUnavailable: the database does not answer.
        """

        async def run() -> T:
            try:
                return await work()
            except (exc.SQLAlchemyError, OSError) as error:
                raise translated(error, committing=False) from error

        return await self._shielded(run())

    async def _read_once(self, work: Work[T]) -> T:
        try:
            async with self.reader.connect() as connection:
                if self.dialect == "postgresql":
                    # changes the connection in place, until it goes back to the pool
                    await connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
                async with self.bounded_read(connection):
                    return await work(connection)
        except (exc.SQLAlchemyError, OSError) as error:
            raise translated(error, committing=False) from error

    async def _write_once(self, work: Work[T]) -> T:
        committing = False
        try:
            async with self.writer.connect() as connection:
                self.require_open()
                result = await work(connection)
                committing = True
                await connection.commit()
                committing = False
                await self.after_write(connection)
                return result
        except (exc.SQLAlchemyError, OSError) as error:
            raise translated(error, committing=committing) from error

    def require_open(self) -> None:
        """What still waits for a connection when the close begins has written nothing, and does not begin.

        Raises:
            StorageUnavailable: it was closed.
        """
        if self._is_closed:
            raise StorageUnavailable("it was closed")

    async def _retrying(self, attempt: Callable[[W], Awaitable[T]], work: W) -> T:
        retrying = AsyncRetrying(
            stop=stop_after_delay(RETRY_SECS),
            wait=wait_random_exponential(multiplier=0.02, max=1.0),
            retry=lambda state: not self._is_closed and _may_try_again(state),
            reraise=True,
        )
        return await retrying(attempt, work)

    async def _shielded(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self.require_open()
        except StorageUnavailable:
            work.close()
            raise
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # The caller is gone; what the work says then has no reader (and must not be reported as forgotten).
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    async def check(self) -> None:
        """One round trip."""
        await self.read(lambda connection: connection.execute(text("SELECT 1")))

    async def close(self) -> None:
        """Let running work end (10 s at most), then close the connections; nothing begins any more, or again."""
        self._is_closed = True
        if self._running:
            await asyncio.wait(self._running, timeout=CLOSE_SECS)
        if self._running:
            for task in self._running:
                task.cancel()
            await asyncio.wait(self._running, timeout=CLOSE_SECS)
        await self.reader.dispose()
        if self.writer is not self.reader:
            await self.writer.dispose()


def _may_try_again(state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome else None
    return isinstance(error, _Again) or (isinstance(error, _Disconnected) and state.attempt_number < RECONNECTS)


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of a PostgreSQL error; empty when it has none."""
    return str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")


def _sqlite_code(error: BaseException) -> int | None:
    """The primary result code of an SQLite error (the lowest byte; what is above says more of the same)."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None


def is_row_error(error: BaseException) -> bool:
    """Is it the row's fault, so that the same row will fail again and others need not?"""
    if isinstance(error, exc.DataError | exc.IntegrityError | OverflowError | UnicodeError):
        return True
    if isinstance(error, exc.DBAPIError):
        cause = error.orig.__cause__ if error.orig else None
        # asyncpg refuses a value before it is sent: its DataError is a ValueError
        return sqlstate(error).startswith(ROW_STATES) or isinstance(cause, ValueError)
    return isinstance(error, exc.StatementError) and isinstance(error.orig, OverflowError | UnicodeError)


def translated(error: Exception, *, committing: bool) -> StorageError:
    """What a driver's error means to callers of storage."""
    detail = _first_line(error)
    state = sqlstate(error)
    sqlite_code = _sqlite_code(error)
    if state in AGAIN_STATES or sqlite_code in SQLITE_AGAIN:
        return _Again(detail)
    if isinstance(error, OSError | exc.TimeoutError) or _is_lost(error, detail):
        return StorageUnavailable(detail, outcome_unknown=True) if committing else _Disconnected(detail)
    if state.startswith(DOWN_STATES) or (
        isinstance(error, exc.OperationalError) and sqlite_code != sqlite3.SQLITE_ERROR
    ):
        return StorageUnavailable(detail)
    return StorageFailed(detail)


def _is_lost(error: Exception, detail: str) -> bool:
    """Is the connection gone?"""
    if not isinstance(error, exc.DBAPIError):
        return False
    is_closed = isinstance(error, exc.InterfaceError) and "closed" in detail
    return error.connection_invalidated or is_closed or sqlstate(error).startswith(LOST_STATES)


def _first_line(error: Exception) -> str:
    """The driver's own words, without the statement and its values (they may be secret, and long)."""
    said = str(getattr(error, "orig", None) or error) or type(error).__name__
    return said.splitlines()[0].rpartition(">: ")[2][:300]
