"""A flush is a barrier: what was subscribed before it, the server knows after it."""

import asyncio

import pytest

from hub.delivery.connection import Connection
from tests.integration.delivery.conftest import Connect


async def test_a_subscription_stands_when_the_flush_behind_it_returned(hub: Connection, connect: Connect) -> None:
    asker = await connect()

    async def answer(message: object) -> None:
        await hub.publish(message.reply, b"yes")  # type: ignore[attr-defined]

    for number in range(100):
        await hub.subscribe(f"asked.{number}", answer)
        await hub.flush()
        assert (await asker.request(f"asked.{number}", b"", timeout_secs=5)).data == b"yes"


async def test_a_flush_that_is_cancelled_does_not_cost_the_connection(hub: Connection) -> None:
    for _ in range(10):
        flushing = asyncio.create_task(hub.flush())
        await asyncio.sleep(0)
        flushing.cancel()
        await asyncio.wait({flushing})
    assert await hub.flush()
    await hub.check_health()
    assert hub.reconnects == 0


async def test_a_cancel_that_meets_the_answer_to_a_flush_arrives(
    hub: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering = hub.client._process_pong

    async def and_cancel() -> None:
        await answering()
        asking.cancel()

    monkeypatch.setattr(hub.client, "_process_pong", and_cancel)
    for ask in (hub.flush, hub.check_health):
        asking: asyncio.Task[object] = asyncio.create_task(ask())
        await asyncio.wait({asking}, timeout=5)
        assert asking.cancelled()
