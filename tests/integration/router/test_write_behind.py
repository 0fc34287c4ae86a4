"""The queue into storage: bounded by count and bytes, and nothing is lost in silence."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from hub.delivery.connection import Connection
from hub.router.dead_letters import DeadLetters
from hub.router.metrics import RouterMetrics
from hub.router.rules import Drop, Reason
from hub.router.write_behind import MOST_BYTES, WriteBehind
from hub.storage import open_storage
from hub.storage.records import BatchReport, NewDeadLetter, Refused
from tests.support.bus import connect
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually


@pytest.fixture
async def connection(nats_server: NatsServer) -> AsyncIterator[Connection]:
    opened = await connect(nats_server.url)
    yield opened
    await opened.close()


class Sink:
    """A storage that takes nothing until it may."""

    def __init__(self, connection: Connection) -> None:
        self.may_write = asyncio.Event()
        self.written: list[str] = []
        self.lost: list[tuple[str, str]] = []
        self.queue = WriteBehind[str](
            connection,
            name="test",
            write=self.write,
            most=1000,
            on_lost=lambda item, why: self.lost.append((item, why)),
        )

    async def write(self, batch: list[str]) -> BatchReport:
        await self.may_write.wait()
        refused = tuple(Refused(index, "bad") for index, item in enumerate(batch) if item.startswith("bad"))
        self.written += [item for item in batch if not item.startswith("bad")]
        return BatchReport(len(batch) - len(refused), 0, refused)


async def test_a_queue_takes_no_more_bytes_than_it_may_and_has_room_again_once_it_wrote(
    connection: Connection,
) -> None:
    sink = Sink(connection)
    sink.queue.start()
    share = MOST_BYTES // 8

    assert [sink.queue.offer(f"{number}", share) for number in range(9)] == [True] * 8 + [False]
    assert sink.lost == [("8", "the queue is full")]

    sink.may_write.set()
    await eventually(lambda: len(sink.written) == 8, what="all written")
    assert sink.queue.offer("9", share)
    await sink.queue.stop()
    assert sink.written == [*map(str, range(8)), "9"]


async def test_what_waits_when_storage_never_answered_is_told_at_the_stop(connection: Connection) -> None:
    sink = Sink(connection)
    sink.queue.offer("waits", 1)

    await sink.queue.stop()

    assert [item for item, _ in sink.lost] == ["waits"]


async def test_what_storage_refuses_is_told_and_the_rest_is_written(connection: Connection) -> None:
    sink = Sink(connection)
    for item in ("a", "bad one", "b"):
        sink.queue.offer(item, 1)
    sink.may_write.set()
    sink.queue.start()

    await sink.queue.stop()

    assert (sink.written, sink.lost) == (["a", "b"], [("bad one", "bad")])


async def test_a_dead_letter_keeps_no_more_of_its_headers_than_of_its_body(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage("postgresql://nobody@127.0.0.1:1/none")
    assert storage is not None
    letters = DeadLetters(connection, storage, RouterMetrics())
    kept: list[NewDeadLetter] = []
    monkeypatch.setattr(letters._queue, "offer", lambda letter, size: kept.append(letter))

    letters.put("hub.pub.x.y", [("a", "1"), ("b", "x" * 8_000_000), ("c", "2")], b"{}", Drop(Reason.REPLAYED, "test"))

    assert kept[0].headers[0] == ("a", "1")
    assert sum(len(value) for _, value in kept[0].headers) <= 65_536
