"""Writer: the one thread that changes the mailbox file.

Operations are grouped by themselves: each commit takes what arrived while the last one ran (at most 256) and waits for
nothing, so that an idle mailbox answers at once and a busy one pays for one sync per batch (contract §8). Callers
await their own operation; its result is theirs only after the commit.

An operation that is refused (`StateChanged`) found out before it wrote, so it costs the others nothing. One that fails
half way makes the batch start over, this time with a savepoint for each operation, and is undone alone. Always with
savepoints, a batch takes about a fifth more time.

Every statement lets go of the interpreter's lock and asks for it again, and a loop that is always busy gives it back
only after the switch interval: with Python's 5 ms such a process took 3 600 envelopes a second, with
`sys.setswitchinterval(0.0005)` 9 500. It is the process's to set.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from hub.mailbox.answers import ResultWriter
from hub.mailbox.clock import Clock
from hub.mailbox.errors import MailboxBroken, MailboxClosed, MailboxDamaged, MailboxError, from_sqlite
from hub.mailbox.records import Outcome, Turn
from hub.mailbox.transaction import Tx

BATCH_MOST: Final = 256  # contract §8

T = TypeVar("T")
OnEnded = Callable[[Turn, Outcome], None]

_log = structlog.get_logger(__name__)


class _Job:
    """One operation on its way: what to run, who waits, what came of it."""

    __slots__ = ("error", "future", "operation", "value")

    def __init__(self, operation: Callable[[Tx], Any], future: "asyncio.Future[Any]") -> None:
        self.operation = operation
        self.future = future
        self.value: Any = None
        self.error: BaseException | None = None


class _HalfWay(Exception):
    """An operation failed after it had written."""


class _Unusable(Exception):
    """The file failed, not an operation."""

    def __init__(self, error: MailboxError) -> None:
        self.error = error


class Writer:
    """Runs operations on the one writing connection.

    Args:
        db: the connection, in autocommit mode, usable from another thread.
        path: the file, for messages.
        clock: the mailbox's clock.
        results: for `Tx`.
        on_notes: called in the loop after a commit that had notes.

    Attributes:
        on_ended: called in the loop for each turn whose end is committed, before whoever asked for it goes on; must
            not raise. None: nobody listens.
        failed: fails with `MailboxDamaged` or `MailboxBroken` when the writer cannot go on; otherwise never resolves.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        *,
        path: Path,
        clock: Clock,
        results: ResultWriter,
        on_notes: Callable[[set[str]], None],
    ) -> None:
        self._db = db
        self._path = path
        self._clock = clock
        self._results = results
        self._on_notes = on_notes
        self.on_ended: OnEnded | None = None
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._is_closed = False
        self._ended = self._loop.create_future()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self.failed.add_done_callback(lambda future: future.cancelled() or future.exception())  # read by whoever cares
        self.commits = 0
        self._thread = threading.Thread(target=self._run, name=f"mailbox-writer {path.name}", daemon=True)
        self._thread.start()

    def submit(self, operation: Callable[[Tx], T]) -> "asyncio.Future[T]":
        """Queue an operation; the future has its result once it is committed. Operations run in this order.

        Cancelling the future does not take the operation back.

        Raises (through the future):
            MailboxUnavailable: the disk is full or the file locked; nothing was written; the same call may be repeated.
            MailboxClosed, MailboxDamaged, MailboxBroken: it cannot be written any more.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        if self.failed.done() and not self.failed.cancelled():
            error = self.failed.exception()
            assert error is not None
            future.set_exception(error)
        elif self._is_closed:
            future.set_exception(MailboxClosed())
        else:
            self._jobs.put(_Job(operation, future))
        return future

    async def stop(self) -> None:
        """Carry out what is queued, then end the thread and close the connection. Twice is fine."""
        if not self._is_closed:
            self._is_closed = True
            self._jobs.put(None)
        await asyncio.shield(self._ended)

    def _run(self) -> None:
        """The thread."""
        batch: list[_Job] = []
        try:
            while batch := self._take():
                self._commit(batch)
        except BaseException as error:
            # Whatever it was, nobody may wait for this thread for ever; the owner sees `failed` and ends the process.
            _log.exception("mailbox_writer_died", path=str(self._path))
            broken = MailboxBroken(f"the mailbox's writer died: {error!r}")
            for job in batch:
                job.error = broken
            self._in_loop(self._fail, broken)
            self._in_loop(self._deliver, batch, set(), [])
            raise
        finally:
            self._db.close()
            self._in_loop(self._finish)

    def _take(self) -> list[_Job]:
        """What is queued now, at most a batch; waits for the first. Empty: stop."""
        job = self._jobs.get()
        batch: list[_Job] = []
        while job is not None:
            batch.append(job)
            if len(batch) == BATCH_MOST:
                return batch
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return batch
        if batch:
            self._jobs.put(None)  # stop, but after this batch
        return batch

    def _commit(self, batch: list[_Job]) -> None:
        notes: set[str] = set()
        ended: list[tuple[Turn, Outcome]] = []
        try:
            try:
                tx = self._transact(batch, self._run_plainly)
            except _HalfWay:
                tx = self._transact(batch, self._run_guarded)
            notes, ended = tx.notes, tx.ended
        except _Unusable as unusable:
            for job in batch:
                job.error = unusable.error
            if isinstance(unusable.error, MailboxDamaged):
                _log.error("mailbox_damaged", path=str(self._path), detail=unusable.error.detail)
                self._in_loop(self._fail, unusable.error)
        self.commits += 1
        self._in_loop(self._deliver, batch, notes, ended)

    def _transact(self, batch: list[_Job], run: Callable[[Tx, _Job], None]) -> Tx:
        """One transaction over the batch: all of it, or nothing."""
        tx = Tx(self._db, self._clock(), self._results)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for job in batch:
                job.error = None
                run(tx, job)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            unusable = from_sqlite(error, self._path)
            raise _Unusable(unusable or MailboxError(f"mailbox {self._path}: {error}")) from error
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        return tx

    def _run_plainly(self, tx: Tx, job: _Job) -> None:
        before = self._db.total_changes
        try:
            job.value = job.operation(tx)
        except Exception as error:  # noqa: BLE001 - it is the caller's, and reaches it through the future
            self._raise_if_unusable(error)
            if self._db.total_changes != before:
                raise _HalfWay from None
            job.error = error

    def _run_guarded(self, tx: Tx, job: _Job) -> None:
        self._db.execute("SAVEPOINT job")
        ended_before = len(tx.ended)
        try:
            job.value = job.operation(tx)
        except Exception as error:  # noqa: BLE001 - as above
            self._raise_if_unusable(error)
            self._db.execute("ROLLBACK TO job")
            del tx.ended[ended_before:]
            job.error = error
        self._db.execute("RELEASE job")

    def _raise_if_unusable(self, error: Exception) -> None:
        unusable = from_sqlite(error, self._path) if isinstance(error, sqlite3.Error) else None
        if unusable is not None:
            raise _Unusable(unusable) from error

    # In the loop.

    def _in_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed: nobody waits any more
            _log.debug("mailbox_loop_closed", path=str(self._path))

    def _deliver(self, batch: list[_Job], notes: set[str], ended: list[tuple[Turn, Outcome]]) -> None:
        if self.on_ended is not None:
            for turn, outcome in ended:
                self.on_ended(turn, outcome)
        for job in batch:
            if job.future.done():
                continue  # its caller was cancelled; the operation is committed all the same
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.value)
        if notes:
            self._on_notes(notes)

    def _fail(self, error: MailboxError) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    def _finish(self) -> None:
        while True:  # what came behind the end
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is not None and not job.future.done():
                error = self.failed.exception() if self.failed.done() else None
                job.future.set_exception(error or MailboxClosed())
        if not self._ended.done():
            self._ended.set_result(None)
