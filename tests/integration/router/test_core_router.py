"""The core router: it routes, it answers, and it makes no JetStream request."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from hub.delivery.connection import Connection
from hub.delivery.errors import NoResponders
from hub.protocol import make, names, parse
from hub.router.metrics import RouterMetrics
from hub.router.rules import Reason
from hub.router.service import RouterService
from hub.storage import open_storage
from tests.support.bus import connect, history
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.core_only


@pytest.fixture
async def server(start_nats: Callable[..., Awaitable[NatsServer]]) -> NatsServer:
    """A server without JetStream: any request to it would fail."""
    return await start_nats(jetstream=False)


@pytest.fixture
async def alice(server: NatsServer) -> AsyncIterator[Connection]:
    connection = await connect(server.url, "alice")
    yield connection
    await connection.close()


@pytest.fixture
async def metrics(server: NatsServer, tmp_path: Path) -> AsyncIterator[RouterMetrics]:
    """The counters of two running core routers that share a history."""
    counted = RouterMetrics()
    running = []
    for _ in range(2):
        connection = await connect(server.url)
        storage = open_storage(f"sqlite:///{tmp_path / 'hub.db'}")
        assert storage is not None
        service = RouterService(connection, config=None, storage=storage, metrics=counted)
        await service.start()
        await eventually(lambda s=service: s.is_recording, what="storage is open")
        running.append((service, storage, connection))
    yield counted
    for service, storage, connection in running:
        await service.stop()
        await storage.close()
        await connection.close()


async def send(alice: Connection, subject: str, body: bytes) -> dict[str, object]:
    answer = await alice.request(subject, body, timeout_secs=5)
    return msgspec.json.decode(answer.data)


async def test_each_message_is_routed_once_by_one_of_two_routers_and_its_sender_told(
    alice: Connection, metrics: RouterMetrics, tmp_path: Path
) -> None:
    heard: list[bytes] = []
    await alice.client.subscribe_direct("channel.inbox.bob", lambda message: heard.append(message.data))
    await alice.flush()
    sent = [make(sender="alice", channel="room", to="bob", payload=number) for number in range(50)]
    for envelope in sent:
        assert await send(alice, "hub.pub.alice.room", envelope.body) == {"ok": True, "mode": "core"}

    await eventually(lambda: len(heard) == 50, what="all heard")
    assert heard == [envelope.body for envelope in sent]
    rows = await eventually(lambda: _rows(tmp_path, 50), what="history")
    assert len({row.id for row in rows}) == 50


async def _rows(tmp_path: Path, count: int) -> list[object]:
    storage = open_storage(f"sqlite:///{tmp_path / 'hub.db'}")
    assert storage is not None
    async with storage:
        rows = await history(storage, to="bob")
    return rows if len(rows) == count else []


async def test_a_message_that_cannot_be_delivered_is_refused_with_its_reason(
    alice: Connection, metrics: RouterMetrics
) -> None:
    body = make(sender="alice", channel="room").body.replace(b'"to":null', b'"to":"b*b"')

    answer = await send(alice, "hub.pub.alice.room", body)

    assert (answer["ok"], answer["code"]) == (False, "bad_recipient")
    assert metrics.dropped[Reason.BAD_RECIPIENT] == 1


async def test_the_sender_of_an_undeliverable_message_hears_of_it_in_its_inbox(
    alice: Connection, metrics: RouterMetrics
) -> None:
    heard: list[bytes] = []
    await alice.client.subscribe_direct("channel.inbox.alice", lambda message: heard.append(message.data))
    await alice.flush()
    envelope = make(sender="alice", channel="room")
    await alice.publish("hub.pub.alice.room", envelope.body.replace(b'"to":null', b'"to":"b*b"'))

    await eventually(lambda: heard, what="the notice")

    notice = parse(heard[0])
    assert (notice.meta.sender, notice.meta.reply_to) == (names.HUB_IDENTITY, envelope.meta.id)


@pytest.mark.parametrize("reply", ["hub.pub.bob.room", "channel.inbox.bob", "_INBOX_bob.x", "$JS.API.STREAM.DELETE.X"])
async def test_a_reply_subject_that_is_not_the_askers_is_not_answered(
    reply: str, alice: Connection, metrics: RouterMetrics
) -> None:
    heard: list[str] = []
    await alice.client.subscribe_direct(reply, lambda message: heard.append(message.subject))
    await alice.flush()
    await alice.publish("hub.pub.alice.room", make(sender="alice", channel="room").body, reply=reply)
    # A request behind it was answered, so the first one was handled.
    await send(alice, "hub.pub.alice.room", make(sender="alice", channel="room").body)
    await alice.flush()

    assert heard == []


@pytest.mark.parametrize(("account", "is_routed"), [("A_alice", True), ("HUB", True), ("A_bob", False)])
async def test_a_message_from_another_identitys_account_is_refused(
    account: str, is_routed: bool, alice: Connection, metrics: RouterMetrics
) -> None:
    body = make(sender="alice", channel="room").body
    headers = {"Nats-Request-Info": msgspec.json.encode({"acc": account}).decode()}

    answer = msgspec.json.decode(
        (await alice.request("hub.pub.alice.room", body, timeout_secs=5, headers=headers)).data
    )

    assert answer["ok"] is is_routed
    assert metrics.dropped[Reason.BAD_IDENTITY] == (0 if is_routed else 1)


async def test_agents_that_announce_themselves_are_recorded(
    alice: Connection, metrics: RouterMetrics, tmp_path: Path
) -> None:
    payload = {"identity": "somebody-else", "capabilities": ["echo", 7], "metadata": {"version": "1"}}
    register = make(sender="alice", channel="register", kind="control", payload=payload)
    await alice.publish("hub.register.alice", register.body)
    await alice.publish("hub.presence.alice", make(sender="alice", channel="presence", kind="status", payload={}).body)
    await alice.publish("hub.register.alice", b"not an envelope")
    storage = open_storage(f"sqlite:///{tmp_path / 'hub.db'}")
    assert storage is not None
    async with storage:

        async def registered() -> bool:  # the presence may be recorded first, by the other router
            agent = await storage.agents.get("alice")
            return agent is not None and (agent.capabilities, agent.metadata) == (["echo"], {"version": "1"})

        await eventually(registered, what="alice is known")
        assert await storage.agents.get("somebody-else") is None


async def test_no_router_means_nobody_answers(alice: Connection) -> None:
    with pytest.raises(NoResponders):
        await alice.request("hub.pub.alice.room", make(sender="alice", channel="room").body, timeout_secs=5)


async def test_core_mode_makes_no_jetstream_request(nats_server: NatsServer, tmp_path: Path) -> None:
    asked: list[str] = []
    watcher = await connect(nats_server.url)
    await watcher.client.subscribe_direct("$JS.>", lambda message: asked.append(message.subject))
    await watcher.flush()
    connection = await connect(nats_server.url)
    storage = open_storage(f"sqlite:///{tmp_path / 'traced.db'}")
    service = RouterService(connection, config=None, storage=storage, metrics=RouterMetrics())
    await service.start()
    await eventually(lambda: service.is_recording, what="storage is open")
    await send(watcher, "hub.pub.alice.room", make(sender="alice", channel="room", to="bob").body)
    await service.stop()
    await watcher.flush()

    assert asked == []
    assert storage is not None
    await storage.close()
    await connection.close()
    await watcher.close()
