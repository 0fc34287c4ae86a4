"""Received messages: a buffer on disk for a reader that comes and goes, by a number that is never used twice.

For identities whose user reads when it likes (an MCP host's `read_inbox`), not for workers: those have turns.
"""

import asyncio
import sqlite3
from typing import Any, Final

import msgspec

from hub.mailbox.reader import Reader, rows_up_to
from hub.mailbox.transaction import RECEIVED, Tx
from hub.mailbox.writer import Writer
from hub.protocol.envelope import Envelope

READ_MOST_BYTES: Final = 32 * 1024 * 1024  # what one look may take into memory: some of the largest messages


class ReceivedMessage(msgspec.Struct, frozen=True):
    """One message.

    Attributes:
        seq: its number: larger than that of every message before it, also of those that were pruned.
        body: the whole envelope.
        received_at_ms: when it was stored, by the mailbox's clock.
    """

    seq: int
    body: bytes
    received_at_ms: int


class Received:
    """The buffer.

    Attributes:
        ready: set at every new message; a reader that waits clears it before it looks.
    """

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self.ready = asyncio.Event()

    async def add(self, envelope: Envelope) -> tuple[int, bool]:
        """Store a message; it is committed (and may be acked) when this returns.

        Returns:
            Its number, and whether it is new: a repeat by `(from, id)` gets the number that it has.
        """
        return await self._writer.submit(lambda tx: _add(tx, envelope))

    async def since(self, since_seq: int = 0, *, limit: int = 100, sender: str | None = None) -> list[ReceivedMessage]:
        """Messages with a number above `since_seq`, in order.

        Args:
            since_seq: the number of the last message that the reader has; 0 for all that are kept.
            limit: at most so many; fewer when they are large (32 MB together, but always one).
            sender: only from this identity.
        """
        return await self._reader.look(
            lambda db: _select(
                db, "WHERE seq > ?1 AND (?2 IS NULL OR sender = ?2) ORDER BY seq LIMIT ?3", since_seq, sender, limit
            )
        )

    async def newest(self, limit: int = 500) -> list[ReceivedMessage]:
        """The newest messages, in order."""
        messages = await self._reader.look(lambda db: _select(db, "ORDER BY seq DESC LIMIT ?", limit))
        return messages[::-1]

    async def last_seq(self) -> int:
        """The largest number that was ever given; 0 when none was."""
        rows = await self._reader.look(
            lambda db: db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'received'").fetchall()
        )
        return int(rows[0][0]) if rows else 0


def _add(tx: Tx, envelope: Envelope) -> tuple[int, bool]:
    meta = envelope.meta
    known = tx.one("SELECT seq FROM received WHERE sender = ? AND id = ?", meta.sender, meta.id)
    if known is not None:
        return int(known[0]), False
    tx.notes.add(RECEIVED)
    seq = tx.insert(
        "INSERT INTO received (sender, id, body, received_at) VALUES (?, ?, ?, ?)",
        meta.sender,
        meta.id,
        envelope.body,
        tx.now_ms,
    )
    return seq, True


def _select(db: sqlite3.Connection, which: str, *values: Any) -> list[ReceivedMessage]:
    rows = db.execute(f"SELECT seq, body, received_at FROM received {which}", values)  # noqa: S608 - constants
    return [ReceivedMessage(*row) for row in rows_up_to(READ_MOST_BYTES, rows, size=lambda row: len(row[1]))]
