"""Records of orchestration: sessions, waves, what the engine owes the wire, leases."""

from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

SessionStatus = Literal["active", "closed", "failed"]
WaveStatus = Literal["pending", "running", "completed", "failed", "cancelled"]
TaskStatus = Literal["pending", "running", "done", "failed", "cancelled"]
EffectKind = Literal["dispatch", "cancel", "event"]


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
    status: WaveStatus | UnsetType = UNSET
    timeout_secs: float | UnsetType | None = UNSET
    started_at: datetime | UnsetType | None = UNSET
    closed_at: datetime | UnsetType | None = UNSET
    reason: str | UnsetType | None = UNSET


class TaskChange(msgspec.Struct, frozen=True, kw_only=True):
    """A compare-and-set on a wave's task: applied when its status is one of `expected`; what is UNSET stays."""

    wave_id: str
    task_id: str
    expected: tuple[TaskStatus, ...]
    status: TaskStatus | UnsetType = UNSET
    verify_result: str | UnsetType | None = UNSET
    dispatch_ids: list[str] | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    started_at: datetime | UnsetType | None = UNSET
    completed_at: datetime | UnsetType | None = UNSET
    result: bytes | UnsetType | None = UNSET
    error: str | UnsetType | None = UNSET


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who may act alone (contract §9). A challenger watches `beat` on its own clock; the token only grows.

    Attributes:
        holder: None when the last holder gave it back.
    """

    name: str
    holder: str | None
    token: int
    beat: int
