"""Batch writer: stores what can be stored of a batch in one transaction, whatever the rest is."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage.records import BatchReport, Refused
from hub.storage.sql.database import is_row_error

CHUNK_BYTES: Final = (
    16 * 1024 * 1024
)  # what one statement carries: far below the drivers' 1 GB, far above a usual batch

Indexed = tuple[int, dict[str, Any]]
Insert = Callable[[AsyncConnection, Sequence[dict[str, Any]]], Awaitable[int]]


async def insert_batch(
    connection: AsyncConnection, rows: Sequence[Indexed], refused: Sequence[Refused], insert: Insert
) -> BatchReport:
    """Insert rows; those that the database refuses are left out and reported.

    Args:
        rows: (index in the batch, columns).
        refused: what was found unstorable before.
        insert: inserts some rows, ignoring those that are there; how many were new.
    """
    stored = 0
    dead = list(refused)
    for chunk in _chunks(rows):
        try:
            async with connection.begin_nested():
                stored += await insert(connection, [values for _, values in chunk])
        except (SQLAlchemyError, OverflowError, UnicodeError) as error:
            if not is_row_error(error):
                raise
            stored += await _one_by_one(connection, chunk, dead, insert)
    total = len(rows) + len(refused)
    return BatchReport(stored, total - stored - len(dead), tuple(sorted(dead, key=lambda row: row.index)))


async def _one_by_one(connection: AsyncConnection, rows: Sequence[Indexed], dead: list[Refused], insert: Insert) -> int:
    stored = 0
    for index, values in rows:
        try:
            async with connection.begin_nested():
                stored += await insert(connection, [values])
        except (SQLAlchemyError, OverflowError, UnicodeError) as error:
            if not is_row_error(error):
                raise
            dead.append(Refused(index, f"the database refuses it: {type(error).__name__}"))
    return stored


def _chunks(rows: Sequence[Indexed]) -> Iterator[list[Indexed]]:
    """Runs of rows that weigh at most `CHUNK_BYTES` (or are one row)."""
    chunk: list[Indexed] = []
    weight = 0
    for row in rows:
        size = int(row[1]["size"])
        if chunk and weight + size > CHUNK_BYTES:
            yield chunk
            chunk, weight = [], 0
        chunk.append(row)
        weight += size
    if chunk:
        yield chunk
