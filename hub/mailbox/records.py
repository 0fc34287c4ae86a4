"""Records that go in and out of a mailbox."""

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from hub.mailbox.states import IN_HAND, State
from hub.protocol import names
from hub.protocol.envelope import Envelope
from hub.protocol.payload import encode_payload
from hub.protocol.results import Status


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ended: what every envelope that stands for it is told (contract §7).

    Attributes:
        status: `done`, `error` or `cancelled`.
        result_json: the result as JSON text, on `done`.
        error: what went wrong, for people.
        code: on `error`, which kind.
        verify: `passed` or `failed` when a verification ran.
    """

    status: Status
    result_json: bytes = b"null"
    error: str | None = None
    code: str | None = None
    verify: str | None = None

    @classmethod
    def done(cls, result: Any = None, *, verify: str | None = None) -> "Outcome":
        """Success.

        Raises:
            BadPayload: the result is no JSON value; it names the path.
        """
        return cls(status="done", result_json=encode_payload(result), verify=verify)

    @classmethod
    def failed(cls, code: str, error: str, *, verify: str | None = None) -> "Outcome":
        """Failure. What UTF-8 cannot carry in the text (a lone surrogate out of a child's output) is escaped."""
        text = error.encode("utf-8", "backslashreplace").decode()
        return cls(status="error", error=text, code=code, verify=verify)

    @classmethod
    def cancelled(cls) -> "Outcome":
        """Cancelled by somebody who may."""
        return cls(status="cancelled", error="cancelled")


class SessionName(NamedTuple):
    """What names a session (contract, top): nobody can start or drive another's by its ids alone."""

    starter: str
    wave_id: str
    session_id: str


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is on disk.

    Attributes:
        name: who started it, in which wave (`""` for none), under which id.
        state: `open`, `closing` (its close waits for its turn) or `closed`.
        start_envelope_id: the envelope that started it.
        start_payload_json: that envelope's payload: `cwd`, `model`, `verify_cmd` and so on.
        context_json: what its handler keeps, as the last successful turn left it; None before.
    """

    name: SessionName
    state: str
    start_envelope_id: str
    start_payload_json: bytes
    context_json: bytes | None


class TurnKind(StrEnum):
    """What a turn is."""

    TASK = "task"
    START = "start"  # a session's first turn
    SEND = "send"  # a further turn of a session
    CLOSE = "close"  # the end of a session, in its order; cannot be cancelled


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work as it is on disk.

    Attributes:
        seq: its number and its place in the queue; never used twice.
        state: where it stands.
        kind: task, or which kind of session turn.
        sender: who sent it.
        envelope_id: its own envelope (aliases stand for it too).
        body: that envelope, whole; empty once the turn has ended.
        attempts: how often it was started.
        epoch: counts its claims; a change by an older claim's holder is refused.
        cancel_requested: a cancel is committed: it can only end as `cancelled`.
        queued_at_ms: when it was accepted, by the mailbox's clock.
        outcome: once it has ended.
        session: the session that it belongs to.
    """

    seq: int
    state: State
    kind: TurnKind
    sender: str
    envelope_id: str
    body: bytes
    attempts: int
    epoch: int
    cancel_requested: bool
    queued_at_ms: int
    outcome: Outcome | None = None
    session: Session | None = None


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope that came, and where its one result goes.

    Attributes:
        sender, id: its name.
        body: the whole envelope.
        channel: the channel of its result.
        is_direct: the result goes as a direct message to the sender; else to everyone on the channel.
    """

    sender: str
    id: str
    body: bytes
    channel: str
    is_direct: bool

    @classmethod
    def of(cls, envelope: Envelope, reply_channel: str | None) -> "Arrival":
        """Take an envelope; with no `reply_channel` its result is a DM with the channel as it came (contract §7).

        Raises:
            BadName: a name that no result could be sent with; found out now, not when the turn ends.
        """
        meta = envelope.meta
        return cls(
            sender=names.identity(meta.sender),
            id=names.message_id(meta.id),
            body=envelope.body,
            channel=names.channel(meta.channel if reply_channel is None else reply_channel),
            is_direct=reply_channel is None,
        )


class Verdict(StrEnum):
    """What an accepted envelope turned out to be."""

    NEW = "new"  # a turn of its own; ended at once when a cancel had overtaken it
    ALIAS = "alias"  # another name of a turn that exists (contract §8, C3)
    REPEAT = "repeat"  # known by (from, id)
    REFUSED = "refused"  # a turn that ended at once, with an error


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an envelope. It is committed: it may be acked.

    Attributes:
        verdict: what it is.
        seq: the turn that it stands for.
        state: that turn's state after this.
        is_answered: a result for it was put into the outbox by this very call.
        must_stop: the turn is in hand, and a cancel that had overtaken this alias now stands for it: stop it.
        outcome: the turn's, when it has ended.
    """

    verdict: Verdict
    seq: int
    state: State
    is_answered: bool = False
    must_stop: bool = False
    outcome: Outcome | None = None

    @property
    def status(self) -> str | None:
        """The progress status to announce with this envelope's id: `queued`, `working`, or None once ended."""
        if self.state == State.ENDED:
            return None
        return "working" if self.state in IN_HAND else "queued"


class CancelVerdict(StrEnum):
    """What a cancel met."""

    ENDED = "ended"  # the turn was waiting and is now ended, its results are in the outbox
    STOP = "stop"  # the turn is in hand: stop it; whatever it says, it ends as cancelled
    EARLY = "early"  # its task is not here yet; remembered for 10 minutes
    TOO_LATE = "too_late"  # the turn had ended, or is a session's close


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a cancel. It is committed: it may be acked."""

    verdict: CancelVerdict
    seq: int | None = None


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope to publish: on which channel, and its bytes."""

    channel: str
    body: bytes
