"""SQL storage: one database and the stores that stand on it."""

import time
from collections.abc import Callable
from datetime import datetime

from hub.storage.base import Storage
from hub.storage.sql.agents import SqlAgents
from hub.storage.sql.database import Database
from hub.storage.sql.dead_letters import SqlDeadLetters
from hub.storage.sql.envelopes import SqlEnvelopes
from hub.storage.sql.migrate import bring_up


class SqlStorage(Storage):
    """Storage in SQLite or PostgreSQL.

    Args:
        database: where.
        clock: the time now, aware.
    """

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock
        self._storage_id: str | None = None
        self.agents = SqlAgents(database, clock)
        self.envelopes = SqlEnvelopes(database, clock)
        self.dead_letters = SqlDeadLetters(database, clock)

    @property
    def url(self) -> str:
        return self._database.url

    @property
    def storage_id(self) -> str:
        if self._storage_id is None:
            raise RuntimeError("the storage is not open")
        return self._storage_id

    async def open(self) -> None:
        if self._storage_id is None:
            self._storage_id = await bring_up(self._database)

    async def close(self) -> None:
        await self._database.close()

    async def check_health(self) -> float:
        start = time.monotonic()
        await self._database.check()
        return time.monotonic() - start
