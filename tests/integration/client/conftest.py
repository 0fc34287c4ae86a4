"""A hub of this run's mode, and clients on connections of their own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from hub.client import HubClient
from hub.delivery.settings import ConnectSettings
from tests.support.live_hub import LiveHub
from tests.support.nats_server import NatsServer

OpenClient = Callable[..., Awaitable[HubClient]]


@pytest.fixture
async def hub(nats_server: NatsServer, hub_mode: str) -> AsyncIterator[LiveHub]:
    """A running hub in the mode of this run."""
    hub = await LiveHub(nats_server.url, hub_mode).start()
    yield hub
    await hub.stop()


@pytest.fixture
async def durable_hub(nats_server: NatsServer) -> AsyncIterator[LiveHub]:
    """A running durable hub, for what does not depend on the run's mode."""
    hub = await LiveHub(nats_server.url, "durable").start()
    yield hub
    await hub.stop()


@pytest.fixture
async def open_client(nats_server: NatsServer) -> AsyncIterator[OpenClient]:
    """Open a client by identity; all are closed at the end."""
    async with AsyncExitStack() as stack:

        async def open_one(identity: str, **options: Any) -> HubClient:
            settings = ConnectSettings(servers=(nats_server.url,), identity=identity)
            client = await HubClient.connect(settings, **({"announce": False} | options))
            stack.push_async_callback(client.close)
            return client

        yield open_one
