"""One conformance suite for every event source."""

import asyncio
from collections.abc import Iterator
from typing import Any

import nats
import pytest

from hub.events import EventRead, JetStreamEventSource, MemoryEventSource, MemoryEventStore
from hub.events.conformance import names, suite
from hub.events.jetstream.subjects import DEFAULT_PREFIX, Subjects
from hub.events.memory import StoredRecord
from hub.events.records import run_key
from tests.support.nats_server import NatsServer


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
