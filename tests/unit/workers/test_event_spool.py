"""The spool of events: bounded, in order, and honest about what it lost."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hub.events import AgentEventRecord, Ownership
from hub.events.producing import RunProducer
from tests.support.waiting import eventually
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


async def test_what_a_full_memory_lost_is_told_where_it_is_missing(tmp_path: Path) -> None:
    spool = EventSpool(tmp_path / "spool.db")
    await spool.open()
    for number in range(MEMORY_MOST + 3):
        spool.put(event(number))
    spool.put(event(9000, "agent_finished"))  # an end is always taken
    writing = asyncio.create_task(spool.write())
    assert await spool.settled(10)
    await spool.forget((await spool.page())[0].seq + MEMORY_MOST - 2)
    last = [spooled.record for spooled in await spool.page()]
    assert [record.id for record in last] == [f"e{MEMORY_MOST - 1}", "e9000-dropped", "e9000"]
    assert last[1].event["count"] == 3
    writing.cancel()
    await asyncio.wait({writing})
    await spool.close()


async def test_a_damaged_file_is_set_aside_and_a_new_one_made(tmp_path: Path) -> None:
    content = b"no database at all, but long enough to be looked at as one" * 50
    (tmp_path / "spool.db").write_bytes(content)
    async with opened(tmp_path / "spool.db") as spool:
        spool.put(event(1))
        assert await ids(spool) == ["e1"]
    (aside,) = tmp_path.glob("spool.db.damaged-*")
    assert aside.read_bytes() == content


async def test_a_row_that_cannot_be_read_costs_that_event_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "spool.db") as spool:
        for number in range(3):
            spool.put(event(number))
        assert await spool.settled(5)
    with contextlib.closing(sqlite3.connect(tmp_path / "spool.db")) as database, database:
        database.execute("UPDATE event SET body = x'7b' WHERE seq = 2")
    async with opened(tmp_path / "spool.db") as spool:
        assert await ids(spool) == ["e0", "e2"]


async def test_a_disk_that_refuses_is_tried_again_and_nothing_is_lost_or_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.event_spool.RETRY_SECS", 0.01)
    async with opened(tmp_path / "spool.db") as spool:
        assert spool._database is not None
        pages = spool._database.execute("PRAGMA page_count").fetchone()[0]
        spool._database.execute(f"PRAGMA max_page_count = {pages}")  # "database or disk is full"
        for number in range(500):
            spool.put(event(number))
        await eventually(lambda: spool.trouble, what="it says that it cannot write")
        spool.put(event(500))
        spool._database.execute("PRAGMA max_page_count = 100000")
        assert await spool.settled(10)
        assert spool.trouble is None
        assert spool.waiting == 501
        assert await ids(spool) == [f"e{number}" for number in range(100)]


async def test_runs_that_began_and_did_not_end_are_known_to_the_next_process(tmp_path: Path) -> None:
    async with opened(tmp_path / "spool.db") as spool:
        for number, run in enumerate(("over", "open")):
            spool.put(event(number, "agent_started", run=run), opened_by="ann")
        spool.put(event(2, "agent_finished", run="over"))
        assert await spool.settled(5)
    async with opened(tmp_path / "spool.db") as spool:
        assert spool.left_open == {("t", "s", "open"): "ann"}
