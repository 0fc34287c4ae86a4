"""The JetStream event source on a real server that is killed, lied to and misconfigured."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from hub.events import EventOverflowError, JetStreamEventSource, RetentionExceededError, StreamMisconfiguredError
from hub.events.conformance.world import SECRET, Run, World, refused
from hub.events.jetstream.subjects import DEFAULT_PREFIX, Subjects
from hub.events.records import run_key
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually

QUICK: dict[str, Any] = {"poll_secs": 0.5, "reconnect_min_secs": 0.05, "reconnect_max_secs": 0.3}


@pytest.fixture
async def connection(nats_server: NatsServer) -> AsyncIterator[Client]:
    async def said(_: Exception) -> None:
        """Reconnects are what is tested; the default handler prints a traceback for each attempt."""

    client = await nats.connect(nats_server.url, max_reconnect_attempts=-1, reconnect_time_wait=0.05, error_cb=said)
    yield client
    await client.close()


@pytest.fixture
async def world(connection: Client) -> AsyncIterator[World]:
    await JetStreamEventSource(connection, stream="events", cursor_secret=SECRET).ensure_stream()
    async with World(
        lambda **options: JetStreamEventSource(connection, stream="events", **{**QUICK, **options}), None
    ) as made:
        yield made


def subject_of(run: Run) -> str:
    return Subjects(DEFAULT_PREFIX).run(run_key(run.ownership, run.session_id, run.run_id))


async def test_a_server_that_is_killed_in_the_middle_costs_nothing(nats_server: NatsServer, world: World) -> None:
    run = world.run()
    await run.fill(20)
    readers = [asyncio.create_task(run.on(world.source()).follow()) for _ in range(2)]
    halfway = asyncio.Event()

    async def produce() -> None:
        for number in range(21, 121):
            await run.append(f"e{number}")
            if number == 60:
                halfway.set()
        await run.append("end", "agent_finished")

    producer = asyncio.create_task(produce())
    await halfway.wait()
    await nats_server.restart()
    async with asyncio.timeout(30):
        await producer
        wanted = [*(f"e{number}" for number in range(1, 121)), "end"]
        for reader in readers:
            assert await reader == wanted
    assert [record.sequence for record in await run.records()] == list(range(1, 122))


async def test_a_reader_outlives_its_deleted_consumer(world: World, connection: Client) -> None:
    run = world.run()
    await run.fill(2)
    async with asyncio.timeout(20), run.source.subscribe(run.read()) as events:
        for number in range(1, 3):
            assert (await anext(events)).record.sequence == number
        for number in range(3, 6):
            waiting = asyncio.ensure_future(anext(events))
            consumers = await eventually(lambda: connection.jetstream().consumers_info("events"), what="a consumer")
            await connection.jetstream().delete_consumer("events", consumers[0].name)
            await run.append(f"e{number}")
            assert (await waiting).record.sequence == number
    assert await connection.jetstream().consumers_info("events") == []


async def test_a_durable_reader_outlives_a_restart_of_the_server(nats_server: NatsServer, world: World) -> None:
    run = world.run(world.source(ack_wait_secs=1.0))
    await run.fill(6)
    async with asyncio.timeout(30), run.source.subscribe(run.read(), durable="d") as events:
        taken = [(await anext(events)).record.id for _ in range(3)]
        await nats_server.restart()
        taken += [(await anext(events)).record.id for _ in range(3)]
    assert taken == [f"e{number}" for number in range(1, 7)]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"subjects": ["other.>"]}, "subjects"),
        ({"retention": "workqueue"}, "retention"),
        ({"retention": "interest"}, "retention"),
        ({"deny_delete": True}, "deny_delete"),
        ({"max_msg_size": 1024}, "max_msg_size"),
        ({"duplicate_window": int(1e9)}, "duplicate_window"),
        ({"discard": "old", "max_msgs": 100}, "max_msgs"),
        ({"discard": "old", "max_bytes": 1000}, "max_bytes"),
        ({"no_ack": True}, "no_ack"),
    ],
)
async def test_a_misconfigured_stream_is_named(connection: Client, changes: dict[str, Any], named: str) -> None:
    config = {"name": "odd", "subjects": [f"{DEFAULT_PREFIX}.>"], "storage": "memory", **changes}
    reply = await connection.request("$JS.API.STREAM.CREATE.odd", json.dumps(config).encode())
    assert b"error" not in reply.data, reply.data
    source = JetStreamEventSource(connection, stream="odd", cursor_secret=SECRET)
    with pytest.raises(StreamMisconfiguredError, match=named):
        await source.verify()
    world = World(lambda **_: source, None)
    if named == "deny_delete":
        run = world.run()
        await run.fill(1)
        with pytest.raises(StreamMisconfiguredError, match=named):
            await source.cleanup(ownership=run.ownership, before="2030-01-01T00:00:00.000Z")
    else:
        with pytest.raises(StreamMisconfiguredError, match=named):
            await world.run().fill(1)


async def test_a_full_stream_is_told_apart_from_a_full_run(connection: Client) -> None:
    await connection.jetstream().add_stream(
        name="small", subjects=[f"{DEFAULT_PREFIX}.>"], discard="new", max_msgs=2, storage="memory"
    )
    world = World(lambda **options: JetStreamEventSource(connection, stream="small", **options), None)
    run = world.run(world.source(max_run_events=1))
    await run.append("one")
    async with refused("OVERFLOW") as full_run:
        await run.append("two")
    assert isinstance(full_run.error, EventOverflowError)
    assert not full_run.error.is_whole_place
    other = world.run(world.source())
    await other.append("one")
    async with refused("OVERFLOW") as full_stream:
        await other.append("two")
    assert isinstance(full_stream.error, EventOverflowError)
    assert full_stream.error.is_whole_place


async def test_a_missing_stream_is_named_and_made_once(connection: Client) -> None:
    source = JetStreamEventSource(connection, stream="later", cursor_secret=SECRET)
    run = World(lambda **_: source, None).run()
    async with refused("UNAVAILABLE") as refusal:
        await run.append("one")
    assert "later" in str(refusal.error)
    assert not refusal.error.retriable
    await source.ensure_stream(storage="memory")
    await source.ensure_stream(storage="file")
    assert (await connection.jetstream().stream_info("later")).config.storage == "memory", "never changed"
    assert (await run.append("one")).sequence == 1


async def test_a_stream_without_direct_access_works(connection: Client) -> None:
    await connection.jetstream().add_stream(name="slow", subjects=[f"{DEFAULT_PREFIX}.>"], allow_direct=False)
    world = World(lambda **options: JetStreamEventSource(connection, stream="slow", **options), None)
    run = world.run(world.source(max_page_size=3))
    await run.fill(8)
    await run.append("end", "agent_finished")
    assert len(await run.ids()) == 9
    assert len(await run.follow()) == 9
    assert (await run.append("e1")).sequence == 1


async def test_an_event_too_large_for_the_server_leaves_the_connection_alone(
    start_nats: Callable[..., Awaitable[NatsServer]],
) -> None:
    server = await start_nats(max_payload="100KB")
    client = await nats.connect(server.url)
    try:
        source = JetStreamEventSource(client, stream="events", cursor_secret=SECRET, max_event_bytes=200_000)
        with pytest.raises(StreamMisconfiguredError, match="max_payload"):
            await source.ensure_stream()
        surface = source._js_log.surface
        with pytest.raises(Exception, match="bytes; this server takes"):
            await surface.publish("prism.agent-events.t.s.r", b"x" * 102_400, msg_id="m", expected_last=0)
        assert client.is_connected
    finally:
        await client.close()


async def test_stored_headers_deceive_no_reader(world: World, connection: Client) -> None:
    """A message on the subject whose own headers look like the server's status is a broken record, nothing else."""
    run = world.run()
    await run.fill(2)
    headers = {"Status": "204", "Nats-Num-Pending": "0", "Nats-Sequence": "1", "Description": "EOB"}
    await connection.jetstream().publish(subject_of(run), b"{", headers=headers)
    await run.fill(2, start=3)
    assert await run.ids() == ["e1", "e2", "e3", "e4"]
    waiting = asyncio.create_task(run.take(6))
    await connection.jetstream().publish(subject_of(run), b"{", headers={**headers, "Status": "409"})
    await run.fill(2, start=5)
    assert [envelope.record.sequence for envelope in await waiting] == [1, 2, 3, 4, 5, 6]


