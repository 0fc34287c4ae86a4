"""Session store."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage.errors import Conflict
from hub.storage.orchestration import Sessions
from hub.storage.records import DEFAULT_LIMIT, DEFAULT_PAGE_BYTES, Page, Session, SessionStatus
from hub.storage.sql import pages
from hub.storage.sql.bulk import insert_new
from hub.storage.sql.checks import check_aware, check_token, json_object
from hub.storage.sql.database import Database
from hub.storage.sql.schema import sessions
from hub.storage.sql.types import from_json, from_micros, maybe_bytes, maybe_micros, maybe_text, maybe_time, to_micros

S: Final = sessions.c
RECORD_BYTES: Final = 512  # a session's record without its texts and objects


class SqlSessions(Sessions):
    """Sessions in SQL."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    async def create(self, session: Session) -> None:
        values = _values(session)

        async def work(connection: AsyncConnection) -> None:
            if not await insert_new(connection, sessions, [values]):
                raise Conflict("session", session.session_id)

        await self._database.write(work)

    async def get(
        self, session_id: str, *, orchestrator: str | None = None, visible_to: str | None = None
    ) -> Session | None:
        statement = select(sessions).where(S.session_id == session_id, *_visible(visible_to))
        if orchestrator is not None:
            statement = statement.where(S.orchestrator == orchestrator)
        newest = statement.order_by(S.created_at.desc(), S.seq.desc()).limit(1)

        async def work(connection: AsyncConnection) -> Session | None:
            row = (await connection.execute(newest)).one_or_none()
            return None if row is None else _session(row)

        return await self._database.read(work)

    async def find(
        self,
        *,
        status: SessionStatus | None = None,
        worker: str | None = None,
        orchestrator: str | None = None,
        visible_to: str | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        max_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Page[Session]:
        pairs = [(status, S.status), (worker, S.worker), (orchestrator, S.orchestrator)]
        conditions = [column == value for value, column in pairs if value is not None]
        branches = [[*conditions, *branch] for branch in _branches(visible_to)]
        return await PAGER.read(self._database, branches, limit=limit, cursor=cursor, max_bytes=max_bytes)

    async def update_status(
        self,
        orchestrator: str,
        session_id: str,
        status: SessionStatus,
        *,
        expected: Sequence[SessionStatus] = ("active",),
        at: datetime | None = None,
    ) -> Session | None:
        moment = self._moment(at)
        changes = {"status": status, "updated_at": moment, "closed_at": None if status == "active" else moment}
        return await self._update(orchestrator, session_id, changes, [S.status.in_(list(expected))])

    async def set_backend_ctx(
        self, orchestrator: str, session_id: str, backend_ctx: dict[str, Any] | None, *, at: datetime | None = None
    ) -> Session | None:
        encoded = None if backend_ctx is None else json_object("backend_ctx", backend_ctx)
        changes = {"backend_ctx": encoded, "updated_at": self._moment(at)}
        return await self._update(orchestrator, session_id, changes, [])

    async def _update(
        self, orchestrator: str, session_id: str, changes: dict[str, Any], conditions: Sequence[ColumnElement[bool]]
    ) -> Session | None:
        named = (S.orchestrator == orchestrator, S.session_id == session_id)

        async def work(connection: AsyncConnection) -> Session | None:
            statement = update(sessions).where(*named, *conditions).values(**changes).returning(sessions)
            row = (await connection.execute(statement)).one_or_none()
            if row is None:
                return None
            session = _session(row)
            await connection.execute(update(sessions).where(S.seq == row.seq).values(size=_values(session)["size"]))
            return session

        return await self._database.write(work)

    def _moment(self, at: datetime | None) -> int:
        check_aware("at", at)
        return to_micros(at or self._clock())


def _branches(identity: str | None) -> list[list[ColumnElement[bool]]]:
    """Who sees a session (contract §10): its orchestrator and its worker."""
    return [[]] if identity is None else [[S.orchestrator == identity], [S.worker == identity]]


def _visible(identity: str | None) -> list[ColumnElement[bool]]:
    return [] if identity is None else [or_(*(condition for branch in _branches(identity) for condition in branch))]


def _values(session: Session) -> dict[str, Any]:
    check_token("session_id", session.session_id)
    check_token("orchestrator", session.orchestrator)
    check_token("worker", session.worker)
    for name in ("created_at", "updated_at", "closed_at"):
        check_aware(name, getattr(session, name))
    texts = {
        "cwd": maybe_bytes(session.cwd),
        "model": maybe_bytes(session.model),
        "provider": maybe_bytes(session.provider),
        "metadata": json_object("metadata", session.metadata),
        "backend_ctx": None if session.backend_ctx is None else json_object("backend_ctx", session.backend_ctx),
    }
    return {
        "session_id": session.session_id,
        "orchestrator": session.orchestrator,
        "worker": session.worker,
        "status": session.status,
        **texts,
        "created_at": to_micros(session.created_at),
        "updated_at": to_micros(session.updated_at),
        "closed_at": maybe_micros(session.closed_at),
        "size": RECORD_BYTES + sum(len(value) for value in texts.values() if value),
    }


def _session(row: Row[Any]) -> Session:
    return Session(
        session_id=row.session_id,
        orchestrator=row.orchestrator,
        worker=row.worker,
        status=row.status,
        cwd=maybe_text(row.cwd),
        model=maybe_text(row.model),
        provider=maybe_text(row.provider),
        metadata=from_json(row.metadata),
        backend_ctx=None if row.backend_ctx is None else from_json(row.backend_ctx),
        created_at=from_micros(row.created_at),
        updated_at=from_micros(row.updated_at),
        closed_at=maybe_time(row.closed_at),
    )


PAGER: Final = pages.Pager(sessions, "created_at", _session)
