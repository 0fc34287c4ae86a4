"""Transaction: what one operation of the mailbox works with."""

import sqlite3
from typing import Any

from hub.mailbox.answers import ResultWriter
from hub.mailbox.records import Outcome, Turn

OUTBOX = "outbox"
TURNS = "turns"
RECEIVED = "received"


class Tx:
    """One writing transaction, shared by the operations of a batch.

    An operation is a function of a `Tx` and its arguments alone; it may run twice (its first run undone), so it touches
    nothing else.

    Attributes:
        db: the connection, inside `BEGIN IMMEDIATE`.
        now_ms: the time of the batch, by the mailbox's clock.
        results: renders results for the outbox.
        notes: which parts have news for their readers once this is committed (`outbox`, `turns`, `received`).
        ended: the turns that end in it, and how; told to whoever listens once this is committed.
        may_have_early_cancels: whether there are any; None: not yet known.
    """

    __slots__ = ("_next_turn_seq", "db", "ended", "may_have_early_cancels", "notes", "now_ms", "results")

    def __init__(self, db: sqlite3.Connection, now_ms: int, results: ResultWriter) -> None:
        self.db = db
        self.now_ms = now_ms
        self.results = results
        self.notes: set[str] = set()
        self.ended: list[tuple[Turn, Outcome]] = []
        self.may_have_early_cancels: bool | None = None
        self._next_turn_seq: int | None = None

    def new_turn_seq(self) -> int:
        """The number for a new turn, asked of the database once in a batch; one that is then not used is lost."""
        if self._next_turn_seq is None:
            row = self.one("SELECT seq FROM sqlite_sequence WHERE name = 'turn'")
            self._next_turn_seq = 1 if row is None else row[0] + 1
        seq = self._next_turn_seq
        self._next_turn_seq += 1
        return seq

    def one(self, sql: str, *values: Any) -> Any:
        """The first row (a tuple), or None."""
        return self.db.execute(sql, values).fetchone()

    def run(self, sql: str, *values: Any) -> int:
        """Execute a change; how many rows it met."""
        return self.db.execute(sql, values).rowcount

    def insert(self, sql: str, *values: Any) -> int:
        """Execute an insert; the new row's number."""
        number = self.db.execute(sql, values).lastrowid
        assert number is not None
        return number
