"""Answer keeper: notes which envelopes have been answered, so that what is pending is an index and not a search.

Given to the driver as text, as `bulk` does, for the same reason: it runs with every batch of the mirror.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage.sql.schema import envelopes
from hub.storage.sql.types import to_json, unindexed

E: Final = envelopes.c

# `coalesce` hides a column from its index: see `unindexed`
_CLOSE: Final = {
    "sqlite": (
        "UPDATE envelopes SET is_open = 0 WHERE seq IN (SELECT asked.seq FROM json_each(?) AS answer"
        " CROSS JOIN envelopes AS asked WHERE asked.id = json_extract(answer.value, '$[0]')"
        " AND coalesce(asked.recipient, '') = json_extract(answer.value, '$[1]') AND asked.is_open = 1)"
    ),
    "postgresql": (
        "UPDATE envelopes SET is_open = 0 FROM unnest($1::text[], $2::text[]) AS answer (asked, answerer)"
        " WHERE id = asked AND coalesce(recipient, '') = answerer AND is_open = 1"
    ),
}
_IS_ANSWERED: Final = (
    "is_open = 1 AND EXISTS (SELECT 1 FROM envelopes AS answer WHERE answer.reply_to = envelopes.id"
    " AND coalesce(answer.kind, '') = 'message' AND coalesce(answer.sender, '') = envelopes.recipient)"
)
_CLOSE_ANSWERED: Final = {
    "sqlite": f"UPDATE envelopes SET is_open = 0 WHERE id IN (SELECT value FROM json_each(?)) AND {_IS_ANSWERED}",  # noqa: S608 - a constant
    "postgresql": f"UPDATE envelopes SET is_open = 0 WHERE id = ANY($1::text[]) AND {_IS_ANSWERED}",  # noqa: S608
}


def answered() -> ColumnElement[bool]:
    """Does a `message` of the envelope's recipient reply to it?"""
    answer = envelopes.alias("answer")
    return (
        select(answer.c.seq)
        .where(
            answer.c.reply_to == E.id,
            unindexed(answer.c.kind) == "message",
            unindexed(answer.c.sender) == E.recipient,
        )
        .correlate(envelopes)
        .exists()
    )


async def settle(connection: AsyncConnection, rows: Sequence[dict[str, Any]]) -> None:
    """Close what the stored rows answer, and what of them was answered before it came.

    Two routers that store a message and its answer at the same moment do not see each other's row: reading what is
    pending looks for an answer once more.
    """
    answers, asking = _involved(rows)
    if connection.dialect.name == "postgresql":
        if answers:
            asked, answerers = zip(*answers, strict=True)
            await connection.exec_driver_sql(_CLOSE["postgresql"], (list(asked), list(answerers)))
        if asking:
            await connection.exec_driver_sql(_CLOSE_ANSWERED["postgresql"], (asking,))
        return
    if answers:
        await connection.exec_driver_sql(_CLOSE["sqlite"], (to_json(answers).decode(),))
    if asking:
        await connection.exec_driver_sql(_CLOSE_ANSWERED["sqlite"], (to_json(asking).decode(),))


def settle_now(connection: sqlite3.Connection, rows: Sequence[dict[str, Any]]) -> None:
    """As `settle`, in the thread of SQLite's own connection."""
    answers, asking = _involved(rows)
    if answers:
        connection.execute(_CLOSE["sqlite"], (to_json(answers).decode(),))
    if asking:
        connection.execute(_CLOSE_ANSWERED["sqlite"], (to_json(asking).decode(),))


def _involved(rows: Sequence[dict[str, Any]]) -> tuple[list[tuple[str, str]], list[str]]:
    """(asked, answerer) of each answer among the rows, and the ids of those that ask."""
    # in one order everywhere, so that two writers do not wait for each other
    answers = {(row["reply_to"], row["sender"]) for row in rows if row["kind"] == "message" and row["reply_to"]}
    return sorted(answers), sorted({row["id"] for row in rows if row["is_open"]})
