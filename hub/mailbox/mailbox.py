"""Mailbox: one identity's durable state, opened, composed and closed."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Final

import structlog

from hub.mailbox import cancels, file_names, intake, opener, space, turns
from hub.mailbox.answers import DEFAULT_MOST_BYTES, ResultWriter
from hub.mailbox.clock import Clock, not_before, steady_clock
from hub.mailbox.errors import MailboxDamaged, MailboxUnavailable, from_sqlite
from hub.mailbox.lock import IdentityLock
from hub.mailbox.opener import Durability
from hub.mailbox.outbox import Outbox
from hub.mailbox.pruner import Pruned, prune_step
from hub.mailbox.reader import Reader
from hub.mailbox.received import Received
from hub.mailbox.records import Accepted, Arrival, Cancelled
from hub.mailbox.requests import Cancel, Request
from hub.mailbox.sessions import Sessions
from hub.mailbox.tracked import Tracked
from hub.mailbox.transaction import OUTBOX, RECEIVED, TURNS
from hub.mailbox.turns import Turns
from hub.mailbox.writer import OnEnded, Writer
from hub.protocol.envelope import Envelope

FOLDER_MODE: Final = 0o700  # what was asked and answered is nobody else's to read

# Every kind of row that an age is reckoned from.
_NEWEST_TIME: Final = """
SELECT max(
    coalesce((SELECT queued_at FROM turn ORDER BY seq DESC LIMIT 1), 0),
    coalesce((SELECT max(claimed_at) FROM turn WHERE state <> 'ended'), 0),
    coalesce((SELECT max(kept_from) FROM turn WHERE state = 'ended'), 0),
    coalesce((SELECT max(recorded_at) FROM early_cancel), 0),
    coalesce((SELECT max(received_at) FROM received), 0),
    coalesce((SELECT max(changed_at) FROM tracked), 0)
)
"""

_log = structlog.get_logger(__name__)


class Mailbox:
    """One identity's durable state. Made by `open`; used from one event loop; the package says what it guarantees.

    Attributes:
        identity: whose.
        path: the file.
        turns, outbox, sessions, received, tracked: its parts.
        interrupted_count: how many turns the process before this one left in hand (see `turns.rescue`).
    """

    def __init__(
        self, identity: str, path: Path, *, lock: IdentityLock, writer: Writer, reader: Reader, results: ResultWriter
    ) -> None:
        self.identity = identity
        self.path = path
        self.interrupted_count = 0
        self._lock = lock
        self._writer = writer
        self._reader = reader
        self._results = results
        self.turns = Turns(writer, reader)
        self.outbox = Outbox(writer, reader)
        self.sessions = Sessions(reader)
        self.received = Received(writer, reader)
        self.tracked = Tracked(writer, reader)

    @classmethod
    async def open(
        cls,
        folder: Path,
        identity: str,
        *,
        durability: Durability = "FULL",
        fresh: bool = False,
        clock: Clock | None = None,
        most_result_bytes: int = DEFAULT_MOST_BYTES,
    ) -> "Mailbox":
        """Open an identity's mailbox, or make it.

        Args:
            folder: where mailboxes are; made when it is not there. On a local disk that survives.
            identity: whose mailbox.
            durability: `FULL` (what is committed survives a power cut) or `NORMAL` (it survives the process).
            fresh: begin anew when the old file was set aside as damaged. A sound one is used as it is.
            clock: milliseconds since 1970, steady; for tests.
            most_result_bytes: the usable size of a message; a larger result is told as `too_large`.

        Raises:
            BadName: no identity.
            IdentityInUse: another process has it; names its pid.
            MailboxDamaged: the file is set aside, and `fresh` was not given.
            MailboxTooNew, ForeignFile: it is not ours to touch.
            MailboxUnavailable: not now (permissions, disk full, locked).
        """
        path = file_names.database_file(folder, identity)
        lock = IdentityLock(file_names.lock_file(folder, identity), identity)
        opening = asyncio.ensure_future(asyncio.to_thread(_open_locked, path, lock, durability, fresh))
        try:
            writing, reading, newest_ms = await asyncio.shield(opening)
        except OSError as error:
            raise MailboxUnavailable(f"mailbox {path} cannot be opened now: {error}") from error
        except asyncio.CancelledError:
            # The thread cannot be stopped: what it opens after this is closed again, or the identity would stay taken.
            opening.add_done_callback(lambda opened: _discard(opened, lock))
            raise
        results = ResultWriter(identity, most_result_bytes)
        events: dict[str, asyncio.Event] = {}
        writer = Writer(
            writing,
            path=path,
            clock=not_before(clock or steady_clock(), newest_ms),
            results=results,
            on_notes=lambda notes: _set_all(events, notes),
        )
        mailbox = cls(identity, path, lock=lock, writer=writer, reader=Reader(reading, path), results=results)
        events.update({OUTBOX: mailbox.outbox.ready, TURNS: mailbox.turns.ready, RECEIVED: mailbox.received.ready})
        try:
            mailbox.interrupted_count = await writer.submit(turns.interrupt_all)
        except BaseException:
            await mailbox.close()
            raise
        _log.info("mailbox_open", identity=identity, path=str(path), interrupted=mailbox.interrupted_count)
        return mailbox

    @property
    def failed(self) -> "asyncio.Future[None]":
        """Fails when nothing can be written any more (`MailboxDamaged`, `MailboxBroken`); await it beside the work."""
        return self._writer.failed

    def listen_to_ends(self, on_ended: OnEnded) -> None:
        """Have a function called in the loop for each turn that ends from now on, whatever ended it.

        Args:
            on_ended: gets the turn as it was before, and its outcome as it is recorded, once that is committed and
                before whoever asked for it goes on. It must return at once and not raise.
        """
        self._writer.on_ended = on_ended

    @property
    def most_result_bytes(self) -> int:
        """The usable size of a message, for results that are settled from now on."""
        return self._results.most_bytes

    @most_result_bytes.setter
    def most_result_bytes(self, size: int) -> None:
        self._results.most_bytes = size

    def accept(
        self, envelope: Envelope, request: Request, *, reply_channel: str | None = None
    ) -> "asyncio.Future[Accepted]":
        """Take an envelope in, once. Committed when the future has its result: then it may be acked.

        Calls take effect in the order in which they are made, awaited or not; a callback on the future costs an intake
        less than a task for each. Cancelling the future does not take the call back.

        Args:
            envelope: what came.
            request: what it asks for, as the intake judged it.
            reply_channel: the channel of its one result; None: a DM to its sender.

        Raises:
            BadName: nobody could be answered under this sender, id or channel (no router passes such a message on):
                nothing was written.

        Raises (through the future):
            MailboxUnavailable: the disk is full or the file locked: nothing was written, do not ack, call again.
        """
        arrival = Arrival.of(envelope, reply_channel)
        return self._writer.submit(lambda tx: intake.accept(tx, arrival, request))

    def cancel(self, request: Cancel) -> "asyncio.Future[Cancelled]":
        """Carry out a cancel whose sender may. Committed when the future has its result; in the order of the calls.

        Raises (through the future):
            MailboxUnavailable: as `accept`.
        """
        return self._writer.submit(lambda tx: cancels.cancel(tx, request))

    async def prune(self, max_age_secs: float) -> Pruned:
        """Forget a little of what nobody can ask for any more; call again while it returns something.

        Args:
            max_age_secs: how long the inbox stream keeps a message.

        Raises:
            MailboxUnavailable: as `accept`.
        """
        return await self._writer.submit(lambda tx: prune_step(tx, max_age_secs))

    def has_room(self) -> bool:
        """Is there enough free space to take more in (contract §8: 256 MB)? A system call: fast."""
        return space.has_room(self.path.parent)

    async def close(self) -> None:
        """Carry out what was asked for, close the file, give the identity free. Twice is fine.

        A file that was found damaged is set aside now.
        """
        await self._writer.stop()
        await self._reader.stop()
        failed = self._writer.failed
        error = failed.exception() if failed.done() and not failed.cancelled() else None
        try:
            if isinstance(error, MailboxDamaged) and error.set_aside is None and self.path.exists():
                error.set_aside = await asyncio.to_thread(opener.set_aside, self.path, error.detail)
        finally:
            self._lock.release()


_Opened = tuple[sqlite3.Connection, sqlite3.Connection, int]
"""The writing and the reading connection, and the newest time that is written in the file."""


def _open_locked(path: Path, lock: IdentityLock, durability: Durability, fresh: bool) -> _Opened:
    """Take the lock and open the file; the lock is let go of when that fails."""
    path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    lock.acquire()
    try:
        return _open_file(path, durability, fresh)
    except BaseException:
        lock.release()
        raise


def _discard(opening: "asyncio.Future[_Opened]", lock: IdentityLock) -> None:
    """Close what was opened for a caller that went away."""
    if opening.cancelled() or opening.exception() is not None:
        return
    writing, reading, _ = opening.result()
    writing.close()
    reading.close()
    lock.release()


def _open_file(path: Path, durability: Durability, fresh: bool) -> _Opened:
    opener.prepare(path, durability, fresh=fresh)
    with contextlib.ExitStack() as opened:
        try:
            writing = opened.enter_context(contextlib.closing(opener.connect(path, durability)))
            reading = opened.enter_context(contextlib.closing(opener.connect(path, durability, is_reader=True)))
            newest = reading.execute(_NEWEST_TIME).fetchone()[0]
        except sqlite3.Error as error:
            raise from_sqlite(error, path) or error from error
        opened.pop_all()
    return writing, reading, int(newest)


def _set_all(events: dict[str, asyncio.Event], names: set[str]) -> None:
    for name in names:
        events[name].set()
