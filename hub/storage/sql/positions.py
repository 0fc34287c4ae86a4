"""Position store: how far a reader has come in a stream (contract §4)."""

from functools import cache
from typing import Any

from sqlalchemy import and_, or_, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage.records import Position
from hub.storage.sql.bulk import insert_for
from hub.storage.sql.schema import positions
from hub.storage.sql.types import from_micros, to_micros


async def read_position(connection: AsyncConnection, reader: str, stream: str) -> Position | None:
    """The reader's position in the stream; None when it has none."""
    statement = select(positions).where(positions.c.reader == reader, positions.c.stream == stream)
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None else Position(stream=stream, created=from_micros(row.created), sequence=row.sequence)


async def write_mirror_position(connection: AsyncConnection, reader: str, position: Position) -> None:
    """Move forward: batches of several routers commit in any order, and one may be from before the stream was made
    again."""
    await connection.execute(_forward(connection.dialect.name), _values(reader, position))


def mirror_position_text(reader: str, position: Position) -> tuple[str, tuple[object, ...]]:
    """What `write_mirror_position` does, as text and values for SQLite's driver."""
    values = _values(reader, position)
    return _forward_text(tuple(values)), tuple(values.values())


@cache
def _forward(dialect: str) -> Any:
    statement = insert_for(dialect, positions)
    new, old = statement.excluded, positions.c
    is_ahead = or_(new.created > old.created, and_(new.created == old.created, new.sequence > old.sequence))
    return statement.on_conflict_do_update(
        index_elements=[old.reader, old.stream],
        set_={"created": new.created, "sequence": new.sequence},
        where=is_ahead,
    )


@cache
def _forward_text(columns: tuple[str, ...]) -> str:
    return str(_forward("sqlite").compile(dialect=sqlite.dialect(paramstyle="qmark"), column_keys=list(columns)))


async def replace_position(connection: AsyncConnection, reader: str, position: Position) -> None:
    """Set it, forward or back: a reader that is alone by its lease knows best."""
    statement = insert_for(connection.dialect.name, positions).values(**_values(reader, position))
    new, old = statement.excluded, positions.c
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=[old.reader, old.stream], set_={"created": new.created, "sequence": new.sequence}
        )
    )


def _values(reader: str, position: Position) -> dict[str, object]:
    return {
        "reader": reader,
        "stream": position.stream,
        "created": to_micros(position.created),
        "sequence": position.sequence,
    }
