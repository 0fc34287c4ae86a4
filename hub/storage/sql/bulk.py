"""Bulk inserter: many rows in one statement that leaves alone what is there, and says how many were new."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import ARRAY, Executable, Table, Text, bindparam, column, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeEngine

from hub.storage.sql.types import Name


def insert_for(dialect: str, table: Table) -> Any:
    """The dialect's INSERT, which knows ON CONFLICT (the two have the same methods)."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


async def insert_new(connection: AsyncConnection, table: Table, rows: Sequence[dict[str, Any]]) -> int:
    """Insert rows that have the same members; those whose name is taken are ignored. How many were new."""
    if not rows:
        return 0
    columns = tuple(rows[0])
    if connection.dialect.name == "postgresql":
        arrays = {name: [row[name] for row in rows] for name in columns}
        result = await connection.execute(_insert_arrays(table, columns), arrays)
    else:
        result = await connection.execute(_insert_many(table), list(rows))
    return int(result.rowcount)


@cache
def _insert_many(table: Table) -> Executable:
    """For SQLite: one statement, executed for each row without leaving its thread."""
    statement: Executable = insert_for("sqlite", table).on_conflict_do_nothing()
    return statement


@cache
def _insert_arrays(table: Table, columns: tuple[str, ...]) -> Executable:
    """For PostgreSQL: an array a column, so that the statement is the same (and prepared) for any number of rows."""
    kinds: list[TypeEngine[Any]] = [
        Text() if isinstance(table.c[name].type, Name) else table.c[name].type for name in columns
    ]
    arrays = [bindparam(name, type_=ARRAY(kind)) for name, kind in zip(columns, kinds, strict=True)]
    rows = (
        func.unnest(*arrays)
        .table_valued(*(column(name, kind) for name, kind in zip(columns, kinds, strict=True)))
        .render_derived()
    )
    statement: Executable = (
        insert_for("postgresql", table)
        .from_select(list(columns), select(*(rows.c[name] for name in columns)))
        .on_conflict_do_nothing()
    )
    return statement
