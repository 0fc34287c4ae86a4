"""The JetStream adapter over the fake: lost acks, races, short reads, lost feeds, replicas that are behind."""

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest

from hub.events import AppendConflictError, InvalidInputError, JetStreamEventSource
from hub.events.conformance.world import World, refused
from hub.events.cursor import Position
from hub.events.jetstream.fake import FakeStream
from hub.events.jetstream.surface import StaleExpectationError
from hub.events.producing import RunProducer
from hub.events.subscription import LogSubscription
from tests.support.waiting import eventually


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream("events")


@pytest.fixture
async def world(stream: FakeStream) -> World:
    await JetStreamEventSource(stream, stream="events", cursor_secret=b"x" * 32).ensure_stream()
    quick: dict[str, Any] = {"reconnect_min_secs": 0.01, "reconnect_max_secs": 0.02, "poll_secs": 0.05}
    return World(lambda **options: JetStreamEventSource(stream, stream="events", **{**quick, **options}), None)


async def test_an_append_whose_ack_was_lost_is_stored_once(world: World, stream: FakeStream) -> None:
    run = world.run()
    await run.append("one")
    stream.faults.lose_acks = 1
    assert (await run.append("two")).sequence == 2
    assert await run.ids() == ["one", "two"]


async def test_it_is_found_by_another_process_beyond_the_duplicate_window(world: World, stream: FakeStream) -> None:
    run = world.run(world.source(append_timeout_secs=0.05))
    stream.faults.lose_server = True
    async with refused("UNAVAILABLE"):
        await run.append("one")
    stream.faults.down = 0
    stream.forget_message_ids()
    assert (await run.on(world.source()).append("one")).sequence == 1
    assert await run.ids() == ["one"]


async def test_a_reader_leaves_also_when_its_client_swallows_the_cancel(world: World) -> None:
    run = world.run()
    await run.append("one")
    waits: list[str] = []

    async def wait(_position: Position) -> None:
        waits.append("begun")
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    async with asyncio.timeout(10):
        async with run.source.subscribe(run.read()) as events:
            assert isinstance(events, LogSubscription)
            assert events._feed is not None
            await anext(events)
            events._feed.wait = wait  # type: ignore[method-assign, assignment]
            following = asyncio.ensure_future(anext(events))
            await eventually(lambda: waits)
            following.cancel()
    assert waits == ["begun"]


async def test_a_race_that_is_lost_is_run_again(world: World, stream: FakeStream) -> None:
    run, other = world.run(), world.source()

    async def be_faster() -> None:
        await run.on(other).append("faster")

    await run.append("one")
    stream.faults.before_publish = be_faster
    assert (await run.append("two")).sequence == 3
    assert await run.ids() == ["one", "faster", "two"]


async def test_a_race_against_the_same_id_ends_in_one_record(world: World, stream: FakeStream) -> None:
    run, other = world.run(), world.source()
    stream.faults.before_publish = lambda: run.on(other).append("same")
    assert (await run.append("same")).sequence == 1
    stream.faults.before_publish = lambda: run.on(other).append("taken", metadata={})
    with pytest.raises(InvalidInputError):
        await run.append("taken")
    assert await run.ids() == ["same", "taken"]


async def test_a_run_that_ends_under_a_producer_takes_nothing_more(world: World, stream: FakeStream) -> None:
    run, other = world.run(), world.source()
    await run.append("one")
    stream.faults.before_publish = lambda: run.on(other).append("end", "agent_finished")
    with pytest.raises(InvalidInputError, match="ended"):
        await run.append("two")


async def test_an_expectation_is_judged_by_the_stream_not_by_memory(world: World) -> None:
    run, other = world.run(), world.source()
    await run.append("one")
    await run.on(other).append("two")
    assert (await run.append("three", sequence=3)).sequence == 3


