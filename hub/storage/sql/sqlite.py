"""SQLite: one file that several processes on one machine share.

WAL, so that readers and the writer do not wait for each other; `BEGIN IMMEDIATE` for everything that may write, so that
no transaction finds out at its first write that another was faster ("database is locked" in spite of a busy timeout);
one writing connection a process, so that its own tasks queue in memory and not at the file.
"""

import asyncio
import contextlib
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import URL, event, exc
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random

from hub.storage.errors import StorageMismatch, StorageUnavailable
from hub.storage.sql import sqlite_copies
from hub.storage.sql.database import Database, is_row_error, translated
from hub.storage.sql.schema import VERSION_TABLE

T = TypeVar("T")

# How long one statement waits for the file's lock; `Database` tries again after that. No stop can end this wait.
BUSY_SECS: Final = 2.0
READERS: Final = 4  # threads; more than the cores that a shared machine gives us brings nothing
READ_SECS: Final = 30.0  # a query that takes longer is ended, as PostgreSQL does with its statement_timeout
POOL_SECS: Final = 30.0  # how long a task waits for this process's own connections
OPEN_LOCK_SECS: Final = 60.0  # a migration of a large database by another process may take its time
WAL_BYTES: Final = 64 * 1024 * 1024  # beyond this a writer makes the log start again instead of letting it grow
ANALYSIS_ROWS: Final = 1000  # looked at in each index: a good guess for a few milliseconds
CHECKPOINT_WAIT_MS: Final = 1000  # how long that may wait for readers, while other writers wait for us


class RowRefused(Exception):
    """SQLite does not take some value of a batch, and nothing of it was written."""


