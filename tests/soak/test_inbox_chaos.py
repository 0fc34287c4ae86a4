"""An inbox while everything around it breaks: servers, consumers, hubs, connections. Nothing is lost."""

import asyncio
import contextlib
import os
import random

import pytest
from nats import errors as nats_errors

from hub.client import ClientError, HubClient
from hub.delivery.config import DeliveryConfig
from hub.delivery.errors import DeliveryError
from hub.delivery.settings import ConnectSettings
from tests.support.bus import connect
from tests.support.live_hub import LiveHub
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually

CHAOS_SECS = float(os.environ.get("CHAOS_SECS", "60"))


@pytest.mark.soak
@pytest.mark.timeout(CHAOS_SECS + 120)
@pytest.mark.parametrize("seed", range(2))
async def test_every_message_reaches_its_reader_once_whatever_breaks(nats_server: NatsServer, seed: int) -> None:
    chance = random.Random(seed)
    hub = await LiveHub(nats_server.url, "durable", config=DeliveryConfig(ack_wait_secs=1)).start()
    settings = {name: ConnectSettings(servers=(nats_server.url,), identity=name) for name in ("alice", "bob")}
    alice = await HubClient.connect(settings["alice"], announce=False, send_timeout_secs=60)
    alice._sender._no_hub_secs = 60
    bob = await HubClient.connect(settings["bob"], announce=False)
    inbox = bob.inbox(retry_secs=0.5, attach_timeout_secs=1)
    sent: list[int] = []
    got: list[int] = []
    is_over = False

    async def send() -> None:
        while not is_over:
            try:
                await alice.send_to("bob", len(sent))
            except (ClientError, DeliveryError) as error:
                raise AssertionError(f"message {len(sent)} was not sent: {error}") from error
            sent.append(len(sent))
            await asyncio.sleep(0.005)

    async def read() -> None:
        async for message in inbox:
            await asyncio.sleep(0)
            if chance.random() < 0.02:
                message.nak()
                continue
            got.append(message.payload)
            message.ack()

    async def break_things() -> None:
        admin = await connect(nats_server.url)
        ends = asyncio.get_running_loop().time() + CHAOS_SECS
        while asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(chance.random() * 1.5)
            match chance.choice(("server", "consumer", "consumer", "hub", "blip", "blip")):
                case "server":
                    await nats_server.restart(graceful=chance.random() < 0.5)
                    await eventually(lambda: admin.is_connected)
                case "consumer":
                    with contextlib.suppress(nats_errors.Error):  # it may be gone already, or the server may be
                        await admin.jetstream(timeout_secs=2).delete_consumer("HUB_INBOX", "inbox-bob")
                case "hub":
                    await hub.vanish()
                    await asyncio.sleep(chance.random())
                    await hub.start()
                case "blip":
                    transport = bob.connection.client._transport
                    if transport is not None:
                        transport._io_writer.transport.abort()
        await admin.close()

    tasks = [asyncio.create_task(send()), asyncio.create_task(read())]
    await break_things()
    is_over = True
    await tasks[0]
    try:
        await eventually(lambda: len(set(got)) == len(sent), within=60, poll=0.2)
    except AssertionError:
        missing = sorted(set(range(len(sent))) - set(got))
        raise AssertionError(f"{len(missing)} of {len(sent)} are missing: {missing[:20]}; {inbox.describe()}") from None
    tasks[1].cancel()
    print(f"{len(sent)} sent, {len(got)} handed out; {inbox.describe()}")
    assert len(got) == len(set(got)), "some were handed out twice after they were acked"
    await bob.close()
    await alice.close()
    await hub.stop()
