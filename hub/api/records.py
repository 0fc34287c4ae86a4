"""Records as they go over the wire (contract §10.2). Pure.

Times are texts of one width in UTC, so that they sort as times. JSON that came over the wire goes out as the bytes
that it was; what receivers refuse to decode goes out beside the record, so that no stranger's message spoils a list.
"""

import base64
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from hub.protocol import BadPayload, decode_payload, format_time
from hub.protocol.payload import MAX_DEPTH
from hub.storage import records as stored

ALIVE_SECS: Final = 90.0  # contract §2
REFUSED_BYTES: Final = 64 * 1024  # of a payload that receivers refuse: as much as a dead letter keeps

_SHAPE: Final = bytes(
    ord("0") if sign in b"0123456789" else ord("e") if sign in b"eE" else sign if sign == ord("+") else ord(" ")
    for sign in range(256)
)
_SUSPECTS: Final = (b"0" * 19, b"0e000", b"0e+000")
"""The shapes of numbers that may be out of range; without one nothing needs to be decoded to know that none is."""


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else format_time(moment)


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent; `alive`: seen within 90 s."""

    identity: str
    capabilities: list[str]
    metadata: dict[str, Any]
    registered_at: str
    last_seen: str
    alive: bool


def agent(record: stored.Agent, *, now: datetime) -> Agent:
    """The wire's record of an agent."""
    return Agent(
        identity=record.identity,
        capabilities=record.capabilities,
        metadata=record.metadata,
        registered_at=format_time(record.registered_at),
        last_seen=format_time(record.last_seen),
        alive=record.last_seen >= now - timedelta(seconds=ALIVE_SECS),
    )


