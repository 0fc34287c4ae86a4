"""The mirror's consumer against a real server: made again where a restored storage stands, and only there."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import msgspec
import pytest

from hub.delivery import streams
from hub.delivery.config import DeliveryConfig
from hub.delivery.connection import Connection
from hub.delivery.jetstream import JetStreamApi
from hub.router import mirror_consumer
from hub.storage.records import Position
from tests.support.bus import connect
from tests.support.nats_server import NatsServer

CONFIG = DeliveryConfig(ack_wait_secs=2)
STORAGE_ID = "0123abcd"
NAME = mirror_consumer.consumer_name(STORAGE_ID)


@pytest.fixture
async def hub(nats_server: NatsServer) -> AsyncIterator[Connection]:
    """A connection to a server with the streams and 20 messages in the inbox stream."""
    connection = await connect(nats_server.url)
    await streams.ensure(JetStreamApi(connection), CONFIG)
    for _ in range(20):
        await connection.jetstream().publish("channel.inbox.bob", b"{}")
    yield connection
    await connection.close()


class History:
    """A storage's position, and the mirror of another router that moves it."""

    def __init__(self, connection: Connection, created: datetime) -> None:
        self._connection = connection
        self._created = created
        self.sequence = 0

    async def position(self, stream: str) -> Position | None:
        return Position(stream=stream, created=self._created, sequence=self.sequence) if self.sequence else None

    async def take(self, count: int) -> None:
        """Take so many messages, commit them, ack them."""
        pull = await self._connection.client.jetstream().pull_subscribe_bind(NAME, "HUB_INBOX")
        messages = await pull.fetch(count, timeout=5)
        self.sequence += len(messages)
        for message in messages:
            await message.ack_sync()
        await pull.unsubscribe()


async def made_at(js: JetStreamApi) -> str:
    return str((await js.consumer_info("HUB_INBOX", NAME))["created"])


@pytest.fixture
async def mirrored(hub: Connection) -> History:
    """Another router's mirror, which has taken the first 10 messages."""
    js = JetStreamApi(hub)
    history = History(hub, msgspec.convert((await js.stream_info("HUB_INBOX"))["created"], datetime))
    await ensure(js, history)
    await history.take(10)
    return history


async def ensure(js: JetStreamApi, history: History) -> None:
    await mirror_consumer.ensure(js, CONFIG, stream="HUB_INBOX", storage_id=STORAGE_ID, read_position=history.position)


async def test_a_restored_storage_gets_again_what_it_lost(hub: Connection, mirrored: History) -> None:
    mirrored.sequence = 4

    await ensure(JetStreamApi(hub), mirrored)

    info = await JetStreamApi(hub).consumer_info("HUB_INBOX", NAME)
    assert info["num_pending"] == 20  # repeats are dropped by their key, what was lost comes


async def test_a_mirror_that_another_router_moves_meanwhile_is_left_alone(hub: Connection, mirrored: History) -> None:
    class BusyApi(JetStreamApi):
        """The other router commits a batch around each look at the consumer."""

        async def consumer_info(self, stream: str, consumer: str) -> dict[str, Any]:
            await mirrored.take(3)
            info = await super().consumer_info(stream, consumer)
            await mirrored.take(3)
            return info

    before = await made_at(JetStreamApi(hub))

    await mirror_consumer.ensure(
        BusyApi(hub), CONFIG, stream="HUB_INBOX", storage_id=STORAGE_ID, read_position=mirrored.position
    )

    assert await made_at(JetStreamApi(hub)) == before
