"""The client's other ways: channels, replies, events, its inbox, its announcements."""

import asyncio
import itertools
from typing import Any

import pytest

from hub.client import HubClient, InboxIsOpen
from hub.client.announcer import FIRST_PAUSES_SECS
from hub.delivery.errors import BadSettings, CannotConnect, NotConnected
from hub.delivery.inbox_mode import Mode
from hub.delivery.settings import ConnectSettings
from hub.protocol import BadName, Envelope, TooLarge, make, parse, subjects
from tests.integration.client.conftest import OpenClient
from tests.support.bus import connect
from tests.support.live_hub import LiveHub
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually


@pytest.mark.hub
async def test_a_broadcast_reaches_every_listener_in_order(hub: LiveHub, open_client: OpenClient) -> None:
    alice, bob, carol = [await open_client(name) for name in ("alice", "bob", "carol")]
    iterated = await bob.subscribe("news.local")
    called: list[Envelope] = []

    async def callback(envelope: Envelope) -> None:
        called.append(envelope)
        if envelope.payload == 0:
            raise RuntimeError("a bad day")

    subscription = await carol.subscribe("news.local", callback)
    for number in range(20):
        await alice.send("news.local", number)
    async with asyncio.timeout(10):
        heard = [await anext(iterated) for _ in range(20)]
    assert [envelope.payload for envelope in heard] == list(range(20))
    assert {envelope.meta.sender for envelope in heard} == {"alice"}
    await eventually(lambda: [envelope.payload for envelope in called] == list(range(20)))
    assert subscription.counters["callback_errors"] == 1
    await iterated.close()
    assert [envelope async for envelope in iterated] == []


@pytest.mark.hub
async def test_a_direct_message_is_answered_to_its_sender_and_a_broadcast_to_its_channel(
    hub: LiveHub, open_client: OpenClient
) -> None:
    alice, bob = await open_client("alice"), await open_client("bob")
    alice_inbox, bob_inbox = alice.inbox(retry_secs=0.2), bob.inbox(retry_secs=0.2)
    assert (await alice_inbox.wait_ready(5)).mode is (Mode.DURABLE if hub.is_durable else Mode.CORE)
    await bob_inbox.wait_ready(5)
    room = await alice.subscribe("room")

    asked = await alice.send_to("bob", "how are you?", channel="small-talk", kind="human")
    message = await bob_inbox.next(5)
    assert message is not None
    assert (message.payload, message.envelope.meta.kind, message.envelope.meta.channel) == (
        "how are you?",
        "human",
        "small-talk",
    )
    message.ack()
    await bob.reply(message.envelope, "fine")
    answer = await alice_inbox.next(5)
    assert answer is not None
    answer.ack()
    meta = answer.envelope.meta
    assert (answer.payload, meta.sender, meta.to, meta.channel) == ("fine", "bob", "alice", "small-talk")
    assert meta.reply_to == asked.envelope.meta.id

    said = await alice.send("room", "hello all")
    await bob.reply(said.envelope, "hello alice")
    async with asyncio.timeout(5):
        first, second = await anext(room), await anext(room)
    assert (second.payload, second.meta.reply_to, second.meta.to) == ("hello alice", first.meta.id, None)


@pytest.mark.hub
async def test_an_event_has_a_type_and_data(hub: LiveHub, open_client: OpenClient) -> None:
    alice = await open_client("alice")
    room = await alice.subscribe("room")
    await alice.publish_event("room", "milestone", {"name": "first"})
    async with asyncio.timeout(5):
        envelope = await anext(room)
    assert envelope.meta.kind == "event"
    assert envelope.payload == {"event_type": "milestone", "data": {"name": "first"}}


@pytest.mark.durable_only
async def test_direct_messages_sent_while_everybody_was_away_arrive_in_order(
    hub: LiveHub, open_client: OpenClient
) -> None:
    await hub.stop()
    alice = await open_client("alice")
    for number in range(100):
        await alice.send_to("bob", number)
    await alice.close()
    await hub.start()
    inbox = await (await open_client("bob")).inbox(retry_secs=0.2).start()
    got = []
    for _ in range(100):
        message = await inbox.next(10)
        assert message is not None
        message.ack()
        got.append(message.payload)
    assert got == list(range(100))


@pytest.mark.durable_only
async def test_when_a_hub_comes_to_a_live_reader_nothing_comes_twice_or_out_of_order(
    nats_server: NatsServer, open_client: OpenClient
) -> None:
    bob = await open_client("bob")
    inbox = await bob.inbox(retry_secs=0.5).start()
    assert (await inbox.wait_ready(5)).mode is Mode.CORE
    got: list[Any] = []

    async def read() -> None:
        async for message in inbox:
            message.ack()
            got.append(message.payload)

    reading = asyncio.create_task(read())
    hub = await LiveHub(nats_server.url, "durable").start()
    alice = await open_client("alice")
    sent = 0
    while inbox.state.mode is not Mode.DURABLE or sent < 200:
        await alice.send_to("bob", sent)
        sent += 1
    await eventually(lambda: len(got) >= sent)
    await asyncio.sleep(0.1)
    assert got == list(range(sent))
    reading.cancel()
    await hub.stop()


