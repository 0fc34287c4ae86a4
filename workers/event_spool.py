"""The spool: events of turns on their way to the event source, bounded, in one SQLite file of the worker.

`put` only appends to memory; a thread of the spool's own writes what came meanwhile in one transaction. What is on disk
survives every kill and is sent after the next start; the last milliseconds before a `kill -9` can be lost, as no turn
waits for this disk.
"""

import asyncio
import contextlib
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import structlog

from hub.events.records import AgentEventRecord

log = structlog.get_logger(__name__)

T = TypeVar("T")

MOST_EVENTS: Final = 20_000
MOST_BYTES: Final = 64 * 1024 * 1024
MEMORY_MOST: Final = 2_000  # events that wait for the disk
PAGE: Final = 100
RETRY_SECS: Final = 1.0  # how soon a full disk is tried again

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS event (seq INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS lost (session TEXT, run TEXT, count INTEGER NOT NULL, PRIMARY KEY (session, run));
"""


class Spooled(msgspec.Struct, frozen=True):
    """An event and its place in the spool."""

    seq: int
    record: AgentEventRecord


class EventSpool:
    """Keeps events until they are sent, in order.

    Args:
        path: the file; made when it is not there.
        most_events, most_bytes: beyond either, events are dropped and counted by run; the ends of runs and the markers
            of what is missing are always taken.
    """

    def __init__(self, path: Path, *, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        self.dropped = 0
        self._path = path
        self._most_events, self._most_bytes = most_events, most_bytes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="event-spool")
        self._database: sqlite3.Connection | None = None
        self._incoming: deque[AgentEventRecord] = deque()
        self._lost: dict[tuple[str, str], int] = {}  # run → dropped events that no marker tells of yet
        self._count = self._bytes = 0
        self._came = asyncio.Event()  # something waits for the disk
        self._stored = asyncio.Event()  # something waits for the network
        self._written = asyncio.Event()
        self._written.set()
        self._emptied = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Events that are not sent yet."""
        return self._count + len(self._incoming)

    async def open(self) -> None:
        """Open the file.

        Raises:
            sqlite3.Error, OSError: it cannot be opened, or is none of SQLite's.
        """
        await self._in_thread(self._open)

    def put(self, record: AgentEventRecord) -> None:
        """Take an event; never blocks and never raises. Without room it is dropped, and a marker will say so."""
        if len(self._incoming) >= MEMORY_MOST and not record.terminal:
            self._lose(record)
            return
        self._incoming.append(record)
        self._written.clear()
        self._came.set()

    async def write(self) -> None:
        """Write what comes, for as long as it runs; a disk that refuses is tried again."""
        while True:
            await self._came.wait()
            self._came.clear()
            batch = list(self._incoming)
            self._incoming.clear()
            try:
                await self._in_thread(partial(self._write, batch))
            except sqlite3.Error as error:
                log.warning("the event spool cannot be written; tried again", path=str(self._path), error=str(error))
                self._incoming.extendleft(reversed(batch))
                self._came.set()
                await asyncio.sleep(RETRY_SECS)
                continue
            if not self._incoming:
                self._written.set()
            self._stored.set()

    async def page(self) -> list[Spooled]:
        """The oldest events, once there are some."""
        while True:
            self._stored.clear()
            found = await self._in_thread(self._read)
            if found:
                self._emptied.clear()
                return found
            if not self._incoming:
                self._emptied.set()
            await self._stored.wait()

    async def forget(self, up_to: int) -> None:
        """Events up to this one are sent."""
        await self._in_thread(lambda: self._delete(up_to))

    async def settled(self, timeout_secs: float) -> bool:
        """Wait until everything that came is on disk; False when it is not in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_secs):
                await self._written.wait()
        return self._written.is_set()

    async def sent(self, timeout_secs: float) -> None:
        """Wait until everything is sent, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_secs):
                while self.waiting:
                    await self._emptied.wait()
                    self._emptied.clear()

    async def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            await self._in_thread(self._database.close)
            self._database = None
        self._thread.shutdown(wait=False)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _lose(self, record: AgentEventRecord) -> None:
        key = (record.session_id, record.run_id)
        self._lost[key] = self._lost.get(key, 0) + 1
        self.dropped += 1
        if self.dropped % 1000 == 1:
            log.error("events are dropped: the spool is full", dropped=self.dropped, path=str(self._path))

    # In the thread

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=5.0)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
        database.executescript(_TABLES)
        self._count, self._bytes = database.execute(
            "SELECT count(*), coalesce(sum(length(body)), 0) FROM event"
        ).fetchone()
        self._lost = {(session, run): count for session, run, count in database.execute("SELECT * FROM lost")}
        self._database = database

    def _write(self, batch: list[AgentEventRecord]) -> None:
        database = self._need()
        rows: list[tuple[bytes]] = []
        count, size = self._count, self._bytes
        told: list[tuple[str, str]] = []
        losing: list[AgentEventRecord] = []
        lost = dict(self._lost)
        for record in batch:
            body = msgspec.json.encode(record)
            key = (record.session_id, record.run_id)
            has_room = count < self._most_events and size + len(body) <= self._most_bytes
            if not has_room and not record.terminal:
                losing.append(record)
                lost[key] = lost.get(key, 0) + 1
                continue
            if missing := lost.pop(key, 0):
                marker = msgspec.json.encode(_marker(record, missing))
                rows.append((marker,))
                told.append(key)
                count, size = count + 1, size + len(marker)
            rows.append((body,))
            count, size = count + 1, size + len(body)
        with _transaction(database):
            database.executemany("INSERT INTO event (body) VALUES (?)", rows)
            database.execute("DELETE FROM lost")
            database.executemany("INSERT INTO lost VALUES (?, ?, ?)", [(*key, number) for key, number in lost.items()])
        self._count, self._bytes = count, size
        for record in losing:
            self._lose(record)
        for key in told:
            self._lost.pop(key, None)

    def _read(self) -> list[Spooled]:
        rows = self._need().execute("SELECT seq, body FROM event ORDER BY seq LIMIT ?", (PAGE,)).fetchall()
        return [Spooled(seq, msgspec.json.decode(body, type=AgentEventRecord)) for seq, body in rows]

    def _delete(self, up_to: int) -> None:
        database = self._need()
        with _transaction(database):
            gone, size = database.execute(
                "SELECT count(*), coalesce(sum(length(body)), 0) FROM event WHERE seq <= ?", (up_to,)
            ).fetchone()
            database.execute("DELETE FROM event WHERE seq <= ?", (up_to,))
        self._count, self._bytes = self._count - gone, self._bytes - size

    def _need(self) -> sqlite3.Connection:
        if self._database is None:
            raise sqlite3.ProgrammingError("the spool is closed")
        return self._database


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _marker(before: AgentEventRecord, missing: int) -> AgentEventRecord:
    """What stands in a run where events were dropped."""
    kind = "events_dropped"
    event = {"count": missing, "type": kind, "sessionId": before.session_id, "runId": before.run_id}
    return msgspec.structs.replace(before, id=f"{before.id[:200]}-dropped", type=kind, event=event)
