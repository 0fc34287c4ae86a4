"""Outbox: what must still be published, in an order per lane, until somebody acked it.

Progress never goes through here. A row keeps its `Nats-Msg-Id` over every retry and restart; the id is random, because
all agents share the ingress stream's duplicate window and a guessable one could be squatted on.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any, Final

import msgspec

from hub.mailbox.reader import Reader, rows_up_to
from hub.mailbox.records import Outgoing
from hub.mailbox.transaction import OUTBOX, Tx
from hub.mailbox.writer import Writer
from hub.protocol import names

TAKEN_MOST_BYTES: Final = 16 * 1024 * 1024  # two of the largest messages
TAKEN_MOST: Final = 256  # as many publishes in flight as one batch of the intake has envelopes


class OutboxRow(msgspec.Struct, frozen=True):
    """One envelope that waits to be published.

    Attributes:
        seq: its number.
        lane: rows of one lane go out one after the other, in the order of `seq` (a turn's results share a lane).
        publish_id: its `Nats-Msg-Id`.
        channel: the channel to publish on.
        body: the envelope.
    """

    seq: int
    lane: str
    publish_id: str
    channel: str
    body: bytes


def turn_lane(seq: int) -> str:
    """The lane of a turn's results."""
    return f"turn {seq}"


def add(tx: Tx, lane: str, outgoing: Outgoing) -> int:
    """Put an envelope behind the others of its lane."""
    tx.notes.add(OUTBOX)
    return tx.insert(
        "INSERT INTO outbox (lane, publish_id, channel, body, added_at) VALUES (?, ?, ?, ?, ?)",
        lane,
        names.new_publish_id(),
        outgoing.channel,
        outgoing.body,
        tx.now_ms,
    )


def has_unsent(tx: Tx, lane: str) -> bool:
    """Does something of this lane still wait?"""
    return tx.one("SELECT 1 FROM outbox WHERE lane = ? LIMIT 1", lane) is not None


class Outbox:
    """The outbox as its one publisher sees it.

    Attributes:
        ready: set when there may be something to take; `take` clears it when there is nothing.
    """

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self._in_flight: set[int] = set()
        self.ready = asyncio.Event()
        self.ready.set()  # what an earlier process left

    async def take(self, limit: int = TAKEN_MOST) -> list[OutboxRow]:
        """The oldest rows that may go out now: the first of each lane, and none that is already in hand.

        Each must come back through `sent`, `replace` or `give_back`.

        Args:
            limit: at most so many; fewer when they are large (16 MB together, but always one).
        """
        self.ready.clear()
        in_flight = frozenset(self._in_flight)
        taken = await self._reader.look(lambda db: _select(db, limit, in_flight))
        self._in_flight.update(row.seq for row in taken)
        if taken:
            self.ready.set()  # there may be more
        return taken

    async def sent(self, row: OutboxRow) -> None:
        """It was acked: forget it. The next row of its lane may then be taken.

        Raises:
            MailboxUnavailable: it could not be written down; call again (a row that is published twice carries the same
                `Nats-Msg-Id`).
        """
        await self._settle(row, lambda tx: tx.run("DELETE FROM outbox WHERE seq = ?", row.seq))

    async def replace(self, row: OutboxRow, outgoing: Outgoing) -> None:
        """It can never be published as it is (the server's limit shrank): put another envelope in its place."""
        await self._settle(
            row,
            lambda tx: tx.run(
                "UPDATE outbox SET channel = ?, body = ?, publish_id = ? WHERE seq = ?",
                outgoing.channel,
                outgoing.body,
                names.new_publish_id(),
                row.seq,
            ),
        )

    def give_back(self, row: OutboxRow) -> None:
        """It was not acked: it may be taken again, under the same id."""
        self._in_flight.discard(row.seq)
        self.ready.set()

    async def add(self, lane: str, outgoing: Outgoing) -> int:
        """Have an envelope published, behind the others of its lane. Committed when this returns; its number."""
        return await self._writer.submit(lambda tx: add(tx, lane, outgoing))

    async def count(self) -> int:
        """How many rows wait, those in hand included."""
        return await self._reader.look(lambda db: int(db.execute("SELECT count(*) FROM outbox").fetchone()[0]))

    async def _settle(self, row: OutboxRow, change: Callable[[Tx], Any]) -> None:
        try:
            await self._writer.submit(change)
        except asyncio.CancelledError:
            self.give_back(row)
            raise
        self.give_back(row)


def _select(db: sqlite3.Connection, limit: int, in_flight: frozenset[int]) -> list[OutboxRow]:
    # The rows in flight are still there, and keep the later ones of their lanes back.
    firsts = db.execute(
        "SELECT seq, length(body) FROM outbox AS row WHERE NOT EXISTS "
        "(SELECT 1 FROM outbox AS earlier WHERE earlier.lane = row.lane AND earlier.seq < row.seq) "
        "ORDER BY seq LIMIT ?",
        (limit + len(in_flight),),
    )
    free = [(seq, size) for seq, size in firsts if seq not in in_flight]
    chosen = rows_up_to(TAKEN_MOST_BYTES, free[:limit], size=lambda row: int(row[1]))
    columns = "seq, lane, publish_id, channel, body"
    return [
        OutboxRow(*db.execute(f"SELECT {columns} FROM outbox WHERE seq = ?", (seq,)).fetchone())  # noqa: S608 - constant
        for seq, _ in chosen
    ]
