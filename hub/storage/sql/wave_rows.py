"""Row codec of waves and their tasks."""

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw
from sqlalchemy import Row

from hub.storage.errors import BadValue
from hub.storage.records import Effect, TaskChange, Wave, WaveChange, WaveTask
from hub.storage.sql.checks import check_aware, check_bigint, check_message_id, check_token, json_object
from hub.storage.sql.types import (
    from_json,
    from_micros,
    maybe_bytes,
    maybe_micros,
    maybe_text,
    maybe_time,
    to_bytes,
    to_micros,
)

WAVE_BYTES: Final = 512  # a wave's record without its texts
TASK_BYTES: Final = 1024  # a task's record without its texts, with ten dispatch ids of 36 characters
TIMES: Final = frozenset({"created_at", "started_at", "closed_at", "completed_at"})
TEXTS: Final = frozenset({"reason", "error"})


def wave_values(wave: Wave) -> dict[str, Any]:
    """The columns of a wave."""
    check_token("wave_id", wave.wave_id)
    check_token("orchestrator", wave.orchestrator)
    if wave.digest:
        check_message_id("digest", wave.digest)
    for name in ("created_at", "started_at", "closed_at"):
        check_aware(name, getattr(wave, name))
    goal, metadata = to_bytes(wave.goal), json_object("metadata", wave.metadata)
    return {
        "wave_id": wave.wave_id,
        "goal": goal,
        "orchestrator": wave.orchestrator,
        "status": wave.status,
        "metadata": metadata,
        "timeout_secs": wave.timeout_secs,
        "created_at": to_micros(wave.created_at),
        "started_at": maybe_micros(wave.started_at),
        "closed_at": maybe_micros(wave.closed_at),
        "reason": maybe_bytes(wave.reason),
        "digest": wave.digest,
        "size": WAVE_BYTES + len(goal) + len(metadata) + len(wave.reason or ""),
    }


def wave_record(row: Row[Any]) -> Wave:
    """A wave of its columns."""
    return Wave(
        wave_id=row.wave_id,
        goal=row.goal.decode(),
        orchestrator=row.orchestrator,
        status=row.status,
        metadata=from_json(row.metadata),
        timeout_secs=row.timeout_secs,
        created_at=from_micros(row.created_at),
        started_at=maybe_time(row.started_at),
        closed_at=maybe_time(row.closed_at),
        reason=maybe_text(row.reason),
        digest=row.digest,
    )


def task_values(task: WaveTask) -> dict[str, Any]:
    """The columns of a wave's task."""
    check_token("wave_id", task.wave_id)
    check_token("task_id", task.task_id)
    check_token("worker", task.worker)
    for name in ("created_at", "started_at", "completed_at"):
        check_aware(name, getattr(task, name))
    texts = {
        "goal": to_bytes(task.goal),
        "write_scope": json_object("write_scope", task.write_scope),
        "dependencies": json_object("dependencies", task.dependencies),
        "handoff_path": maybe_bytes(task.handoff_path),
        "verify_cmd": maybe_bytes(task.verify_cmd),
        "cwd": maybe_bytes(task.cwd),
        "model": maybe_bytes(task.model),
        "provider": maybe_bytes(task.provider),
        "error": maybe_bytes(task.error),
        "result": None if task.result is None else bytes(task.result),
    }
    return {
        "wave_id": task.wave_id,
        "task_id": task.task_id,
        "worker": task.worker,
        "status": task.status,
        **texts,
        "timeout_secs": task.timeout_secs,
        "priority": check_bigint("priority", task.priority),
        "verify_result": task.verify_result,
        "dispatch_ids": json_object("dispatch_ids", task.dispatch_ids),
        "attempt": task.attempt,
        "created_at": to_micros(task.created_at),
        "started_at": maybe_micros(task.started_at),
        "completed_at": maybe_micros(task.completed_at),
        "size": TASK_BYTES + sum(len(value) for value in texts.values() if value),
    }


def task_record(row: Row[Any]) -> WaveTask:
    """A task of its columns; the result may not have been read."""
    result = getattr(row, "result", None)
    return WaveTask(
        wave_id=row.wave_id,
        task_id=row.task_id,
        worker=row.worker,
        goal=row.goal.decode(),
        write_scope=from_json(row.write_scope),
        dependencies=from_json(row.dependencies),
        handoff_path=maybe_text(row.handoff_path),
        verify_cmd=maybe_text(row.verify_cmd),
        timeout_secs=row.timeout_secs,
        priority=row.priority,
        cwd=maybe_text(row.cwd),
        model=maybe_text(row.model),
        provider=maybe_text(row.provider),
        status=row.status,
        verify_result=row.verify_result,
        dispatch_ids=from_json(row.dispatch_ids),
        attempt=row.attempt,
        created_at=from_micros(row.created_at),
        started_at=maybe_time(row.started_at),
        completed_at=maybe_time(row.completed_at),
        result=None if result is None else Raw(result),
        error=maybe_text(row.error),
    )


def changed_values(change: WaveChange | TaskChange) -> dict[str, Any]:
    """The columns that a change sets.

    Raises:
        BadValue: it sets none, or one to what cannot be stored.
    """
    values: dict[str, Any] = {}
    for name in change.__struct_fields__:
        value = getattr(change, name)
        if name in {"wave_id", "task_id", "expected"} or value is UNSET:
            continue
        if name in TIMES:
            check_aware(name, value)
            value = maybe_micros(value)
        elif name in TEXTS:
            value = maybe_bytes(value)
        elif name == "dispatch_ids":
            value = msgspec.json.encode([check_message_id("dispatch id", item) for item in value])
        values[name] = value
    if not values:
        raise BadValue("change", change.wave_id, "at least one member that is set")
    return values


def effect_values(effect: Effect) -> dict[str, Any]:
    """The columns of an effect."""
    return {
        "meta_id": check_message_id("meta_id", effect.meta_id),
        "wave_id": check_token("wave_id", effect.wave_id),
        "task_id": None if effect.task_id is None else check_token("task_id", effect.task_id),
        "kind": effect.kind,
        "channel": effect.channel,
        "body": effect.body,
    }


def effect_record(row: Row[Any]) -> Effect:
    """An effect of its columns."""
    return Effect(
        meta_id=row.meta_id,
        wave_id=row.wave_id,
        task_id=row.task_id,
        kind=row.kind,
        channel=row.channel,
        body=bytes(row.body),
    )
