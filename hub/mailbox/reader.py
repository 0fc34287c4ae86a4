"""Reader: looks into the mailbox file on a connection of its own: a look neither waits for the writer nor stops it."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from hub.mailbox.errors import MailboxClosed, from_sqlite

T = TypeVar("T")
Row = TypeVar("Row")


def rows_up_to(most_bytes: int, rows: Iterable[Row], *, size: Callable[[Row], int]) -> list[Row]:
    """The first rows, until they have `most_bytes` together; at least one when there is one.

    Args:
        most_bytes: where to stop.
        rows: a cursor, read only as far as needed, or a list.
        size: a row's size in bytes.
    """
    taken: list[Row] = []
    total = 0
    for row in rows:
        total += size(row)
        if taken and total > most_bytes:
            break
        taken.append(row)
    return taken


class Reader:
    """Runs looks, one after the other, in a thread of its own.

    A look sees everything that was committed before it began, in one consistent picture. It returns all that it wants
    at once: a read transaction that stays open keeps the file's log from being cleared.

    Args:
        db: a connection in autocommit mode, usable from another thread, that cannot write.
        path: the file, for messages.
    """

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"mailbox-reader {path.name}")
        self._is_closed = False

    async def look(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run `query` and return what it returns.

        Raises:
            MailboxUnavailable: not now.
            MailboxClosed: the mailbox is closed.
        """
        if self._is_closed:
            raise MailboxClosed
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._look, query)

    def _look(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            self._db.execute("BEGIN")
            try:
                return query(self._db)
            finally:
                self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise from_sqlite(error, self._path) or error from error

    async def stop(self) -> None:
        """End the thread and close the connection. Twice is fine."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._db.close)
            self._thread.shutdown(wait=False)
