"""The event source on PostgreSQL, with LISTEN/NOTIFY."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from hub.events.cursor import CursorSecret
from hub.events.errors import InvalidInputError
from hub.events.postgres.errors import backend
from hub.events.postgres.log import PostgresLog
from hub.events.postgres.migrations import migrate
from hub.events.source import LogEventSource, split_limits

DEFAULT_SCHEMA = "prism_agent_events"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class PostgresEventSource(LogEventSource):
    """An event source on PostgreSQL. The pool stays the host's and is never closed.

    Args:
        pool: an asyncpg pool.
        cursor_secret: signs cursors; replicas share it.
        schema: where the tables are; `migrate()` makes them.
        listen: the dedicated connection for LISTEN: an address, or a coroutine function that opens one (closed with the
            source). None: one connection of the pool is kept for it while there are subscriptions; give the pool one
            more, and close the source before the pool.
        options: see `Limits`.

    Raises:
        InvalidInputError: an option is out of range; it names it.
    """

    def __init__(
        self,
        pool: asyncpg.Pool,
        *,
        cursor_secret: CursorSecret,
        schema: str = DEFAULT_SCHEMA,
        listen: str | Callable[[], Awaitable[asyncpg.Connection]] | None = None,
        **options: Any,
    ) -> None:
        limits = split_limits(options)
        self._schema = check_schema(schema)
        self._pool = pool

        async def connect() -> asyncpg.Connection:
            return await (asyncpg.connect(listen) if isinstance(listen, str) else listen())  # type: ignore[misc]

        async def close(connection: asyncpg.Connection) -> None:
            await connection.close()

        self._pg_log = PostgresLog(
            pool,
            schema,
            limits,
            open_listener=pool.acquire if listen is None else connect,
            release_listener=pool.release if listen is None else close,
        )
        super().__init__(self._pg_log, cursor_secret=cursor_secret, limits=limits)

    async def migrate(self) -> int:
        """Make or update the tables; returns how many migrations were applied. Concurrent callers are fine."""
        with backend(self._schema, "migrating"):
            async with self._pool.acquire() as connection:
                return await migrate(connection, self._schema)


def check_schema(schema: object) -> str:
    """A schema name that needs no quoting."""
    if not isinstance(schema, str) or _SCHEMA.fullmatch(schema) is None:
        raise InvalidInputError(f"schema must be 1 to 63 of a-z 0-9 _, not beginning with a digit, not {schema!r}")
    return schema


__all__ = ["PostgresEventSource"]
