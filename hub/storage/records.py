"""Records: what is stored and what comes back (contract §10.2).

All times are aware and come back in UTC with microseconds. JSON that came over the wire stays the bytes that it was
(`Raw`), so that nothing is judged or changed on its way through storage.
"""

from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Raw

from hub.protocol import Envelope

MAX_BATCH: Final = 256  # contract §3.2: a mirror's batch
MAX_LIMIT: Final = 1000  # contract §10: the longest page
DEFAULT_LIMIT: Final = 100
MAX_THREAD_DEPTH: Final = 64  # contract §10.1
DEFAULT_PAGE_BYTES: Final = 4 * 1024 * 1024  # half of the 8 MB that every server config of ours allows a message
DEAD_DATA_BYTES: Final = 64 * 1024  # contract §3.3: a dead letter's bytes are cut here
MAX_CAPABILITIES: Final = 256  # an agent that announces more is a mistake or an attack; each is a row
MAX_METADATA_BYTES: Final = 64 * 1024  # announced every 30 s by every agent, and read in lists of them

SessionStatus = Literal["active", "closed", "failed"]
WaveStatus = Literal["pending", "running", "completed", "failed", "cancelled"]
TaskStatus = Literal["pending", "running", "done", "failed", "cancelled"]
EffectKind = Literal["dispatch", "cancel", "event"]

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list, newest first.

    Attributes:
        items: the records.
        next_cursor: what to pass as `cursor` for the next part; None when this was the last.
    """

    items: list[T]
    next_cursor: str | None = None


class Refused(msgspec.Struct, frozen=True):
    """A row of a batch that cannot be stored; the rest was.

    Attributes:
        index: its place in the batch.
        reason: what is wrong with it.
    """

    index: int
    reason: str


class BatchReport(msgspec.Struct, frozen=True):
    """What became of a batch; the three add up to its length.

    Attributes:
        stored: rows that are new.
        duplicates: rows that were there already (or twice in the batch), and were left as they are.
        refused: rows that can never be stored. Trying them again gives the same answer.
    """

    stored: int
    duplicates: int = 0
    refused: tuple[Refused, ...] = ()


# --- agents -----------------------------------------------------------------------------------------------------------


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


# --- envelopes --------------------------------------------------------------------------------------------------------


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


# --- statistics -------------------------------------------------------------------------------------------------------


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


# --- dead letters -----------------------------------------------------------------------------------------------------


class NewDeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be delivered (contract §3.3). All of it may be hostile; all of it can be stored.

    Attributes:
        reason: a drop reason of contract §3.4.
        detail: for people.
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
    headers: dict[str, str] = msgspec.field(default_factory=dict)
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
    headers: dict[str, str]
    data: bytes
    size: int
    received_at: datetime
    replayed_at: datetime | None


# --- sessions ---------------------------------------------------------------------------------------------------------


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """An orchestrator's bookkeeping of a session, named by `(orchestrator, session_id)`.

    States: `active` → `closed` | `failed`, which stay.
    """

    session_id: str
    orchestrator: str
    worker: str
    status: SessionStatus = "active"
    cwd: str | None = None
    model: str | None = None
    provider: str | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    backend_ctx: dict[str, Any] | None = None
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None = None


# --- waves ------------------------------------------------------------------------------------------------------------


class Wave(msgspec.Struct, frozen=True, kw_only=True):
    """A wave (contract §9). States: `pending` → `running` → `completed` | `failed` | `cancelled`, which stay.

    Attributes:
        digest: the creator's digest of the wave's content, so that the same wave again can be told from another.
    """

    wave_id: str
    goal: str
    orchestrator: str
    status: WaveStatus = "pending"
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    timeout_secs: float | None = None
    created_at: datetime
    started_at: datetime | None = None
    closed_at: datetime | None = None
    reason: str | None = None
    digest: str = ""


class WaveTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a wave. States: `pending` → `running` → `done` | `failed` | `cancelled`, which stay.

    Attributes:
        dispatch_ids: ids of the envelopes that stand for it, oldest first.
        result: the result's JSON as it came; None when there is none.
    """

    wave_id: str
    task_id: str
    worker: str
    goal: str
    write_scope: list[str] = msgspec.field(default_factory=list)
    dependencies: list[str] = msgspec.field(default_factory=list)
    handoff_path: str | None = None
    verify_cmd: str | None = None
    timeout_secs: float | None = None
    priority: int = 0
    cwd: str | None = None
    model: str | None = None
    provider: str | None = None
    status: TaskStatus = "pending"
    verify_result: str | None = None
    dispatch_ids: list[str] = msgspec.field(default_factory=list)
    attempt: int = 0
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    result: Raw | None = None
    error: str | None = None


