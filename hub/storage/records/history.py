"""Records of history: envelopes, agents, dead letters, and statistics over them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw

from hub.protocol import Envelope


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """An agent was heard: a presence, or (with `capabilities` and `metadata`) a registration.

    Attributes:
        identity: who.
        seen_at: when; the storage's now when None.
        capabilities: what it can do, any texts; None for a presence.
        metadata: any JSON object; None for a presence.
    """

    identity: str
    seen_at: datetime | None = None
    capabilities: list[str] | None = None
    metadata: dict[str, Any] | None = None


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as storage knows it. `alive` is the reader's to say, from `last_seen` (contract §2: within 90 s)."""

    identity: str
    capabilities: list[str]
    metadata: dict[str, Any]
    registered_at: datetime
    last_seen: datetime


class NewEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope to store, named by `(sender, id, destination)`.

    Attributes:
        destination: the subject that it was published to (`channel.inbox.<id>`, `channel.<name>`).
        payload: its bytes as they came.
        stored_at: the stream's time; the storage's now when None (broadcasts, core mode).
    """

    id: str
    sender: str
    destination: str
    channel: str
    to: str | None
    timestamp: datetime
    kind: str
    reply_to: str | None
    payload: bytes
    stored_at: datetime | None = None

    @classmethod
    def of(cls, envelope: Envelope, destination: str, stored_at: datetime | None = None) -> "NewEnvelope":
        """The row of a routed envelope."""
        meta = envelope.meta
        return cls(
            id=meta.id,
            sender=meta.sender,
            destination=destination,
            channel=meta.channel,
            to=meta.to,
            timestamp=meta.timestamp,
            kind=meta.kind,
            reply_to=meta.reply_to,
            payload=envelope.payload_json,
            stored_at=stored_at,
        )


class EnvelopeRecord(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """A stored envelope. `payload` holds the bytes as they came; encoding the record writes them as they are."""

    id: str
    sender: str
    channel: str
    to: str | None
    timestamp: datetime
    kind: str
    reply_to: str | None
    payload: Raw
    stored_at: datetime


class EnvelopeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which envelopes; every member that is set must hold.

    Attributes:
        since: stored at this time or later.
        until: stored before this time.
    """

    channel: str | None = None
    sender: str | None = None
    to: str | None = None
    kind: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a stream was read (contract §4): the time when the stream was made, and the last sequence."""

    stream: str
    created: datetime
    sequence: int


class Thread(msgspec.Struct, frozen=True):
    """A conversation.

    Attributes:
        items: root first, then level by level; within a level oldest first.
        truncated: True when the limit, the depth or the size left something out.
    """

    items: list[EnvelopeRecord]
    truncated: bool = False


class Bucket(msgspec.Struct, frozen=True):
    """How many in the interval that begins at `timestamp`."""

    timestamp: datetime
    count: int


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds from a message to its first reply; the figures are None without samples."""

    samples: int
    avg_ms: float | None = None
    min_ms: float | None = None
    max_ms: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What one identity did and got within a time; `pending` is what it has not answered by now, however old."""

    sent: int
    received_dm: int
    events: int
    pending: int


class Hotspot(msgspec.Struct, frozen=True):
    """How many envelopes a channel had."""

    channel: str
    messages: int


class NewDeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be delivered (contract §3.3). All of it may be hostile; all of it can be stored.

    Attributes:
        reason: a drop reason of contract §3.4.
        detail: for people.
        headers: names and values in their order, repeated ones too.
        data: its bytes, cut at 64 KiB by the storage when they are longer.
        size: the size before any cut; the length of `data` when None.
        received_at: the storage's now when None.
        dead_id: a name that makes a second insert a duplicate (a redelivery); a random one when None.
    """

    reason: str
    detail: str
    subject: str
    sender: str | None = None
    envelope_id: str | None = None
    headers: Sequence[tuple[str, str]] = ()
    data: bytes = b""
    size: int | None = None
    received_at: datetime | None = None
    dead_id: str | None = None


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """A dead letter. `data` is encoded as base64 by the JSON codec; it was cut when it is shorter than `size`."""

    dead_id: str
    reason: str
    detail: str
    subject: str
    sender: str | None
    envelope_id: str | None
    headers: list[tuple[str, str]]
    data: bytes
    size: int
    received_at: datetime
    replayed_at: datetime | None
