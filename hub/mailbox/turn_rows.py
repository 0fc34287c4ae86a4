"""Rows of turns: the one place where a turn's state is written, guarded by the state that it expects."""

from collections.abc import Sequence
from typing import Any, Final

from hub.mailbox.errors import StateChanged
from hub.mailbox.records import Outcome, Session, SessionName, Turn, TurnKind
from hub.mailbox.states import TRANSITIONS, State
from hub.mailbox.transaction import TURNS, Tx

COLUMNS: Final = (
    "turn.seq, turn.state, turn.kind, turn.sender, turn.envelope_id, turn.body, turn.attempts, turn.epoch, "
    "turn.cancel_requested, turn.queued_at, turn.status, turn.result, turn.error, turn.code, turn.verify, "
    "session.starter, session.wave_id, session.session_id, session.state, session.start_envelope_id, "
    "session.start_payload, session.context"
)
COLUMNS_WITHOUT_BODY: Final = COLUMNS.replace("turn.body", "NULL")
FROM: Final = "FROM turn LEFT JOIN session ON session.seq = turn.session"


def from_row(row: Sequence[Any]) -> Turn:
    """A row of `COLUMNS` as a turn."""
    outcome = session = None
    if row[10] is not None:
        outcome = Outcome(status=row[10], result_json=row[11], error=row[12], code=row[13], verify=row[14])
    if row[15] is not None:
        session = Session(
            name=SessionName(row[15], row[16], row[17]),
            state=row[18],
            start_envelope_id=row[19],
            start_payload_json=row[20],
            context_json=row[21],
        )
    return Turn(
        seq=row[0],
        state=State(row[1]),
        kind=TurnKind(row[2]),
        sender=row[3],
        envelope_id=row[4],
        body=row[5] or b"",
        attempts=row[6],
        epoch=row[7],
        cancel_requested=bool(row[8]),
        queued_at_ms=row[9],
        outcome=outcome,
        session=session,
    )


def get(tx: Tx, seq: int) -> Turn | None:
    """One turn, or None."""
    row = tx.one(f"SELECT {COLUMNS} {FROM} WHERE turn.seq = ?", seq)
    return None if row is None else from_row(row)


def require(tx: Tx, seq: int, expected: tuple[State, ...], epoch: int | None = None) -> Turn:
    """One turn that is in one of the expected states, and in the claim `epoch` when that is given.

    Raises:
        StateChanged: it is not.
    """
    turn = get(tx, seq)
    if turn is None or turn.state not in expected:
        raise StateChanged(seq, expected, None if turn is None else turn.state)
    if epoch is not None and turn.epoch != epoch:
        raise StateChanged(seq, expected, turn.state, is_stale=True)
    return turn


def move(tx: Tx, turn: Turn, to: State, **columns: Any) -> None:
    """Write a turn's new state, by compare-and-set on the one that it was read in.

    Args:
        turn: as it was read in this transaction.
        to: the new state; there is a way to it in `TRANSITIONS`.
        columns: more columns to set.

    Raises:
        StateChanged: there is no such way, or the turn is not there any more.
    """
    assignments = "".join(f", {name} = ?" for name in columns)
    is_allowed = to in TRANSITIONS[turn.state]
    if not is_allowed or not tx.run(
        f"UPDATE turn SET state = ?{assignments} WHERE seq = ? AND state = ?",  # noqa: S608 - names of columns
        to.value,  # an enum's member binds at half the speed of its text
        *columns.values(),
        turn.seq,
        turn.state.value,
    ):
        raise StateChanged(turn.seq, tuple(state for state in State if to in TRANSITIONS[state]), turn.state)
    if to is State.QUEUED:
        tx.notes.add(TURNS)
