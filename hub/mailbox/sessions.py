"""Sessions: rows of one piece of work that goes on over several turns, with what its handler keeps (contract §9)."""

import sqlite3
from typing import Any, NamedTuple

from hub.mailbox.reader import Reader
from hub.mailbox.records import Arrival, Outcome, Session, SessionName
from hub.mailbox.requests import Start
from hub.mailbox.transaction import Tx
from hub.protocol import names


class SessionRow(NamedTuple):
    """What the intake needs of a session."""

    seq: int
    starter: str
    wave_id: str
    state: str
    start_turn: int
    start_envelope_id: str
    digest: bytes


_ROW = "seq, starter, wave_id, state, start_turn, start_envelope_id, digest"


def row_of(tx: Tx, starter: str, wave_id: str, session_id: str) -> SessionRow | None:
    """The session of this name."""
    row = tx.one(
        f"SELECT {_ROW} FROM session WHERE starter = ? AND wave_id = ? AND session_id = ?",  # noqa: S608 - constant
        starter,
        wave_id,
        session_id,
    )
    return None if row is None else SessionRow(*row)


def insert(tx: Tx, arrival: Arrival, start: Start) -> int:
    """A new session; its number. Its start's turn is set by the caller, in the same transaction."""
    return tx.insert(
        "INSERT INTO session (starter, wave_id, session_id, state, start_envelope_id, start_payload, digest, used_at) "
        "VALUES (?, ?, ?, 'open', ?, ?, ?, ?)",
        arrival.sender,
        start.wave_id,
        start.session_id,
        arrival.id,
        start.payload_json,
        start.digest,
        tx.now_ms,
    )


def find(tx: Tx, sender: str, session_id: str, wave_id: str | None) -> SessionRow | Outcome:
    """The session that `sender` drives under this id, or what to answer.

    A session is driven by its starter and by the hub. An id alone may mean several (another wave's, for the hub also
    another starter's): the sender's own outside a wave is meant first; where no single one is meant, none is driven.
    """
    rows = [
        SessionRow(*row)
        for row in tx.db.execute(
            f"SELECT {_ROW} FROM session WHERE session_id = ?1 AND (starter = ?2 OR ?2 = ?3) "  # noqa: S608 - constant
            "AND (?4 IS NULL OR wave_id = ?4)",
            (session_id, sender, names.HUB_IDENTITY, wave_id),
        )
    ]
    own = [row for row in rows if row.starter == sender]
    meant = [row for row in own if row.wave_id == (wave_id or "")] or own or rows
    if len(meant) == 1:
        return meant[0]
    if not meant:
        return Outcome.failed("bad_request", f"unknown session {session_id}: {sender} has not started it here")
    candidates = ", ".join(f"{row.starter} in wave {row.wave_id or '-'}" for row in meant[:5])
    return Outcome.failed("bad_request", f"session {session_id} may mean several ({candidates}): name its wave_id")


def waiting_turns(tx: Tx, session: int) -> list[int]:
    """The session's turns that nobody works on, but its closes; the last first, so that none is let go on its way."""
    rows = tx.db.execute(
        "SELECT seq FROM turn WHERE session = ? AND state <> 'ended' AND kind <> 'close' "
        "AND state IN ('held', 'queued', 'delayed') ORDER BY seq DESC",
        (session,),
    )
    return [row[0] for row in rows.fetchall()]


class Sessions:
    """Looks at sessions."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def get(self, name: SessionName) -> Session | None:
        """One session, or None."""
        found = await self._reader.look(
            lambda db: _select(db, "WHERE starter = ? AND wave_id = ? AND session_id = ?", *name)
        )
        return found[0] if found else None

    async def open(self, limit: int = 1000) -> list[Session]:
        """Sessions that are not closed, the last used first."""
        return await self._reader.look(
            lambda db: _select(db, "WHERE state <> 'closed' ORDER BY used_at DESC LIMIT ?", limit)
        )


def _select(db: sqlite3.Connection, condition: str, *values: Any) -> list[Session]:
    rows = db.execute(
        "SELECT starter, wave_id, session_id, state, start_envelope_id, start_payload, context FROM session "  # noqa: S608
        + condition,
        values,
    ).fetchall()
    return [
        Session(
            name=SessionName(row[0], row[1], row[2]),
            state=row[3],
            start_envelope_id=row[4],
            start_payload_json=row[5],
            context_json=row[6],
        )
        for row in rows
    ]
