"""Intake: takes an envelope in, once, and says what it is.

One envelope is one row by `(from, id)`, on disk before its ack; a repeat is known by it across restarts. What it asks
for was judged before (`requests`); here it becomes a turn, an alias of one, or an answer, in one transaction.
"""

from typing import Final

from hub.mailbox import cancels, endings, sessions, turn_rows
from hub.mailbox.outbox import has_unsent, turn_lane
from hub.mailbox.records import Accepted, Arrival, CancelVerdict, Outcome, Turn, TurnKind, Verdict
from hub.mailbox.requests import Cancel, Close, Refuse, Request, Send, Start, Task
from hub.mailbox.states import State
from hub.mailbox.transaction import TURNS, Tx

REPEAT_ANSWER_EVERY_MS: Final = 60_000  # contract §7: the recorded result once a minute at most


def accept(tx: Tx, arrival: Arrival, request: Request) -> Accepted:
    """Take an envelope in. What comes back is to be acted on after the commit."""
    if isinstance(request, Task):  # the common one, in two statements: the insert itself finds a repeat
        seq = tx.new_turn_seq()
        if not _insert_envelope(tx, arrival, seq, is_alias=False):
            return _repeat(tx, arrival)
        _insert_turn(tx, arrival, seq, TurnKind.TASK, State.QUEUED)
        return _begin(tx, arrival, seq, TurnKind.TASK, State.QUEUED)
    if tx.one("SELECT 1 FROM envelope WHERE sender = ? AND id = ?", arrival.sender, arrival.id):
        return _repeat(tx, arrival)
    match request:
        case Refuse(outcome=outcome):
            return _refuse(tx, arrival, outcome)
        case Start():
            return _start(tx, arrival, request)
        case Send():
            return _send(tx, arrival, request)
        case Close():
            return _close(tx, arrival, request)


def _repeat(tx: Tx, arrival: Arrival) -> Accepted:
    """The same envelope again: where its turn stands, or the recorded result when it has not just been sent."""
    seq, repeated_at = tx.one(
        "SELECT turn, repeated_at FROM envelope WHERE sender = ? AND id = ?", arrival.sender, arrival.id
    )
    turn = turn_rows.get(tx, seq)
    assert turn is not None  # a turn is pruned with its envelopes
    is_due = repeated_at is None or tx.now_ms - repeated_at >= REPEAT_ANSWER_EVERY_MS
    is_answered = turn.state is State.ENDED and is_due and not has_unsent(tx, turn_lane(seq))
    if is_answered:
        endings.answer_again(tx, turn, arrival.sender, arrival.id)
        tx.run("UPDATE envelope SET repeated_at = ? WHERE sender = ? AND id = ?", tx.now_ms, arrival.sender, arrival.id)
    return Accepted(verdict=Verdict.REPEAT, seq=seq, state=turn.state, is_answered=is_answered, outcome=turn.outcome)


def _new(tx: Tx, arrival: Arrival, kind: TurnKind, session: int, start: Start | None = None) -> Accepted:
    """A turn of a session, behind all others."""
    is_behind = tx.one("SELECT 1 FROM turn WHERE session = ? AND state <> 'ended' LIMIT 1", session) is not None
    state = State.HELD if is_behind else State.QUEUED
    seq = _insert(tx, arrival, kind, state, session)
    return _begin(tx, arrival, seq, kind, state, start=start)


def _begin(tx: Tx, arrival: Arrival, seq: int, kind: TurnKind, state: State, *, start: Start | None = None) -> Accepted:
    """Let a new turn be claimed in its order, or end it at once when a cancel was here first."""
    is_cancelled = kind is not TurnKind.CLOSE and cancels.take_early(tx, arrival.sender, arrival.id, start)
    if is_cancelled:
        return _end_at_once(tx, seq, Verdict.NEW, Outcome.cancelled())
    if state is State.QUEUED:
        tx.notes.add(TURNS)
    return Accepted(verdict=Verdict.NEW, seq=seq, state=state)


def _refuse(tx: Tx, arrival: Arrival, outcome: Outcome) -> Accepted:
    seq = _insert(tx, arrival, TurnKind.TASK, State.QUEUED, None)
    return _end_at_once(tx, seq, Verdict.REFUSED, outcome)


