"""The spool: events of turns on their way to the event source, bounded, in one SQLite file of the worker.

`put` only appends to memory; a thread of the spool's own finishes what came meanwhile (takes the secrets out) and
writes it in one transaction. What is on disk survives every kill and is sent after the next start; the last
milliseconds before a `kill -9` can be lost, as no turn waits for this disk. Which runs have begun and not ended is on
disk too, so that the next process can end those whose end was among what was lost.
"""

import asyncio
import contextlib
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_fixed

from hub.events.records import AgentEventRecord
from workers.own_thread import OwnThread

log = structlog.get_logger(__name__)

Finish = Callable[[AgentEventRecord], AgentEventRecord]

MOST_EVENTS: Final = 20_000
MOST_BYTES: Final = 64 * 1024 * 1024
MEMORY_MOST: Final = 2_000  # events that wait for the disk
PAGE: Final = 100
RETRY_SECS: Final = 1.0  # how soon a full disk is tried again

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS event (seq INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS gap (
    tenant TEXT, session TEXT, run TEXT, count INTEGER NOT NULL, PRIMARY KEY (tenant, session, run)
);
CREATE TABLE IF NOT EXISTS open_run (
    tenant TEXT, session TEXT, run TEXT, sender TEXT NOT NULL, PRIMARY KEY (tenant, session, run)
);
"""


class RunName(NamedTuple):
    """One run of one tenant."""

    tenant: str
    session: str
    run: str


class Spooled(msgspec.Struct, frozen=True):
    """An event and its place in the spool."""

    seq: int
    record: AgentEventRecord


class _Came(NamedTuple):
    """An event as it came.

    Attributes:
        record: not finished.
        opened_by: who asked for the run that begins with it; None: it begins none.
        missing: how many events of its run were dropped directly before it.
    """

    record: AgentEventRecord
    opened_by: str | None
    missing: int


class EventSpool:
    """Keeps events until they are sent, in order.

    Args:
        path: the file; made when it is not there. One that is damaged is set aside beside it, and a new one made.
        finish: makes an event as it is to be stored of one as it came; called in a thread, one at a time; must not
            raise.
        most_events, most_bytes: beyond either, events are dropped and counted by run; the ends of runs and the markers
            of what is missing are always taken.

    Attributes:
        dropped: events that had no room.
        sent_count: events that were sent and forgotten.
        left_open: the runs that an earlier process began and did not end, with who asked for them.
        trouble: why nothing can be written now; None when all is well.
    """

    def __init__(
        self,
        path: Path,
        *,
        finish: Finish = lambda record: record,
        most_events: int = MOST_EVENTS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.dropped = 0
        self.sent_count = 0
        self.left_open: dict[RunName, str] = {}
        self.trouble: str | None = None
        self._path = path
        self._finish = finish
        self._most_events, self._most_bytes = most_events, most_bytes
        self._thread = OwnThread("event-spool")
        self._database: sqlite3.Connection | None = None
        self._incoming: deque[_Came] = deque()
        self._in_writing = 0
        self._lost_behind: dict[RunName, int] = {}  # dropped behind what is in memory, which was full
        self._lost: dict[RunName, int] = {}  # dropped before; the thread's
        self._count = self._bytes = 0
        self._came = asyncio.Event()  # something waits for the disk
        self._stored = asyncio.Event()  # something waits for the network
        self._written = asyncio.Event()
        self._written.set()
        self._emptied = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Events that are not sent yet."""
        return self._count + self._in_writing + len(self._incoming)

    async def open(self) -> None:
        """Open the file.

        Raises:
            sqlite3.Error, OSError: it cannot be opened.
        """
        await self._thread.call(self._open)

    def put(self, record: AgentEventRecord, *, opened_by: str | None = None) -> None:
        """Take an event; never blocks and never raises. Without room it is dropped, and a marker will say so.

        Args:
            record: not finished.
            opened_by: who asked for the run that begins with it.
        """
        name = name_of(record)
        if len(self._incoming) >= MEMORY_MOST and not record.terminal:
            self._lost_behind[name] = self._lost_behind.get(name, 0) + 1
            self._note_dropped(1)
            return
        missing = self._lost_behind.pop(name, 0) if self._lost_behind else 0
        self._incoming.append(_Came(record, opened_by, missing))
        self._written.clear()
        self._came.set()

    async def write(self) -> None:
        """Write what comes, for as long as it runs; a disk that refuses is tried again."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(sqlite3.Error), wait=wait_fixed(RETRY_SECS), before_sleep=self._complain
        )
        while True:
            await self._came.wait()
            self._came.clear()
            batch = list(self._incoming)
            self._incoming.clear()
            self._in_writing = len(batch)
            # Only a full memory loses, and it is emptied as a whole: what was lost stood behind all of it.
            lost_behind, self._lost_behind = self._lost_behind, {}
            finished = await self._thread.call(partial(self._finish_all, batch))
            dropped: int = await retrying(self._thread.call, partial(self._write, batch, finished, lost_behind))
            self.trouble = None
            self._in_writing = 0
            if dropped:
                self._note_dropped(dropped)
            if not self._incoming:
                self._written.set()
            self._stored.set()

    async def page(self) -> list[Spooled]:
        """The oldest events, once there are some."""
        while True:
            self._stored.clear()
            found = await self._thread.call(self._read)
            if found:
                self._emptied.clear()
                return found
            if not self._incoming:
                self._emptied.set()
            await self._stored.wait()

    async def forget(self, up_to: int) -> None:
        """Events up to this one are sent."""
        await self._thread.call(lambda: self._delete(up_to))
        self.sent_count += 1

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

    async def close(self, timeout_secs: float = 5.0) -> None:
        """Close the file; a thread that does not come back in time is left behind."""
        if self._database is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_secs):
                    await self._thread.call(self._database.close)
            self._database = None
        self._thread.stop()

    def _note_dropped(self, count: int) -> None:
        before = self.dropped
        self.dropped += count
        if before == 0 or before // 1000 != self.dropped // 1000:
            log.error("events are dropped: the spool is full", dropped=self.dropped, path=str(self._path))

    def _complain(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if self.trouble is None:
            log.warning("the event spool cannot be written; tried again", path=str(self._path), error=str(error))
        self.trouble = f"the spool cannot be written: {error}"

    # In the thread

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._database = self._opened()
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:
                raise  # its kinds say that the file cannot be had now; this says what it holds
            aside = self._path.with_name(f"{self._path.name}.damaged-{time.time_ns()}")
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{self._path}{suffix}").rename(f"{aside}{suffix}")
            log.error("the event spool is damaged; a new one is made", error=str(error), set_aside=str(aside))  # noqa: TRY400
            self._database = self._opened()

    def _opened(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=5.0)
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=NORMAL")
            database.executescript(_TABLES)
            counted = "SELECT count(*), coalesce(sum(length(body)), 0) FROM event"
            self._count, self._bytes = database.execute(counted).fetchone()
            self._lost = {RunName(*key): count for *key, count in database.execute("SELECT * FROM gap")}
            self.left_open = {RunName(*key): sender for *key, sender in database.execute("SELECT * FROM open_run")}
        except BaseException:
            database.close()
            raise
        return database

    def _finish_all(self, batch: list[_Came]) -> list[AgentEventRecord]:
        return [self._finish(came.record) for came in batch]

    def _write(self, batch: list[_Came], finished: list[AgentEventRecord], lost_behind: dict[RunName, int]) -> int:
        """Write a batch; how many events had no room."""
        database = self._need()
        rows: list[tuple[bytes]] = []
        count, size, dropped = self._count, self._bytes, 0
        opened: dict[RunName, str | None] = {}  # None: it has ended
        lost = dict(self._lost)
        for came, record in zip(batch, finished, strict=True):
            body = msgspec.json.encode(record)
            name = name_of(record)
            if came.opened_by is not None or record.terminal:
                opened[name] = came.opened_by
            if came.missing:
                lost[name] = lost.get(name, 0) + came.missing
            has_room = count < self._most_events and size + len(body) <= self._most_bytes
            if not has_room and not record.terminal:
                lost[name] = lost.get(name, 0) + 1
                dropped += 1
                continue
            if missing := lost.pop(name, 0):
                marker = msgspec.json.encode(_marker(record, missing))
                rows.append((marker,))
                count, size = count + 1, size + len(marker)
            rows.append((body,))
            count, size = count + 1, size + len(body)
        for name, missing in lost_behind.items():
            lost[name] = lost.get(name, 0) + missing
        with _transaction(database):
            database.executemany("INSERT INTO event (body) VALUES (?)", rows)
            if lost or self._lost:
                database.execute("DELETE FROM gap")
                database.executemany("INSERT INTO gap VALUES (?, ?, ?, ?)", [(*key, n) for key, n in lost.items()])
            for name, sender in opened.items():
                if sender is None:
                    database.execute("DELETE FROM open_run WHERE tenant = ? AND session = ? AND run = ?", name)
                else:
                    database.execute("INSERT OR IGNORE INTO open_run VALUES (?, ?, ?, ?)", (*name, sender))
        self._count, self._bytes, self._lost = count, size, lost
        return dropped

    def _read(self) -> list[Spooled]:
        rows = self._need().execute("SELECT seq, body FROM event ORDER BY seq LIMIT ?", (PAGE,)).fetchall()
        found = []
        for seq, body in rows:
            try:
                found.append(Spooled(seq, msgspec.json.decode(body, type=AgentEventRecord)))
            except (msgspec.DecodeError, UnicodeDecodeError):
                log.exception("an event in the spool cannot be read; left out", seq=seq)
        if rows and not found:
            self._delete(rows[-1][0])
            return self._read()
        return found

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
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:  # a full disk may have rolled it back already
            database.execute("ROLLBACK")
        raise


def name_of(record: AgentEventRecord) -> RunName:
    """The run that an event belongs to."""
    return RunName(record.tenant_id, record.session_id, record.run_id)


def _marker(before: AgentEventRecord, missing: int) -> AgentEventRecord:
    """What stands in a run where events were dropped."""
    kind = "events_dropped"
    event = {"count": missing, "type": kind, "sessionId": before.session_id, "runId": before.run_id}
    return msgspec.structs.replace(before, id=f"{before.id[:200]}-dropped", type=kind, event=event)
