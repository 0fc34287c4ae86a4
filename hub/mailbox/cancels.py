"""Cancels: end what waits, mark what is in hand, remember what has not come yet (contract §7).

A cancel is idempotent, so it needs no dedupe record: the same one again meets an ended turn, or is remembered anew.
"""

from typing import Final

from hub.mailbox import endings, turn_rows
from hub.mailbox.records import Cancelled, CancelVerdict, Outcome, Turn, TurnKind
from hub.mailbox.requests import Cancel, Start
from hub.mailbox.states import IN_HAND, State
from hub.mailbox.transaction import Tx

EARLY_KEPT_MS: Final = 10 * 60 * 1000  # contract §7: a cancel that overtakes its task is remembered for 10 minutes
EARLY_MOST_PER_SENDER: Final = 1000  # contract §7; beyond it a sender's own oldest go


def cancel(tx: Tx, request: Cancel) -> Cancelled:
    """Carry out a cancel whose sender may.

    In hand: only marked, durably; whoever runs the turn is to stop it and to settle it, and whatever they settle it
    with, and also after the process died, it ends as cancelled.
    """
    turn = _find(tx, request)
    if turn is None:
        _remember(tx, request)
        return Cancelled(verdict=CancelVerdict.EARLY)
    if turn.state is State.ENDED or turn.kind is TurnKind.CLOSE:
        return Cancelled(verdict=CancelVerdict.TOO_LATE, seq=turn.seq)
    if turn.state in IN_HAND:
        tx.run("UPDATE turn SET cancel_requested = 1 WHERE seq = ?", turn.seq)
        return Cancelled(verdict=CancelVerdict.STOP, seq=turn.seq)
    endings.end(tx, turn, Outcome.cancelled())
    return Cancelled(verdict=CancelVerdict.ENDED, seq=turn.seq)


def take_early(tx: Tx, sender: str, envelope_id: str, start: Start | None = None) -> bool:
    """Was this task cancelled before it came? What is found is used up.

    Args:
        tx: the transaction.
        sender: the task's sender.
        envelope_id: its envelope.
        start: what it asks for when it starts a session: one in a wave may be cancelled by the wave's task id.
    """
    if tx.may_have_early_cancels is None:  # nearly always there is none at all: one look for the whole batch
        tx.may_have_early_cancels = tx.one("SELECT 1 FROM early_cancel LIMIT 1") is not None
    if not tx.may_have_early_cancels:
        return False
    wave_id, task_id = (start.wave_id, start.session_id) if start is not None else ("", "")
    found = tx.db.execute(
        "DELETE FROM early_cancel WHERE sender = ?1 AND (task_id = ?2 OR (task_id = ?3 AND wave_id = ?4 AND ?4 <> '')) "
        "RETURNING recorded_at",
        (sender, envelope_id, task_id, wave_id),
    ).fetchall()
    return any(tx.now_ms - recorded_at < EARLY_KEPT_MS for (recorded_at,) in found)


def _find(tx: Tx, request: Cancel) -> Turn | None:
    row = None
    if request.wave_id:
        row = tx.one(
            "SELECT start_turn FROM session WHERE starter = ? AND wave_id = ? AND session_id = ?",
            request.sender,
            request.wave_id,
            request.task_id,
        )
    if row is None:
        row = tx.one("SELECT turn FROM envelope WHERE sender = ? AND id = ?", request.sender, request.task_id)
    return None if row is None else turn_rows.get(tx, row[0])


def _remember(tx: Tx, request: Cancel) -> None:
    tx.may_have_early_cancels = True
    tx.run(
        "INSERT INTO early_cancel (sender, task_id, wave_id, requested_by, recorded_at) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT DO UPDATE SET recorded_at = excluded.recorded_at",
        request.sender,
        request.task_id,
        request.wave_id or "",
        request.requested_by,
        tx.now_ms,
    )
    tx.run(
        "DELETE FROM early_cancel WHERE (sender, task_id, wave_id) IN (SELECT sender, task_id, wave_id "
        "FROM early_cancel WHERE requested_by = ? ORDER BY recorded_at DESC LIMIT -1 OFFSET ?)",
        request.requested_by,
        EARLY_MOST_PER_SENDER,
    )
