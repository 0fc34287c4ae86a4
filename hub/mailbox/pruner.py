"""Pruner: forgets what nobody can ask for any more, in small steps between other work.

Kept whatever its age: what is queued, in hand, delayed, interrupted or unsent, and the start of a session that is kept.
A dedupe record goes with its turn and the recorded result, and only when the stream cannot deliver any of its envelopes
again: all of them came, and the turn ended or was last asked for, more than the stream's `max_age_secs` + 1 day ago.
"""

from typing import Final

import msgspec

from hub.mailbox.cancels import EARLY_KEPT_MS
from hub.mailbox.transaction import Tx

SLACK_SECS: Final = 86_400  # contract §8: the stream's max_age_secs + 1 day
STEP_ROWS: Final = 200  # a step of this size holds the writer for a few milliseconds
STEP_PAGES: Final = 256  # given back to the disk in a step: 1 MB
SESSION_IDLE_SECS: Final = 30 * 86_400  # an open session outside a wave that nobody used for so long


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What a step deleted, in rows."""

    turns: int = 0
    sessions: int = 0
    early_cancels: int = 0
    received: int = 0
    tracked: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.turns + self.sessions + self.early_cancels + self.received + self.tracked


def prune_step(tx: Tx, max_age_secs: float) -> Pruned:
    """One small step; nothing is left to prune when it deleted nothing.

    Args:
        tx: the transaction.
        max_age_secs: how long the inbox stream keeps a message.
    """
    cutoff = tx.now_ms - round((max_age_secs + SLACK_SECS) * 1000)
    pruned = Pruned(
        sessions=_prune_sessions(tx, cutoff),
        turns=_prune_turns(tx, cutoff),
        early_cancels=_delete(
            tx, "early_cancel", "sender, task_id, wave_id", "recorded_at <= ?", tx.now_ms - EARLY_KEPT_MS
        ),
        received=_delete(tx, "received", "seq", "received_at < ?", cutoff),
        tracked=_prune_tracked(tx, cutoff),
    )
    _give_space_back(tx)
    return pruned


def _give_space_back(tx: Tx) -> None:
    (free,) = tx.one("PRAGMA freelist_count")
    for _ in range(min(free, STEP_PAGES)):
        tx.db.execute("PRAGMA incremental_vacuum(1)")  # sqlite3 steps a statement without columns once: one page


def _prune_turns(tx: Tx, cutoff: int) -> int:
    rows = tx.db.execute(
        "SELECT seq FROM turn WHERE state = 'ended' AND kept_from < ? "
        "AND NOT EXISTS (SELECT 1 FROM session WHERE session.start_turn = turn.seq) "
        "AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.lane = 'turn ' || turn.seq) "
        "ORDER BY kept_from LIMIT ?",
        (cutoff, STEP_ROWS),
    ).fetchall()
    tx.db.executemany("DELETE FROM envelope WHERE turn = ?", rows)
    tx.db.executemany("DELETE FROM turn WHERE seq = ?", rows)
    return len(rows)


def _prune_sessions(tx: Tx, cutoff: int) -> int:
    """Sessions of waves (nobody closes those) and closed ones as long as dedupe records; open ones when long idle."""
    idle = min(cutoff, tx.now_ms - SESSION_IDLE_SECS * 1000)
    rows = tx.db.execute(
        "SELECT seq FROM session WHERE used_at < ?1 AND (state = 'closed' OR wave_id <> '' OR used_at < ?2) "
        "AND NOT EXISTS (SELECT 1 FROM turn WHERE turn.session = session.seq AND turn.state <> 'ended') "
        "AND NOT EXISTS (SELECT 1 FROM turn WHERE turn.seq = session.start_turn AND turn.kept_from >= ?1) "
        "ORDER BY used_at LIMIT ?3",
        (cutoff, idle, STEP_ROWS),
    ).fetchall()
    tx.db.executemany("DELETE FROM session WHERE seq = ?", rows)
    return len(rows)


def _prune_tracked(tx: Tx, cutoff: int) -> int:
    rows = tx.db.execute(
        "SELECT task_id FROM tracked WHERE state <> 'running' AND changed_at < ? LIMIT ?", (cutoff, STEP_ROWS)
    ).fetchall()
    tx.db.executemany("DELETE FROM tracked_event WHERE task_id = ?", rows)
    tx.db.executemany("DELETE FROM tracked WHERE task_id = ?", rows)
    return len(rows)


def _delete(tx: Tx, table: str, key: str, condition: str, value: int) -> int:
    return tx.run(
        f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {condition} LIMIT ?)",  # noqa: S608
        value,
        STEP_ROWS,
    )
