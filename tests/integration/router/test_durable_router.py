"""The durable router against a real server: what is dropped, kept, told, retried."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import DiscardPolicy

from hub.delivery.config import DeliveryConfig, StreamSettings
from hub.delivery.connection import Connection
from hub.delivery.nats_client import Incoming
from hub.delivery.publisher import NotStored
from hub.delivery.pull import Delivery
from hub.protocol import Envelope, make, names, parse
from hub.router import durable
from hub.router.metrics import RouterMetrics
from hub.router.rules import Home, Reason, route
from hub.router.service import RouterService
from hub.storage import Storage, open_storage
from hub.storage.errors import StorageUnavailable
from hub.storage.records import DeadLetter, Position
from tests.support.bus import connect, count_in, direct_messages, history, numbers, send_all, stored_in
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.durable_only


class Hub:
    """A router service in this process, its storage and its counters."""

    def __init__(self, connection: Connection, config: DeliveryConfig, storage: Storage) -> None:
        self.connection = connection
        self.metrics = RouterMetrics()
        self.storage = storage
        self.service = RouterService(connection, config=config, storage=storage, metrics=self.metrics)

    async def start(self) -> "Hub":
        await self.service.start()
        await eventually(lambda: self.service.is_recording, what="storage is open")
        return self

    async def dead(self, count: int = 1) -> list[DeadLetter]:
        async def letters() -> list[DeadLetter]:
            found = (await self.storage.dead_letters.find()).items
            return found if len(found) >= count else []

        return await eventually(letters, what=f"{count} dead letters")


@pytest.fixture
async def start_hub(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Any]:
    hubs: list[Hub] = []

    async def start(**settings: Any) -> Hub:
        storage = open_storage(f"sqlite:///{tmp_path / f'hub-{len(hubs)}.db'}")
        assert storage is not None
        connection = await connect(nats_server.url)
        hub = Hub(connection, DeliveryConfig(**({"ack_wait_secs": 2} | settings)), storage)
        hubs.append(hub)
        return await hub.start()

    yield start
    for hub in hubs:
        await hub.service.stop()
        await hub.storage.close()
        await hub.connection.close()


@pytest.fixture
async def alice(nats_server: NatsServer) -> AsyncIterator[Connection]:
    connection = await connect(nats_server.url, "alice")
    yield connection
    await connection.close()


async def ingress_is_empty(connection: Connection) -> bool:
    return await count_in(connection, "HUB_INGRESS") == 0


async def test_messages_keep_their_order_and_their_bytes(start_hub: Any, alice: Connection) -> None:
    hub = await start_hub()
    sent = direct_messages(500)
    await send_all(alice, sent)
    await eventually(lambda: hub.metrics.routed[Home.INBOX] == 500, what="all routed")

    assert [envelope.body for envelope in await stored_in(alice, "HUB_INBOX")] == [envelope.body for envelope in sent]


async def test_the_trace_context_goes_on_and_other_headers_stay_behind(start_hub: Any, alice: Connection) -> None:
    await start_hub()
    envelope = make(sender="alice", channel="room", to="bob")
    headers = {"traceparent": "00-abc-def-01", "X-Secret": "1", "tracestate": "v=1"}
    await alice.request("hub.pub.alice.room", envelope.body, timeout_secs=5, headers=headers)
    await eventually(lambda: count_in(alice, "HUB_INBOX"), what="routed")

    stored = await alice.jetstream().get_msg("HUB_INBOX", 1)

    assert stored.headers == {
        "Nats-Msg-Id": f"hub-router:alice:{envelope.meta.id}:channel.inbox.bob",
        "Nats-Expected-Stream": "HUB_INBOX",
        "traceparent": "00-abc-def-01",
        "tracestate": "v=1",
    }


async def test_the_same_message_sent_again_is_stored_once(start_hub: Any, alice: Connection) -> None:
    hub = await start_hub()
    envelope = make(sender="alice", channel="room", to="bob")
    await send_all(alice, [envelope, envelope])
    await send_all(alice, [make(sender="alice", channel="room", to="carol", id=envelope.meta.id)])
    await eventually(lambda: hub.metrics.routed[Home.INBOX] == 3, what="all routed")

    assert hub.metrics.duplicates == 1
    assert [stored.meta.to for stored in await stored_in(alice, "HUB_INBOX")] == ["bob", "carol"]


@pytest.mark.parametrize(
    ("subject", "body", "reason"),
    [
        ("hub.pub.alice.room", b"\xff\xfe not JSON", Reason.UNDECODABLE),
        ("hub.pub.alice.room", b"", Reason.UNDECODABLE),
        ("hub.pub.alice.task", make(sender="alice", channel="room").body, Reason.BAD_CHANNEL),
        ("hub.pub.al\u00efce.room", make(sender="alice", channel="room").body, Reason.BAD_IDENTITY),
        ("hub.pub.alice.room", make(sender="alice", channel="room").body.replace(b'"to":null', b'"to":"a b"'), "told"),
    ],
)
async def test_what_cannot_be_delivered_is_a_dead_letter_with_its_bytes(
    subject: str, body: bytes, reason: Reason | str, start_hub: Any, alice: Connection
) -> None:
    hub = await start_hub()
    await alice.publish(subject, body, headers={"X-Note": "kept"})

    letter = (await hub.dead())[0]

    expected = Reason.BAD_RECIPIENT if reason == "told" else reason
    assert (letter.reason, letter.subject, letter.data, letter.size) == (expected.value, subject, body, len(body))
    assert letter.headers == [("X-Note", "kept")]
    assert hub.metrics.dropped[expected] == 1
    await eventually(lambda: ingress_is_empty(alice), what="terminated, not retried")
    notices = await stored_in(alice, "HUB_INBOX", "channel.inbox.alice") if reason == "told" else []
    if reason == "told":
        await eventually(lambda: count_in(alice, "HUB_INBOX"), what="the sender is told")
        notices = await stored_in(alice, "HUB_INBOX", "channel.inbox.alice")
        assert [notice.meta.sender for notice in notices] == [names.HUB_IDENTITY]
        assert notices[0].payload["event_type"] == "undelivered"
        assert notices[0].payload["data"]["reason"] == "bad_recipient"


async def test_ten_thousand_malformed_messages_stop_nothing(start_hub: Any, alice: Connection) -> None:
    hub = await start_hub()
    for number in range(10_000):
        alice.client.send(b"PUB hub.pub.alice.room %d\r\n%b\r\n" % (8, b"%08d" % number))
    await alice.flush()
    await send_all(alice, direct_messages(1))

    await eventually(lambda: count_in(alice, "HUB_INBOX"), within=30, what="the good one behind them")

    assert hub.metrics.dropped[Reason.UNDECODABLE] >= 10_000, "one that comes again is counted again"
    assert len(await hub.dead(100)) == 100, "they are kept, up to what the queue holds"


async def test_a_message_too_large_for_its_stream_is_dropped_and_its_sender_told(
    start_hub: Any, alice: Connection
) -> None:
    inbox = StreamSettings(name="HUB_INBOX", max_age_secs=600, max_msg_size=2000)
    hub = await start_hub(inbox=inbox)
    big = make(sender="alice", channel="room", to="bob", payload="x" * 3000)
    await send_all(alice, [big, make(sender="alice", channel="room", to="bob", payload="small")])

    await eventually(lambda: count_in(alice, "HUB_INBOX"), what="the small one and the notice")
    letter = (await hub.dead())[0]
    await eventually(lambda: hub.metrics.routed[Home.INBOX] == 2, what="the notice routed")

    assert (letter.reason, letter.envelope_id) == ("too_large", big.meta.id)
    told = await stored_in(alice, "HUB_INBOX", "channel.inbox.alice")
    assert told[0].payload["data"] == {"id": big.meta.id, "reason": "too_large"}


@pytest.mark.parametrize("slack", [-10, -1, 0])
async def test_a_message_of_the_usable_size_is_routed(slack: int, start_hub: Any, alice: Connection) -> None:
    hub = await start_hub()
    envelope = _of_size(alice.usable_size + slack)
    trace = {"traceparent": "t" * 512, "tracestate": "s" * 512}
    await alice.request("hub.pub.alice.room", envelope.body, timeout_secs=10, headers=trace)

    await eventually(lambda: hub.metrics.routed[Home.INBOX] == 1, what="routed with its headers")


def _of_size(size: int) -> Envelope:
    empty = len(make(sender="alice", channel="room", to="bob", payload="").body)
    return make(sender="alice", channel="room", to="bob", payload="x" * (size - empty))


async def test_the_router_counts_to_the_last_delivery_itself_and_writes_exhausted(
    start_hub: Any, alice: Connection
) -> None:
    hub = await start_hub(router_max_deliver=2)
    js = alice.jetstream()
    config = (await js.stream_info("HUB_INBOX")).config
    config.discard, config.max_bytes = DiscardPolicy.NEW, 1  # full from the start: each publish is refused
    await js.update_stream(config)
    doomed = direct_messages(1)

    await send_all(alice, doomed)
    letter = (await hub.dead())[0]

    assert (letter.reason, letter.envelope_id) == ("exhausted", doomed[0].meta.id)
    assert hub.metrics.naks >= 1
    assert "2 times" in letter.detail


async def test_what_a_stop_cuts_off_at_its_last_delivery_is_not_exhausted(start_hub: Any, alice: Connection) -> None:
    hub = await start_hub(router_max_deliver=3)
    router = hub.service._router
    sent = make(sender="alice", channel="room", to="bob")
    decided = route("hub.pub.alice.room", [], sent.body, is_guarded=True)
    message = Incoming(b"hub.pub.alice.room", b"$JS.ACK.HUB_INGRESS.router.3.1.1.1.0", sent.body, b"")
    taken = durable._Taken(message, Delivery([b"3", b"1", b"1", b"1", b"0"]))
    await router.stop()

    router._on_outcome(taken, decided, NotStored("timeout"))

    assert hub.metrics.dropped[Reason.EXHAUSTED] == 0
    assert hub.metrics.naks == 1


async def test_a_failed_publish_is_retried_until_its_store_is_back(start_hub: Any, alice: Connection) -> None:
    hub = await start_hub()
    js = alice.jetstream()
    config = (await js.stream_info("HUB_INBOX")).config
    config.discard, config.max_bytes = DiscardPolicy.NEW, 1  # full from the start: each publish is refused
    await js.update_stream(config)
    await send_all(alice, direct_messages(5))
    await eventually(lambda: hub.metrics.naks >= 5, what="naks")

    config.discard, config.max_bytes = DiscardPolicy.OLD, -1
    await js.update_stream(config)

    await eventually(lambda: hub.metrics.routed[Home.INBOX] == 5, what="all routed in the end")
    assert sorted(numbers(await stored_in(alice, "HUB_INBOX"))) == list(range(5))


async def test_a_stale_broadcast_is_dropped_and_a_stored_message_of_its_age_is_not(
    start_hub: Any, alice: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "BROADCAST_MAX_AGE_SECS", 0.3)
    first = await start_hub()
    await first.service.stop()
    heard: list[bytes] = []
    await alice.client.subscribe_direct("channel.room", lambda message: heard.append(message.data))
    await send_all(alice, [make(sender="alice", channel="room", payload="stale"), *direct_messages(1)])
    sent_at = time.monotonic()
    await eventually(lambda: time.monotonic() - sent_at > 0.5, what="time to pass")
    second = await start_hub()
    await eventually(lambda: second.metrics.routed[Home.INBOX] == 1, what="the stored one")
    await send_all(alice, [make(sender="alice", channel="room", payload="fresh")])
    await eventually(lambda: heard, what="the fresh one")

    assert [parse(body).payload for body in heard] == ["fresh"]
    assert second.metrics.dropped[Reason.EXPIRED] == 1


async def test_a_deleted_consumer_is_made_again_and_nothing_is_lost(start_hub: Any, alice: Connection) -> None:
    hub = await start_hub()
    await send_all(alice, direct_messages(10))
    await eventually(lambda: hub.metrics.routed[Home.INBOX] == 10, what="routed")

    await alice.jetstream().delete_consumer("HUB_INGRESS", "router")
    await send_all(alice, direct_messages(10, first=10))

    await eventually(lambda: hub.metrics.routed[Home.INBOX] == 20, within=20, what="routed after the repair")
    assert sorted(numbers(await stored_in(alice, "HUB_INBOX"))) == list(range(20))


async def test_a_deleted_consumer_is_made_again_while_storage_is_down(
    start_hub: Any, alice: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = await start_hub()
    asked = asyncio.Event()
    read = hub.storage.envelopes.mirror_position

    async def is_down(_stream: str) -> Position | None:
        asked.set()
        raise StorageUnavailable("it is down")

    monkeypatch.setattr(hub.storage.envelopes, "mirror_position", is_down)
    js = alice.jetstream()
    await js.delete_consumer("HUB_INBOX", f"mirror-{hub.storage.storage_id}")
    async with asyncio.timeout(20):
        await asked.wait()
    await js.delete_consumer("HUB_INGRESS", "router")
    await send_all(alice, direct_messages(10))
    await eventually(lambda: hub.metrics.routed[Home.INBOX] == 10, within=20, what="routed after the repair")

    monkeypatch.setattr(hub.storage.envelopes, "mirror_position", read)
    await eventually(lambda: _has_history(hub, 10), within=20, what="mirrored after the repair")


async def _has_history(hub: Hub, count: int) -> bool:
    return len(await history(hub.storage)) == count


async def test_storage_that_is_down_never_holds_up_delivery(
    nats_server: NatsServer, alice: Connection, tmp_path: Path
) -> None:
    connection = await connect(nats_server.url)
    metrics = RouterMetrics()
    storage = open_storage("postgresql://nobody@127.0.0.1:1/none")
    service = RouterService(connection, config=DeliveryConfig(ack_wait_secs=2), storage=storage, metrics=metrics)
    await service.start()
    await send_all(alice, [*direct_messages(50), make(sender="alice", channel="room")])

    await eventually(lambda: metrics.routed[Home.INBOX] == 50 and metrics.routed[Home.LIVE] == 1, what="routed")

    assert not service.is_recording
    await service.stop()
    await connection.close()