class Envelope(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """An envelope. A payload that receivers refuse is null, and two more members say why and what it was.

    Attributes:
        payload_error: what is wrong with it.
        payload_data: its bytes as base64, at most 64 KiB of them.
    """

    id: str
    sender: str
    channel: str
    to: str | None
    timestamp: str
    kind: str
    reply_to: str | None
    payload: Raw
    stored_at: str
    payload_error: str | UnsetType = UNSET
    payload_data: str | UnsetType = UNSET


def envelope(record: stored.EnvelopeRecord) -> Envelope:
    """The wire's record of an envelope."""
    payload = bytes(record.payload)
    error = _offence(payload)
    return Envelope(
        id=record.id,
        sender=record.sender,
        channel=record.channel,
        to=record.to,
        timestamp=format_time(record.timestamp),
        kind=record.kind,
        reply_to=record.reply_to,
        payload=record.payload if error is None else Raw(b"null"),
        stored_at=format_time(record.stored_at),
        payload_error=UNSET if error is None else error,
        payload_data=UNSET if error is None else base64.b64encode(payload[:REFUSED_BYTES]).decode(),
    )


def _offence(payload: bytes) -> str | None:
    """Why receivers refuse this payload; None when they take it."""
    is_deep = payload.count(b"[") + payload.count(b"{") > MAX_DEPTH
    if not is_deep and _is_json(payload):
        shape = payload.translate(_SHAPE)
        if not any(suspect in shape for suspect in _SUSPECTS):
            return None
    try:
        decode_payload(payload)
    except BadPayload as error:
        return str(error)
    return None


def _is_json(payload: bytes) -> bool:
    """Is it JSON without a lone surrogate? (Raw: nothing is made of it, which is ten times as fast.)"""
    try:
        msgspec.json.decode(payload, type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """An orchestrator's bookkeeping of a session."""

    session_id: str
    orchestrator: str
    worker: str
    status: str
    cwd: str | None
    model: str | None
    provider: str | None
    metadata: dict[str, Any]
    backend_ctx: dict[str, Any] | None
    created_at: str
    updated_at: str
    closed_at: str | None


def session(record: stored.Session) -> Session:
    """The wire's record of a session."""
    return Session(
        session_id=record.session_id,
        orchestrator=record.orchestrator,
        worker=record.worker,
        status=record.status,
        cwd=record.cwd,
        model=record.model,
        provider=record.provider,
        metadata=record.metadata,
        backend_ctx=record.backend_ctx,
        created_at=format_time(record.created_at),
        updated_at=format_time(record.updated_at),
        closed_at=_time(record.closed_at),
    )


class Wave(msgspec.Struct, frozen=True, kw_only=True):
    """A wave."""

    wave_id: str
    goal: str
    status: str
    orchestrator: str
    metadata: dict[str, Any]
    timeout_secs: float | None
    created_at: str
    started_at: str | None
    closed_at: str | None
    reason: str | None


def wave(record: stored.Wave) -> Wave:
    """The wire's record of a wave."""
    return Wave(
        wave_id=record.wave_id,
        goal=record.goal,
        status=record.status,
        orchestrator=record.orchestrator,
        metadata=record.metadata,
        timeout_secs=record.timeout_secs,
        created_at=format_time(record.created_at),
        started_at=_time(record.started_at),
        closed_at=_time(record.closed_at),
        reason=record.reason,
    )


class WaveTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a wave."""

    wave_id: str
    task_id: str
    worker: str
    goal: str
    write_scope: list[str]
    dependencies: list[str]
    handoff_path: str | None
    verify_cmd: str | None
    timeout_secs: float | None
    priority: int
    cwd: str | None
    model: str | None
    provider: str | None
    status: str
    verify_result: str | None
    dispatch_ids: list[str]
    attempt: int
    created_at: str
    started_at: str | None
    completed_at: str | None
    result: Raw | None
    error: str | None


def wave_task(record: stored.WaveTask) -> WaveTask:
    """The wire's record of a wave's task."""
    return WaveTask(
        wave_id=record.wave_id,
        task_id=record.task_id,
        worker=record.worker,
        goal=record.goal,
        write_scope=record.write_scope,
        dependencies=record.dependencies,
        handoff_path=record.handoff_path,
        verify_cmd=record.verify_cmd,
        timeout_secs=record.timeout_secs,
        priority=record.priority,
        cwd=record.cwd,
        model=record.model,
        provider=record.provider,
        status=record.status,
        verify_result=record.verify_result,
        dispatch_ids=record.dispatch_ids,
        attempt=record.attempt,
        created_at=format_time(record.created_at),
        started_at=_time(record.started_at),
        completed_at=_time(record.completed_at),
        result=record.result,
        error=record.error,
    )


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """A dead letter. `data` is base64; it was cut when it is shorter than `size`."""

    dead_id: str
    reason: str
    detail: str
    subject: str
    sender: str | None
    envelope_id: str | None
    headers: list[tuple[str, str]]
    data: bytes
    size: int
    received_at: str
    replayed_at: str | None


def dead_letter(record: stored.DeadLetter) -> DeadLetter:
    """The wire's record of a dead letter."""
    return DeadLetter(
        dead_id=record.dead_id,
        reason=record.reason,
        detail=record.detail,
        subject=record.subject,
        sender=record.sender,
        envelope_id=record.envelope_id,
        headers=record.headers,
        data=record.data,
        size=record.size,
        received_at=format_time(record.received_at),
        replayed_at=_time(record.replayed_at),
    )


class Bucket(msgspec.Struct, frozen=True):
    """How many in the interval that begins at `timestamp`."""

    timestamp: str
    count: int


def bucket(record: stored.Bucket) -> Bucket:
    """The wire's record of one interval."""
    return Bucket(format_time(record.timestamp), record.count)


MergeGate = Literal["open", "waiting", "blocked"]


class WaveSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How far a wave is.

    Attributes:
        total, done: tasks, and those of them whose status is `done`.
        by_status: tasks by status; those that no task has are left out.
        merge_gate: may what the wave made be merged? `open`: every task is done and none failed its verification or
            has none where one was asked for; `blocked`: it never will be; `waiting`: not known yet.
    """

    total: int
    done: int
    by_status: dict[str, int]
    merge_gate: MergeGate


def wave_summary(counts: list[stored.TaskCount]) -> WaveSummary:
    """Add up a wave's tasks."""
    by_status: dict[str, int] = {}
    is_blocked = False
    for count in counts:
        by_status[count.status] = by_status.get(count.status, 0) + count.count
        failed = count.status in {"failed", "cancelled"}
        is_blocked |= failed or (count.status == "done" and count.verify_result not in {None, "passed"})
    total, done = sum(by_status.values()), by_status.get("done", 0)
    gate: MergeGate = "blocked" if is_blocked else "open" if done == total else "waiting"
    return WaveSummary(total=total, done=done, by_status=by_status, merge_gate=gate)
