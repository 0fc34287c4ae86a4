"""The run log over PostgreSQL: a run's row is its counter and its lock, one transaction an append."""

import asyncio
from datetime import datetime
from functools import partial
from typing import Any

import asyncpg
from tenacity import AsyncRetrying, retry_if_exception, stop_never

from hub.events.appending import judge_append, known_record
from hub.events.base import CleanupReport
from hub.events.cursor import Position, event_digest
from hub.events.errors import BackendUnavailableError, StreamMisconfiguredError
from hub.events.limits import Limits, reconnect_wait
from hub.events.log import Feed, Item, PollFeed, Slice, Tail, Wakes
from hub.events.postgres.errors import backend
from hub.events.postgres.listener import Listener, Open, Release
from hub.events.postgres.migrations import NEWEST, newer
from hub.events.records import AgentEventRecord, Draft, Ownership, RunKey, decode, digest, with_sequence

ANSWER_SECS = 5.0  # for one statement; each is a matter of milliseconds
TABLES = {"runs": "SELECT, INSERT, UPDATE", "records": "SELECT, INSERT, DELETE, UPDATE", "readers": "SELECT, INSERT"}


class PostgresLog:
    """See `RunLog`.

    Args:
        pool: the host's asyncpg pool.
        schema: where the tables are; a checked name.
        limits: of the source.
        open_listener: opens the dedicated connection.
        release_listener: gives it back.
    """

    adapter = "postgres"

    def __init__(
        self,
        pool: asyncpg.Pool,
        schema: str,
        limits: Limits,
        *,
        open_listener: Open,
        release_listener: Release,
    ) -> None:
        self.stream = schema
        self._pool = pool
        self._limits = limits
        self._sql = Statements(schema)
        self._channel = f"agent_events_{digest(schema).hex()[:16]}"
        self._wakes = Wakes()
        self.listener = Listener(
            open_listener, release_listener, channel=self._channel, wakes=self._wakes, limits=limits
        )
        self._verified = False
        self._verifying = asyncio.Lock()

    async def ready(self) -> None:
        if self._verified:
            return
        async with self._verifying:
            if not self._verified:
                await self.verify()

    async def verify(self) -> None:
        with backend(self.stream, "verifying the database"):
            async with asyncio.timeout(ANSWER_SECS), self._pool.acquire() as connection:
                found = await self._problems(connection)
        if found:
            raise StreamMisconfiguredError(self.stream, found)
        self._verified = True

    async def _problems(self, connection: Any) -> list[str]:
        found = []
        encoding = await connection.fetchval("SHOW server_encoding")
        if encoding != "UTF8":
            found.append(f"the database's encoding is {encoding}; it must be UTF8")
        if await connection.fetchval("SELECT pg_is_in_recovery()"):
            found.append("the server is a standby; events cannot be appended")
        if await connection.fetchval("SELECT to_regclass($1)", f'"{self.stream}".migrations') is None:
            return [*found, "its tables are not there; run migrate()"]
        version = await connection.fetchval(self._sql.version)
        if version < NEWEST:
            found.append(f"its tables are of version {version}; run migrate() to bring them to {NEWEST}")
        elif version > NEWEST:
            found.append(newer(version))
        for table, needed in TABLES.items():
            for privilege in needed.split(", "):
                name = f'"{self.stream}".{table}'
                if not await connection.fetchval("SELECT has_table_privilege($1, $2)", name, privilege):
                    found.append(f"{privilege} on {table} is not granted")
        return found

    async def append(self, draft: Draft) -> AgentEventRecord:
        failed: list[BackendUnavailableError] = []

        async def attempt() -> AgentEventRecord:
            try:
                return await self._append(draft)
            except BackendUnavailableError as error:
                failed.append(error)
                raise

        retrying = AsyncRetrying(
            retry=retry_if_exception(lambda e: isinstance(e, BackendUnavailableError) and e.retriable),
            stop=stop_never,  # the timeout around it is what stops it
            wait=reconnect_wait(self._limits),
            reraise=True,
        )
        try:
            async with asyncio.timeout(self._limits.append_timeout_secs):
                return await retrying(attempt)
        except TimeoutError as error:
            if failed:
                raise failed[-1] from error
            raise BackendUnavailableError("appending: no answer in time; append it again") from error

    async def _append(self, draft: Draft) -> AgentEventRecord:
        with backend(self.stream, "appending"):
            async with asyncio.timeout(ANSWER_SECS), self._pool.acquire() as connection, connection.transaction():
                return await self._store(connection, draft)

    async def _store(self, connection: Any, draft: Draft) -> AgentEventRecord:
        owner, record = draft.run.ownership, draft.record
        # Also locks the run's row until the end of the transaction: producers queue here, so numbers have no gap.
        columns = run_columns(draft.run)
        run = await connection.fetchrow(self._sql.lock_run, *columns)
        if run is None:
            run = await connection.fetchrow(
                self._sql.make_run, *columns, owner.tenant_id, owner.account_id, owner.user_id
            )
        key, sequence = run["run_key"], run["last_sequence"] + 1
        known = await connection.fetchrow(self._sql.by_id, key, record.id)
        if known is not None:
            return known_record(draft, read_record(known["data"], known["sequence"]))
        stored = judge_append(
            draft,
            sequence=sequence,
            closed=run["closed"],
            retained=await self._retained(connection, key, sequence),
            most=self._limits.max_run_events,
        )
        await connection.execute(
            self._sql.insert,
            key,
            sequence,
            record.id,
            datetime.fromisoformat(record.timestamp),
            with_sequence(draft.body, sequence),
            record.terminal,
            self._channel,
            run_name(draft.run),
        )
        return stored

    async def _retained(self, connection: Any, key: int, sequence: int) -> int:
        most = self._limits.max_run_events
        if sequence <= most:
            return sequence - 1
        # Counting a long run at every append would cost more than the append: the span is an upper bound.
        oldest = await connection.fetchval(self._sql.oldest, key)
        span = sequence - (oldest or sequence)
        return span if span < most else int(await connection.fetchval(self._sql.count, key))

    async def read(self, run: RunKey, position: Position, limit: int, *, want_first: bool) -> Slice:
        with backend(self.stream, "reading events"):
            async with asyncio.timeout(ANSWER_SECS), self._pool.acquire() as connection:
                rows = await connection.fetch(
                    self._sql.read,
                    owner_key(run.ownership),
                    run.session_id,
                    run.run_id,
                    position.sequence,
                    limit + 2,  # the event at the position, and one to tell whether there is more
                )
        if not rows:
            return Slice(items=[], more=False)
        anchor = None
        items: list[Item] = []
        for row in rows:
            sequence = row["sequence"]
            if sequence is None:
                continue
            if sequence == position.sequence:
                anchor = event_digest(row["id"])
            else:
                items.append(Item(sequence, sequence, read_record(row["data"], sequence)))
        last = rows[0]["last_sequence"]
        return Slice(
            items=items[:limit],
            more=len(items) > limit,
            anchor=anchor,
            tail=Tail(last, rows[0]["closed"]) if last else None,
            first=rows[0]["oldest"] if want_first else None,
        )

    async def feed(self, run: RunKey, durable: str | None) -> tuple[Feed, Position | None]:
        self.listener.ensure()
        known = None if durable is None else await self._standing(run, durable)
        feed = PollFeed(
            self,
            run,
            wakes=self._wakes,
            key=run_name(run),
            batch=self._limits.max_page_size,
            poll_secs=self._limits.poll_secs,
            settle=None if durable is None else partial(self._settle, run, durable),
        )
        return feed, known

    async def _standing(self, run: RunKey, durable: str) -> Position | None:
        with backend(self.stream, "attaching a durable reader"):
            row = await self._pool.fetchrow(self._sql.reader, *run_columns(run), durable, timeout=ANSWER_SECS)
        return None if row is None else Position(row["sequence"], row["sequence"], row["event"])

    async def _settle(self, run: RunKey, durable: str, position: Position) -> None:
        with backend(self.stream, "settling an event"):
            await self._pool.execute(
                self._sql.settle, *run_columns(run), durable, position.sequence, position.event, timeout=ANSWER_SECS
            )

    async def forget(self, run: RunKey, durable: str) -> None:
        with backend(self.stream, "forgetting a durable reader"):
            await self._pool.execute(self._sql.forget, *run_columns(run), durable, timeout=ANSWER_SECS)

    async def cleanup(self, owner: Ownership, before: str, limit: int, *, keep_open: bool) -> CleanupReport:
        with backend(self.stream, "cleaning up"):
            async with asyncio.timeout(self._limits.append_timeout_secs), self._pool.acquire() as connection:
                row = await connection.fetchrow(
                    self._sql.cleanup, owner_key(owner), datetime.fromisoformat(before), limit, keep_open
                )
        return CleanupReport(deleted=row["deleted"], scanned=row["found"], done=row["found"] <= limit)

    async def close(self) -> None:
        await self.listener.stop()