@pytest.mark.durable_only
async def test_a_reader_of_a_store_that_was_lost_hears_everything_in_the_new_one(
    nats_server: NatsServer, hub: LiveHub, open_client: OpenClient
) -> None:
    alice = await open_client("alice")
    inbox = (await open_client("bob")).inbox(retry_secs=0.2)
    await inbox.wait_ready(5)

    async def exchange(count: int) -> None:
        for number in range(count):
            await alice.send_to("bob", number)
        for number in range(count):
            message = await inbox.next(10)
            assert message is not None
            assert message.payload == number
            message.ack()

    await exchange(10)
    await nats_server.restart(lose_store=True)
    alice._sender._no_hub_secs = 10  # until the router has made the streams again
    await exchange(20)  # more than there were: a floor of the old stream would hide some
    assert inbox.state.mode is Mode.DURABLE


async def test_a_second_reader_in_one_client_is_refused(nats_server: NatsServer, open_client: OpenClient) -> None:
    bob = await open_client("bob")
    inbox = await bob.inbox().start()
    with pytest.raises(InboxIsOpen, match="bob"):
        bob.inbox()
    await inbox.stop()
    bob.inbox()


async def test_a_channel_drops_what_does_not_fit_it(nats_server: NatsServer, open_client: OpenClient) -> None:
    alice = await open_client("alice")
    room = await alice.subscribe("room")
    raw = await connect(nats_server.url)
    good = make(sender="bob", channel="room", payload="good")
    for body in (
        b"",
        b"{}",
        b"\xff",
        make(sender="bob", channel="other", payload=1).body,
        make(sender="bob", channel="room", to="alice", payload=1).body,
        good.body.replace(b'"good"', b"[1e400]"),
        good.body,
    ):
        await raw.publish(subjects.channel("room"), body)
    async with asyncio.timeout(5):
        assert (await anext(room)).payload == "good"
    assert room.counters == {"dropped_undecodable": 4, "dropped_unfit": 2, "received": 1}
    await raw.close()


async def test_a_listener_hears_that_the_connection_ended(nats_server: NatsServer, open_client: OpenClient) -> None:
    alice = await open_client("alice")
    room = await alice.subscribe("room")
    waiting = asyncio.create_task(anext(room))
    await asyncio.sleep(0)
    await alice.connection.close()
    with pytest.raises(NotConnected):
        await waiting
    await asyncio.wait_for(alice.wait_closed(), 1)


async def test_an_agent_announces_itself_presence_first(nats_server: NatsServer, open_client: OpenClient) -> None:
    watcher = await connect(nats_server.url)
    heard: list[tuple[str, Envelope]] = []

    async def on_message(message: Any) -> None:
        heard.append((message.subject, parse(message.data)))

    for subject in ("hub.presence.*", "hub.register.*"):
        await watcher.subscribe(subject, on_message)
    await watcher.flush()
    alice = await open_client("alice", announce=True, capabilities=["count"], metadata={"floor": 3})
    await eventually(lambda: len(heard) >= 4)  # at once, and after a second
    by_subject = dict(heard)
    presence, register = by_subject["hub.presence.alice"], by_subject["hub.register.alice"]
    assert (presence.meta.kind, presence.meta.channel) == ("status", "presence")
    assert presence.payload["identity"] == "alice"
    assert (register.meta.kind, register.meta.channel) == ("control", "register")
    assert register.payload == {"identity": "alice", "capabilities": ["count"], "metadata": {"floor": 3}}
    announcer = alice.announce()
    assert {envelope.payload["instance"] for subject, envelope in heard if "presence" in subject} == {
        announcer.instance
    }
    assert presence.payload["started_at"] == announcer.started_at
    await watcher.close()


def test_announcements_come_early_for_a_hub_that_starts_at_the_same_time() -> None:
    assert list(itertools.accumulate(FIRST_PAUSES_SECS)) == [1, 2, 4, 8]


async def test_an_announcement_that_is_too_large_is_refused_at_the_connect(nats_server: NatsServer) -> None:
    settings = ConnectSettings(servers=(nats_server.url,), identity="alice")
    with pytest.raises(TooLarge, match="register of alice"):
        await HubClient.connect(settings, metadata={"blob": "x" * 9_000_000})


async def test_the_shortest_program_reads_its_inbox(nats_server: NatsServer, durable_hub: LiveHub) -> None:
    environ = {"NATS_URL": nats_server.url}
    async with await HubClient.connect(environ=environ, identity="alice", announce=False) as hub:
        await hub.send_to("bob", "hello")
    async with await HubClient.connect(url=environ["NATS_URL"], identity="bob", announce=False) as hub:
        async with asyncio.timeout(10):
            async for message in hub.inbox():
                assert message.payload == "hello"
                message.ack()
                break


async def test_a_client_needs_an_identity_of_its_own(nats_server: NatsServer) -> None:
    with pytest.raises(BadSettings, match="NATS_HUB_IDENTITY"):
        await HubClient.connect(environ={"NATS_URL": nats_server.url})
    environ = {"NATS_URL": nats_server.url, "NATS_HUB_IDENTITY": "hub-orchestrator"}
    with pytest.raises(BadName, match="own voice"):
        await HubClient.connect(environ=environ)
    client = await HubClient.connect(environ=environ | {"NATS_HUB_IDENTITY": "alice"})
    assert client.identity == "alice"
    await client.close()


async def test_a_server_that_is_not_there_is_told_within_the_timeout() -> None:
    settings = ConnectSettings(servers=("nats://127.0.0.1:1",), identity="alice")
    with pytest.raises(CannotConnect, match=r"127\.0\.0\.1:1"):
        await HubClient.connect(settings, timeout_secs=0.5)
