"""Pager: newest-first lists by (time, seq), ended by a count and by the weight of what is in them."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Row, Select, Table, func, select, tuple_, union
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage.errors import BadValue
from hub.storage.records import MAX_LIMIT, Page

T = TypeVar("T")

CURSOR_RULE: Final = "the next_cursor of the page before"
_CURSOR = re.compile(r"(-?[0-9]{1,18})\.([0-9]{1,18})")


def check_limit(limit: object) -> int:
    """A page's length, or `BadValue`."""
    if isinstance(limit, int) and not isinstance(limit, bool) and 1 <= limit <= MAX_LIMIT:
        return limit
    raise BadValue("limit", limit, f"a whole number from 1 to {MAX_LIMIT}")


def check_aware(what: str, moment: datetime | None) -> None:
    """Refuse a time without an offset: it would mean another time on every machine."""
    if moment is not None and moment.tzinfo is None:
        raise BadValue(what, moment.isoformat(), "a time with an offset")


def read_cursor(cursor: str) -> tuple[int, int]:
    """The (time, seq) that a page ended with, or `BadValue`."""
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise BadValue("cursor", cursor, CURSOR_RULE)
    return int(found[1]), int(found[2])


async def read_page(
    connection: AsyncConnection,
    table: Table,
    order: str,
    branches: Sequence[Sequence[ColumnElement[bool]]],
    make: Callable[[Row[Any]], T],
    *,
    limit: int,
    cursor: str | None,
    max_bytes: int,
) -> Page[T]:
    """One page of `table`, newest first.

    Args:
        order: the time column that the list is ordered by.
        branches: alternatives, each a list of conditions; a row that meets any is in. Each is read by itself in order
            and cut at the limit, so that each can use its own index however many rows the others have.
        make: a record of a whole row.
        limit: checked by the caller.
        cursor: where the page before ended; None for the first.
        max_bytes: the page ends before its records weigh more, but holds at least one.
    """
    chosen = _chosen(table, order, branches, limit, cursor)
    weighed = select(
        chosen.c.seq,
        func.sum(chosen.c.size).over(order_by=[chosen.c[order].desc(), chosen.c.seq.desc()]).label("weight"),
        func.row_number().over(order_by=[chosen.c[order].desc(), chosen.c.seq.desc()]).label("place"),
        func.count().over().label("found"),
    ).subquery()
    # The records themselves are read at the end, and only those that the page has room for.
    statement = (
        select(table, weighed.c.found)
        .join(weighed, table.c.seq == weighed.c.seq)
        .where(weighed.c.place <= limit, (weighed.c.weight <= max_bytes) | (weighed.c.place == 1))
        .order_by(table.c[order].desc(), table.c.seq.desc())
    )
    rows = (await connection.execute(statement)).all()
    has_more = bool(rows) and rows[0].found > len(rows)
    last = rows[-1] if has_more else None
    return Page([make(row) for row in rows], f"{getattr(last, order)}.{last.seq}" if last else None)


def _chosen(
    table: Table, order: str, branches: Sequence[Sequence[ColumnElement[bool]]], limit: int, cursor: str | None
) -> Any:
    """(seq, time, size) of the page's rows and one more, which tells that there is a next page."""
    time = table.c[order]
    after = [] if cursor is None else [tuple_(time, table.c.seq) < tuple_(*read_cursor(cursor))]
    found: list[Select[Any]] = [
        select(table.c.seq, time, table.c.size)
        .where(*conditions, *after)
        .order_by(time.desc(), table.c.seq.desc())
        .limit(limit + 1)
        for conditions in branches
    ]
    if len(found) == 1:
        return found[0].subquery()
    together = union(*(select(branch.subquery()) for branch in found)).subquery()
    return select(together).order_by(together.c[order].desc(), together.c.seq.desc()).limit(limit + 1).subquery()
