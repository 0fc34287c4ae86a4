"""Envelope store: the mirror's writes, and history by filter."""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from sqlalchemy import not_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage.base import Envelopes
from hub.storage.errors import BadValue
from hub.storage.records import (
    DEFAULT_LIMIT,
    DEFAULT_PAGE_BYTES,
    MAX_BATCH,
    MAX_THREAD_DEPTH,
    BatchReport,
    EnvelopeFilter,
    EnvelopeRecord,
    NewEnvelope,
    Page,
    Position,
    Refused,
    Thread,
)
from hub.storage.sql import pages
from hub.storage.sql.answers import answered, settle, settle_now
from hub.storage.sql.batch import Indexed, insert_batch
from hub.storage.sql.bulk import insert_new, insert_new_now
from hub.storage.sql.database import Database
from hub.storage.sql.positions import mirror_position_text, read_position, write_mirror_position
from hub.storage.sql.rows import Unstorable, envelope_record, envelope_values
from hub.storage.sql.schema import envelopes
from hub.storage.sql.sqlite import RowRefused, SqliteDatabase
from hub.storage.sql.threads import ThreadWalk
from hub.storage.sql.visibility import history_branches, visible

E: Final = envelopes.c
MIRROR: Final = "mirror"
PAGER: Final = pages.Pager(envelopes, "stored_at", envelope_record)


class SqlEnvelopes(Envelopes):
    """Envelopes in SQL."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    async def insert_mirrored(self, rows: Sequence[NewEnvelope], positions: Sequence[Position] = ()) -> BatchReport:
        if len(rows) > MAX_BATCH:
            raise ValueError(f"expected at most {MAX_BATCH} rows, got {len(rows)}")
        now = self._clock()
        good: list[Indexed] = []
        refused: list[Refused] = []
        for index, row in enumerate(rows):
            try:
                good.append((index, envelope_values(row, now)))
            except Unstorable as error:
                refused.append(Refused(index, str(error)))

        async def work(connection: AsyncConnection) -> BatchReport:
            report = await insert_batch(connection, good, refused, _insert)
            if report.stored:
                await settle(connection, [values for _, values in good])
            for position in positions:
                await write_mirror_position(connection, MIRROR, position)
            return report

        if isinstance(self._database, SqliteDatabase):
            values = [values for _, values in good]
            try:
                stored = await self._database.write_at_once(partial(_insert_now, values, positions))
            except RowRefused:
                pass  # rare: find out which one, and keep the others
            else:
                return BatchReport(stored, len(good) - stored, tuple(refused))
        return await self._database.write(work)

    async def mirror_position(self, stream: str) -> Position | None:
        return await self._database.read(lambda connection: read_position(connection, MIRROR, stream))

    async def query(
        self,
        filters: EnvelopeFilter | None = None,
        *,
        visible_to: str | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Page[EnvelopeRecord]:
        branches = history_branches(filters or EnvelopeFilter(), visible_to)
        return await PAGER.read(self._database, branches, limit=limit, cursor=cursor, max_bytes=max_bytes)

    async def get(
        self,
        envelope_id: str,
        *,
        sender: str | None = None,
        to: str | None = None,
        visible_to: str | None = None,
    ) -> EnvelopeRecord | None:
        statement = select(envelopes).where(E.id == envelope_id, *visible(visible_to))
        if sender is not None:
            statement = statement.where(E.sender == sender)
        if to is not None:
            statement = statement.where(E.recipient == to)
        newest = statement.order_by(E.stored_at.desc(), E.seq.desc()).limit(1)

        async def work(connection: AsyncConnection) -> EnvelopeRecord | None:
            row = (await connection.execute(newest)).one_or_none()
            return None if row is None else envelope_record(row)

        return await self._database.read(work)

    async def thread(
        self,
        root_id: str,
        *,
        sender: str | None = None,
        resolve: bool = False,
        max_depth: int = MAX_THREAD_DEPTH,
        limit: int = DEFAULT_LIMIT,
        visible_to: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Thread | None:
        limit = pages.check_limit(limit)
        if not 0 <= max_depth <= MAX_THREAD_DEPTH:
            raise BadValue("max_depth", max_depth, f"a whole number from 0 to {MAX_THREAD_DEPTH}")
        walk = ThreadWalk(visible(visible_to), limit=limit, max_depth=max_depth, max_bytes=max_bytes)
        return await self._database.read(lambda connection: walk.read(connection, root_id, sender, resolve=resolve))

    async def pending(
        self,
        identity: str,
        *,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Page[EnvelopeRecord]:
        conditions = [E.recipient == identity, E.is_open == 1, not_(answered())]
        return await PAGER.read(self._database, [conditions], limit=limit, cursor=cursor, max_bytes=max_bytes)


def _insert_now(rows: Sequence[dict[str, Any]], reached: Sequence[Position], connection: sqlite3.Connection) -> int:
    """The whole batch in SQLite's own thread: the steps between the loop and it cost more than its work."""
    stored = insert_new_now(connection, envelopes, rows)
    if stored:
        settle_now(connection, rows)
    for position in reached:
        connection.execute(*mirror_position_text(MIRROR, position))
    return stored


async def _insert(connection: AsyncConnection, rows: Sequence[dict[str, Any]]) -> int:
    return await insert_new(connection, envelopes, rows)