class SqliteDatabase(Database):
    """A file with its write-ahead log.

    Args:
        path: the file; made with its folder, readable by its owner alone, when it is not there.
    """

    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.url = f"sqlite:///{self.path}"
        self._wal = Path(f"{self.path}-wal")
        super().__init__(
            reader=_engine(self.path, size=READERS, begin="BEGIN", pragmas=["query_only = ON"]),
            writer=_engine(self.path, size=1, begin="BEGIN IMMEDIATE", pragmas=[]),
        )

    @asynccontextmanager
    async def open_lock(self) -> AsyncIterator[None]:
        lock = await asyncio.to_thread(self._make_files)
        try:
            retrying = AsyncRetrying(
                stop=stop_after_delay(OPEN_LOCK_SECS),
                wait=wait_random(0.01, 0.1),
                retry=retry_if_exception_type(BlockingIOError),
                reraise=True,
            )
            try:
                async for attempt in retrying:
                    with attempt:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StorageUnavailable(f"another process has held {self.path}.lock for a minute") from None
            yield
        finally:
            os.close(lock)

    def _make_files(self) -> int:
        """Make the folder and the files when they are not there; the lock file, opened."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                # History holds private messages: the log files take the rights of the database file. Only a new file
                # is opened here: closing a descriptor of one in use drops all locks that SQLite has on it.
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            except FileExistsError:
                if not self.path.is_file() or not os.access(self.path, os.R_OK | os.W_OK):
                    raise StorageMismatch(f"{self.path} is not a file that can be written") from None
            return os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageMismatch(f"{self.path} cannot be opened for writing: {error.strerror}") from None

    async def prepare(self) -> None:
        def switch() -> None:
            connection = sqlite3.connect(self.path, timeout=BUSY_SECS, isolation_level=None)
            try:
                names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                if names and VERSION_TABLE not in names:  # left as it is, its journal mode too
                    raise StorageMismatch(f"{self.path} holds tables of another program; name another file")
                connection.execute("PRAGMA journal_mode = WAL")
            finally:
                connection.close()

        try:
            await asyncio.to_thread(switch)
        except sqlite3.OperationalError as error:
            raise StorageUnavailable(str(error)) from None
        except sqlite3.DatabaseError as error:
            raise StorageMismatch(f"{self.path}: {error}") from None

    @asynccontextmanager
    async def bounded_read(self, connection: AsyncConnection) -> AsyncIterator[None]:
        """End what takes too long in the thread where it runs: it holds one of few connections, and the log."""
        raw: Any = (await connection.get_raw_connection()).driver_connection
        interrupts: list[asyncio.Task[None]] = []  # (kept, so that none is collected before it ran)
        timer = asyncio.get_running_loop().call_later(
            READ_SECS, lambda: interrupts.append(asyncio.ensure_future(raw.interrupt()))
        )
        try:
            yield
        except exc.OperationalError as error:
            if interrupts:
                raise StorageUnavailable(f"a query took more than {READ_SECS:g} s and was ended") from error
            raise
        finally:
            timer.cancel()

    async def backup(self, target: Path) -> None:
        await self.outside(partial(asyncio.to_thread, sqlite_copies.back_up, self.path, target))

    async def restore(self, source: Path) -> None:
        await self.outside(partial(asyncio.to_thread, sqlite_copies.restore, source, self.path))

    async def vacuum(self) -> None:
        await self.outside(partial(asyncio.to_thread, sqlite_copies.vacuum, self.path))

    async def optimize(self) -> None:
        async def run() -> None:
            async with self.writer.connect() as connection:
                raw: Any = (await connection.get_raw_connection()).driver_connection
                await raw.execute(f"PRAGMA analysis_limit = {ANALYSIS_ROWS}")
                await raw.execute("PRAGMA optimize")

        await self.outside(run)

    async def write_at_once(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """As `write`, of a plain function that runs in the connection's thread: one visit there, not one a statement.

        Raises:
            RowRefused: some value is one that SQLite does not take; nothing was written.
            StorageUnavailable: as `write`.
        """

        async def attempt(work: Callable[[sqlite3.Connection], T]) -> T:
            try:
                async with self.writer.connect() as connection:
                    self.require_open()
                    raw: Any = (await connection.get_raw_connection()).driver_connection
                    # aiosqlite has no public way to run a function in the thread that owns the connection
                    result: T = await raw._execute(_in_transaction, raw._conn, work)  # noqa: SLF001
                    await self.after_write(connection)
                    return result
            except (sqlite3.Error, OverflowError, UnicodeError) as error:
                if isinstance(error, sqlite3.Error):
                    wrapped = exc.DBAPIError.instance(None, None, error, sqlite3.Error)
                    assert isinstance(wrapped, Exception)
                    if not is_row_error(wrapped):
                        raise translated(wrapped, committing=False) from error
                raise RowRefused from error
            except (exc.SQLAlchemyError, OSError) as error:
                raise translated(error, committing=False) from error

        return await self._shielded(self._retrying(attempt, work))

    async def after_write(self, connection: AsyncConnection) -> None:
        """Keep the log bounded: readers that overlap without a gap would let it grow for ever."""
        try:
            if self._wal.stat().st_size <= WAL_BYTES:
                return
        except OSError:  # what was written is committed: nothing that happens here may say otherwise
            return
        raw: Any = (await connection.get_raw_connection()).driver_connection
        await raw.execute(f"PRAGMA busy_timeout = {CHECKPOINT_WAIT_MS}")
        try:
            await raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:
            pass  # a reader is in the way, or another does it: the next write tries again
        finally:
            await raw.execute(f"PRAGMA busy_timeout = {int(BUSY_SECS * 1000)}")


def _in_transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # some errors have rolled back already; what went wrong first counts
            connection.execute("ROLLBACK")
        raise
    return result


def _engine(path: Path, *, size: int, begin: str, pragmas: list[str]) -> AsyncEngine:
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(path)),
        pool_size=size,
        max_overflow=0,
        pool_timeout=POOL_SECS,
        hide_parameters=True,  # private messages stay out of errors and logs
        # the driver begins nothing by itself
        connect_args={"timeout": BUSY_SECS, "isolation_level": None},
    )

    @event.listens_for(engine.sync_engine, "connect")
    def _set_up(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        # FULL: what was committed survives a power cut; a mirror commits 256 rows at once, so it costs little.
        for pragma in ("synchronous = FULL", "foreign_keys = ON", f"journal_size_limit = {WAL_BYTES}", *pragmas):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql(begin)

    return engine
