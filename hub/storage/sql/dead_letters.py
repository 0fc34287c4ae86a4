"""Dead letter store."""

import secrets
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.protocol import names
from hub.storage.base import DeadLetters
from hub.storage.records import (
    DEAD_DATA_BYTES,
    DEFAULT_LIMIT,
    DEFAULT_PAGE_BYTES,
    MAX_BATCH,
    BatchReport,
    DeadLetter,
    NewDeadLetter,
    Page,
    Refused,
)
from hub.storage.sql import pages
from hub.storage.sql.batch import Indexed, insert_batch
from hub.storage.sql.bulk import insert_new
from hub.storage.sql.checks import check_aware
from hub.storage.sql.database import Database
from hub.storage.sql.schema import dead_letters
from hub.storage.sql.types import (
    from_json,
    from_micros,
    maybe_bytes,
    maybe_text,
    maybe_time,
    to_bytes,
    to_json,
    to_micros,
)

D: Final = dead_letters.c
TEXT_CHARACTERS: Final = 8192  # more of a subject, an id or a header than anybody reads, or a server lets through
RECORD_BYTES: Final = 256  # a dead letter's record without its texts and data


class SqlDeadLetters(DeadLetters):
    """Dead letters in SQL."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    async def insert(self, letters: Sequence[NewDeadLetter]) -> BatchReport:
        if len(letters) > MAX_BATCH:
            raise ValueError(f"expected at most {MAX_BATCH} letters, got {len(letters)}")
        now = self._clock()
        rows: list[Indexed] = []
        refused: list[Refused] = []
        for index, letter in enumerate(letters):
            if not (_is_name(letter.reason) and (letter.dead_id is None or _is_name(letter.dead_id))):
                refused.append(Refused(index, f"bad reason or dead_id: expected {names.MESSAGE_ID_RULE}"))
            else:
                rows.append((index, _values(letter, now)))
        return await self._database.write(lambda connection: insert_batch(connection, rows, refused, _insert))

    async def find(
        self,
        *,
        reason: str | None = None,
        since: datetime | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Page[DeadLetter]:
        check_aware("since", since)
        conditions: list[ColumnElement[bool]] = []
        if reason is not None:
            conditions.append(D.reason == reason)
        if since is not None:
            conditions.append(D.received_at >= to_micros(since))
        return await PAGER.read(self._database, [conditions], limit=limit, cursor=cursor, max_bytes=max_bytes)

    async def get(self, dead_id: str) -> DeadLetter | None:
        async def work(connection: AsyncConnection) -> DeadLetter | None:
            row = (await connection.execute(select(dead_letters).where(D.dead_id == dead_id))).one_or_none()
            return None if row is None else _letter(row)

        return await self._database.read(work)

    async def mark_replayed(self, dead_id: str, at: datetime | None = None) -> bool:
        check_aware("at", at)
        moment = to_micros(at or self._clock())
        statement = update(dead_letters).where(D.dead_id == dead_id, D.replayed_at.is_(None))

        async def work(connection: AsyncConnection) -> bool:
            return bool((await connection.execute(statement.values(replayed_at=moment))).rowcount)

        return await self._database.write(work)


async def _insert(connection: AsyncConnection, rows: Sequence[dict[str, Any]]) -> int:
    return await insert_new(connection, dead_letters, rows)


def _values(letter: NewDeadLetter, now: datetime) -> dict[str, Any]:
    """The columns of a dead letter, whatever its texts are."""
    received_at = letter.received_at
    data = bytes(letter.data[:DEAD_DATA_BYTES])
    headers = to_json([(_text(name).decode(), _text(value).decode()) for name, value in letter.headers])
    texts = {
        "detail": _text(letter.detail),
        "subject": _text(letter.subject),
        "sender": maybe_bytes(letter.sender and letter.sender[:TEXT_CHARACTERS]),
        "envelope_id": maybe_bytes(letter.envelope_id and letter.envelope_id[:TEXT_CHARACTERS]),
        "headers": headers,
    }
    weight = sum(len(value) for value in texts.values() if value)
    return {
        "dead_id": letter.dead_id or secrets.token_hex(8),
        "reason": letter.reason,
        **texts,
        "data_size": len(letter.data) if letter.size is None else letter.size,
        "received_at": to_micros(received_at if received_at and received_at.tzinfo else now),
        "replayed_at": None,
        "size": RECORD_BYTES + 2 * weight + len(data) * 4 // 3,  # as JSON: escapes, base64
        "data": data,
    }


_is_name = names.is_message_id  # our own words, printable; not what an agent chose


def _text(text: str) -> bytes:
    return to_bytes(text[:TEXT_CHARACTERS])


def _letter(row: Row[Any]) -> DeadLetter:
    return DeadLetter(
        dead_id=row.dead_id,
        reason=row.reason,
        detail=row.detail.decode(),
        subject=row.subject.decode(),
        sender=maybe_text(row.sender),
        envelope_id=maybe_text(row.envelope_id),
        headers=_headers(from_json(row.headers)),
        data=bytes(row.data),
        size=row.data_size,
        received_at=from_micros(row.received_at),
        replayed_at=maybe_time(row.replayed_at),
    )


def _headers(kept: Any) -> list[tuple[str, str]]:
    """The pairs; an object, of which each name stood once, is how the first versions kept them."""
    return [(name, value) for name, value in (kept.items() if isinstance(kept, dict) else kept)]


PAGER: Final = pages.Pager(dead_letters, "received_at", _letter)