class Statements:
    """The SQL of one schema. The schema's name is checked; everything else is a parameter."""

    def __init__(self, schema: str) -> None:
        runs, records, readers = (f'"{schema}".{table}' for table in ("runs", "records", "readers"))
        this_run = f"(SELECT run_key FROM {runs} WHERE owner = $1 AND session_id = $2 AND run_id = $3)"  # noqa: S608
        self.version = f'SELECT coalesce(max(version), 0) FROM "{schema}".migrations'  # noqa: S608
        self.lock_run = f"""
            SELECT run_key, last_sequence, closed FROM {runs}
            WHERE owner = $1 AND session_id = $2 AND run_id = $3 FOR UPDATE
        """  # noqa: S608
        self.make_run = f"""
            INSERT INTO {runs} (owner, session_id, run_id, tenant_id, account_id, user_id)
            VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (owner, session_id, run_id) DO UPDATE SET last_sequence = runs.last_sequence
            RETURNING run_key, last_sequence, closed
        """  # noqa: S608
        self.by_id = f"SELECT sequence, data FROM {records} WHERE run_key = $1 AND id = $2"  # noqa: S608
        self.oldest = f"SELECT min(sequence) FROM {records} WHERE run_key = $1"  # noqa: S608
        self.count = f"SELECT count(*) FROM {records} WHERE run_key = $1"  # noqa: S608
        self.insert = f"""
            WITH record AS (
                INSERT INTO {records} (run_key, sequence, id, occurred_at, data) VALUES ($1, $2, $3, $4, $5)
            ), run AS (
                UPDATE {runs} SET last_sequence = $2, closed = $6 WHERE run_key = $1
            )
            SELECT pg_notify($7, $8)
        """  # noqa: S608
        self.read = f"""
            SELECT run.last_sequence, run.closed, record.sequence, record.id, record.data,
                (SELECT min(sequence) FROM {records} WHERE run_key = run.run_key) AS oldest
            FROM {runs} run LEFT JOIN LATERAL (
                SELECT sequence, id, data FROM {records}
                WHERE run_key = run.run_key AND sequence >= $4 ORDER BY sequence LIMIT $5
            ) record ON TRUE
            WHERE run.owner = $1 AND run.session_id = $2 AND run.run_id = $3
            ORDER BY record.sequence
        """  # noqa: S608
        self.reader = f"SELECT sequence, event FROM {readers} WHERE run_key = {this_run} AND name = $4"  # noqa: S608
        self.settle = f"""
            INSERT INTO {readers} (run_key, name, sequence, event) VALUES ({this_run}, $4, $5, $6)
            ON CONFLICT (run_key, name) DO UPDATE SET sequence = excluded.sequence, event = excluded.event
            WHERE readers.sequence < excluded.sequence
        """  # noqa: S608
        self.forget = f"DELETE FROM {readers} WHERE run_key = {this_run} AND name = $4"  # noqa: S608
        # Selects one more than it deletes, to know whether it is done.
        self.cleanup = f"""
            WITH old AS (
                SELECT record.run_key, record.sequence
                FROM {records} record JOIN {runs} run USING (run_key)
                WHERE run.owner = $1 AND record.occurred_at < $2 AND record.sequence < run.last_sequence
                    AND (run.closed OR NOT $4)
                ORDER BY record.place LIMIT $3 + 1
                FOR UPDATE OF record SKIP LOCKED
            ), gone AS (
                DELETE FROM {records} record USING (SELECT * FROM old LIMIT $3) first
                WHERE record.run_key = first.run_key AND record.sequence = first.sequence
                RETURNING 1
            )
            SELECT (SELECT count(*) FROM gone) AS deleted, (SELECT count(*) FROM old) AS found
        """  # noqa: S608


def owner_key(owner: Ownership) -> bytes:
    """What an owner's rows are keyed by."""
    return digest(owner.tenant_id, owner.account_id, owner.user_id)


def run_columns(run: RunKey) -> tuple[bytes, str, str]:
    return owner_key(run.ownership), run.session_id, run.run_id


def run_name(run: RunKey) -> str:
    """What a wake names: nobody who listens learns whose run it is."""
    owner = run.ownership
    return digest(owner.tenant_id, owner.account_id, owner.user_id, run.session_id, run.run_id).hex()[:32]


def read_record(data: bytes, sequence: int) -> AgentEventRecord | None:
    """The record in a row; None where it is broken."""
    record = decode(data)
    return record if record is not None and record.sequence == sequence else None
