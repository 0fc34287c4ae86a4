"""Thread reader: a root and what replies to it, level by level.

One query a level, on one snapshot: a recursive statement cannot stop at a limit, remember what it has seen over all
levels, and keep the levels apart at once.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage.records import Thread
from hub.storage.sql.rows import envelope_record
from hub.storage.sql.schema import envelopes

E: Final = envelopes.c
PARENTS_PER_QUERY: Final = 500  # parameters of one statement; a level of more takes several


class ThreadWalk:
    """One reading of a thread.

    Args:
        visible: the condition of what the caller may see.
        limit: how many envelopes at most.
        max_depth: how many levels below the root.
        max_bytes: how much they may weigh together (the root always comes).
    """

    def __init__(self, visible: Sequence[ColumnElement[bool]], *, limit: int, max_depth: int, max_bytes: int) -> None:
        self._visible = visible
        self._limit = limit
        self._max_depth = max_depth
        self._max_bytes = max_bytes

    async def read(
        self, connection: AsyncConnection, root_id: str, sender: str | None, *, resolve: bool
    ) -> Thread | None:
        """The thread of the newest visible `root_id`; None when there is none."""
        root = await self._newest(connection, root_id, sender)
        if root is not None and resolve:
            root = await self._climb(connection, root)
        if root is None:
            return None
        chosen, is_truncated = await self._levels(connection, root)
        rows: dict[int, Any] = {}
        for part in _parts(chosen):
            for row in await connection.execute(select(envelopes).where(E.seq.in_(part))):
                rows[row.seq] = row
        return Thread([envelope_record(rows[seq]) for seq in chosen], is_truncated)

    async def _levels(self, connection: AsyncConnection, root: Any) -> tuple[list[int], bool]:
        """Numbers of the envelopes that are in, in order; and whether something was left out."""
        chosen = {root.seq: None}
        weight = root.size
        parents = [root.id]
        for depth in range(self._max_depth + 1):
            level = await self._replies(connection, parents, chosen)
            if not level:
                return list(chosen), False
            if depth == self._max_depth:
                break
            for row in level:
                weight += row.size
                if len(chosen) == self._limit or weight > self._max_bytes:
                    return list(chosen), True
                chosen[row.seq] = None
            parents = list(dict.fromkeys(row.id for row in level))
        return list(chosen), True

    async def _replies(self, connection: AsyncConnection, parents: list[str], known: dict[int, None]) -> list[Any]:
        """What replies to the parents and is not known, oldest first; at most one more than there is room for."""
        room = self._limit - len(known) + 1
        found: list[Any] = []
        for part in _parts(parents):
            statement = (
                select(E.seq, E.id, E.stored_at, E.size)
                .where(E.reply_to.in_(part), *self._visible)
                .order_by(E.stored_at, E.seq)
                .limit(room + len(known))  # what is known may come first, and is left out
            )
            found += [row for row in await connection.execute(statement) if row.seq not in known]
        found.sort(key=lambda row: (row.stored_at, row.seq))
        return found[:room]

    async def _newest(self, connection: AsyncConnection, envelope_id: str, sender: str | None) -> Any:
        statement = select(E.seq, E.id, E.reply_to, E.size).where(E.id == envelope_id, *self._visible)
        if sender is not None:
            statement = statement.where(E.sender == sender)
        newest = statement.order_by(E.stored_at.desc(), E.seq.desc()).limit(1)
        return (await connection.execute(newest)).one_or_none()

    async def _climb(self, connection: AsyncConnection, start: Any) -> Any:
        """Up along `reply_to` to where it ends: no parent, an invisible one, a circle, or as deep as threads go."""
        here = start
        seen = {here.seq}
        for _ in range(self._max_depth):
            above = await self._newest(connection, here.reply_to, None) if here.reply_to else None
            if above is None or above.seq in seen:
                break
            seen.add(above.seq)
            here = above
        return here


def _parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), PARENTS_PER_QUERY):
        yield values[start : start + PARENTS_PER_QUERY]