async def test_a_race_that_is_always_lost_is_a_conflict(
    world: World, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def always_stale(*_: Any, **__: Any) -> None:
        await asyncio.sleep(0)
        raise StaleExpectationError

    monkeypatch.setattr(FakeStream, "publish", always_stale)
    run = world.run(world.source(append_timeout_secs=0.2))
    with pytest.raises(AppendConflictError) as caught:
        await run.append("one")
    assert caught.value.retriable
    monkeypatch.undo()
    assert (await run.append("one")).sequence == 1


async def test_an_outage_longer_than_the_patience_is_unavailable_and_retriable(
    world: World, stream: FakeStream
) -> None:
    run = world.run(world.source(append_timeout_secs=0.2))
    await run.append("one")
    stream.faults.down = 10_000
    async with refused("UNAVAILABLE") as refusal:
        await run.append("two")
    assert refusal.error.retriable
    async with refused("UNAVAILABLE"):
        await run.page()
    stream.faults.down = 2
    assert (await run.append("two")).sequence == 2


async def test_a_message_id_that_outlives_its_record_does_not_swallow_the_next(
    world: World, stream: FakeStream
) -> None:
    run = world.run()
    await run.fill(2, timestamp="2020-01-01T00:00:00.000Z")
    await run.source.cleanup(ownership=run.ownership, before="2021-01-01T00:00:00.000Z")
    for source in (run.source, world.source()):
        assert (await run.on(source).append("e1")).sequence == 3
    assert await run.ids() == ["e2", "e1"]


async def test_a_reader_survives_outages_and_lost_feeds(world: World, stream: FakeStream) -> None:
    run = world.run()
    await run.fill(5)
    reader = asyncio.create_task(run.on(world.source()).follow())
    for number in range(6, 30):
        await asyncio.sleep(0.001)
        stream.faults.lose_feeds = 1 + number % 2
        stream.faults.down = number % 3
        await run.append(f"e{number}")
    await run.append("end", "agent_finished")
    assert await reader == [*(f"e{number}" for number in range(1, 30)), "end"]


async def test_a_stream_that_was_made_anew_is_told_not_followed(world: World, stream: FakeStream) -> None:
    run = world.run()
    await run.fill(3)
    cursor = (await run.page()).events[1].cursor
    stream._messages.clear()
    stream._last_place = 0
    stream.forget_message_ids()
    async with refused("RETENTION"):
        await run.page(cursor)
    assert (await run.append("new1")).sequence == 1, "the producer notices too"
    await run.append("new2")
    await run.append("new3")
    async with refused("RETENTION") as refusal:
        await run.take(1, cursor)
    again = await run.take(3, refusal.error.earliest_cursor)  # type: ignore[attr-defined]
    assert [envelope.record.id for envelope in again] == ["new1", "new2", "new3"]


async def test_cursors_outlive_a_copy_of_the_stream_with_other_places(world: World, stream: FakeStream) -> None:
    run = world.run()
    await run.fill(6)
    cursors = [envelope.cursor for envelope in (await run.page()).events]
    for offset in (1000, -900):
        kept = [(message.subject, message.data) for message in stream._messages]
        stream._messages.clear()
        stream._last_place += offset
        for subject, data in kept:
            stream.store(subject, data)
        for number, cursor in enumerate(cursors, 1):
            behind = [record.id for record in (await run.page(cursor)).records]
            assert behind == [f"e{later}" for later in range(number + 1, 7)]


async def test_records_that_somebody_else_published_are_not_ours(world: World, stream: FakeStream) -> None:
    """A copy of another run's record, and one with a number that was used, are passed over."""
    run, other = world.run(), world.run()
    await run.fill(2)
    await other.fill(1)
    mine, theirs = stream._messages[0], stream._messages[2]
    stream.store(mine.subject, theirs.data)
    stream.store(mine.subject, mine.data)
    assert (await run.append("e3")).sequence == 3
    assert [record.sequence for record in await run.records()] == [1, 2, 3]
    assert [envelope.record.sequence for envelope in await run.take(3)] == [1, 2, 3]


async def test_a_replica_that_is_behind_is_not_taken_for_a_lost_log(
    world: World, stream: FakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batched reads may be answered by a replica; what the leader acknowledged may not be there yet."""
    run = world.run()
    await run.fill(4)
    await run.append("end", "agent_finished")
    cursors = [envelope.cursor for envelope in (await run.page()).events]
    original = FakeStream._from
    monkeypatch.setattr(FakeStream, "_from", lambda *arguments: [m for m in original(*arguments) if m.place <= 2])
    page = await run.page(cursors[3])
    assert (page.events, page.terminal) == ((), False)
    assert page.next_cursor is not None, "there is more, by the leader's word"
    at_the_end = await run.page(cursors[4])
    assert at_the_end.terminal
    reader = asyncio.create_task(run.follow(cursors[2]))
    await asyncio.sleep(0.2)
    assert not reader.done()
    monkeypatch.undo()
    assert await reader == ["e4", "end"]


async def test_a_producer_redacts_and_names_what_it_appends(world: World) -> None:
    run = world.run()
    moment = datetime(2026, 1, 2, 3, 4, 5, 6000, UTC)
    producer = RunProducer(
        run.source,
        ownership=run.ownership,
        session_id=run.session_id,
        run_id=run.run_id,
        redact=lambda members: {name: "***" if name == "password" else value for name, value in members.items()},
        clock=lambda: moment,
    )
    record = producer.record("tool_called", event_id="call-1", tool="shell", password="x", type="ignored")
    stored = await run.source.append(record)
    assert await run.source.append(record) == stored
    assert stored.event == {
        "tool": "shell", "password": "***", "type": "tool_called", "sessionId": "session", "runId": "run",
    }  # fmt: skip
    assert (stored.id, stored.timestamp, stored.sequence) == ("call-1", "2026-01-02T03:04:05.006Z", 1)
    assert (await producer.append("agent_finished")).sequence == 2


async def test_the_first_append_to_a_run_waits_for_a_backend_that_is_away(world: World, stream: FakeStream) -> None:
    run = world.run()
    await run.page()  # the stream has been checked
    stream.faults.down = 3
    assert (await run.append("one")).sequence == 1
