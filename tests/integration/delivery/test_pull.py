"""The window of a continuous pull."""

import pytest

from hub.delivery.nats_client import Incoming
from hub.delivery.pull import ContinuousPull
from tests.support.bus import connect
from tests.support.nats_server import NatsServer


async def test_a_message_whose_callback_raised_leaves_the_window(nats_server: NatsServer) -> None:
    def raises(_: Incoming) -> None:
        raise RuntimeError("a bug")

    connection = await connect(nats_server.url)
    pull = ContinuousPull(connection, stream="S", consumer="c", callback=raises, window=8)
    with pytest.raises(RuntimeError):
        pull._on_message(Incoming(b"channel.inbox.bob", b"$JS.ACK.S.c.1.1.1.1.0", b"{}", b""))

    assert pull.in_hand == 0
    await connection.close()
