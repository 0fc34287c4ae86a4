"""The mailbox beside a simple model of it: whatever is asked for in whatever order, both say the same."""

import asyncio
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hub.mailbox import Cancel, Close, Mailbox, Outcome, Refuse, Send, State, Task, Turn
from hub.mailbox.requests import Request
from hub.protocol import parse
from tests.support.mailboxes import MAX_AGE_SECS, Mailboxes, dm, start_of

SENDERS = st.sampled_from(["ann", "ann", "ann", "bob"])  # mostly one, so that its turns, sessions and cancels meet
IDS = st.sampled_from([f"m{number}" for number in range(16)])
SESSIONS = st.sampled_from(["s1", "s1", "s2"])
OUTCOMES = st.sampled_from([Outcome.done("x"), Outcome.failed("handler_error", "boom")])
MINUTE_MS = 60_000
T = TypeVar("T")
WAITING = ("held", "queued", "delayed", "interrupted")


async def wait_for(future: "asyncio.Future[T]") -> T:
    """A future's result, as a coroutine."""
    return await future


@dataclass
class ModelTurn:
    """What a turn should be."""

    kind: str
    state: str
    envelopes: list[tuple[str, str]]
    session: tuple[str, str] | None = None
    attempts: int = 0
    due_ms: int = 0
    is_cancelled: bool = False
    outcome: str | None = None


@dataclass
class ModelSession:
    """What a session should be."""

    state: str
    content: int
    start: int
    context: bytes | None = None


@dataclass
class Model:
    """What a mailbox should hold. Turns are numbered from 1; nothing is pruned."""

    turns: list[ModelTurn] = field(default_factory=list)
    by_envelope: dict[tuple[str, str], int] = field(default_factory=dict)
    sessions: dict[tuple[str, str], ModelSession] = field(default_factory=dict)
    early: dict[tuple[str, str], int] = field(default_factory=dict)
    answers: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    unsent: set[int] = field(default_factory=set)
    repeated_ms: dict[tuple[str, str], int] = field(default_factory=dict)

    def turn(self, seq: int) -> ModelTurn:
        return self.turns[seq - 1]

    def of_session(self, name: tuple[str, str]) -> list[int]:
        return [seq for seq, turn in enumerate(self.turns, 1) if turn.session == name and turn.state != "ended"]

    def answer(self, seq: int, envelope: tuple[str, str]) -> None:
        self.answers[*envelope, self.turn(seq).outcome or ""] += 1
        self.unsent.add(seq)

    def end(self, seq: int, outcome: str) -> str:
        turn = self.turn(seq)
        turn.outcome = "cancelled" if turn.is_cancelled else outcome
        turn.state = "ended"
        for envelope in turn.envelopes:
            self.answer(seq, envelope)
        if turn.session is not None:
            if turn.kind == "close":
                self.sessions[turn.session].state = "closed"
            rest = self.of_session(turn.session)
            if rest and self.turn(rest[0]).state == "held":
                self.turn(rest[0]).state = "queued"
        return turn.outcome

    def add(self, envelope: tuple[str, str], kind: str, now: int, session: tuple[str, str] | None = None) -> int:
        is_behind = session is not None and bool(self.of_session(session))
        self.turns.append(ModelTurn(kind, "held" if is_behind else "queued", [envelope], session))
        seq = len(self.turns)
        self.by_envelope[envelope] = seq
        if kind != "close" and now - self.early.pop(envelope, -(10**18)) < 10 * MINUTE_MS:
            self.end(seq, "cancelled")
        return seq


