"""SQL storage: one database and the stores that stand on it."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from hub.storage.base import Storage
from hub.storage.records import RetentionRule, RetentionStep
from hub.storage.sql import retention
from hub.storage.sql.agents import SqlAgents
from hub.storage.sql.database import Database
from hub.storage.sql.dead_letters import SqlDeadLetters
from hub.storage.sql.envelopes import SqlEnvelopes
from hub.storage.sql.leases import SqlLeases
from hub.storage.sql.migrate import bring_up
from hub.storage.sql.sessions import SqlSessions
from hub.storage.sql.stats import SqlStats
from hub.storage.sql.waves import SqlWaves


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
        self.stats = SqlStats(database, clock)
        self.dead_letters = SqlDeadLetters(database, clock)
        self.sessions = SqlSessions(database, clock)
        self.waves = SqlWaves(database)
        self.leases = SqlLeases(database)

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

    async def apply_retention(self, rules: Sequence[RetentionRule], *, most: int = 500) -> RetentionStep:
        retention.check_rules(rules)
        now = self._clock()
        # Adding up a large history takes a while: not while writers wait for us.
        excess = await self._database.read(lambda connection: retention.excesses(connection, rules))
        step = await self._database.write(
            lambda connection: retention.prune(connection, rules, excess, now=now, most=most)
        )
        if step.done:
            await self._database.optimize()
        return step

    async def backup(self, target: Path) -> None:
        await self._database.backup(target)

    async def restore(self, source: Path) -> None:
        await self._database.restore(source)
        self._storage_id = None
        await self.open()

    async def vacuum(self) -> None:
        await self._database.vacuum()
