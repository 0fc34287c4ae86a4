"""Streams that are deleted under a running router come back, also where no history reads them."""

from collections.abc import AsyncIterator

import pytest

from hub.delivery.connection import Connection
from hub.protocol import Envelope, make
from tests.support.bus import connect, direct_messages, numbers, send_all, stored_in
from tests.support.live_hub import LiveHub
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.durable_only


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Connection]:
    hub = await LiveHub(nats_server.url, "durable").start()  # without history
    connection = await connect(nats_server.url)
    yield connection
    await connection.close()
    await hub.stop()


@pytest.mark.parametrize(
    ("stream", "messages"),
    [
        ("HUB_INBOX", direct_messages(5)),
        ("HUB_TASKS", [make(sender="alice", channel="task.aaaaaaaa", payload=number) for number in range(5)]),
    ],
)
async def test_a_deleted_home_is_made_again_and_takes_what_waited(
    stream: str, messages: list[Envelope], bus: Connection
) -> None:
    await bus.jetstream().delete_stream(stream)

    await send_all(bus, messages)

    async def arrived() -> bool:
        info = await bus.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout_secs=5)
        return b'"messages":5' in info.data

    await eventually(arrived, within=15, poll=0.1, what=f"{stream} is there again with what was sent")
    assert sorted(numbers(await stored_in(bus, stream))) == list(range(5))
