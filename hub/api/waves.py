"""Waves: create and look at; what runs them is the wave engine (`WaveControl`)."""

import asyncio
import hashlib
import secrets
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from hub.api import records
from hub.api.authorisation import Caller, require_owner
from hub.api.errors import Clash, NotFound, Unavailable
from hub.api.operation import Answer, Context, Operation, WaveControl, audit_members
from hub.api.pages import fit
from hub.api.params import (
    MAX_SECS,
    NOT_GIVEN,
    Ignored,
    PageParams,
    Params,
    Text,
    maybe_named,
    named,
    one_of,
    require_json,
)
from hub.api.sessions import Object
from hub.protocol import names
from hub.storage import Conflict
from hub.storage.records import MAX_METADATA_BYTES, Wave, WaveTask
from hub.waves import BadWave, validated

WAVE_STATUSES: Final = ("pending", "running", "completed", "failed", "cancelled")
TASK_STATUSES: Final = ("pending", "running", "done", "failed", "cancelled")
TIMEOUT_SECS: Final = 3600.0  # contract §9
CREATE_SECS: Final = 25.0  # ten thousand tasks are a few seconds of a slow disk

Timeout = Annotated[float, Meta(gt=0, le=MAX_SECS)]


class WaveInput(Params):
    """A wave as it is given; `orchestrator` counts from an admin only, `status` and times never."""

    goal: str
    wave_id: str | None = None
    metadata: Object | None = None
    orchestrator: str | None = None
    status: Ignored = NOT_GIVEN
    created_at: Ignored = NOT_GIVEN
    started_at: Ignored = NOT_GIVEN
    closed_at: Ignored = NOT_GIVEN


class TaskInput(Params):
    """A wave's task as it is given; `status` and times never count."""

    task_id: str
    worker: str
    goal: str
    write_scope: list[str] = msgspec.field(default_factory=list)
    dependencies: list[str] = msgspec.field(default_factory=list)
    handoff_path: Text | None = None
    verify_cmd: Annotated[str, Meta(max_length=65_536)] | None = None
    timeout_secs: Timeout | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 0
    cwd: Text | None = None
    model: Text | None = None
    provider: Text | None = None
    status: Ignored = NOT_GIVEN
    created_at: Ignored = NOT_GIVEN
    started_at: Ignored = NOT_GIVEN
    completed_at: Ignored = NOT_GIVEN


class CreateParams(Params):
    """Of `wave.create`."""

    wave: WaveInput
    tasks: list[TaskInput]


class NameParams(Params):
    """Of `wave.get` and `wave.status`."""

    wave_id: str


class SpawnParams(NameParams):
    """Of `wave.spawn`."""

    timeout_secs: Timeout = TIMEOUT_SECS


class CancelParams(NameParams):
    """Of `wave.cancel`."""

    reason: Text | None = None


class ListParams(PageParams):
    """Of `wave.list`."""

    status: str | None = None


class TaskListParams(PageParams, kw_only=True):
    """Of `wave.list_tasks`."""

    wave_id: str
    status: str | None = None


class TaskParams(NameParams):
    """Of `wave.get_task`."""

    task_id: str


async def create(context: Context, caller: Caller, params: CreateParams) -> Answer:
    """Store a wave with its tasks, once it is valid; the same wave again from its owner is the one that is there."""
    wave, tasks = await asyncio.to_thread(_prepared, context, caller, params)
    try:
        await context.storage.waves.create(wave, tasks)
    except Conflict:
        there = await context.storage.waves.get(wave.wave_id)
        if there is None or (there.orchestrator, there.digest) != (wave.orchestrator, wave.digest):
            raise Clash(
                f"wave {wave.wave_id} is there already, with another content or of another orchestrator: "
                "take another wave_id, or none to have one made"
            ) from None
        wave = there
    return await _state(context, wave)


def _prepared(context: Context, caller: Caller, params: CreateParams) -> tuple[Wave, list[WaveTask]]:
    given = params.wave
    metadata = given.metadata or {}
    require_json(metadata, "wave.metadata", most_bytes=MAX_METADATA_BYTES)
    named_owner = (
        maybe_named(names.agent_identity, given.orchestrator, "wave.orchestrator") if caller.is_admin else None
    )
    wave_id = _wave_id(given.wave_id, "wave.wave_id") if given.wave_id is not None else f"w-{secrets.token_hex(8)}"
    if not given.goal.strip():
        raise BadWave("the wave: expected a goal, got none")
    now = context.clock()
    tasks = validated([_task(task, wave_id, now) for task in params.tasks])
    content = (given.goal, metadata, [[getattr(task, name) for name in _CONTENT] for task in tasks])
    wave = Wave(
        wave_id=wave_id,
        goal=given.goal,
        orchestrator=caller.owner(named_owner),
        metadata=metadata,
        created_at=now,
        digest=hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest(),
    )
    return wave, tasks


