"""A connection as the hub, and the JetStream API over it, on a real server."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from hub.delivery.connection import Connection
from hub.delivery.jetstream import JetStreamApi
from hub.delivery.settings import ConnectSettings
from tests.support.nats_server import NatsServer

Connect = Callable[..., Awaitable[Connection]]


@pytest.fixture
async def connect(nats_server: NatsServer) -> AsyncIterator[Connect]:
    """Open connections, by default as the hub to `nats_server`; each is closed at the end of the test."""
    opened: list[Connection] = []

    async def open_one(server: NatsServer | None = None, **settings: object) -> Connection:
        url = (server or nats_server).url
        connection = await Connection.open(ConnectSettings(servers=(url,), **settings), name="test")  # type: ignore[arg-type]
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        await connection.close()


@pytest.fixture
async def hub(connect: Connect) -> Connection:
    return await connect()


@pytest.fixture
def js(hub: Connection) -> JetStreamApi:
    return JetStreamApi(hub)
