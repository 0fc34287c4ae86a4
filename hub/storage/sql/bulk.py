"""Bulk inserter: many rows in one statement that leaves alone what is there, and says how many were new.

The statement is built and compiled once, and given to the driver as text: to handle each value of each row again, as
SQLAlchemy does, costs more than the database's own work.
"""

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

from sqlalchemy import ARRAY, Table, Text, bindparam, column, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeEngine

from hub.storage.sql.types import Name

# Each run of a statement in SQLite's thread asks a busy loop for the interpreter's lock, and gets it after 5 ms: by
# single rows, a batch would keep the file locked for a second.
ROWS_A_STATEMENT: Final = 64


def insert_for(dialect: str, table: Table) -> Any:
    """The dialect's INSERT, which knows ON CONFLICT (the two have the same methods)."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


async def insert_new(connection: AsyncConnection, table: Table, rows: Sequence[dict[str, Any]]) -> int:
    """Insert rows that have the same members; those whose name is taken are ignored. How many were new.

    Args:
        connection: in a transaction.
        table: where to.
        rows: values as the driver takes them; names are checked before (`Name` does not see them).
    """
    if not rows:
        return 0
    columns = tuple(column.name for column in table.c if column.name in rows[0])
    if connection.dialect.name == "postgresql":
        arrays = tuple([row[name] for row in rows] for name in columns)
        result = await connection.exec_driver_sql(_insert_arrays(table, columns), arrays)
    else:
        result = await connection.exec_driver_sql(_insert_many(table, columns), _tuples(rows, columns))
    return int(result.rowcount)


def insert_new_now(connection: sqlite3.Connection, table: Table, rows: Sequence[dict[str, Any]]) -> int:
    """As `insert_new`, in the thread of SQLite's own connection."""
    if not rows:
        return 0
    columns = tuple(column.name for column in table.c if column.name in rows[0])
    tuples = _tuples(rows, columns)
    stored = 0
    for start in range(0, len(tuples), ROWS_A_STATEMENT):
        part = tuples[start : start + ROWS_A_STATEMENT]
        if len(part) == ROWS_A_STATEMENT:
            stored += connection.execute(_insert_some(table, columns), tuple(chain.from_iterable(part))).rowcount
        else:
            stored += connection.executemany(_insert_many(table, columns), part).rowcount
    return stored


def _tuples(rows: Sequence[dict[str, Any]], columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return [tuple(map(row.__getitem__, columns)) for row in rows]


@cache
def _insert_many(table: Table, columns: tuple[str, ...]) -> str:
    """For SQLite: one statement, executed for each row without leaving its thread."""
    statement = insert_for("sqlite", table).on_conflict_do_nothing()
    return str(statement.compile(dialect=sqlite.dialect(paramstyle="qmark"), column_keys=list(columns)))


@cache
def _insert_some(table: Table, columns: tuple[str, ...]) -> str:
    """As `_insert_many`, for `ROWS_A_STATEMENT` rows."""
    head, values, tail = _insert_many(table, columns).partition(f"({', '.join('?' * len(columns))})")
    return f"{head}{', '.join([values] * ROWS_A_STATEMENT)}{tail}"


@cache
def _insert_arrays(table: Table, columns: tuple[str, ...]) -> str:
    """For PostgreSQL: an array a column, so that the statement is the same (and prepared) for any number of rows."""
    kinds: list[TypeEngine[Any]] = [
        Text() if isinstance(table.c[name].type, Name) else table.c[name].type for name in columns
    ]
    arrays = [bindparam(name, type_=ARRAY(kind)) for name, kind in zip(columns, kinds, strict=True)]
    values = [column(name, kind) for name, kind in zip(columns, kinds, strict=True)]
    rows = func.unnest(*arrays).table_valued(*values).render_derived()
    statement = (
        insert_for("postgresql", table)
        .from_select(list(columns), select(*(rows.c[name] for name in columns)))
        .on_conflict_do_nothing()
    )
    dialect: Dialect = postgresql.asyncpg.dialect()  # type: ignore[no-untyped-call]
    return str(statement.compile(dialect=dialect))