_CONTENT: Final = tuple(name for name in TaskInput.__struct_fields__ if TaskInput.__annotations__[name] is not Ignored)
"""The members of a task by which the same wave is told from another."""


def _task(given: TaskInput, wave_id: str, now: Any) -> WaveTask:
    return WaveTask(wave_id=wave_id, created_at=now, **{name: getattr(given, name) for name in _CONTENT})


async def spawn(context: Context, caller: Caller, params: SpawnParams) -> Answer:
    """Begin to run a wave."""
    wave = await _own(context, caller, params, "wave.spawn")
    await _engine(context).spawn(wave.wave_id, timeout_secs=params.timeout_secs)
    return await _state(context, await _wave(context, caller, params.wave_id))


async def cancel(context: Context, caller: Caller, params: CancelParams) -> Answer:
    """End a wave."""
    wave = await _own(context, caller, params, "wave.cancel")
    await _engine(context).cancel(wave.wave_id, reason=params.reason)
    return await _state(context, await _wave(context, caller, params.wave_id))


async def status(context: Context, caller: Caller, params: NameParams) -> Answer:
    """A wave and how far it is."""
    return await _state(context, await _wave(context, caller, params.wave_id))


async def get(context: Context, caller: Caller, params: NameParams) -> Answer:
    """A wave."""
    return {"wave": records.wave(await _wave(context, caller, params.wave_id))}


async def find(context: Context, caller: Caller, params: ListParams) -> Answer:
    """Waves that the caller orchestrates or works for, newest first."""
    wanted = one_of(WAVE_STATUSES, params.status, "status")
    return await fit(
        context.room,
        lambda limit, max_bytes: context.storage.waves.find(
            status=wanted, visible_to=caller.sees, limit=limit, cursor=params.cursor, max_bytes=max_bytes
        ),
        records.wave,
        limit=params.limit,
        items="waves",
        what="wave",
    )


async def find_tasks(context: Context, caller: Caller, params: TaskListParams) -> Answer:
    """Tasks of a wave, in the order in which they were given."""
    wanted = one_of(TASK_STATUSES, params.status, "status")
    wave = await _wave(context, caller, params.wave_id)
    return await fit(
        context.room,
        lambda limit, max_bytes: context.storage.waves.find_tasks(
            wave.wave_id,
            status=wanted,
            visible_to=caller.sees,
            limit=limit,
            cursor=params.cursor,
            max_bytes=max_bytes,
        ),
        records.wave_task,
        limit=params.limit,
        items="tasks",
        what="task",
    )


async def get_task(context: Context, caller: Caller, params: TaskParams) -> Answer:
    """One task of a wave."""
    wave_id = _wave_id(params.wave_id, "wave_id")
    task_id = named(lambda value: names.token(value, "task id"), params.task_id, "task_id")
    task = await context.storage.waves.get_task(wave_id, task_id, visible_to=caller.sees)
    if task is None:
        raise NotFound("task", f"{wave_id}/{task_id}")
    return {"task": records.wave_task(task)}


async def _state(context: Context, wave: Wave) -> Answer:
    summary = records.wave_summary(await context.storage.waves.counts(wave.wave_id))
    return {"wave": records.wave(wave), "summary": summary}


async def _wave(context: Context, caller: Caller, wave_id: str) -> Wave:
    _wave_id(wave_id, "wave_id")
    wave = await context.storage.waves.get(wave_id, visible_to=caller.sees)
    if wave is None:
        raise NotFound("wave", wave_id)
    return wave


async def _own(context: Context, caller: Caller, params: NameParams, op: str) -> Wave:
    wave = await _wave(context, caller, params.wave_id)
    require_owner(op, caller, wave.orchestrator, f"wave {wave.wave_id}")
    return wave


def _wave_id(value: str, where: str) -> str:
    return named(lambda given: names.token(given, "wave id"), value, where)


def _engine(context: Context) -> WaveControl:
    if context.waves is None:
        raise Unavailable("nothing runs waves in this hub, and the wave stays as it is: ask again when something does")
    return context.waves


OPERATIONS: Final = (
    Operation(
        "wave.create",
        CreateParams,
        create,
        audited=lambda params: {
            "wave_id": str(params.wave.wave_id)[:128],
            "orchestrator": str(params.wave.orchestrator)[:128],
            "tasks": len(params.tasks),
        },
        most_bytes=None,
        deadline_secs=CREATE_SECS,
    ),
    Operation("wave.spawn", SpawnParams, spawn, audited=audit_members("wave_id", "timeout_secs")),
    Operation("wave.cancel", CancelParams, cancel, audited=audit_members("wave_id", "reason")),
    Operation("wave.status", NameParams, status),
    Operation("wave.get", NameParams, get),
    Operation("wave.list", ListParams, find),
    Operation("wave.list_tasks", TaskListParams, find_tasks),
    Operation("wave.get_task", TaskParams, get_task),
)
