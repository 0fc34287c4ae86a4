"""Routers that die: at every step, at random, all at once. Nothing is lost, nothing is there twice."""

import asyncio
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from hub.delivery import streams
from hub.delivery.config import DeliveryConfig
from hub.delivery.connection import Connection
from hub.delivery.jetstream import JetStreamApi
from hub.protocol import Envelope, make
from hub.storage import open_storage
from tests.support.bus import connect, count_in, delivery_config, direct_messages, history, numbers, send_all, stored_in
from tests.support.hub_process import HubProcess
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.durable_only

StartRouter = Callable[..., HubProcess]


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Connection]:
    connection = await connect(nats_server.url)
    yield connection
    await connection.close()


@pytest.fixture
async def router(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[StartRouter]:
    """Make router processes that share one state folder; none outlives the test."""
    made: list[HubProcess] = []
    home = tmp_path / "hub"
    config = {"NATS_HUB_DELIVERY_CONFIG": str(delivery_config(home))}

    def make(*arguments: str) -> HubProcess:
        process = HubProcess(home, nats_server.url, *(arguments or ("hub", "router", "--durable")), environ=config)
        made.append(process)
        return process

    yield make
    for process in made:
        await process.kill()


async def mirrored(process: HubProcess, count: int) -> list[int]:
    """Wait until history has so many rows to bob; their payloads, oldest first."""
    await eventually(process.database.exists, within=30, what="the database")
    storage = open_storage(f"sqlite:///{process.database}")
    assert storage is not None
    async with storage:

        async def rows() -> list[int]:
            found = [int(bytes(row.payload)) for row in await history(storage, to="bob")]
            return found if len(found) >= count else []

        return await eventually(rows, within=60, poll=0.2, what=f"{count} rows in history")


@pytest.fixture(autouse=True)
async def streams_exist(bus: Connection) -> None:
    """Messages can be sent before the first router runs."""
    await streams.ensure(JetStreamApi(bus), DeliveryConfig(ack_wait_secs=2))


@pytest.mark.parametrize("step", ["taken", "published", "stored", "acked"])
async def test_a_router_killed_at_any_step_loses_nothing_and_doubles_nothing(
    step: str, bus: Connection, router: StartRouter
) -> None:
    await send_all(bus, direct_messages(300))

    killed = router("tests.support.killed_router", step, "100").spawn()
    assert await killed.ended(30) == -9
    second = await router().start()

    await eventually(lambda: count_in(bus, "HUB_INBOX"), what="messages in the inbox")
    assert sorted(await mirrored(second, 300)) == list(range(300))
    await eventually(lambda: _is_empty(bus), what="an empty ingress")
    assert sorted(numbers(await stored_in(bus, "HUB_INBOX"))) == list(range(300))


async def _is_empty(bus: Connection) -> bool:
    return await count_in(bus, "HUB_INGRESS") == 0


async def test_routers_killed_at_random_under_load_lose_nothing(bus: Connection, router: StartRouter) -> None:
    routers = [await router().start(), await router().start()]

    async def send() -> None:
        for first in range(0, 2000, 100):
            await send_all(bus, direct_messages(100, first=first))
            await asyncio.sleep(0.05)

    sending = asyncio.create_task(send())
    while not sending.done():
        victim = random.randrange(len(routers))
        await routers[victim].kill()
        routers[victim] = await router().start()
    await sending

    assert sorted(await mirrored(routers[0], 2000)) == list(range(2000))
    assert sorted(numbers(await stored_in(bus, "HUB_INBOX"))) == list(range(2000))


@pytest.mark.parametrize("count", [2, 4])
async def test_several_routers_route_each_message_exactly_once(
    count: int, bus: Connection, router: StartRouter
) -> None:
    heard: list[bytes] = []
    routers = [router().spawn() for _ in range(count)]
    for process in routers:
        await process.logged("ready")
    sid = await bus.client.subscribe_direct("channel.room", lambda message: heard.append(message.data))
    await bus.flush()
    broadcasts = [_broadcast(number) for number in range(100)]
    mixed = [envelope for pair in zip(direct_messages(100), broadcasts, strict=True) for envelope in pair]

    await send_all(bus, mixed)

    assert sorted(await mirrored(routers[0], 100)) == list(range(100))
    await eventually(lambda: _is_empty(bus), what="an empty ingress")
    await bus.flush()
    assert sorted(heard) == sorted(envelope.body for envelope in broadcasts)
    assert len(await stored_in(bus, "HUB_INBOX")) == 100
    await bus.client.unsubscribe_direct(sid)


def _broadcast(number: int) -> Envelope:
    return make(sender="alice", channel="room", payload=number)


async def test_messages_sent_while_no_router_runs_arrive_in_order_after_the_start(
    bus: Connection, router: StartRouter
) -> None:
    await send_all(bus, direct_messages(1000))

    started = await router().start()

    assert await mirrored(started, 1000) == list(range(1000))
    assert numbers(await stored_in(bus, "HUB_INBOX")) == list(range(1000))


async def test_a_stopped_router_leaves_nothing_for_the_ack_wait(bus: Connection, router: StartRouter) -> None:
    first = router()
    delivery_config(first.home, ack_wait_secs=60)
    await first.start()
    sending = asyncio.create_task(send_all(bus, direct_messages(6000)))
    await eventually(lambda: count_in(bus, "HUB_INBOX"), what="the first messages routed")

    assert await first.stop() == 0
    await sending

    assert not first.events("publish failed; tried again")
    second = await router().start()
    await eventually(  # what was given back comes at once; the server calls it unacked until it does
        lambda: is_empty(bus, "HUB_INGRESS"), within=30, what="what was in hand was acked or given back at once"
    )
    assert sorted(await mirrored(second, 6000)) == list(range(6000))


async def is_empty(bus: Connection, stream: str) -> bool:
    return await count_in(bus, stream) == 0


async def test_a_killed_server_loses_no_acknowledged_message(
    bus: Connection, router: StartRouter, nats_server: NatsServer
) -> None:
    process = await router().start()
    for first in range(0, 600, 200):
        await send_all(bus, direct_messages(200, first=first))
        await nats_server.restart()
        await eventually(lambda: bus.is_connected, what="the test's connection is back")

    found = await mirrored(process, 600)

    assert sorted(found) == list(range(600))
    assert process.is_running


async def test_a_lost_store_is_made_again_and_said_loudly(
    bus: Connection, router: StartRouter, nats_server: NatsServer
) -> None:
    process = await router().start()
    await process.logged("recording")
    await send_all(bus, direct_messages(10))
    await mirrored(process, 10)

    await nats_server.restart(lose_store=True)
    lost = await process.logged("stream was lost: what it held is gone")
    await eventually(lambda: bus.is_connected, what="the test's connection is back")
    await send_all(bus, direct_messages(10, first=10))

    assert lost["level"] == "error"
    assert sorted(await mirrored(process, 20)) == list(range(20))


async def test_a_hub_whose_storage_is_locked_ends_before_service_managers_kill_it(
    bus: Connection, router: StartRouter
) -> None:
    hub = await router("hub", "server", "--durable").start()
    await hub.logged("recording")
    with closing(sqlite3.connect(hub.database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        presence = make(sender="alice", channel="presence", kind="status", payload={"identity": "alice"})
        await bus.publish("hub.presence.alice", presence.body)
        await bus.publish("hub.pub.alice.room", b"no envelope")  # becomes a dead letter
        await send_all(bus, [make(sender="alice", channel="room"), *direct_messages(5)])
        await eventually(lambda: count_in(bus, "HUB_INBOX"), what="a message in the inbox")
        began = time.monotonic()
        assert await hub.stop() == 0
        assert time.monotonic() - began < 10  # what docker grants
