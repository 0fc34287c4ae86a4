"""One conformance suite for every event source."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import nats
import pytest

from hub.events import (
    EventRead,
    JetStreamEventSource,
    MemoryEventSource,
    MemoryEventStore,
    PostgresEventSource,
)
from hub.events.conformance import names, suite
from hub.events.jetstream.fake import FakeStream, Faults
from hub.events.jetstream.subjects import DEFAULT_PREFIX, Subjects
from hub.events.memory import StoredRecord
from hub.events.postgres.log import run_columns, run_name
from hub.events.postgres.migrations import NEWEST
from hub.events.records import run_key
from tests.support.nats_server import NatsServer
from tests.support.postgres import Postgres


@pytest.mark.parametrize("name", names())
async def test_memory(name: str) -> None:
    store = MemoryEventStore()

    async def poison(read: EventRead) -> None:
        run = store.run(run_key(read.ownership, read.session_id, read.run_id))
        sequence = run.records[-1].sequence + 1 if run.records else 1
        run.add(
            StoredRecord(sequence, store.next_place(), f"broken-{sequence}", "2026-01-01T00:00:00.000Z", False, b"{")
        )

    await suite(lambda **options: MemoryEventSource(store=store, **options), poison=poison)[name].run()


@pytest.mark.parametrize("short_reads", [0, 3])
@pytest.mark.parametrize("name", names())
async def test_fake_jetstream(name: str, short_reads: int) -> None:
    stream = FakeStream("events", faults=Faults(short_reads=short_reads))
    await JetStreamEventSource(stream, stream="events", cursor_secret=b"x" * 32).ensure_stream()

    async def poison(read: EventRead) -> None:
        subject = Subjects(DEFAULT_PREFIX).run(run_key(read.ownership, read.session_id, read.run_id))
        stream.store(subject, b'{"id": "broken')

    def make(**options: Any) -> JetStreamEventSource:
        return JetStreamEventSource(stream, stream="events", **options)

    await suite(make, poison=poison)[name].run()


@pytest.fixture(scope="module")
def jetstream_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One server for the module: the cases share its stream."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    asyncio.run(server.start())
    yield server
    asyncio.run(server.kill())


@pytest.mark.parametrize("name", names())
async def test_jetstream(name: str, jetstream_server: NatsServer) -> None:
    connection = await nats.connect(jetstream_server.url)
    try:
        setup = JetStreamEventSource(connection, stream="events", cursor_secret=b"x" * 32)
        await setup.ensure_stream()
        await setup.close()

        async def poison(read: EventRead) -> None:
            subject = Subjects(DEFAULT_PREFIX).run(run_key(read.ownership, read.session_id, read.run_id))
            await connection.jetstream().publish(subject, b'{"id": "broken')

        def make(**options: Any) -> JetStreamEventSource:
            return JetStreamEventSource(connection, stream="events", **options)

        await suite(make, poison=poison)[name].run()
        info = await connection.jetstream().stream_info("events")
        assert info.state.consumer_count == 0, "reading leaves no consumer behind"
        assert not connection.is_closed
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def postgres_database(postgres_cluster: Postgres) -> str:
    """One database for the module: the cases share its tables."""

    async def prepare() -> str:
        address = postgres_cluster.url(await postgres_cluster.create_database())
        async with asyncpg.create_pool(address, min_size=1) as pool:
            source = PostgresEventSource(pool, cursor_secret=b"x" * 32)
            assert await source.migrate() == NEWEST
            assert await source.migrate() == 0
        return address

    return asyncio.run(prepare())


@pytest.mark.parametrize("name", names())
async def test_postgres(name: str, postgres_database: str) -> None:
    async with asyncpg.create_pool(postgres_database, min_size=1, max_size=24) as pool:

        async def poison(read: EventRead) -> None:
            run = run_key(read.ownership, read.session_id, read.run_id)
            log = PostgresEventSource(pool, cursor_secret=b"x" * 32)._pg_log
            owner = run.ownership
            async with pool.acquire() as connection, connection.transaction():
                row = await connection.fetchrow(
                    log._sql.make_run, *run_columns(run), owner.tenant_id, owner.account_id, owner.user_id
                )
                sequence = row["last_sequence"] + 1
                moment = datetime(2026, 1, 1, tzinfo=UTC)
                broken = (f"broken-{sequence}", moment, b"{", False)
                await connection.execute(
                    log._sql.insert, row["run_key"], sequence, *broken, log._channel, run_name(run)
                )

        def make(**options: Any) -> PostgresEventSource:
            return PostgresEventSource(pool, listen=postgres_database, **options)

        await suite(make, poison=poison)[name].run()
