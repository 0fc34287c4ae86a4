"""Replay attacks by the real tricks, on one account: what a server sends on somebody's word is never taken as sent.

In one account an agent that may pull and read can name any reply subject. Each shot aims what the server answers at
`hub.pub.victim.room`, where it would be stored as if the victim had sent it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from hub.delivery.config import DeliveryConfig
from hub.delivery.connection import Connection
from hub.protocol import make
from hub.router.metrics import RouterMetrics
from hub.router.rules import Home, Reason
from hub.router.service import RouterService
from tests.support.bus import connect, count_in, direct_messages, send_all, stored_in
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.durable_only

TARGET = "hub.pub.victim.room"


@pytest.fixture
async def metrics(nats_server: NatsServer) -> AsyncIterator[RouterMetrics]:
    connection = await connect(nats_server.url)
    counted = RouterMetrics()
    service = RouterService(connection, config=DeliveryConfig(ack_wait_secs=2), storage=None, metrics=counted)
    await service.start()
    yield counted
    await service.stop()
    await connection.close()


@pytest.fixture(params=["routed", "raw"])
async def mallory(
    request: pytest.FixtureRequest, nats_server: NatsServer, metrics: RouterMetrics
) -> AsyncIterator[Connection]:
    """An agent with a message of its own in the inbox of bob and on a task channel, ready to be replayed.

    `routed` ones carry the headers of the router's publish, by which already the server refuses most replays; `raw`
    ones were put there by hand, without any header, so that only the guard stands in the way.
    """
    connection = await connect(nats_server.url, "mallory")
    messages = [*direct_messages(1, sender="mallory"), make(sender="mallory", channel="task.aaaaaaaa", payload="again")]
    if request.param == "routed":
        await send_all(connection, messages)
    else:
        await connection.request("channel.inbox.bob", messages[0].body, timeout_secs=5)
        await connection.request("channel.task.aaaaaaaa", messages[1].body, timeout_secs=5)
    await eventually(lambda: _stored(connection, 1, 1), what="both stored")
    yield connection
    await connection.close()


async def _stored(connection: Connection, inbox: int, tasks: int) -> bool:
    return await count_in(connection, "HUB_INBOX") == inbox and await count_in(connection, "HUB_TASKS") == tasks


async def pull(mallory: Connection) -> None:
    js = mallory.jetstream()
    await js.add_consumer(
        "HUB_INBOX", durable_name="inbox-bob", ack_policy="explicit", filter_subject="channel.inbox.bob"
    )
    await mallory.publish("$JS.API.CONSUMER.MSG.NEXT.HUB_INBOX.inbox-bob", b'{"batch":1}', reply=TARGET)


async def direct_get(mallory: Connection) -> None:
    await mallory.publish("$JS.API.DIRECT.GET.HUB_TASKS", b'{"last_by_subj":"channel.task.aaaaaaaa"}', reply=TARGET)


async def direct_get_batch(mallory: Connection) -> None:
    request = b'{"seq":1,"batch":10,"next_by_subj":"channel.task.>"}'
    await mallory.publish("$JS.API.DIRECT.GET.HUB_TASKS", request, reply=TARGET)


async def message_get(mallory: Connection) -> None:
    await mallory.publish("$JS.API.STREAM.MSG.GET.HUB_TASKS", b'{"seq":1}', reply=TARGET)


async def push_consumer(mallory: Connection) -> None:
    js = mallory.jetstream()
    await js.add_consumer("HUB_INBOX", durable_name="push", deliver_subject=TARGET, ack_policy="none")


async def publish_ack(mallory: Connection) -> None:
    await mallory.publish("hub.pub.mallory.room", make(sender="mallory", channel="room").body, reply=TARGET)


async def empty_status(mallory: Connection) -> None:
    js = mallory.jetstream()
    await js.add_consumer("HUB_TASKS", durable_name="none", ack_policy="explicit", filter_subject="channel.wave.none")
    await mallory.publish("$JS.API.CONSUMER.MSG.NEXT.HUB_TASKS.none", b'{"batch":1,"no_wait":true}', reply=TARGET)


async def broken_request(mallory: Connection) -> None:
    await mallory.publish("$JS.API.CONSUMER.MSG.NEXT.HUB_TASKS.none", b"broken", reply=TARGET)
    await mallory.publish("$JS.API.STREAM.INFO.HUB_TASKS", b"", reply=TARGET)


async def headers_of_a_get(mallory: Connection) -> None:
    headers = {"Nats-Stream": "HUB_TASKS", "Nats-Sequence": "1"}
    await mallory.publish(TARGET, make(sender="victim", channel="room", to="bob").body, headers=headers)


async def router_id(mallory: Connection) -> None:
    headers = {"Nats-Msg-Id": "hub-router:victim:1:channel.inbox.bob"}
    await mallory.publish(TARGET, make(sender="victim", channel="room", to="bob").body, headers=headers)


SHOTS: list[Callable[[Connection], Awaitable[None]]] = [
    pull,
    direct_get,
    direct_get_batch,
    message_get,
    push_consumer,
    publish_ack,
    empty_status,
    broken_request,
    headers_of_a_get,
    router_id,
]


@pytest.mark.parametrize("shoot", SHOTS, ids=lambda shot: shot.__name__)
async def test_what_the_server_was_tricked_into_sending_is_dropped(
    shoot: Callable[[Connection], Awaitable[None]], mallory: Connection, metrics: RouterMetrics
) -> None:
    heard: list[bytes] = []
    await mallory.client.subscribe_direct("channel.room", lambda message: heard.append(message.data))
    await mallory.flush()

    await shoot(mallory)
    await mallory.flush()
    await send_all(mallory, direct_messages(1, sender="mallory", to="carol"))
    await eventually(lambda: _is_stored_for(mallory, "carol"), what="an honest message behind the shot is routed")
    await eventually(lambda: _is_empty(mallory), what="an empty ingress")
    await mallory.flush()

    assert all(b'"victim"' not in body for body in heard)
    inbox = await stored_in(mallory, "HUB_INBOX")
    assert [envelope.meta.sender for envelope in inbox] == ["mallory", "mallory"], "nothing was stored as the victim's"


async def test_the_guard_and_not_luck_drops_them(nats_server: NatsServer, metrics: RouterMetrics) -> None:
    connection = await connect(nats_server.url, "mallory")
    messages = [*direct_messages(1, sender="mallory"), make(sender="mallory", channel="task.aaaaaaaa", payload="again")]
    await connection.request("channel.inbox.bob", messages[0].body, timeout_secs=5)
    await connection.request("channel.task.aaaaaaaa", messages[1].body, timeout_secs=5)

    for expected, shoot in enumerate((pull, direct_get, headers_of_a_get, router_id), 1):
        await shoot(connection)
        await eventually(
            lambda count=expected: metrics.dropped[Reason.REPLAYED] >= count, what=f"{shoot.__name__} is dropped"
        )
    await connection.close()


async def _is_stored_for(connection: Connection, identity: str) -> bool:
    return bool(await stored_in(connection, "HUB_INBOX", f"channel.inbox.{identity}"))


async def _is_empty(connection: Connection) -> bool:
    return await count_in(connection, "HUB_INGRESS") == 0


async def test_an_answer_without_headers_is_what_one_account_cannot_tell(
    nats_server: NatsServer, metrics: RouterMetrics
) -> None:
    """The known limit: `no_hdr` leaves nothing that gives a replay away, which is why bound mode has other accounts.

    What arrives under the victim's name is something that mallory itself had sent. docs/security.md says so.
    """
    connection = await connect(nats_server.url, "mallory")
    await send_all(connection, [make(sender="mallory", channel="task.aaaaaaaa", payload="again", to=None)])
    await eventually(lambda: metrics.routed[Home.TASKS] == 1, what="stored on the task channel")

    request = msgspec.json.encode({"last_by_subj": "channel.task.aaaaaaaa", "no_hdr": True})
    await connection.publish("$JS.API.DIRECT.GET.HUB_TASKS", request, reply=TARGET)

    await eventually(lambda: metrics.routed[Home.LIVE] == 1, what="the replay passes for the victim's")
    await connection.close()