def _start(tx: Tx, arrival: Arrival, request: Start) -> Accepted:
    """A new session; or, by C3, another name for the start of one that exists."""
    known = sessions.row_of(tx, arrival.sender, request.wave_id, request.session_id)
    if known is None:
        session = sessions.insert(tx, arrival, request)
        accepted = _new(tx, arrival, TurnKind.START, session, request)
        tx.run("UPDATE session SET start_turn = ? WHERE seq = ?", accepted.seq, session)
        return accepted
    if known.digest != request.digest:
        return _refuse(
            tx,
            arrival,
            Outcome.failed(
                "bad_request",
                f"session {request.session_id} was started by envelope {known.start_envelope_id}; envelope "
                f"{arrival.id} starts it again with other content: a new try needs a new session id",
            ),
        )
    turn = turn_rows.get(tx, known.start_turn)
    assert turn is not None  # a start's turn is kept as long as its session
    _insert_envelope(tx, arrival, turn.seq, is_alias=True)
    if turn.state is State.ENDED:
        endings.answer_again(tx, turn, arrival.sender, arrival.id)
        return Accepted(verdict=Verdict.ALIAS, seq=turn.seq, state=turn.state, is_answered=True, outcome=turn.outcome)
    if not cancels.take_early(tx, arrival.sender, arrival.id):
        return Accepted(verdict=Verdict.ALIAS, seq=turn.seq, state=turn.state)
    # A cancel of this very alias was here first: it is one of the ids that stand for the turn.
    late = cancels.cancel(tx, Cancel(requested_by=arrival.sender, sender=arrival.sender, task_id=arrival.id))
    now = turn_rows.get(tx, turn.seq)
    assert now is not None
    return Accepted(
        verdict=Verdict.ALIAS,
        seq=turn.seq,
        state=now.state,
        is_answered=late.verdict is CancelVerdict.ENDED,
        must_stop=late.verdict is CancelVerdict.STOP,
        outcome=now.outcome,
    )


def _send(tx: Tx, arrival: Arrival, request: Send) -> Accepted:
    found = sessions.find(tx, arrival.sender, request.session_id, request.wave_id)
    if isinstance(found, Outcome):
        return _refuse(tx, arrival, found)
    if found.state != "open":
        return _refuse(
            tx,
            arrival,
            Outcome.failed("bad_request", f"session {request.session_id} is {found.state}: start a new one"),
        )
    tx.run("UPDATE session SET used_at = ? WHERE seq = ?", tx.now_ms, found.seq)
    return _new(tx, arrival, TurnKind.SEND, found.seq)


def _close(tx: Tx, arrival: Arrival, request: Close) -> Accepted:
    """Cancel what waits in the session, and queue the close behind what is in hand. A second close is fine."""
    found = sessions.find(tx, arrival.sender, request.session_id, request.wave_id)
    if isinstance(found, Outcome):
        return _refuse(tx, arrival, found)
    if found.state == "open":
        tx.run("UPDATE session SET state = 'closing', used_at = ? WHERE seq = ?", tx.now_ms, found.seq)
    accepted = _new(tx, arrival, TurnKind.CLOSE, found.seq)
    for seq in sessions.waiting_turns(tx, found.seq):
        turn = turn_rows.get(tx, seq)
        assert turn is not None
        endings.end(tx, turn, Outcome.cancelled())
    now = turn_rows.get(tx, accepted.seq)
    assert now is not None
    return Accepted(verdict=Verdict.NEW, seq=accepted.seq, state=now.state)


def _insert(tx: Tx, arrival: Arrival, kind: TurnKind, state: State, session: int | None) -> int:
    """A new turn for an envelope that is known to be new; its number."""
    seq = tx.new_turn_seq()
    is_new = _insert_envelope(tx, arrival, seq, is_alias=False)
    assert is_new
    _insert_turn(tx, arrival, seq, kind, state, session=session)
    return seq


def _insert_turn(
    tx: Tx, arrival: Arrival, seq: int, kind: TurnKind, state: State, *, session: int | None = None
) -> None:
    tx.run(
        "INSERT INTO turn (seq, state, kind, sender, envelope_id, body, session, queued_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        seq,
        state.value,
        kind.value,
        arrival.sender,
        arrival.id,
        arrival.body,
        session,
        tx.now_ms,
    )


def _insert_envelope(tx: Tx, arrival: Arrival, seq: int, *, is_alias: bool) -> bool:
    """The envelope's record; False when there is one."""
    inserted = tx.run(
        "INSERT INTO envelope (sender, id, turn, is_alias, received_at, channel, is_direct) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        arrival.sender,
        arrival.id,
        seq,
        is_alias,
        tx.now_ms,
        arrival.channel,
        arrival.is_direct,
    )
    return inserted > 0


def _end_at_once(tx: Tx, seq: int, verdict: Verdict, outcome: Outcome) -> Accepted:
    turn: Turn | None = turn_rows.get(tx, seq)
    assert turn is not None
    told = endings.end(tx, turn, outcome)
    return Accepted(verdict=verdict, seq=seq, state=State.ENDED, is_answered=True, outcome=told)
