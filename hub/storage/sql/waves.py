"""Wave store: reads, and the creation of waves. The engine's transaction is `wave_commits`."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage.errors import BadValue, Conflict
from hub.storage.orchestration import Waves
from hub.storage.records import (
    DEFAULT_LIMIT,
    DEFAULT_PAGE_BYTES,
    Effect,
    Lease,
    Page,
    Position,
    TaskChange,
    TaskCount,
    TaskStatus,
    Wave,
    WaveChange,
    WaveStatus,
    WaveTask,
)
from hub.storage.sql import pages
from hub.storage.sql.bulk import insert_new
from hub.storage.sql.database import Database
from hub.storage.sql.positions import read_position
from hub.storage.sql.schema import wave_effects, wave_tasks, waves
from hub.storage.sql.wave_commits import ENGINE, ROWS_PER_STATEMENT, Decision, parts
from hub.storage.sql.wave_rows import effect_record, task_record, task_values, wave_record, wave_values

W: Final = waves.c
T: Final = wave_tasks.c
WAVE_PAGER: Final = pages.Pager(waves, "created_at", wave_record)
TASK_PAGER: Final = pages.Pager(wave_tasks, "created_at", task_record, oldest_first=True)


class SqlWaves(Waves):
    """Waves in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, wave: Wave, tasks: Sequence[WaveTask]) -> None:
        values = wave_values(wave)
        rows = [task_values(task) for task in tasks]
        ids = {task.task_id for task in tasks if task.wave_id == wave.wave_id}
        if len(ids) != len(tasks):
            raise BadValue("tasks", wave.wave_id, "tasks of this wave, each id once")

        async def work(connection: AsyncConnection) -> None:
            if not await insert_new(connection, waves, [values]):
                raise Conflict("wave", wave.wave_id)
            for part in parts(rows):
                await insert_new(connection, wave_tasks, part)

        await self._database.write(work)

    async def get(self, wave_id: str, *, visible_to: str | None = None) -> Wave | None:
        statement = select(waves).where(W.wave_id == wave_id, *_visible(visible_to))

        async def work(connection: AsyncConnection) -> Wave | None:
            row = (await connection.execute(statement)).one_or_none()
            return None if row is None else wave_record(row)

        return await self._database.read(work)

    async def find(
        self,
        *,
        status: WaveStatus | None = None,
        visible_to: str | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Page[Wave]:
        conditions = [] if status is None else [W.status == status]
        branches = [[*conditions, *branch] for branch in _branches(visible_to)]
        return await WAVE_PAGER.read(self._database, branches, limit=limit, cursor=cursor, max_bytes=max_bytes)

    async def get_task(self, wave_id: str, task_id: str, *, visible_to: str | None = None) -> WaveTask | None:
        statement = select(wave_tasks).where(
            T.wave_id == wave_id, T.task_id == task_id, *_visible_through(wave_id, visible_to)
        )

        async def work(connection: AsyncConnection) -> WaveTask | None:
            row = (await connection.execute(statement)).one_or_none()
            return None if row is None else task_record(row)

        return await self._database.read(work)

    async def find_tasks(
        self,
        wave_id: str,
        *,
        status: TaskStatus | None = None,
        visible_to: str | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Page[WaveTask]:
        conditions = [T.wave_id == wave_id, *_visible_through(wave_id, visible_to)]
        if status is not None:
            conditions.append(T.status == status)
        return await TASK_PAGER.read(self._database, [conditions], limit=limit, cursor=cursor, max_bytes=max_bytes)

    async def tasks(self, wave_id: str) -> list[WaveTask]:
        light = [column for column in wave_tasks.c if column.name != "result"]
        statement = select(*light).where(T.wave_id == wave_id).order_by(T.created_at, T.seq)

        async def work(connection: AsyncConnection) -> list[WaveTask]:
            return [task_record(row) for row in await connection.execute(statement)]

        return await self._database.read(work)

    async def counts(self, wave_id: str) -> list[TaskCount]:
        found = func.count().label("found")
        statement = (
            select(T.status, T.verify_result, found)
            .where(T.wave_id == wave_id)
            .group_by(T.status, T.verify_result)
            .order_by(T.status, func.coalesce(T.verify_result, ""))
        )

        async def work(connection: AsyncConnection) -> list[TaskCount]:
            return [TaskCount(row.status, row.verify_result, row.found) for row in await connection.execute(statement)]

        return await self._database.read(work)

    async def running(self) -> list[str]:
        statement = select(W.wave_id).where(W.status == "running").order_by(W.created_at, W.seq)

        async def work(connection: AsyncConnection) -> list[str]:
            return list((await connection.execute(statement)).scalars())

        return await self._database.read(work)

    async def commit(
        self,
        *,
        waves: Sequence[WaveChange] = (),
        tasks: Sequence[TaskChange] = (),
        effects: Sequence[Effect] = (),
        position: Position | None = None,
        fence: Lease | None = None,
    ) -> None:
        decision = Decision(waves, tasks, effects, position, fence)
        await self._database.write(decision.write)

    async def effects(self, *, limit: int = 1000) -> list[Effect]:
        statement = select(wave_effects).order_by(wave_effects.c.seq).limit(pages.check_limit(limit))

        async def work(connection: AsyncConnection) -> list[Effect]:
            return [effect_record(row) for row in await connection.execute(statement)]

        return await self._database.read(work)

    async def remove_effects(self, meta_ids: Sequence[str]) -> int:
        async def work(connection: AsyncConnection) -> int:
            removed = 0
            for part in parts(sorted(set(meta_ids)), ROWS_PER_STATEMENT):
                gone = await connection.execute(delete(wave_effects).where(wave_effects.c.meta_id.in_(part)))
                removed += gone.rowcount
            return removed

        return await self._database.write(work)

    async def engine_position(self, stream: str) -> Position | None:
        return await self._database.read(lambda connection: read_position(connection, ENGINE, stream))


def _branches(identity: str | None) -> list[list[ColumnElement[bool]]]:
    """Who sees a wave (contract §10): its orchestrator, and the workers of its tasks."""
    if identity is None:
        return [[]]
    return [[W.orchestrator == identity], [W.wave_id.in_(select(T.wave_id).where(T.worker == identity))]]


def _visible(identity: str | None) -> list[ColumnElement[bool]]:
    return [] if identity is None else [or_(*(condition for branch in _branches(identity) for condition in branch))]


def _visible_through(wave_id: str, identity: str | None) -> list[ColumnElement[Any]]:
    """May the identity see that wave, and so its tasks?"""
    if identity is None:
        return []
    return [select(W.seq).where(W.wave_id == wave_id, *_visible(identity)).exists()]