class MailboxMachine(RuleBasedStateMachine):
    """Asks both for the same and compares."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="mailbox-model-")
        self.runner = asyncio.Runner()
        self.mailboxes = Mailboxes(Path(self.folder.name))
        self.mailbox: Mailbox = self.runner.run(self.mailboxes.open())
        self.model = Model()
        self.in_hand: dict[int, Turn] = {}
        self.seen_answers: Counter[tuple[str, str, str]] = Counter()
        self.last_outbox_seq = 0
        for number in range(3):
            self.accept("ann", f"first-{number}", False)
        for session in ("s1", "s2"):
            self.start("ann", f"start-{session}", session, 0)
            self.send("ann", f"send-{session}", session)
        self.claim(3)

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self.mailboxes.close())
            self.runner.close()
            self.folder.cleanup()

    @property
    def now(self) -> int:
        return self.mailboxes.clock.now_ms

    def take(self, sender: str, envelope_id: str, request: Request) -> tuple[Any, bool]:
        """Accept; whether the model knows the envelope (a repeat is settled here)."""
        accepted = self.runner.run(wait_for(self.mailbox.accept(dm(sender, id=envelope_id), request)))
        envelope = (sender, envelope_id)
        seq = self.model.by_envelope.get(envelope)
        if seq is None:
            return accepted, False
        assert (accepted.verdict, accepted.seq) == ("repeat", seq)
        is_due = self.now - self.model.repeated_ms.get(envelope, -(10**18)) >= MINUTE_MS
        is_answered = self.model.turn(seq).state == "ended" and is_due and seq not in self.model.unsent
        assert accepted.is_answered == is_answered
        if is_answered:
            self.model.repeated_ms[envelope] = self.now
            self.model.answer(seq, envelope)
        return accepted, True

    @rule(sender=SENDERS, envelope_id=IDS, is_refused=st.sampled_from([False, False, False, True]))
    def accept(self, sender: str, envelope_id: str, is_refused: bool) -> None:
        request = Refuse(Outcome.failed("rejected", "no")) if is_refused else Task()
        accepted, is_known = self.take(sender, envelope_id, request)
        if is_known:
            return
        if is_refused:
            self.refused((sender, envelope_id))
        else:
            assert accepted.seq == self.model.add((sender, envelope_id), "task", self.now)

    def refused(self, envelope: tuple[str, str]) -> None:
        early = self.model.early.pop(envelope, None)  # a refusal is a refusal, cancelled or not
        self.model.end(self.model.add(envelope, "task", self.now), "error")
        if early is not None:
            self.model.early[envelope] = early

    @rule(
        what=st.sampled_from(["start", "start", "send", "send", "send", "close"]),
        sender=SENDERS,
        envelope_id=IDS,
        session=SESSIONS,
        content=st.integers(0, 5),
    )
    def session(self, what: str, sender: str, envelope_id: str, session: str, content: int) -> None:
        if what == "send":
            self.send(sender, envelope_id, session)
        elif what == "close":
            self.close(sender, envelope_id, session)
        else:
            self.start(sender, envelope_id, session, content)

    def start(self, sender: str, envelope_id: str, session: str, number: int) -> None:
        content, attempt = number // 5, number  # mostly the same content
        name, envelope = (sender, session), (sender, envelope_id)
        accepted, is_known = self.take(sender, envelope_id, start_of(session, {"content": content, "attempt": attempt}))
        if is_known:
            return
        known = self.model.sessions.get(name)
        if known is None:
            self.model.sessions[name] = ModelSession("open", content, len(self.model.turns) + 1)
            self.model.add(envelope, "start", self.now, name)
        elif known.content != content:
            self.refused(envelope)
        else:
            assert (accepted.verdict, accepted.seq) == ("alias", known.start)
            self.model.by_envelope[envelope] = known.start
            self.model.turn(known.start).envelopes.append(envelope)
            turn = self.model.turn(known.start)
            if turn.state == "ended":
                self.model.answer(known.start, envelope)
            elif self.now - self.model.early.pop(envelope, -(10**18)) < 10 * MINUTE_MS:
                assert accepted.must_stop == (turn.state not in WAITING)
                if turn.state in WAITING:
                    self.model.end(known.start, "cancelled")
                else:
                    turn.is_cancelled = True

    def send(self, sender: str, envelope_id: str, session: str) -> None:
        _, is_known = self.take(sender, envelope_id, Send(session_id=session))
        if is_known:
            return
        known = self.model.sessions.get((sender, session))
        if known is None or known.state != "open":
            self.refused((sender, envelope_id))
        else:
            self.model.add((sender, envelope_id), "send", self.now, (sender, session))

    def close(self, sender: str, envelope_id: str, session: str) -> None:
        _, is_known = self.take(sender, envelope_id, Close(session_id=session))
        if is_known:
            return
        known = self.model.sessions.get((sender, session))
        if known is None:
            self.refused((sender, envelope_id))
            return
        if known.state == "open":
            known.state = "closing"
        self.model.add((sender, envelope_id), "close", self.now, (sender, session))
        for seq in reversed(self.model.of_session((sender, session))):
            turn = self.model.turn(seq)
            if turn.kind != "close" and turn.state in {"held", "queued", "delayed"}:
                self.model.end(seq, "cancelled")

    @precondition(lambda self: any(turn.state in {"queued", "delayed"} for turn in self.model.turns))
    @rule(limit=st.integers(1, 3))
    def claim(self, limit: int) -> None:
        for turn in self.model.turns:
            if turn.state == "delayed" and turn.due_ms <= self.now:
                turn.state = "queued"
        expected = [seq for seq, turn in enumerate(self.model.turns, 1) if turn.state == "queued"][:limit]
        claimed = self.runner.run(self.mailbox.turns.claim(limit))
        assert [turn.seq for turn in claimed] == expected
        for turn in claimed:
            model = self.model.turn(turn.seq)
            model.state = "running"
            model.attempts += 1
            assert turn.attempts == model.attempts
            if model.session is not None:
                assert turn.session is not None
                assert turn.session.context_json == self.model.sessions[model.session].context
            self.in_hand[turn.seq] = turn

    def some_in_hand(self, data: st.DataObject, states: tuple[str, ...]) -> Turn | None:
        found = [turn for seq, turn in self.in_hand.items() if self.model.turn(seq).state in states]
        return data.draw(st.sampled_from(found)) if found else None

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data(), outcome=OUTCOMES, context=st.sampled_from([None, b"1", b"2"]))
    def settle(self, data: st.DataObject, outcome: Outcome, context: bytes | None) -> None:
        turn = self.some_in_hand(data, ("running", "verifying"))
        if turn is None:
            return
        told = self.runner.run(self.mailbox.turns.settle(turn, outcome, context_json=context))
        model = self.model.turn(turn.seq)
        assert told.status == self.model.end(turn.seq, outcome.status)
        if model.session is not None:
            session = self.model.sessions[model.session]
            if told.status == "done" and context is not None:
                session.context = context
            if model.kind == "close":
                session.context = None
        del self.in_hand[turn.seq]

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def verify(self, data: st.DataObject) -> None:
        turn = self.some_in_hand(data, ("running",))
        if turn is not None:
            self.runner.run(self.mailbox.turns.verify(turn))
            self.model.turn(turn.seq).state = "verifying"

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data(), delay_secs=st.sampled_from([0, 30, 90]))
    def delay(self, data: st.DataObject, delay_secs: int) -> None:
        turn = self.some_in_hand(data, ("running",))
        if turn is None:
            return
        state = self.runner.run(self.mailbox.turns.delay(turn, delay_secs))
        model = self.model.turn(turn.seq)
        if model.is_cancelled:
            self.model.end(turn.seq, "cancelled")
        else:
            model.state, model.due_ms = "delayed", self.now + delay_secs * 1000
        assert state == model.state
        del self.in_hand[turn.seq]

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data(), give_back=st.booleans())
    def run_again(self, data: st.DataObject, give_back: bool) -> None:
        turn = self.some_in_hand(data, ("running", "verifying"))
        if turn is None:
            return
        self.runner.run(self.mailbox.turns.run_again(turn, give_attempt_back=give_back))
        model = self.model.turn(turn.seq)
        if model.is_cancelled:
            self.model.end(turn.seq, "cancelled")
        else:
            model.state = "queued"
            model.attempts -= int(give_back)
        del self.in_hand[turn.seq]

    @rule(sender=SENDERS, envelope_id=IDS)
    def cancel_any(self, sender: str, envelope_id: str) -> None:
        self.cancel(sender, envelope_id)

    def cancel(self, sender: str, envelope_id: str) -> None:
        request = Cancel(requested_by=sender, sender=sender, task_id=envelope_id)
        verdict = self.runner.run(wait_for(self.mailbox.cancel(request))).verdict
        seq = self.model.by_envelope.get((sender, envelope_id))
        if seq is None:
            assert verdict == "early"
            self.model.early[sender, envelope_id] = self.now
            return
        model = self.model.turn(seq)
        if model.state == "ended" or model.kind == "close":
            assert verdict == "too_late"
        elif model.state in WAITING:
            assert verdict == "ended"
            self.model.end(seq, "cancelled")
        else:
            assert verdict == "stop"
            model.is_cancelled = True

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def cancel_in_hand(self, data: st.DataObject) -> None:
        turn = self.some_in_hand(data, ("running", "verifying"))
        if turn is not None:
            self.cancel(*data.draw(st.sampled_from(self.model.turn(turn.seq).envelopes)))

    @rule(secs=st.sampled_from([1, 29, 61, 700]))
    def time_passes(self, secs: int) -> None:
        self.mailboxes.clock.advance(secs)

    @rule(runs_again=st.booleans(), rescues=st.sampled_from([True, True, False]))
    def process_dies(self, runs_again: bool, rescues: bool) -> None:
        self.mailbox = self.runner.run(self.mailboxes.restart(self.mailbox))
        for seq in self.in_hand:
            self.model.turn(seq).state = "interrupted"
        self.in_hand.clear()
        if not rescues:
            return
        self.runner.run(
            self.mailbox.turns.rescue(lambda _: None if runs_again else Outcome.failed("interrupted", "died"))
        )
        for seq, turn in enumerate(self.model.turns, 1):
            if turn.state == "interrupted":
                if runs_again and not turn.is_cancelled:
                    turn.state = "queued"
                else:
                    self.model.end(seq, "error")

    @rule()
    def outbox_is_sent(self) -> None:
        self.look_at_outbox()
        last_of_lane: dict[str, int] = {}
        while rows := self.runner.run(self.mailbox.outbox.take(5)):
            for row in rows:
                assert last_of_lane.get(row.lane, 0) < row.seq
                last_of_lane[row.lane] = row.seq
                self.runner.run(self.mailbox.outbox.sent(row))
        self.model.unsent.clear()

    @rule()
    def prune(self) -> None:
        """Nothing is old enough: it must not change a thing that anybody sees."""
        self.runner.run(self.mailbox.prune(MAX_AGE_SECS))
        for envelope, recorded_ms in list(self.model.early.items()):
            if self.now - recorded_ms >= 10 * MINUTE_MS:
                del self.model.early[envelope]

    def look_at_outbox(self) -> None:
        rows = self.runner.run(
            self.mailbox._reader.look(
                lambda db: db.execute(
                    "SELECT seq, body FROM outbox WHERE seq > ? ORDER BY seq", (self.last_outbox_seq,)
                ).fetchall()
            )
        )
        for seq, body in rows:
            self.last_outbox_seq = seq
            payload = parse(body).payload
            self.seen_answers[payload["for"], payload["task_id"], payload["status"]] += 1

    @invariant()
    def both_hold_the_same(self) -> None:
        if not hasattr(self, "mailbox"):
            return
        rows = self.runner.run(
            self.mailbox._reader.look(
                lambda db: db.execute(
                    "SELECT state, attempts, status, cancel_requested, kind FROM turn ORDER BY seq"
                ).fetchall()
            )
        )
        assert [tuple(row) for row in rows] == [
            (turn.state, turn.attempts, turn.outcome, int(turn.is_cancelled), turn.kind) for turn in self.model.turns
        ]
        self.look_at_outbox()
        assert self.seen_answers == self.model.answers
        for seq, turn in enumerate(self.model.turns, 1):
            told = [
                sum(self.model.answers[*envelope, s] for s in ("done", "error", "cancelled"))
                for envelope in turn.envelopes
            ]
            assert all(told) if turn.state == "ended" else not any(told), (seq, turn)
        for name in self.model.sessions:
            in_hand = [seq for seq in self.model.of_session(name) if self.model.turn(seq).state != "held"]
            assert len(in_hand) <= 1
        assert State.ENDED not in self.runner.run(self.mailbox.turns.count())


MailboxMachine.TestCase.settings = settings(
    max_examples=15,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestMailboxBesideItsModel = MailboxMachine.TestCase


@pytest.mark.soak
class TestMailboxBesideItsModelForLong(MailboxMachine.TestCase):  # type: ignore[misc]
    settings = settings(MailboxMachine.TestCase.settings, max_examples=500, stateful_step_count=80)
