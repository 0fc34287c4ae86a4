"""Statistics: figures that the database computes."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Float, and_, case, cast, func, not_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from hub.storage.base import Stats
from hub.storage.errors import BadValue
from hub.storage.records import Activity, Bucket, Hotspot, Latency
from hub.storage.sql import pages
from hub.storage.sql.answers import answered
from hub.storage.sql.database import Database
from hub.storage.sql.rows import ASKING_KINDS
from hub.storage.sql.schema import envelopes
from hub.storage.sql.types import from_micros, to_micros, unindexed

E: Final = envelopes.c
SECOND: Final = 1_000_000  # microseconds
INTERVALS: Final = {"minute": 60 * SECOND, "hour": 3600 * SECOND, "day": 86_400 * SECOND}
MAX_BUCKETS: Final = 10_000  # a week by the minute; more is a chart that nobody can read
MAX_SECS: Final = 10 * 366 * 86_400
MAX_SAMPLES: Final = 50_000  # messages looked at for a latency: enough for a p99, and still under a second


class SqlStats(Stats):
    """Statistics in SQL."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    async def message_rate(self, *, secs: float = 3600, interval: str = "minute") -> list[Bucket]:
        return await self._rate(secs, interval, [])

    async def error_rate(self, *, secs: float = 3600, interval: str = "minute") -> list[Bucket]:
        return await self._rate(secs, interval, [E.is_error == 1])

    async def _rate(self, secs: float, interval: str, conditions: list[ColumnElement[bool]]) -> list[Bucket]:
        width = INTERVALS.get(interval)
        if width is None:
            raise BadValue("interval", interval, "minute, hour or day")
        since, now = self._window(secs)
        first = since // width * width
        if (now - first) // width >= MAX_BUCKETS:
            raise BadValue("secs", secs, f"at most {MAX_BUCKETS} intervals; take a longer interval")
        # what is left over is taken away, so that both databases divide whole numbers alike
        begins = E.stored_at - E.stored_at % width
        statement = (
            select(begins.label("begins"), func.count().label("found"))
            .where(E.stored_at >= since, E.stored_at <= now, *conditions)
            .group_by(begins)
        )

        async def work(connection: AsyncConnection) -> list[Bucket]:
            counts = {row.begins: row.found for row in await connection.execute(statement)}
            return [Bucket(from_micros(start), counts.get(start, 0)) for start in range(first, now + 1, width)]

        return await self._database.read(work)

    async def latency(self, *, secs: float = 3600, channel: str | None = None) -> Latency:
        since, now = self._window(secs)
        asked = select(E.id, E.recipient, E.stored_at).where(
            E.stored_at >= since, E.stored_at <= now, E.kind.in_(sorted(ASKING_KINDS))
        )
        if channel is not None:
            asked = asked.where(E.channel == channel)
        newest = asked.order_by(E.stored_at.desc(), E.seq.desc()).limit(MAX_SAMPLES).subquery()
        reply = envelopes.alias("reply")
        first_reply = (
            select(func.min(reply.c.stored_at))
            .where(
                reply.c.reply_to == newest.c.id,
                unindexed(reply.c.kind) == "message",
                or_(newest.c.recipient.is_(None), unindexed(reply.c.sender) == newest.c.recipient),
            )
            .correlate(newest)
            .scalar_subquery()
        )
        waits = select((first_reply - newest.c.stored_at).label("wait")).subquery()
        # a reply can be stored with an earlier time: best-effort rows have the router's clock, streams the server's
        known = (
            select(case((waits.c.wait < 0, 0), else_=waits.c.wait).label("wait"))
            .where(waits.c.wait.is_not(None))
            .subquery()
        )
        ranked = select(
            known.c.wait,
            func.row_number().over(order_by=known.c.wait).label("place"),
            func.count().over().label("total"),
        ).subquery()

        def percentile(percent: int) -> ColumnElement[Any]:
            """By nearest rank: the smallest that at least that many percent do not exceed."""
            return func.min(case((ranked.c.place * 100 >= ranked.c.total * percent, ranked.c.wait)))

        statement = select(
            func.count().label("samples"),
            func.avg(cast(ranked.c.wait, Float)).label("average"),
            func.min(ranked.c.wait).label("least"),
            func.max(ranked.c.wait).label("most"),
            percentile(50).label("p50"),
            percentile(99).label("p99"),
        )

        async def work(connection: AsyncConnection) -> Latency:
            row = (await connection.execute(statement)).one()
            if not row.samples:
                return Latency(samples=0)
            return Latency(
                samples=row.samples,
                avg_ms=float(row.average) / 1000,
                min_ms=row.least / 1000,
                max_ms=row.most / 1000,
                p50_ms=row.p50 / 1000,
                p99_ms=row.p99 / 1000,
            )

        return await self._database.read(work)

    async def agent_activity(self, identity: str, *, secs: float = 86400) -> Activity:
        since, now = self._window(secs)
        in_window = and_(E.stored_at >= since, E.stored_at <= now)
        sent = select(
            func.count().label("sent"),
            func.coalesce(func.sum(case((E.kind == "event", 1), else_=0)), 0).label("events"),
        ).where(E.sender == identity, in_window)
        received = select(func.count()).select_from(envelopes).where(E.recipient == identity, in_window)
        pending = (
            select(func.count()).select_from(envelopes).where(E.recipient == identity, E.is_open == 1, not_(answered()))
        )

        async def work(connection: AsyncConnection) -> Activity:
            row = (await connection.execute(sent)).one()
            return Activity(
                sent=row.sent,
                events=int(row.events),
                received_dm=(await connection.execute(received)).scalar_one(),
                pending=(await connection.execute(pending)).scalar_one(),
            )

        return await self._database.read(work)

    async def channel_hotspots(self, *, secs: float = 3600, limit: int = 10) -> list[Hotspot]:
        limit = pages.check_limit(limit)
        since, now = self._window(secs)
        messages = func.count().label("messages")
        statement = (
            select(E.channel, messages)
            .where(E.stored_at >= since, E.stored_at <= now)
            .group_by(E.channel)
            .order_by(messages.desc(), E.channel)
            .limit(pages.check_limit(limit))
        )

        async def work(connection: AsyncConnection) -> list[Hotspot]:
            return [Hotspot(row.channel, row.messages) for row in await connection.execute(statement)]

        return await self._database.read(work)

    def _window(self, secs: float) -> tuple[int, int]:
        """(from, to) in microseconds."""
        if not 1 <= secs <= MAX_SECS:  # also refuses NaN
            raise BadValue("secs", secs, f"a number from 1 to {MAX_SECS}")
        now = to_micros(self._clock())
        return now - int(secs * SECOND), now
