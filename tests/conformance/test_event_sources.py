"""One conformance suite for every event source."""

import pytest

from hub.events import EventRead, MemoryEventSource, MemoryEventStore
from hub.events.conformance import names, suite
from hub.events.memory import StoredRecord
from hub.events.records import run_key


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
