"""Transaction: what one operation of the mailbox works with."""

import sqlite3
from typing import Any

from hub.mailbox.answers import ResultWriter

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
    """

    __slots__ = ("db", "notes", "now_ms", "results")

    def __init__(self, db: sqlite3.Connection, now_ms: int, results: ResultWriter) -> None:
        self.db = db
        self.now_ms = now_ms
        self.results = results
        self.notes: set[str] = set()

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
