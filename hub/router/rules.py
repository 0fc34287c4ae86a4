"""The routing rules: from one ingress message to where it goes, or why nowhere (contract §3). Pure."""

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

from hub.delivery.headers import MOST_HEADER_LINES, TOO_MANY_LINES
from hub.protocol import BadEnvelope, BadName, Envelope, names, parse, stamp, subjects
from hub.router import guard

TRACE_HEADERS: Final = frozenset({"traceparent", "tracestate"})  # contract §6: all of an agent's that is carried on
MAX_TRACE_BYTES: Final = 512


class Reason(StrEnum):
    """Why a message is dropped: metric label, log field, dead-letter column (contract §3.4)."""

    UNDECODABLE = "undecodable"
    BAD_IDENTITY = "bad_identity"
    BAD_CHANNEL = "bad_channel"
    BAD_RECIPIENT = "bad_recipient"
    REPLAYED = "replayed"
    TOO_LARGE = "too_large"
    EXPIRED = "expired"
    EXHAUSTED = "exhausted"


TOLD_TO_SENDER: Final = frozenset({Reason.BAD_RECIPIENT, Reason.TOO_LARGE, Reason.EXHAUSTED})  # contract §3.3


class Home(StrEnum):
    """Where a destination's messages are kept."""

    INBOX = "inbox"
    TASKS = "tasks"
    LIVE = "live"  # nowhere: a broadcast is heard by who listens


class Route(msgspec.Struct, frozen=True, gc=False):
    """Where a message goes.

    Attributes:
        destination: the subject.
        home: what keeps it there.
        envelope: the message as it goes out.
        message_id: the `Nats-Msg-Id` by which its home drops repeats.
        trace: header lines to carry on, ready for the wire.
    """

    destination: str
    home: Home
    envelope: Envelope
    message_id: str
    trace: bytes = b""


class Drop(msgspec.Struct, frozen=True):
    """Why a message goes nowhere.

    Attributes:
        reason: the word for metrics, logs and the dead letter.
        detail: for people.
        sender: the subject's identity when it is a valid one.
        channel: the subject's channel when it is a valid one.
        envelope_id: `meta.id` when the message could be decoded.
    """

    reason: Reason
    detail: str
    sender: str | None = None
    channel: str | None = None
    envelope_id: str | None = None


def route(subject: str, headers: Sequence[tuple[str, str]], body: bytes, *, is_guarded: bool) -> Route | Drop:
    """Decide about one message.

    Args:
        subject: the ingress subject that it came on.
        headers: its ordinary headers, in order.
        body: its bytes.
        is_guarded: run the replay guard (durable mode, where messages come out of a stream).
    """
    if headers and headers[0][0] == TOO_MANY_LINES:
        return Drop(Reason.UNDECODABLE, f"expected at most {MOST_HEADER_LINES} header lines, got more")
    origin = _origin(subject)
    if is_guarded and (headers or isinstance(origin, Drop)):  # without both the guard finds nothing
        given_away = guard.check(subject, headers)
        if given_away is not None:
            return Drop(Reason.REPLAYED, given_away)
    if isinstance(origin, Drop):
        return origin
    sender, channel = origin.sender, origin.channel
    try:
        envelope = stamp(parse(body), sender, channel)
    except BadEnvelope as error:
        reason = Reason.BAD_RECIPIENT if error.path == "$.meta.to" else Reason.UNDECODABLE
        return Drop(reason, str(error), sender, channel)
    recipient = envelope.meta.to
    if recipient is None:
        destination, home = origin.destination, origin.home
    elif (inbox := _inbox_of(recipient)) is not None:
        destination, home = inbox, Home.INBOX
    else:
        detail = str(BadName("recipient", recipient, names.TOKEN_RULE))
        return Drop(Reason.BAD_RECIPIENT, detail, sender, channel, envelope.meta.id)
    message_id = f"{guard.ROUTER_ID_PREFIX}{sender}:{envelope.meta.id}:{destination}"
    return Route(destination, home, envelope, message_id, trace_lines(headers) if headers else b"")


class _Origin(msgspec.Struct, frozen=True):
    """What an ingress subject says: who sent it on which channel, and where the channel's messages go."""

    sender: str
    channel: str
    destination: str
    home: Home


@lru_cache(maxsize=1024)  # as many senders and channels at work at once; one more costs what the first message did
def _origin(subject: str) -> _Origin | Drop:
    """Read and validate an ingress subject."""
    split = subjects.split_publish(subject)
    if split is None:
        return Drop(Reason.BAD_CHANNEL, f"{subject[:80]!r} is no ingress subject")
    sender, channel = split
    if not names.is_token(sender):
        return Drop(Reason.BAD_IDENTITY, str(BadName("identity", sender, names.TOKEN_RULE)))
    try:
        names.channel(channel)
    except BadName as error:
        return Drop(Reason.BAD_CHANNEL, str(error), sender)
    home = Home.TASKS if names.is_stored_channel(channel) else Home.LIVE
    return _Origin(sender, channel, subjects.channel(channel), home)


@lru_cache(maxsize=4096)  # as many recipients at work at once; an entry takes some 300 bytes
def _inbox_of(recipient: str) -> str | None:
    """Where a recipient's messages go; None when it is no identity."""
    return subjects.inbox(recipient) if names.is_token(recipient) else None


def trace_lines(headers: Sequence[tuple[str, str]]) -> bytes:
    """The header lines of an agent's trace context, as they go out; others stay behind (contract §6)."""
    carried: dict[str, bytes] = {}
    for name, value in headers:
        if name in TRACE_HEADERS and value.isascii() and value.isprintable() and len(value) <= MAX_TRACE_BYTES:
            carried.setdefault(name, b"%b: %b\r\n" % (name.encode(), value.encode()))
    return b"".join(carried.values()) if carried else b""
