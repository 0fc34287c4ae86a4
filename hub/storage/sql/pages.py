"""Pager: lists in the order of (time, seq), ended by a count and by the weight of what is in them."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import BigInteger, ColumnElement, Row, Table, asc, desc, func, literal, select, tuple_, union
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage.errors import BadValue
from hub.storage.records import MAX_LIMIT, Page
from hub.storage.sql.database import Database

T = TypeVar("T")

CURSOR_RULE: Final = "the next_cursor of the page before"
_CURSOR = re.compile(r"(-?[0-9]{1,18})\.([0-9]{1,18})")


def check_limit(limit: int) -> int:
    """A page's length, or `BadValue`."""
    if 1 <= limit <= MAX_LIMIT:
        return limit
    raise BadValue("limit", limit, f"a whole number from 1 to {MAX_LIMIT}")


def read_cursor(cursor: str) -> tuple[int, int]:
    """The (time, seq) that a page ended with, or `BadValue`."""
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise BadValue("cursor", cursor, CURSOR_RULE)
    return int(found[1]), int(found[2])


class Pager(Generic[T]):
    """Reads a table page by page, newest first.

    Args:
        table: it has the columns `seq` and `size`.
        order: the name of its time column.
        make: a record of a whole row.
        oldest_first: the other way round.
    """

    def __init__(self, table: Table, order: str, make: Callable[[Row[Any]], T], *, oldest_first: bool = False) -> None:
        self._table = table
        self._order = order
        self._make = make
        self._turn: Callable[[Any], Any] = asc if oldest_first else desc
        self._oldest_first = oldest_first

    async def read(
        self,
        database: Database,
        branches: Sequence[Sequence[ColumnElement[bool]]],
        *,
        limit: int,
        cursor: str | None,
        max_bytes: int,
    ) -> Page[T]:
        """One page.

        Args:
            branches: alternatives, each a list of conditions; a row that meets any is in. Each is read by itself in
                order and cut at the limit, so that each can use its own index however many rows the others have.
            limit: how many records at most.
            cursor: where the page before ended; None for the first.
            max_bytes: the page ends before its records weigh more, but holds at least one.

        Raises:
            BadValue: the limit or the cursor is none.
        """
        table, order = self._table, self._order
        after = None if cursor is None else read_cursor(cursor)
        if not branches:
            check_limit(limit)
            return Page([])
        chosen = self._choose(branches, check_limit(limit), after)
        in_order = [self._turn(chosen.c[order]), self._turn(chosen.c.seq)]
        weighed = select(
            chosen.c.seq,
            func.sum(chosen.c.size).over(order_by=in_order).label("weight"),
            func.row_number().over(order_by=in_order).label("place"),
            func.count().over().label("found"),
        ).subquery()
        fits = weighed.c.weight <= literal(max_bytes, BigInteger)
        # The records themselves are read at the end, and only those that the page has room for.
        statement = (
            select(table, weighed.c.found)
            .join(weighed, table.c.seq == weighed.c.seq)
            .where(weighed.c.place <= limit, fits | (weighed.c.place == 1))
            .order_by(self._turn(table.c[order]), self._turn(table.c.seq))
        )

        async def work(connection: AsyncConnection) -> Page[T]:
            rows = (await connection.execute(statement)).all()
            has_more = bool(rows) and rows[0].found > len(rows)
            last = rows[-1] if has_more else None
            return Page([self._make(row) for row in rows], f"{getattr(last, order)}.{last.seq}" if last else None)

        return await database.read(work)

    def _choose(
        self, branches: Sequence[Sequence[ColumnElement[bool]]], limit: int, after: tuple[int, int] | None
    ) -> Any:
        """(seq, time, size) of the page's rows and one more, which tells that there is a next page."""
        seq, time = self._table.c.seq, self._table.c[self._order]
        beyond: list[ColumnElement[bool]] = []
        if after is not None:
            here, there = tuple_(time, seq), tuple_(*after)
            beyond = [here > there if self._oldest_first else here < there]
        found = [
            select(seq, time, self._table.c.size)
            .where(*conditions, *beyond)
            .order_by(self._turn(time), self._turn(seq))
            .limit(limit + 1)
            for conditions in branches
        ]
        if len(found) == 1:
            return found[0].subquery()
        together = union(*(select(branch.subquery()) for branch in found)).subquery()
        first = select(together).order_by(self._turn(together.c[self._order]), self._turn(together.c.seq))
        return first.limit(limit + 1).subquery()
