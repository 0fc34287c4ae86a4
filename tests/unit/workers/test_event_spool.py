"""The spool of events: bounded, in order, and honest about what it lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hub.events import AgentEventRecord, Ownership
from hub.events.producing import RunProducer
from workers.event_spool import MEMORY_MOST, EventSpool


def event(number: int, kind: str = "message_delta", run: str = "r") -> AgentEventRecord:
    producer = RunProducer(
        None,  # type: ignore[arg-type]  # nothing is appended
        ownership=Ownership(tenant_id="t"),
        session_id="s",
        run_id=run,
        redact=lambda members: members,
    )
    return producer.record(kind, event_id=f"e{number}", number=number)


@asynccontextmanager
async def opened(path: Path, **options: int) -> AsyncIterator[EventSpool]:
    spool = EventSpool(path, **options)
    await spool.open()
    writing = asyncio.create_task(spool.write())
    try:
        yield spool
    finally:
        writing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await writing
        await spool.close()


async def ids(spool: EventSpool) -> list[str]:
    return [spooled.record.id for spooled in await spool.page()]


async def test_events_come_out_in_order_also_after_it_was_closed(tmp_path: Path) -> None:
    async with opened(tmp_path / "spool.db") as spool:
        for number in range(5):
            spool.put(event(number))
        assert await spool.settled(5)
        assert await ids(spool) == ["e0", "e1", "e2", "e3", "e4"]
        await spool.forget((await spool.page())[1].seq)
    async with opened(tmp_path / "spool.db") as spool:
        assert spool.waiting == 3
        assert await ids(spool) == ["e2", "e3", "e4"]


async def test_what_does_not_fit_is_counted_and_a_marker_stands_in_its_place(tmp_path: Path) -> None:
    async with opened(tmp_path / "spool.db", most_events=3) as spool:
        for number in range(6):
            spool.put(event(number))
        assert await spool.settled(5)
        assert (spool.dropped, spool.waiting) == (3, 3)
    async with opened(tmp_path / "spool.db", most_events=3) as spool:  # what is missing is known over a restart
        spool.put(event(7, "agent_finished"))
        spool.put(event(8, "agent_finished", run="other"))
        assert await spool.settled(5)
        records = [spooled.record for spooled in await spool.page()]
    assert [record.id for record in records] == ["e0", "e1", "e2", "e7-dropped", "e7", "e8"]
    assert records[3].type == "events_dropped"
    assert records[3].event["count"] == 3
    assert records[3].run_id == "r"


async def test_bytes_are_bounded_too(tmp_path: Path) -> None:
    async with opened(tmp_path / "spool.db", most_bytes=1000) as spool:
        for number in range(20):
            spool.put(event(number))
        assert await spool.settled(5)
        assert 0 < spool.waiting < 10
        assert spool.waiting + spool.dropped == 20


async def test_memory_is_bounded_while_the_disk_does_not_take_anything(tmp_path: Path) -> None:
    spool = EventSpool(tmp_path / "spool.db")
    for number in range(MEMORY_MOST + 10):
        spool.put(event(number))
    assert spool.waiting == MEMORY_MOST
    assert spool.dropped == 10


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be looked at as one" * 50])
async def test_a_file_that_is_no_spool_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "spool.db").write_bytes(content)
    spool = EventSpool(tmp_path / "spool.db")
    with pytest.raises(Exception, match="not a database"):
        await spool.open()
    await spool.close()
