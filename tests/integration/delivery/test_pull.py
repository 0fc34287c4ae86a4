"""The window of a continuous pull."""

import time
from collections import deque

import pytest

from hub.delivery.nats_client import Incoming
from hub.delivery.pull import ACK, ContinuousPull, answer
from tests.support.bus import connect
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually


async def test_a_message_whose_callback_raised_leaves_the_window(nats_server: NatsServer) -> None:
    def raises(_: Incoming) -> None:
        raise RuntimeError("a bug")

    connection = await connect(nats_server.url)
    pull = ContinuousPull(connection, stream="S", consumer="c", callback=raises, window=8)
    with pytest.raises(RuntimeError):
        pull._on_message(Incoming(b"channel.inbox.bob", b"$JS.ACK.S.c.1.1.1.1.0", b"{}", b""))

    assert pull.in_hand == 0
    await connection.close()


async def test_the_window_bounds_bytes_and_a_larger_message_passes_alone(nats_server: NatsServer) -> None:
    window_bytes, large = 1_000_000, 2_000_000
    sizes = [300_000] * 8 + [large, 100, large] + [100] * 40 + [300_000] * 4
    connection = await connect(nats_server.url)
    js = connection.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    await js.add_consumer("S", durable_name="c", ack_policy="explicit")
    for size in sizes:
        await js.publish("s", b"x" * size)
    held: deque[Incoming] = deque()
    came: list[int] = []
    peak = 0

    def take(message: Incoming) -> None:
        nonlocal peak
        held.append(message)
        came.append(len(message.data))
        peak = max(peak, pull.in_hand_bytes)

    pull = ContinuousPull(connection, stream="S", consumer="c", callback=take, window=64, window_bytes=window_bytes)
    await pull.start()
    await eventually(lambda: len(held) == 4 and pull.asked == 0, within=5, what="a window that is full by its bytes")
    began = time.monotonic()
    while len(came) < len(sizes) or held:
        await eventually(lambda: bool(held), within=5, what="the next message")
        message = held.popleft()
        answer(connection, message.raw_reply, ACK)
        pull.done(message.size)
    assert came == sizes
    assert peak < window_bytes + large + 1000
    assert (pull.in_hand, pull.in_hand_bytes) == (0, 0)
    assert time.monotonic() - began < 5  # no request waited for its end, or for the pause after a refusal
    await pull.stop()
    await connection.close()