async def test_a_repeat_beyond_the_duplicate_window_is_answered_with_the_original(connection: Client) -> None:
    window_secs = 0.2
    await connection.jetstream().add_stream(
        name="short", subjects=[f"{DEFAULT_PREFIX}.>"], duplicate_window=window_secs, allow_direct=True
    )
    world = World(
        lambda **options: JetStreamEventSource(connection, stream="short", append_timeout_secs=0.15, **options), None
    )
    run = world.run()
    await run.fill(3)

    async def is_forgotten() -> bool:
        ack = await connection.jetstream().publish(f"{DEFAULT_PREFIX}.canary", b"{}", headers={"Nats-Msg-Id": "canary"})
        return not ack.duplicate

    assert await is_forgotten()  # it was never there; from now on the server knows it, as long as the events before it
    await eventually(is_forgotten, what="the server has forgotten the ids of the window")
    assert (await run.append("e1")).sequence == 1
    assert (await run.on(world.source()).append("e2")).sequence == 2
    assert await run.ids() == ["e1", "e2", "e3"]


async def test_a_lost_store_is_told_to_readers(nats_server: NatsServer, world: World, connection: Client) -> None:
    run = world.run()
    await run.fill(5)
    cursor = (await run.page()).events[3].cursor
    await nats_server.restart(lose_store=True)
    await eventually(lambda: connection.is_connected)
    setup = JetStreamEventSource(connection, stream="events", cursor_secret=SECRET)

    async def made() -> bool:
        try:
            await setup.ensure_stream()
        except Exception:  # noqa: BLE001 - the server answers before JetStream does
            return False
        return True

    await eventually(made)
    assert (await run.append("new")).sequence == 1
    with pytest.raises(RetentionExceededError):
        await run.page(cursor)
    assert await run.ids() == ["new"]


async def test_a_paused_reader_is_left_alone_by_thousands_of_foreign_events(world: World, connection: Client) -> None:
    run, other = world.run(), world.run()
    await run.fill(3)
    async with asyncio.timeout(30), run.source.subscribe(run.read()) as events:
        assert (await anext(events)).record.sequence == 1
        for _ in range(5000):
            await connection.publish(subject_of(other), b"x" * 200)
        await connection.flush()
        await run.fill(3, start=4)
        assert [(await anext(events)).record.sequence for _ in range(5)] == [2, 3, 4, 5, 6]


async def test_a_source_leaves_nothing_on_the_hosts_connection(world: World, connection: Client) -> None:
    before = len(connection._subs)
    run = world.run()
    await run.fill(5)
    await run.page()
    await run.take(5)
    async with run.source.subscribe(run.read()) as events:
        for _ in range(5):
            await anext(events)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 0.2)
    await run.source.close()
    assert len(connection._subs) == before
    assert connection.is_connected
    assert await connection.jetstream().consumers_info("events") == []
