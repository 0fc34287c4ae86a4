"""Lease store."""

from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Row, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage.orchestration import Leases
from hub.storage.records import Lease
from hub.storage.sql.bulk import insert_new
from hub.storage.sql.checks import check_message_id
from hub.storage.sql.database import Database
from hub.storage.sql.schema import leases

L: Final = leases.c


class SqlLeases(Leases):
    """Leases in SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, name: str) -> Lease | None:
        async def work(connection: AsyncConnection) -> Lease | None:
            row = (await connection.execute(select(leases).where(L.name == name))).one_or_none()
            return None if row is None else _lease(row)

        return await self._database.read(work)

    async def take(self, name: str, holder: str, *, seen: Lease | None) -> Lease | None:
        check_message_id("lease", name)
        check_message_id("holder", holder)

        async def work(connection: AsyncConnection) -> Lease | None:
            if seen is None:
                first = Lease(name=name, holder=holder, token=1, beat=0)
                return first if await insert_new(connection, leases, [msgspec.structs.asdict(first)]) else None
            unchanged = [L.name == name, L.token == seen.token, L.beat == seen.beat, _held_by(seen.holder)]
            statement = update(leases).where(*unchanged).values(holder=holder, token=seen.token + 1, beat=0)
            row = (await connection.execute(statement.returning(leases))).one_or_none()
            return None if row is None else _lease(row)

        return await self._database.write(work)

    async def beat(self, lease: Lease) -> Lease | None:
        async def work(connection: AsyncConnection) -> Lease | None:
            statement = update(leases).where(*_mine(lease)).values(beat=L.beat + 1).returning(leases)
            row = (await connection.execute(statement)).one_or_none()
            return None if row is None else _lease(row)

        return await self._database.write(work)

    async def release(self, lease: Lease) -> bool:
        async def work(connection: AsyncConnection) -> bool:
            return bool((await connection.execute(update(leases).where(*_mine(lease)).values(holder=None))).rowcount)

        return await self._database.write(work)


def _held_by(holder: str | None) -> ColumnElement[bool]:
    return L.holder.is_(None) if holder is None else L.holder == holder


def _mine(lease: Lease) -> list[ColumnElement[bool]]:
    return [L.name == lease.name, L.token == lease.token, _held_by(lease.holder), L.holder.is_not(None)]


def _lease(row: Row[tuple[str, str | None, int, int]]) -> Lease:
    return Lease(name=row.name, holder=row.holder, token=row.token, beat=row.beat)
