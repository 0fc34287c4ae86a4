"""Ending of a turn: the one place where a turn ends, and where its senders are answered.

One transaction holds the state, the outcome and one outbox row for every envelope that stands for the turn. An alias
is added in the same writer, so that it either sees the turn before its end and is answered here, or sees the outcome.
"""

from hub.mailbox import outbox, turn_rows
from hub.mailbox.answers import Addressee
from hub.mailbox.records import Outcome, Turn, TurnKind
from hub.mailbox.states import State
from hub.mailbox.transaction import Tx


def end(tx: Tx, turn: Turn, outcome: Outcome, *, context_json: bytes | None = None) -> Outcome:
    """End a turn that has not ended, and answer everyone.

    Args:
        tx: the transaction.
        turn: as it was read in it.
        outcome: how it ended. When a cancel is committed it ends as cancelled, whatever came of it since.
        context_json: the session's new context; saved only when the turn is done.

    Returns:
        The outcome as it is recorded and told.

    Raises:
        StateChanged: it has ended before.
    """
    if turn.cancel_requested:
        outcome = Outcome.cancelled()
    addressees = _addressees(tx, turn.seq)
    told, letters = tx.results.write(outcome, addressees)
    turn_rows.move(
        tx,
        turn,
        State.ENDED,
        body=None,
        due_at=None,
        kept_from=tx.now_ms,
        status=told.status,
        result=told.result_json,
        error=told.error,
        code=told.code,
        verify=told.verify,
    )
    for letter in letters:
        outbox.add(tx, outbox.turn_lane(turn.seq), letter)
    if turn.session is not None:
        _go_on_with_session(tx, turn, told, context_json)
    tx.ended.append((turn, told))
    return told


def answer_again(tx: Tx, turn: Turn, sender: str, envelope_id: str) -> None:
    """Send the recorded outcome of an ended turn to one envelope that stands for it, in a new envelope."""
    assert turn.outcome is not None
    addressees = _addressees(tx, turn.seq, sender, envelope_id)
    for letter in tx.results.write(turn.outcome, addressees)[1]:
        outbox.add(tx, outbox.turn_lane(turn.seq), letter)
    # What is still asked for is kept.
    tx.run("UPDATE turn SET kept_from = max(kept_from, ?) WHERE seq = ?", tx.now_ms, turn.seq)


def _addressees(tx: Tx, seq: int, sender: str | None = None, envelope_id: str | None = None) -> list[Addressee]:
    """Everyone who is told: the turn's own envelope first, then its aliases as they came; or one of them."""
    rows = tx.db.execute(
        "SELECT sender, id, channel, is_direct FROM envelope WHERE turn = ?1 "
        "AND (?2 IS NULL OR (sender = ?2 AND id = ?3)) ORDER BY is_alias, received_at, sender, id",
        (seq, sender, envelope_id),
    )
    return [Addressee(row[0], row[1], row[2], bool(row[3])) for row in rows]


def _go_on_with_session(tx: Tx, turn: Turn, told: Outcome, context_json: bytes | None) -> None:
    """Keep its context, close it behind its last turn, and let the next turn be claimed."""
    (session,) = tx.one("SELECT session FROM turn WHERE seq = ?", turn.seq)
    if told.status == "done":
        tx.run(
            "UPDATE session SET used_at = ?, context = coalesce(?, context) WHERE seq = ?",
            tx.now_ms,
            context_json,
            session,
        )
    else:
        tx.run("UPDATE session SET used_at = ? WHERE seq = ?", tx.now_ms, session)
    if turn.kind is TurnKind.CLOSE:
        tx.run("UPDATE session SET state = 'closed', context = NULL WHERE seq = ?", session)
    first = tx.one("SELECT seq FROM turn WHERE session = ? AND state <> 'ended' ORDER BY seq LIMIT 1", session)
    if first is not None:
        held = turn_rows.get(tx, first[0])
        assert held is not None
        if held.state is State.HELD:
            turn_rows.move(tx, held, State.QUEUED)
