"""PostgreSQL that goes away and comes back."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from hub.storage import Storage, StorageUnavailable, open_storage
from hub.storage.conformance.harness import envelope
from hub.storage.records import Position
from tests.support.postgres import Postgres
from tests.support.waiting import eventually


def opened(url: str) -> Storage:
    storage = open_storage(url)
    assert storage is not None
    return storage


@pytest.fixture
async def postgres_server() -> AsyncIterator[Postgres]:
    """A cluster to kill, which keeps what it committed."""
    cluster = Postgres(durable=True)
    try:
        yield await cluster.start()
    finally:
        await cluster.remove()


async def test_what_a_writer_repeats_over_outages_is_stored_once_and_whole(postgres_server: Postgres) -> None:
    """The mirror's loop: a batch that failed, or whose outcome is unknown, is written again."""
    storage = opened(postgres_server.url())
    failures: list[StorageUnavailable] = []
    total = 60
    written = 0

    async def write() -> None:
        nonlocal written
        while written < total:
            rows = [envelope(f"b{written}-{number}", after_secs=written) for number in range(50)]
            position = Position(stream="S", created=rows[0].timestamp.replace(year=2029), sequence=written + 1)
            try:
                report = await storage.envelopes.insert_mirrored(rows, [position])
            except StorageUnavailable as error:
                failures.append(error)
                await asyncio.sleep(0.05)
                continue
            assert report.stored + report.duplicates == 50
            assert report.refused == ()
            written += 1

    async with storage:
        writing = asyncio.create_task(write())
        for after in (5, 15, 25):
            await eventually(lambda after=after: written >= after or writing.done(), within=30, what="some batches")
            await postgres_server.kill()
            seen = len(failures)
            await eventually(lambda seen=seen: len(failures) > seen or writing.done(), within=30, what="a failed write")
            await postgres_server.start()
        async with asyncio.timeout(60):
            await writing
        assert failures
        found: set[str] = set()
        cursor: str | None = None
        while True:
            page = await storage.envelopes.query(limit=1000, cursor=cursor)
            found |= {item.id for item in page.items}
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == {f"b{batch}-{number}" for batch in range(total) for number in range(50)}
        position = await storage.envelopes.mirror_position("S")
        assert position is not None
        assert position.sequence == total


async def test_a_storage_that_is_down_at_the_start_is_opened_later(postgres_server: Postgres) -> None:
    await postgres_server.stop()
    storage = opened(postgres_server.url())
    begin = time.monotonic()
    with pytest.raises(StorageUnavailable):
        await storage.open()
    with pytest.raises(StorageUnavailable):
        await storage.check_health()
    assert time.monotonic() - begin < 20
    await postgres_server.start()
    async with storage:
        assert len(storage.storage_id) == 8
        await postgres_server.restart()
        assert (await storage.envelopes.query()).items == []  # dead connections are replaced without a failure


async def test_a_server_that_does_not_answer_is_unavailable(postgres_server: Postgres) -> None:
    storage = opened(postgres_server.url("no_such_database"))
    with pytest.raises(StorageUnavailable, match="does not exist"):
        await storage.open()
    await storage.close()
