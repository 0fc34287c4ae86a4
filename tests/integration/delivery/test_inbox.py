"""The inbox against a real server: every column of the table of contract §5, and what it must survive."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from hub.delivery.connection import Connection
from hub.delivery.errors import BadSettings, NotConnected
from hub.delivery.inbox import Inbox
from hub.delivery.inbox_message import InboxMessage
from hub.delivery.inbox_mode import Mode
from hub.delivery.settings import ConnectSettings
from hub.protocol import make
from tests.support.inbox_store import InboxStore
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually

OpenInbox = Callable[..., Awaitable[Inbox]]


@pytest.fixture
async def store(nats_server: NatsServer) -> AsyncIterator[InboxStore]:
    store = await InboxStore.open(nats_server.url)
    yield store
    await store.close()


@pytest.fixture
async def open_inbox(nats_server: NatsServer) -> AsyncIterator[OpenInbox]:
    """Open an inbox of `bob` on a connection of its own; both are closed at the end."""
    async with AsyncExitStack() as stack:

        async def open_one(**options: Any) -> Inbox:
            settings = ConnectSettings(servers=(nats_server.url,), identity="bob")
            connection = await Connection.open(settings, name="test-inbox")
            stack.push_async_callback(connection.close)
            options = {"retry_secs": 0.2, "attach_timeout_secs": 0.5} | options
            inbox = await Inbox(connection, **options).start()
            stack.push_async_callback(inbox.stop, drain_secs=0.5)
            return inbox

        yield open_one


@pytest.fixture
async def durable(store: InboxStore) -> InboxStore:
    """A durable hub: a stream and a responder that answers."""
    await store.make_stream()
    await store.start_responder()
    return store


async def take(inbox: Inbox, count: int, *, ack: bool = True, within: float = 5.0) -> list[InboxMessage]:
    taken = []
    for number in range(count):
        message = await inbox.next(within)
        assert message is not None, f"only {number} of {count} messages came: {inbox.describe()}"
        if ack:
            message.ack()
        taken.append(message)
    return taken


def payloads(messages: list[InboxMessage]) -> list[Any]:
    return [message.payload for message in messages]


async def test_what_was_sent_while_the_reader_was_away_arrives_in_order_at_the_first_attach(
    durable: InboxStore, open_inbox: OpenInbox
) -> None:
    for number in range(300):
        await durable.put(number)
    inbox = await open_inbox()
    assert payloads(await take(inbox, 300)) == list(range(300))
    await eventually(lambda: _is_zero(durable.unacked()), what="all acked")
    assert inbox.state.mode is Mode.DURABLE


async def _is_zero(count: Awaitable[int]) -> bool:
    return await count == 0


async def test_a_message_that_was_not_acked_comes_again_to_the_next_reader(
    durable: InboxStore, open_inbox: OpenInbox
) -> None:
    durable.ack_wait_secs = 1
    await durable.put("keep me")
    first = await open_inbox()
    await take(first, 1, ack=False)
    await first.stop()
    second = await open_inbox()
    (again,) = await take(second, 1)
    assert again.payload == "keep me"
    assert again.delivered > 1


async def test_a_message_in_its_users_hands_is_extended_and_never_handed_out_twice(
    durable: InboxStore, open_inbox: OpenInbox
) -> None:
    durable.ack_wait_secs = 0.6
    await durable.put("slow work")
    inbox = await open_inbox()
    (message,) = await take(inbox, 1, ack=False)
    assert await inbox.next(2.0) is None
    assert inbox.counters["extended"] >= 5
    assert (await durable.consumer_info()).num_redelivered == 0
    message.ack()
    await eventually(lambda: _is_zero(durable.unacked()))


async def test_a_redelivery_of_a_message_in_hand_is_not_handed_out_and_its_ack_still_counts(
    durable: InboxStore, open_inbox: OpenInbox
) -> None:
    durable.ack_wait_secs = 0.4
    inbox = await open_inbox()
    await inbox.wait_ready(5)
    inbox._ledger.extend = lambda: None  # type: ignore[method-assign]  # the extensions are lost on their way
    await durable.put("work")
    (message,) = await take(inbox, 1, ack=False)
    await eventually(lambda: inbox.counters["repeats"] >= 2)
    assert await inbox.next(0.1) is None
    message.ack()
    await eventually(lambda: _is_zero(durable.unacked()))


async def test_a_naked_message_is_handed_out_again(durable: InboxStore, open_inbox: OpenInbox) -> None:
    await durable.put("again")
    inbox = await open_inbox()
    (first,) = await take(inbox, 1, ack=False)
    first.nak()
    (second,) = await take(inbox, 1)
    assert second.envelope.meta.id == first.envelope.meta.id
    first.ack()  # too late, and harmless
    assert inbox.counters["acked"] == 1


async def test_an_acked_message_whose_ack_was_lost_is_dropped_and_acked_again(
    durable: InboxStore, open_inbox: OpenInbox
) -> None:
    durable.ack_wait_secs = 0.5
    inbox = await open_inbox()
    await durable.put("once")
    (message,) = await take(inbox, 1, ack=False)
    message.reply = b"nobody.listens.here"
    message.ack()
    await eventually(lambda: inbox.counters["repeats"] == 1)
    await eventually(lambda: _is_zero(durable.unacked()))
    assert await inbox.next(0.1) is None


async def test_an_envelope_that_is_stored_twice_is_handed_out_once(durable: InboxStore, open_inbox: OpenInbox) -> None:
    await durable.put("one", id="same")
    await durable.put("one", id="same")
    await durable.put("one", id="same", sender="carol")  # another envelope: ids are each sender's own
    inbox = await open_inbox()
    first, second = await take(inbox, 2, ack=False)
    assert [first.envelope.meta.sender, second.envelope.meta.sender] == ["alice", "carol"]
    first.ack()
    second.ack()
    await eventually(lambda: _is_zero(durable.unacked()))
    assert await inbox.next(0.1) is None


async def test_a_callbacks_message_is_acked_when_it_returned_and_comes_again_when_it_raised(
    durable: InboxStore, open_inbox: OpenInbox
) -> None:
    seen: list[Any] = []

    async def callback(message: InboxMessage) -> None:
        seen.append((message.payload, message.delivered))
        if message.payload == "bad" and message.delivered == 1:
            raise RuntimeError("not today")

    for payload in ("good", "bad", "also good"):
        await durable.put(payload)
    inbox = await open_inbox(callback=callback)
    await eventually(lambda: ("bad", 2) in seen)
    assert seen[:3] == [("good", 1), ("bad", 1), ("also good", 1)]
    await eventually(lambda: _is_zero(durable.unacked()))
    assert inbox.counters["callback_errors"] == 1


async def test_a_stop_lets_the_running_callback_end_and_gives_back_what_waits(
    durable: InboxStore, open_inbox: OpenInbox
) -> None:
    began, release = asyncio.Event(), asyncio.Event()
    finished: list[Any] = []

    async def callback(message: InboxMessage) -> None:
        began.set()
        await release.wait()
        finished.append(message.payload)

    for number in range(3):
        await durable.put(number)
    inbox = await open_inbox(callback=callback)
    await began.wait()
    await eventually(lambda: inbox.counters["received"] == 3)
    stopping = asyncio.create_task(inbox.stop())
    await eventually(lambda: inbox.counters["naked"] == 2)
    release.set()
    await stopping
    assert finished == [0]
    assert inbox.state.mode is Mode.STOPPED
    other = await open_inbox()
    assert sorted(payloads(await take(other, 2))) == [1, 2]


async def test_a_sink_gets_each_message_at_once_and_one_that_raised_again(
    durable: InboxStore, open_inbox: OpenInbox
) -> None:
    got: list[InboxMessage] = []

    def sink(message: InboxMessage) -> None:
        if message.delivered == 1 and message.payload == 0:
            raise RuntimeError("not yet")
        got.append(message)

    await durable.put(0)
    await durable.put(1)
    await open_inbox(sink=sink)
    await eventually(lambda: payloads(got) == [1, 0])
    for message in got:
        message.ack()
    await eventually(lambda: _is_zero(durable.unacked()))


async def test_what_does_not_belong_here_is_dropped_counted_and_acked(
    durable: InboxStore, open_inbox: OpenInbox
) -> None:
    wrong_recipient = make(sender="alice", channel="direct", to="carol", payload=1)
    no_recipient = make(sender="alice", channel="direct", payload=1)
    good = make(sender="alice", channel="direct", to="bob", payload=1)
    for body in (
        b"no envelope",
        b"",
        good.body.replace(b'"payload":1', b'"payload":1e999'),
        good.body.replace(b'"alice"', b'"al ice"'),
        wrong_recipient.body,
        no_recipient.body,
        b"\xff" * 100,
    ):
        await durable.put_raw(body)
    await durable.put("the good one")
    inbox = await open_inbox()
    assert payloads(await take(inbox, 1)) == ["the good one"]
    assert inbox.counters["dropped_undecodable"] == 4
    assert inbox.counters["dropped_unfit"] == 3
    await eventually(lambda: _is_zero(durable.unacked()))


async def test_a_deleted_consumer_is_attached_again_from_the_readers_own_floor(
    durable: InboxStore, open_inbox: OpenInbox
) -> None:
    durable.ack_wait_secs = 0.3  # the floor stands still for two ack waits after an attach
    inbox = await open_inbox()
    await inbox.wait_ready(5)
    for number in range(5):
        await durable.put(number)
    await take(inbox, 5)
    await eventually(lambda: inbox.describe()["ack_floor"] == 5)
    await durable.delete_consumer()
    for number in range(5, 8):
        await durable.put(number)
    assert payloads(await take(inbox, 3)) == [5, 6, 7]
    assert durable.attaches[-1] == {"after_seq": 5}
    assert inbox.counters["consumer_gone"] >= 1
    assert inbox.counters["repeats"] == 0
    await eventually(lambda: _is_zero(durable.unacked()))


async def test_what_was_in_hand_when_the_consumer_was_deleted_is_acked_at_the_new_one(
    durable: InboxStore, open_inbox: OpenInbox
) -> None:
    inbox = await open_inbox()
    await durable.put("in hand")
    (message,) = await take(inbox, 1, ack=False)
    await durable.delete_consumer()
    await eventually(lambda: inbox.counters["repeats"] == 1)  # the new consumer delivered it again
    message.ack()
    await eventually(lambda: _is_zero(durable.unacked()))
    assert await inbox.next(0.1) is None


@pytest.mark.parametrize("graceful", [True, False], ids=["stopped", "killed"])
async def test_a_server_restart_goes_unnoticed_by_the_reader(
    nats_server: NatsServer, durable: InboxStore, open_inbox: OpenInbox, graceful: bool
) -> None:
    inbox = await open_inbox()
    await durable.put("before")
    await take(inbox, 1)
    await nats_server.restart(graceful=graceful)
    await eventually(lambda: durable.client.is_connected)
    await durable.put("after")
    assert payloads(await take(inbox, 1)) == ["after"]
    assert inbox.state.mode is Mode.DURABLE


async def test_a_refusing_hub_is_asked_again_until_it_attaches(durable: InboxStore, open_inbox: OpenInbox) -> None:
    durable.answer = "refuse"
    await durable.put("kept")
    inbox = await open_inbox()
    await eventually(lambda: len(durable.attaches) >= 2)
    assert inbox.state.mode is Mode.WAITING
    assert "storage is away" in inbox.state.reason
    durable.answer = "ok"
    assert payloads(await take(inbox, 1)) == ["kept"]


async def test_a_silent_hub_is_asked_again_and_never_taken_for_no_hub(
    durable: InboxStore, open_inbox: OpenInbox
) -> None:
    durable.answer = "silent"
    inbox = await open_inbox(attach_timeout_secs=0.1)
    await eventually(lambda: len(durable.attaches) >= 2)
    assert inbox.state.mode is Mode.WAITING
    assert "did not answer" in inbox.state.reason
    durable.answer = "ok"
    await eventually(lambda: inbox.state.mode is Mode.DURABLE)


@pytest.mark.parametrize("mode", ["auto", "on"])
async def test_while_the_hub_is_down_the_reader_binds_to_its_consumer(
    store: InboxStore, open_inbox: OpenInbox, mode: str
) -> None:
    await store.make_stream()
    await store.make_consumer()
    await store.put("stored")
    inbox = await open_inbox(mode=mode)
    assert payloads(await take(inbox, 1)) == ["stored"]
    assert inbox.state.mode is Mode.BOUND
    await store.start_responder()
    await eventually(lambda: inbox.state.mode is Mode.DURABLE)
    await store.put("more")
    assert payloads(await take(inbox, 1)) == ["more"]


async def test_without_a_hub_the_reader_listens_live_at_once(store: InboxStore, open_inbox: OpenInbox) -> None:
    inbox = await open_inbox()
    assert (await inbox.wait_ready(5)).mode is Mode.CORE
    await store.put_live("live")
    (message,) = await take(inbox, 1)
    assert message.payload == "live"
    assert not message.is_durable
    assert "no durable hub" in inbox.state.reason


async def test_without_jetstream_the_reader_listens_live_too(
    start_nats: Callable[..., Awaitable[NatsServer]],
) -> None:
    server = await start_nats(jetstream=False)
    connection = await Connection.open(ConnectSettings(servers=(server.url,), identity="bob"), name="test")
    async with Inbox(connection) as inbox:
        assert (await inbox.wait_ready(5)).mode is Mode.CORE
    await connection.close()


async def test_from_live_to_durable_nothing_comes_twice_or_out_of_order(
    store: InboxStore, open_inbox: OpenInbox
) -> None:
    inbox = await open_inbox()
    await inbox.wait_ready(5)
    await store.make_stream()  # a durable router stores from here on, and live readers still hear it
    sent = 0
    got: list[Any] = []

    async def read() -> None:
        async for message in inbox:
            message.ack()
            got.append(message.payload)

    reader = asyncio.create_task(read())
    for _ in range(50):
        await store.put(sent)
        sent += 1
    await store.start_responder()
    while inbox.state.mode is not Mode.DURABLE or sent < 300:
        await store.put(sent)
        sent += 1
    await eventually(lambda: len(got) >= sent)
    assert got == list(range(sent))
    assert inbox.counters["repeats"] >= 50
    await eventually(lambda: _is_zero(store.unacked()))
    reader.cancel()


async def test_what_waits_unread_when_the_reader_goes_durable_is_neither_lost_nor_doubled(
    store: InboxStore, open_inbox: OpenInbox
) -> None:
    inbox = await open_inbox()
    await inbox.wait_ready(5)
    await store.put_live("from a core router")
    await store.make_stream()
    await store.put("stored")
    await eventually(lambda: inbox.counters["received"] == 2)
    await store.start_responder()
    await eventually(lambda: inbox.counters["repeats"] == 1)
    assert inbox.state.mode is Mode.DURABLE
    live, stored = await take(inbox, 2, ack=False)
    assert payloads([live, stored]) == ["from a core router", "stored"]
    assert stored.is_durable
    assert await store.unacked() == 1
    live.ack()
    stored.ack()
    await eventually(lambda: _is_zero(store.unacked()))


async def test_a_reader_that_wants_a_durable_inbox_never_listens_live(store: InboxStore, open_inbox: OpenInbox) -> None:
    inbox = await open_inbox(mode="on")
    await eventually(lambda: inbox.counters["attach_requests"] >= 3)
    assert inbox.state.mode is Mode.WAITING
    await store.put_live("lost")
    assert await inbox.next(0.2) is None
    await store.make_stream()
    await store.put("kept")
    await store.start_responder()
    assert payloads(await take(inbox, 1)) == ["kept"]


async def test_a_reader_that_wants_no_durable_inbox_asks_for_none(durable: InboxStore, open_inbox: OpenInbox) -> None:
    inbox = await open_inbox(mode="off")
    assert inbox.state.mode is Mode.CORE
    await durable.put("live and stored")
    assert payloads(await take(inbox, 1)) == ["live and stored"]
    assert durable.attaches == []


async def test_a_hub_that_goes_away_with_its_consumers_leaves_the_reader_live(
    durable: InboxStore, open_inbox: OpenInbox
) -> None:
    inbox = await open_inbox()
    await inbox.wait_ready(5)
    assert inbox.state.mode is Mode.DURABLE
    await durable.stop_responder()
    await durable.js.delete_stream("HUB_INBOX")
    await eventually(lambda: inbox.state.mode is Mode.CORE)
    await durable.put_live("live")
    assert payloads(await take(inbox, 1)) == ["live"]


@pytest.mark.parametrize("mode", ["auto", "off"])
@pytest.mark.parametrize("how", ["closed", "died"])
async def test_a_reader_waiting_for_a_message_hears_that_the_connection_ended(
    durable: InboxStore, open_inbox: OpenInbox, mode: str, how: str
) -> None:
    inbox = await open_inbox(mode=mode)
    await inbox.wait_ready(5)
    waiting = asyncio.create_task(inbox.__anext__())
    await asyncio.sleep(0)
    if how == "closed":
        await inbox._connection.close()
    else:

        async def die() -> None:
            raise RuntimeError("a part of the process")

        inbox._connection.own(die(), name="another part")
    with pytest.raises(NotConnected, match="ended"):
        await asyncio.wait_for(waiting, 5)
    assert inbox.state.mode is Mode.WAITING


async def test_iterating_a_stopped_inbox_ends(durable: InboxStore, open_inbox: OpenInbox) -> None:
    inbox = await open_inbox()
    await inbox.stop()
    assert [message async for message in inbox] == []
    await inbox.stop()


async def test_while_paused_nothing_new_is_pulled(durable: InboxStore, open_inbox: OpenInbox) -> None:
    inbox = await open_inbox(window=1)
    await inbox.wait_ready(5)
    inbox.pause()
    await durable.put("asked for already")
    await take(inbox, 1)
    await durable.put("waits")
    assert await inbox.next(0.3) is None
    inbox.resume()
    assert payloads(await take(inbox, 1)) == ["waits"]


async def test_an_inbox_needs_an_identity_and_one_way_to_be_read(nats_server: NatsServer) -> None:
    connection = await Connection.open(ConnectSettings(servers=(nats_server.url,)), name="test")
    with pytest.raises(BadSettings, match="identity"):
        Inbox(connection)
    await connection.close()
