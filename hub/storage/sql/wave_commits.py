"""Wave committer: one decision of the engine, all of it or nothing."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage.errors import BadValue, Conflict, LeaseLost, Stale
from hub.storage.records import Effect, Lease, Position, TaskChange, WaveChange
from hub.storage.sql.bulk import insert_new
from hub.storage.sql.positions import replace_position
from hub.storage.sql.schema import leases, wave_effects, wave_tasks, waves
from hub.storage.sql.wave_rows import changed_values, effect_values

ENGINE: Final = "waves"  # the engine among the readers of streams
ROWS_PER_STATEMENT: Final = 500

W: Final = waves.c
T: Final = wave_tasks.c
V = TypeVar("V")


def parts(values: Sequence[V], size: int = ROWS_PER_STATEMENT) -> Iterator[Sequence[V]]:
    """The values in runs of at most `size`."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


class Decision:
    """What the engine decided; it is checked here, and written by `write` (again, when the database says so)."""

    def __init__(
        self,
        changed_waves: Sequence[WaveChange],
        changed_tasks: Sequence[TaskChange],
        effects: Sequence[Effect],
        position: Position | None,
        fence: Lease | None,
    ) -> None:
        self._waves = [(change, changed_values(change)) for change in changed_waves]
        self._tasks = [(change, changed_values(change)) for change in changed_tasks]
        self._effects = [effect_values(effect) for effect in effects]
        self._position = position
        self._fence = fence
        if len({(change.wave_id, change.task_id) for change in changed_tasks}) != len(changed_tasks):
            raise BadValue("tasks", [change.task_id for change in changed_tasks], "one change a task")

    async def write(self, connection: AsyncConnection) -> None:
        """Write it in this transaction."""
        if self._fence is not None:
            await _hold(connection, self._fence)
        for change, values in self._waves:
            statement = update(waves).where(W.wave_id == change.wave_id, W.status.in_(change.expected))
            if not (await connection.execute(statement.values(**values))).rowcount:
                raise Stale("wave", change.wave_id, " or ".join(change.expected))
        await self._check_tasks(connection)
        await self._change_tasks(connection)
        for part in parts(self._effects):
            if await insert_new(connection, wave_effects, part) != len(part):
                raise Conflict("effect", ", ".join(effect["meta_id"] for effect in part[:10]))
        if self._position is not None:
            await replace_position(connection, ENGINE, self._position)

    async def _check_tasks(self, connection: AsyncConnection) -> None:
        """Every task must be in a state that its change expects; PostgreSQL holds the rows from here on."""
        expected: dict[str, dict[str, TaskChange]] = defaultdict(dict)
        for change, _ in self._tasks:
            expected[change.wave_id][change.task_id] = change
        for wave_id, changes in sorted(expected.items()):
            for ids in parts(sorted(changes)):
                statement = (
                    select(T.task_id, T.status)
                    .where(T.wave_id == wave_id, T.task_id.in_(ids))
                    .order_by(T.task_id)
                    .with_for_update()
                )
                states = {row.task_id: row.status for row in await connection.execute(statement)}
                for task_id in ids:
                    if states.get(task_id) not in changes[task_id].expected:
                        raise Stale("wave task", f"{wave_id}/{task_id}", " or ".join(changes[task_id].expected))

    async def _change_tasks(self, connection: AsyncConnection) -> None:
        """The changes that set the same columns are one statement, executed many times."""
        alike: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
        for change, values in self._tasks:
            row = {f"new_{name}": value for name, value in values.items()}
            row["weight"] = len(values.get("result") or b"") + len(values.get("error") or b"")
            alike[tuple(values)].append({**row, "wave": change.wave_id, "task": change.task_id})
        for columns, rows in alike.items():
            new: dict[str, Any] = {name: bindparam(f"new_{name}", type_=T[name].type) for name in columns}
            if {"result", "error"} & set(columns):  # set once, at the end of a task
                new["size"] = T.size + bindparam("weight", type_=T.size.type)
            else:
                for row in rows:
                    del row["weight"]
            statement = update(wave_tasks).where(T.wave_id == bindparam("wave"), T.task_id == bindparam("task"))
            await connection.execute(statement.values(**new), rows)


async def _hold(connection: AsyncConnection, lease: Lease) -> None:
    """The lease must be the caller's now, and until this transaction ends."""
    statement = (
        select(leases.c.token)
        .where(leases.c.name == lease.name, leases.c.holder == lease.holder, leases.c.token == lease.token)
        .with_for_update(read=True)
    )
    if (await connection.execute(statement)).one_or_none() is None:
        raise LeaseLost(lease.name, lease.token)
