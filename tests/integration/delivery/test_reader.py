"""Reading a stored channel back: all of it, in order, once, whatever is stored there and whatever happens."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hub.delivery import streams
from hub.delivery.config import DeliveryConfig
from hub.delivery.connection import Connection
from hub.delivery.errors import NoResponders, PermissionDenied, RequestTimedOut
from hub.delivery.jetstream import JetStreamApi
from hub.delivery.reader import Position, StoredChannelReader, StoredMessage
from hub.delivery.refusals import JetStreamError
from hub.protocol import BadName, make
from tests.integration.delivery.conftest import Connect
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually

CONFIG = DeliveryConfig()
CHANNEL = "task.12345678"
SUBJECT = f"channel.{CHANNEL}"
API = "$JS.API.DIRECT.GET.HUB_TASKS"


@pytest.fixture
async def hub(connect: Connect) -> Connection:
    connection = await connect()
    await streams.ensure(JetStreamApi(connection), CONFIG)
    return connection


@pytest.fixture
async def bob(connect: Connect, hub: Connection) -> Connection:
    return await connect(identity="bob")


def envelope(message_id: str, *, sender: str = "worker", channel: str = CHANNEL, payload: Any = None) -> bytes:
    return make(sender=sender, channel=channel, kind="message", payload=payload, id=message_id).body


async def store(hub: Connection, *bodies: bytes, headers: dict[str, str] | None = None) -> None:
    for body in bodies:
        answer = await hub.request(SUBJECT, body, timeout_secs=5, headers=headers)
        assert "seq" in json.loads(answer.data)


async def store_many(hub: Connection, count: int) -> None:
    """Many at once; a flush says only that the server has them, so wait until the stream does."""
    for number in range(count):
        await hub.publish(SUBJECT, envelope(str(number)))
    js = JetStreamApi(hub)

    async def are_stored() -> bool:
        return bool((await js.stream_info("HUB_TASKS"))["state"]["messages"] == count)

    await eventually(are_stored)


async def read(reader: StoredChannelReader, **options: float) -> list[str]:
    return [message.envelope.meta.id async for message in reader.read(**options)]


async def test_a_channel_is_read_from_its_start_and_then_only_what_is_new(hub: Connection, bob: Connection) -> None:
    reader = StoredChannelReader(bob, CHANNEL)
    assert await read(reader) == []
    await store(hub, envelope("1"), envelope("2"))
    await hub.request("channel.task.other", envelope("x", channel="task.other"), timeout_secs=5)
    assert await read(reader) == ["1", "2"]
    assert await read(reader) == []
    await store(hub, envelope("3"))
    assert await read(reader) == ["3"]
    assert reader.position is not None
    assert reader.position.sequence == 4


async def test_a_message_says_where_and_when_it_was_stored(hub: Connection, bob: Connection) -> None:
    await store(hub, envelope("1", payload={"a": 1}))
    messages = [message async for message in StoredChannelReader(bob, CHANNEL).read()]
    assert [(message.sequence, message.envelope.payload) for message in messages] == [(1, {"a": 1})]
    assert messages[0].stored_at.tzinfo is not None
    assert abs((messages[0].stored_at - messages[0].envelope.meta.timestamp).total_seconds()) < 60


async def test_more_than_a_batch_is_read_in_order(hub: Connection, bob: Connection) -> None:
    await store_many(hub, 600)
    reader = StoredChannelReader(bob, CHANNEL)
    assert await read(reader) == [str(number) for number in range(600)]
    assert await read(reader) == []


async def test_a_read_that_is_left_goes_on_behind_what_it_handed_out(hub: Connection, bob: Connection) -> None:
    await store(hub, *(envelope(str(number)) for number in range(5)))
    reader = StoredChannelReader(bob, CHANNEL)
    async for message in reader.read():
        if message.envelope.meta.id == "2":
            break
    assert await read(reader) == ["3", "4"]


async def test_repeats_are_dropped_by_sender_and_id(hub: Connection, bob: Connection) -> None:
    await store(hub, envelope("1"), envelope("1"), envelope("1", sender="mallory"))
    messages: list[StoredMessage] = [message async for message in StoredChannelReader(bob, CHANNEL).read()]
    assert [(message.envelope.meta.sender, message.envelope.meta.id) for message in messages] == [
        ("worker", "1"),
        ("mallory", "1"),
    ]


async def test_another_reader_goes_on_where_one_stood(hub: Connection, bob: Connection) -> None:
    await store(hub, envelope("1"))
    first = StoredChannelReader(bob, CHANNEL)
    await read(first)
    await store(hub, envelope("2"))
    assert await read(StoredChannelReader(bob, CHANNEL, after=first.position)) == ["2"]


HOSTILE: list[tuple[bytes, dict[str, str] | None]] = [
    (b"", None),
    (b"\xff\xfe", None),
    (b"[" * 100_000, None),
    (b"{}", None),
    (envelope("other", channel="task.other"), None),
    (envelope("s1"), {"Status": "404"}),
    (envelope("s2"), {"Status": "503", "Description": "No Responders"}),
    (b"", {"Status": "204", "Nats-Num-Pending": "0"}),
    (envelope("s3"), {"Nats-Sequence": "999999", "Nats-Time-Stamp": "never", "Nats-Num-Pending": "0"}),
    (envelope("s4"), {"nats-sequence": "1", "Nats-Last-Sequence": "999999"}),
]


async def test_nothing_that_is_stored_there_stops_the_reader(hub: Connection, bob: Connection) -> None:
    await store(hub, envelope("1"))
    for body, headers in HOSTILE:
        await store(hub, body, headers=headers)
    await store(hub, envelope("2"))
    reader = StoredChannelReader(bob, CHANNEL)
    assert await read(reader) == ["1", "s1", "s2", "s3", "s4", "2"]
    assert reader.skipped == 6
    await store(hub, envelope("3"))
    assert await read(reader) == ["3"]


async def test_bytes_that_are_no_text_in_a_header_do_not_stop_the_reader(hub: Connection, bob: Connection) -> None:
    headers = b"NATS/1.0\r\nx: \xff\xfe\r\nStatus: 408\r\n\r\n"
    body = envelope("1")
    hub.client.send(
        b"HPUB %b %d %d\r\n%b%b\r\n" % (SUBJECT.encode(), len(headers), len(headers) + len(body), headers, body)
    )
    await hub.flush()
    await store(hub, envelope("2"))
    assert await read(StoredChannelReader(bob, CHANNEL)) == ["1", "2"]


async def test_a_stream_that_was_made_again_is_read_from_its_start(
    nats_server: NatsServer, hub: Connection, bob: Connection
) -> None:
    await store(hub, *(envelope(str(number)) for number in range(5)))
    reader = StoredChannelReader(bob, CHANNEL)
    assert len(await read(reader)) == 5
    await nats_server.restart(lose_store=True)
    await eventually(lambda: hub.is_connected and bob.is_connected)
    await streams.ensure(JetStreamApi(hub), CONFIG)
    assert await read(reader) == []
    await store(hub, envelope("new"))
    assert await read(reader) == ["new"]


async def test_a_stream_that_was_made_again_and_grew_past_the_position_is_read_from_its_start(
    nats_server: NatsServer, hub: Connection, bob: Connection
) -> None:
    await store(hub, envelope("a"), envelope("b"))
    reader = StoredChannelReader(bob, CHANNEL)
    await read(reader)
    await nats_server.restart(lose_store=True)
    await eventually(lambda: hub.is_connected and bob.is_connected)
    await streams.ensure(JetStreamApi(hub), CONFIG)
    await store(hub, *(envelope(f"new{number}") for number in range(4)))
    assert await read(reader) == ["new0", "new1", "new2", "new3"]


async def test_what_left_the_stream_does_not_hide_what_came_after(hub: Connection, bob: Connection) -> None:
    await store(hub, *(envelope(str(number)) for number in range(4)))
    reader = StoredChannelReader(bob, CHANNEL)
    await read(reader)
    await hub.jetstream().purge_stream("HUB_TASKS", subject=SUBJECT)
    await store(hub, envelope("4"))
    assert await read(reader) == ["4"]


async def test_an_agents_grants_are_enough_and_less_is_said_at_once(start_nats: Any, connect: Connect) -> None:
    grants = f'publish: {{allow: ["{API}"]}}, subscribe: {{allow: ["_INBOX_bob.>"]}}'
    server = await start_nats(
        config=f"""authorization {{users: [
            {{user: hub, password: hub}}
            {{user: bob, password: bob, permissions: {{{grants}}}}}
            {{user: eve, password: eve, permissions: {{publish: {{allow: ["x"]}}}}}}
        ]}}"""
    )
    hub = await connect(server, user="hub", password="hub")
    await streams.ensure(JetStreamApi(hub), CONFIG)
    await store(hub, envelope("1"))
    bob = await connect(server, user="bob", password="bob", identity="bob")
    assert await read(StoredChannelReader(bob, CHANNEL)) == ["1"]
    eve = await connect(server, user="eve", password="eve", identity="eve")
    for _ in range(2):
        async with asyncio.timeout(2):
            with pytest.raises(PermissionDenied):
                await read(StoredChannelReader(eve, CHANNEL))


async def test_it_reads_through_a_service_import(start_nats: Any, connect: Connect) -> None:
    """The topology of bound mode: the agent in an account of its own."""
    exports = f'{{service: "{API}", response_type: stream, threshold: "30s"}}'
    imports = f'{{service: {{account: HUB, subject: "{API}"}}}}'
    grants = f'publish: {{allow: ["{API}"]}}, subscribe: {{allow: ["_INBOX_bob.>"]}}'
    server = await start_nats(
        config=f"""accounts {{
            HUB {{jetstream: enabled, users: [{{user: hub, password: hub}}], exports: [{exports}]}}
            A_bob {{users: [{{user: bob, password: bob, permissions: {{{grants}}}}}], imports: [{imports}]}}
        }}"""
    )
    hub = await connect(server, user="hub", password="hub")
    await streams.ensure(JetStreamApi(hub), CONFIG)
    await store_many(hub, 300)
    bob = await connect(server, user="bob", password="bob", identity="bob")
    reader = StoredChannelReader(bob, CHANNEL)
    assert len(await read(reader)) == 300
    await store(hub, envelope("new"))
    assert await read(reader) == ["new"]


async def test_a_read_that_meets_a_restart_of_the_server_goes_on_after_it(
    nats_server: NatsServer, hub: Connection, bob: Connection
) -> None:
    await store(hub, envelope("1"))
    await nats_server.kill()
    await eventually(lambda: not bob.is_connected)
    reading = asyncio.create_task(read(StoredChannelReader(bob, CHANNEL), deadline_secs=20))
    await nats_server.start()
    assert await reading == ["1"]


async def test_a_hub_that_stores_nothing_is_told_as_such(connect: Connect, start_nats: Any) -> None:
    server = await start_nats(jetstream=False)
    bob = await connect(server, identity="bob")
    async with asyncio.timeout(5):
        with pytest.raises(NoResponders):
            await read(StoredChannelReader(bob, CHANNEL))


async def test_a_server_that_is_away_too_long_is_a_timeout_at_the_deadline(
    nats_server: NatsServer, bob: Connection
) -> None:
    await nats_server.kill()
    await eventually(lambda: not bob.is_connected)
    async with asyncio.timeout(5):
        with pytest.raises(RequestTimedOut, match=r"no answer on \$JS"):
            await read(StoredChannelReader(bob, CHANNEL), deadline_secs=0.5)


Answer = Callable[[Any], Awaitable[None]]


@pytest.fixture
async def pretend(connect: Connect, start_nats: Any) -> Callable[[Answer], Awaitable[Connection]]:
    """A server whose direct gets are answered by a function of the test."""
    server = await start_nats(jetstream=False)

    async def answer_with(answer: Answer) -> Connection:
        other = await connect(server)
        await other.subscribe(API, answer)
        await other.flush()
        return await connect(server, identity="bob")

    return answer_with


async def test_a_server_that_knows_no_batches_is_read_message_by_message(pretend: Any) -> None:
    asked = []

    async def answer(message: Any) -> None:
        request = json.loads(message.data)
        asked.append(request["seq"])
        if request["seq"] > 3:
            frame = b"NATS/1.0 404 Message Not Found\r\n\r\n"
            reply = message.reply.encode()
            message._client.send(b"HPUB %b %d %d\r\n%b\r\n" % (reply, len(frame), len(frame), frame))
            return
        headers = {"Nats-Sequence": str(request["seq"]), "Nats-Time-Stamp": "2026-01-01T00:00:00Z"}
        await message._client.publish(message.reply, envelope(str(request["seq"])), headers=headers)

    assert await read(StoredChannelReader(await pretend(answer), CHANNEL)) == ["1", "2", "3"]
    assert asked == [1, 2, 3, 4]


async def test_a_refusal_is_said_with_the_servers_words(pretend: Any) -> None:
    async def answer(message: Any) -> None:
        frame = b"NATS/1.0 408 Bad Request\r\n\r\n"
        message._client.send(b"HPUB %b %d %d\r\n%b\r\n" % (message.reply.encode(), len(frame), len(frame), frame))

    with pytest.raises(JetStreamError, match="Bad Request, JetStream error 408"):
        await read(StoredChannelReader(await pretend(answer), CHANNEL))


async def test_an_answer_that_got_lost_on_its_way_is_asked_for_again(pretend: Any) -> None:
    """The end of the batch never came; what came counts, and the rest is asked for."""
    asked = []

    async def answer(message: Any) -> None:
        request = json.loads(message.data)
        asked.append(request["seq"])
        sequences = {1: [1, 2], 3: [3]}[request["seq"]]
        for sequence in sequences:
            headers = {"Nats-Sequence": str(sequence), "Nats-Time-Stamp": "2026-01-01T00:00:00Z"}
            headers["Nats-Num-Pending"] = "9"
            await message._client.publish(message.reply, envelope(str(sequence)), headers=headers)
        if request["seq"] == 3:
            frame = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 3\r\n\r\n"
            message._client.send(b"HPUB %b %d %d\r\n%b\r\n" % (message.reply.encode(), len(frame), len(frame), frame))

    assert await read(StoredChannelReader(await pretend(answer), CHANNEL)) == ["1", "2", "3"]
    assert asked == [1, 3]


async def test_answers_that_lead_nowhere_do_not_keep_the_reader_busy_for_ever(pretend: Any) -> None:
    async def answer(message: Any) -> None:
        headers = {"Nats-Sequence": "-5", "Nats-Num-Pending": "7"}
        await message._client.publish(message.reply, b"x", headers=headers)
        frame = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 7\r\nNats-Last-Sequence: 0\r\n\r\n"
        message._client.send(b"HPUB %b %d %d\r\n%b\r\n" % (message.reply.encode(), len(frame), len(frame), frame))

    bob = await pretend(answer)
    async with asyncio.timeout(5):
        assert await read(StoredChannelReader(bob, CHANNEL)) == []
        assert await read(StoredChannelReader(bob, CHANNEL, after=Position(7, "x"))) == []


@pytest.mark.parametrize("channel", ["room", "inbox.bob", "task.>", "task", "task.a.b", "wave.*", ""])
async def test_a_channel_that_is_not_stored_is_refused(hub: Connection, channel: str) -> None:
    with pytest.raises(BadName):
        StoredChannelReader(hub, channel)
