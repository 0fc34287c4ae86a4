"""Tracked tasks: what this identity delegated to others, with the last status, the tail of events, and the result.

A delegator that is restarted finds every task that it delegated; the task's message goes out through the outbox in the
same transaction, so that it is either tracked and sent or neither.
"""

import sqlite3
from typing import Any, Final

import msgspec

from hub.mailbox import outbox
from hub.mailbox.reader import Reader
from hub.mailbox.records import Outgoing
from hub.mailbox.transaction import Tx
from hub.mailbox.writer import Writer

EVENTS_MOST: Final = 50  # the tail that is kept per task
RUNNING: Final = "running"

_COLUMNS: Final = "task_id, worker, channel, request, state, status, position, result, created_at, changed_at"


class TrackedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that was delegated.

    Attributes:
        task_id: its envelope id.
        worker: to whom.
        channel: where its progress and its result come.
        request_json: what was asked, as the delegator recorded it.
        state: `running`, or the result's status: `done`, `error`, `cancelled`. It does not change after that.
        status: the last progress status, None before the first.
        position: how far its stored channel was read (a stream sequence); None when not at all.
        result_json: the result's payload, once it is here.
        created_at_ms, changed_at_ms: by the mailbox's clock.
        events: the newest events, oldest first, as JSON texts (as many as were asked for).
    """

    task_id: str
    worker: str
    channel: str
    request_json: bytes
    state: str
    status: str | None
    position: int | None
    result_json: bytes | None
    created_at_ms: int
    changed_at_ms: int
    events: tuple[bytes, ...] = ()


class Tracked:
    """The tracked tasks."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def start(
        self, *, task_id: str, worker: str, channel: str, request_json: bytes, outgoing: Outgoing | None = None
    ) -> tuple[TrackedTask, bool]:
        """Track a task; one that is tracked is returned as it is, and nothing is sent.

        Args:
            task_id: its envelope id.
            worker: to whom it goes.
            channel: where its result comes.
            request_json: what is asked.
            outgoing: its envelope, sent through the outbox.

        Returns:
            The task, and whether it is new.
        """
        return await self._writer.submit(
            lambda tx: _start(tx, task_id, worker=worker, channel=channel, request_json=request_json, outgoing=outgoing)
        )

    async def note(
        self,
        task_id: str,
        *,
        event_json: bytes | None = None,
        status: str | None = None,
        position: int | None = None,
    ) -> bool:
        """Record progress of a running task.

        Args:
            task_id: which.
            event_json: an event, kept in the tail of 50.
            status: a progress status.
            position: where in the stored channel this stands; not behind the last recorded position, it is a repeat.

        Returns:
            Whether it was recorded: the task is running and this is no repeat.
        """
        return await self._writer.submit(lambda tx: _note(tx, task_id, event_json, status, position))

    async def finish(self, task_id: str, state: str, result_json: bytes) -> bool:
        """Record the result, by compare-and-set on `running`; whether it was the first."""
        return await self._writer.submit(
            lambda tx: bool(
                tx.run(
                    "UPDATE tracked SET state = ?, result = ?, changed_at = ? WHERE task_id = ? AND state = ?",
                    state,
                    result_json,
                    tx.now_ms,
                    task_id,
                    RUNNING,
                )
            )
        )

    async def forget_positions(self) -> None:
        """The task stream was made anew: its sequences start over, and running tasks are read from its start."""
        await self._writer.submit(lambda tx: tx.run("UPDATE tracked SET position = NULL WHERE state = ?", RUNNING))

    async def get(self, task_id: str, *, events_tail: int = EVENTS_MOST) -> TrackedTask | None:
        """One task with its newest events, or None."""
        return await self._reader.look(lambda db: _get(db, task_id, events_tail))

    async def list(self, state: str | None = None, *, limit: int = 1000) -> list[TrackedTask]:
        """Tasks without their events, the last changed first; of one state, or all."""
        rows = await self._reader.look(
            lambda db: db.execute(
                f"SELECT {_COLUMNS} FROM tracked WHERE ?1 IS NULL OR state = ?1 "  # noqa: S608 - constant
                "ORDER BY changed_at DESC, task_id LIMIT ?2",
                (state, limit),
            ).fetchall()
        )
        return [_from_row(row) for row in rows]


def _start(
    tx: Tx, task_id: str, *, worker: str, channel: str, request_json: bytes, outgoing: Outgoing | None
) -> tuple[TrackedTask, bool]:
    known = _get(tx.db, task_id, EVENTS_MOST)
    if known is not None:
        return known, False
    tx.run(
        "INSERT INTO tracked (task_id, worker, channel, request, state, created_at, changed_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        task_id,
        worker,
        channel,
        request_json,
        RUNNING,
        tx.now_ms,
        tx.now_ms,
    )
    if outgoing is not None:
        outbox.add(tx, f"task {task_id}", outgoing)
    made = _get(tx.db, task_id, 0)
    assert made is not None
    return made, True


def _note(tx: Tx, task_id: str, event_json: bytes | None, status: str | None, position: int | None) -> bool:
    is_recorded = tx.run(
        "UPDATE tracked SET status = coalesce(?1, status), position = coalesce(?2, position), changed_at = ?3 "
        "WHERE task_id = ?4 AND state = ?5 AND (?2 IS NULL OR position IS NULL OR position < ?2)",
        status,
        position,
        tx.now_ms,
        task_id,
        RUNNING,
    )
    if is_recorded and event_json is not None:
        tx.insert("INSERT INTO tracked_event (task_id, body) VALUES (?, ?)", task_id, event_json)
        tx.run(
            "DELETE FROM tracked_event WHERE task_id = ?1 AND seq <= "
            "(SELECT seq FROM tracked_event WHERE task_id = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)",
            task_id,
            EVENTS_MOST,
        )
    return bool(is_recorded)


def _get(db: sqlite3.Connection, task_id: str, events_tail: int) -> TrackedTask | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM tracked WHERE task_id = ?", (task_id,)).fetchone()  # noqa: S608
    if row is None:
        return None
    events = db.execute(
        "SELECT body FROM tracked_event WHERE task_id = ? ORDER BY seq DESC LIMIT ?", (task_id, events_tail)
    ).fetchall()
    return _from_row(row, tuple(body for (body,) in reversed(events)))


def _from_row(row: tuple[Any, ...], events: tuple[bytes, ...] = ()) -> TrackedTask:
    return TrackedTask(
        task_id=row[0],
        worker=row[1],
        channel=row[2],
        request_json=row[3],
        state=row[4],
        status=row[5],
        position=row[6],
        result_json=row[7],
        created_at_ms=row[8],
        changed_at_ms=row[9],
        events=events,
    )
