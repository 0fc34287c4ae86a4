"""Stops of the pull and the publisher: cancelled when their caller is, and nobody waits for ever behind one."""

import asyncio
from typing import Any

import pytest

from hub.delivery.connection import Connection
from hub.delivery.publisher import NotStored, StorePublisher
from hub.delivery.pull import ContinuousPull
from tests.support.bus import connect
from tests.support.nats_server import NatsServer


def make(kind: str, connection: Connection) -> ContinuousPull | StorePublisher:
    if kind == "publisher":
        return StorePublisher(connection)
    return ContinuousPull(connection, stream="S", consumer="c", callback=lambda _: None, window=1)


@pytest.mark.parametrize("kind", ["pull", "publisher"])
async def test_a_stop_that_is_cancelled_says_so(kind: str, nats_server: NatsServer) -> None:
    connection = await connect(nats_server.url)
    part = make(kind, connection)
    await part.start()

    stopping = asyncio.create_task(part.stop())
    await asyncio.sleep(0)  # it waits for its background task now
    stopping.cancel()
    await asyncio.wait({stopping}, timeout=10)

    assert stopping.cancelled()
    await connection.close()


@pytest.mark.parametrize("was_started", [True, False])
async def test_a_publish_with_no_publisher_running_ends_at_once(nats_server: NatsServer, *, was_started: bool) -> None:
    connection = await connect(nats_server.url)
    publisher = StorePublisher(connection)
    if was_started:
        await publisher.start()
        await publisher.stop()

    async with asyncio.timeout(5):
        outcome = await publisher.publish_and_wait("hub.pub.a.b", b"{}", message_id="1", stream="HUB_INGRESS")

    assert isinstance(outcome, NotStored)
    await connection.close()


async def test_a_closed_connection_has_ended_its_background_tasks(nats_server: NatsServer) -> None:
    connection = await connect(nats_server.url)
    has_ended = False

    async def works() -> None:
        nonlocal has_ended
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)  # it tidies up
            has_ended = True

    connection.own(works(), name="works")
    await asyncio.sleep(0)
    await connection.close()

    assert has_ended


async def test_a_message_that_comes_while_its_subscription_is_made_is_not_lost(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, other = await connect(nats_server.url), await connect(nats_server.url)
    heard: list[bytes] = []
    subscribing = connection.client._send_subscribe

    async def held_up(sub: Any) -> None:
        await subscribing(sub)
        await connection.client.flush()
        await other.publish("early", b"first")
        await other.flush()
        await connection.client.flush()

    monkeypatch.setattr(connection.client, "_send_subscribe", held_up)
    await connection.client.subscribe_direct("early", lambda message: heard.append(message.data))

    assert heard == [b"first"]
    await connection.close()
    await other.close()