class TaskCount(msgspec.Struct, frozen=True):
    """How many tasks of a wave have this state and this outcome of their verification."""

    status: TaskStatus
    verify_result: str | None
    count: int


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the wave engine owes the wire: written with the decision, removed once the ingress has it.

    Attributes:
        meta_id: the envelope's fixed id.
        channel: where it goes, without a prefix (`hub.pub.hub-orchestrator.<channel>`).
        body: the whole envelope.
    """

    meta_id: str
    wave_id: str
    task_id: str | None = None
    kind: EffectKind
    channel: str
    body: bytes


class WaveChange(msgspec.Struct, frozen=True, kw_only=True):
    """A compare-and-set on a wave: applied when its status is one of `expected`; what is UNSET stays."""

    wave_id: str
    expected: tuple[WaveStatus, ...]
    status: WaveStatus | msgspec.UnsetType = msgspec.UNSET
    timeout_secs: float | msgspec.UnsetType | None = msgspec.UNSET
    started_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    closed_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    reason: str | msgspec.UnsetType | None = msgspec.UNSET


class TaskChange(msgspec.Struct, frozen=True, kw_only=True):
    """A compare-and-set on a wave's task: applied when its status is one of `expected`; what is UNSET stays."""

    wave_id: str
    task_id: str
    expected: tuple[TaskStatus, ...]
    status: TaskStatus | msgspec.UnsetType = msgspec.UNSET
    verify_result: str | msgspec.UnsetType | None = msgspec.UNSET
    dispatch_ids: list[str] | msgspec.UnsetType = msgspec.UNSET
    attempt: int | msgspec.UnsetType = msgspec.UNSET
    started_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    completed_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    result: bytes | msgspec.UnsetType | None = msgspec.UNSET
    error: str | msgspec.UnsetType | None = msgspec.UNSET


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who may act alone (contract §9). A challenger watches `beat` on its own clock; the token only grows.

    Attributes:
        holder: None when the last holder gave it back.
    """

    name: str
    holder: str | None
    token: int
    beat: int


# --- retention --------------------------------------------------------------------------------------------------------


class RetentionRule(msgspec.Struct, frozen=True, kw_only=True):
    """How long one kind of record is kept; None is without limit.

    Attributes:
        kind: an envelope's kind (`message`, `control`, `human`, `status`, `event`), or `dead`, `session`, `wave`,
            `agent`.
        max_age_secs: older ones leave: envelopes by `stored_at`, dead letters by `received_at`, agents by
            `last_seen`; sessions and waves by `closed_at`, so that one that is not over stays.
        max_bytes: the oldest leave until the rest is within it (approximate size of the records; for sessions and
            waves those that are over make room, the others only count).
    """

    kind: str
    max_age_secs: float | None = None
    max_bytes: int | None = None


class RetentionStep(msgspec.Struct, frozen=True):
    """What one small step removed.

    Attributes:
        removed: records by kind; a wave's tasks are not counted.
        done: True when nothing is left that the rules would remove now.
    """

    removed: dict[str, int]
    done: bool
