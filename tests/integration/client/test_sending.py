"""Every send knows whether it is stored (contract §2)."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.js.api import DiscardPolicy, RetentionPolicy, StreamConfig

from hub.client import HubClient, NoHub, NotSent, SendRefused, SendUnconfirmed
from hub.client import sender as sender_module
from hub.delivery.connection import Connection
from hub.delivery.errors import BadSettings, NotConnected, PermissionDenied
from hub.delivery.settings import ConnectSettings
from hub.protocol import BadName, BadPayload, TooLarge, make
from tests.integration.client.conftest import OpenClient
from tests.support.bus import connect, count_in, stored_in
from tests.support.live_hub import LiveHub
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually


@pytest.mark.hub
async def test_a_sender_learns_whether_its_message_is_stored(hub: LiveHub, open_client: OpenClient) -> None:
    alice = await open_client("alice")
    receipt = await alice.send_to("bob", {"n": 1})
    assert receipt.is_stored is hub.is_durable
    if hub.is_durable:
        assert (receipt.mode, receipt.stream, receipt.stream_seq) == ("durable", "HUB_INGRESS", 1)
    else:
        assert (receipt.mode, receipt.stream, receipt.stream_seq) == ("core", None, None)
    assert receipt.tries == 1


async def test_a_message_is_stored_while_no_router_runs(durable_hub: LiveHub, open_client: OpenClient) -> None:
    await durable_hub.stop()
    alice = await open_client("alice")
    assert (await alice.send("news", "hello")).is_stored


async def test_without_a_hub_the_sender_is_told_so(nats_server: NatsServer, open_client: OpenClient) -> None:
    alice = await open_client("alice")
    alice._sender._no_hub_secs = 0.2
    with pytest.raises(NoHub, match="no hub; not sent") as caught:
        await alice.send_to("bob", 1)
    assert caught.value.code == "unavailable"
    assert caught.value.envelope.meta.to == "bob"


@pytest.mark.hub
async def test_a_hole_of_moments_is_bridged(nats_server: NatsServer, hub_mode: str, open_client: OpenClient) -> None:
    alice = await open_client("alice")
    sending = asyncio.create_task(alice.send_to("bob", 1))
    await asyncio.sleep(0.1)  # it has been told "no responders" by now
    hub = await LiveHub(nats_server.url, hub_mode).start()
    receipt = await sending
    assert receipt.tries > 1
    await hub.stop()


async def script(connection: Connection, answers: list[bytes | None]) -> list[Msg]:
    """Answer what is published to the ingress with these, None is silence; the last one again and again."""
    heard: list[Msg] = []

    async def on_message(message: Msg) -> None:
        heard.append(message)
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is not None:
            await connection.publish(message.reply, answer)

    await connection.subscribe("hub.pub.>", on_message)
    await connection.flush()
    return heard


def stored(seq: int, *, duplicate: bool = False) -> bytes:
    return json.dumps({"stream": "HUB_INGRESS", "seq": seq} | ({"duplicate": True} if duplicate else {})).encode()


async def test_an_unanswered_send_is_tried_again_under_the_same_publish_id(
    nats_server: NatsServer, open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "TRY_TIMEOUT_SECS", 0.1)
    server = await connect(nats_server.url)
    heard = await script(server, [None, None, stored(7, duplicate=True)])
    receipt = await (await open_client("alice")).send_to("bob", 1)
    assert (receipt.stream_seq, receipt.tries) == (7, 3)
    ids = {message.headers["Nats-Msg-Id"] for message in heard if message.headers}
    assert len(ids) == 1
    assert not ids & {receipt.envelope.meta.id}
    await server.close()


async def test_a_duplicate_on_a_first_publish_is_never_taken_for_sent(
    nats_server: NatsServer, open_client: OpenClient
) -> None:
    server = await connect(nats_server.url)
    heard = await script(server, [stored(3, duplicate=True), stored(8)])
    receipt = await (await open_client("alice")).send_to("bob", 1)
    assert receipt.stream_seq == 8
    ids = [message.headers["Nats-Msg-Id"] for message in heard if message.headers]
    assert len(set(ids)) == 2
    await server.close()


@pytest.mark.parametrize("answer", [None, b"nonsense", b"{}", b"\xff", b'{"ok": null}'])
async def test_a_send_that_nobody_confirms_is_neither_sent_nor_not_sent(
    nats_server: NatsServer, open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, answer: bytes | None
) -> None:
    monkeypatch.setattr(sender_module, "TRY_TIMEOUT_SECS", 0.1)
    server = await connect(nats_server.url)
    await script(server, [answer])
    alice = await open_client("alice", send_timeout_secs=0.4)
    with pytest.raises(SendUnconfirmed, match="may or may not be sent") as caught:
        await alice.send_to("bob", 1)
    assert caught.value.envelope.meta.to == "bob"
    await server.close()


async def test_a_core_routers_refusal_is_told_with_its_reason(nats_server: NatsServer, open_client: OpenClient) -> None:
    server = await connect(nats_server.url)
    await script(server, [b'{"ok": false, "error": "too much", "code": "too_large"}'])
    with pytest.raises(SendRefused, match="too much") as caught:
        await (await open_client("alice")).send_to("bob", 1)
    assert caught.value.code == "too_large"
    await server.close()


async def test_a_full_ingress_tells_the_sender_at_once(nats_server: NatsServer, open_client: OpenClient) -> None:
    server = await connect(nats_server.url)
    config = StreamConfig(
        name="HUB_INGRESS",
        subjects=["hub.pub.>"],
        max_msgs=1,
        discard=DiscardPolicy.NEW,
        retention=RetentionPolicy.WORK_QUEUE,
    )
    await server.jetstream().add_stream(config)
    alice = await open_client("alice")
    await alice.send_to("bob", 1)
    with pytest.raises(SendRefused, match="maximum messages exceeded") as caught:
        await alice.send_to("bob", 2)
    assert caught.value.err_code == 10077
    assert caught.value.code == "unavailable"
    await server.close()


async def test_what_is_sent_while_the_server_restarts_is_stored_once(
    nats_server: NatsServer, durable_hub: LiveHub, open_client: OpenClient
) -> None:
    await durable_hub.stop()
    alice = await open_client("alice")
    await alice.send("news", "before")
    await nats_server.kill()
    sending = [asyncio.create_task(alice.send("news", number)) for number in range(20)]
    await asyncio.sleep(0.05)
    await nats_server.start()
    receipts = await asyncio.gather(*sending)
    assert all(receipt.is_stored for receipt in receipts)
    looker = await connect(nats_server.url)
    assert await count_in(looker, "HUB_INGRESS") == 21
    await looker.close()


async def test_what_could_not_leave_while_disconnected_was_not_sent(
    nats_server: NatsServer, open_client: OpenClient
) -> None:
    alice = await open_client("alice", send_timeout_secs=0.5)
    await nats_server.kill()
    await eventually(lambda: not alice.connection.is_connected)
    with pytest.raises(NotSent, match="disconnected"):
        await alice.send_to("bob", 1)


async def test_sizes_are_refused_by_name_before_anything_is_sent(durable_hub: LiveHub, open_client: OpenClient) -> None:
    await durable_hub.stop()
    alice = await open_client("alice")
    frame = len(make(sender="alice", channel="direct", to="bob", payload="").body)
    headers = len("NATS/1.0\r\nNats-Msg-Id: \r\n\r\n") + 32
    room = alice.connection.usable_size - frame - headers
    for excess in (-10, 0):
        assert (await alice.send_to("bob", "x" * (room + excess))).is_stored
    for excess in (1, 10):
        with pytest.raises(TooLarge, match="to bob is too large") as caught:
            await alice.send_to("bob", "x" * (room + excess))
        assert caught.value.size == alice.connection.usable_size + excess
    assert alice.connection.is_connected


async def test_bad_names_and_payloads_are_refused_before_anything_is_sent(
    nats_server: NatsServer, open_client: OpenClient
) -> None:
    alice = await open_client("alice")
    refusals: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: alice.send_to("b ob", 1), BadName),
        (lambda: alice.send("inbox.bob", 1), BadName),
        (lambda: alice.send("a..b", 1), BadName),
        (lambda: alice.send_to("bob", float("nan")), BadPayload),
        (lambda: alice.send_to("bob", {1, 2}), BadPayload),
        (lambda: alice.subscribe("channel >"), BadName),
        (lambda: alice.send_envelope(make(sender="carol", channel="news")), BadSettings),
    ]
    for send, error in refusals:
        with pytest.raises(error):
            await send()


async def test_a_denied_publish_is_told_by_name_at_once(start_nats: Any) -> None:
    permissions = '{publish: ["hub.presence.alice"], subscribe: "_INBOX_alice.>"}'
    user = f"{{user: alice, password: pw, permissions: {permissions}}}"
    server = await start_nats(config=f"authorization {{ users: [{user}] }}")
    settings = ConnectSettings(servers=(server.url,), identity="alice", user="alice", password="pw")
    async with await HubClient.connect(settings, announce=False) as alice:
        with pytest.raises(PermissionDenied, match="alice may not publish"):
            await alice.send_to("bob", 1)


async def test_a_closed_client_says_so(nats_server: NatsServer, open_client: OpenClient) -> None:
    alice = await open_client("alice")
    await alice.close()
    await alice.close()
    with pytest.raises(NotConnected):
        await alice.send_to("bob", 1)


async def test_publish_ids_of_two_messages_differ_so_both_are_stored(
    durable_hub: LiveHub, open_client: OpenClient, nats_server: NatsServer
) -> None:
    await durable_hub.stop()
    alice = await open_client("alice")
    for _ in range(2):
        await alice.send_to("bob", 1, message_id="the-same")
    looker = await connect(nats_server.url)
    assert len(await stored_in(looker, "HUB_INGRESS")) == 2
    await looker.close()
